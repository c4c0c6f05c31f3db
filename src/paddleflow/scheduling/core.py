"""The scheduler: `decide(snapshot)`, and `Core`, the same thing with indexes that events keep up.

Guarantees: decisions depend on the snapshot only (`Core.of(core.snapshot(now))` decides the same); a job is started at
most once; nothing raises for bad input; a cycle costs a look at each class of equal jobs, and nothing at all when nothing
happened. The cycle itself is in `cycle`. The engine, the Kubernetes scheduler and the simulator call it; they bring the
time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Self

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import COMMON, LAST, JobClass, allocated_total, class_key
from paddleflow.scheduling.cluster_state import ClusterState, by_node
from paddleflow.scheduling.cycle import Cycle
from paddleflow.scheduling.ledgers import QueueLedger, link, recount
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    Decision,
    Node,
    Queue,
    Reason,
    Request,
    Reservation,
    Snapshot,
    Wait,
)
from paddleflow.scheduling.nodes import Cluster, NodeSelector, selector_of
from paddleflow.scheduling.reasons import Explainer, impossible_on
from paddleflow.scheduling.rules import DEFAULTS, Rules


def decide(snapshot: Snapshot) -> list[Decision]:
    """Everything that starts now, in order, then why each of the others waits."""
    return Core.of(snapshot).decide(snapshot.now)


class Core(ClusterState):
    """The state of a cluster and its queues. Feed it what happens; ask it what to do."""

    def __init__(self, rules: Rules = DEFAULTS) -> None:
        super().__init__(rules)
        self._all: Cluster | None = None  # the nodes without jobs, and those that take no jobs at the moment too
        self._quiet_until = float("-inf")  # until then nothing by_age that could matter

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        core = cls(snapshot.rules)
        core.now = snapshot.now  # what changes before the first cycle changes now, not at the beginning of time
        core.set_nodes(snapshot.nodes)
        core.set_queues(snapshot.queues)
        for past in snapshot.past:
            core.ledger(past.queue).history.restore(past)
        for allocation in snapshot.allocations:
            core.allocate(allocation)
        core.submit_many(snapshot.pending)
        for reservation in snapshot.reservations:
            core.restore(reservation)
        core.evictions = {eviction.job: eviction for eviction in snapshot.evictions}
        core.shrinks = {shrink.job: shrink for shrink in snapshot.shrinks if shrink.job in core.allocations}
        return core

    def snapshot(self, now: float) -> Snapshot:
        """What a new core must be told to decide the same."""
        nodes = tuple(state.node for state in self.cluster.states.values())
        queues = tuple(ledger.queue for ledger in self.ledgers.values() if ledger.queue)
        pending = tuple(job_class.jobs[job] for job, job_class in self.pending.items())
        past = tuple(row for ledger in self.ledgers.values() for row in ledger.history.rows(ledger.name))
        kept = tuple(self.reservations.values())
        going = tuple(self.evictions.values()), tuple(self.shrinks.values())
        return Snapshot(now, nodes, queues, pending, tuple(self.allocations.values()), kept, past, *going, self.rules)

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        """A job waits from now on; False when it is known already, and then nothing changes."""
        job = request.job
        if job in self.pending or job in self.allocations:
            return False
        ledger, job_class = self._class_of(request)
        self.pending[job] = job_class
        self.unexplained[job] = None
        self.dirty = self.touched = True
        if job_class.leads(request):
            if job_class.key != LAST:
                ledger.remove_class(job_class)
            job_class.add(request, leads=True)
            ledger.insert_class(job_class)
        else:
            job_class.add(request, leads=False)
        return True

    def submit_many(self, requests: Iterable[Request]) -> int:
        """How many of them were new. Equal jobs that follow each other join their class together."""
        return sum([len(self._submit_alike(list(alike))) for _, alike in groupby(requests, key=COMMON)])

    def _submit_alike(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The same for jobs that differ in id, age and order only; those of them that were new."""
        known, new = self.pending, dict[str, Request]()
        for request in requests:
            if request.job not in known and request.job not in self.allocations:
                new.setdefault(request.job, request)
        if len(new) > 1:
            ledger, job_class = self._class_of(requests[0])
            known.update(dict.fromkeys(new, job_class))
            self.unexplained.update(dict.fromkeys(new))
            self.dirty = self.touched = True
            if job_class.key != LAST:
                ledger.remove_class(job_class)
            job_class.add_many(new)
            ledger.insert_class(job_class)
            return list(new.values())
        return [request for request in new.values() if self.submit(request)]

    def _class_of(self, request: Request) -> tuple[QueueLedger, JobClass]:
        """Where this job waits."""
        ledger = self.ledger(request.queue)
        identity = class_key(request, ledger.identity(request))
        job_class = self.classes.classes.get(identity)
        if job_class is None:
            selector = self._selector(ledger, request)
            job_class = self.classes.job_class(identity, request, selector, self.cluster.pool(selector))
            ledger.classes[job_class.serial] = job_class
        return ledger, job_class

    def mark_explained(self, jobs: Iterable[str]) -> None:
        """Why these wait was reported before."""
        for job in jobs:
            self.unexplained.pop(job, None)

    def withdraw(self, job: str) -> bool:
        """A pending job is gone; False when it was not pending."""
        job_class = self.pending.get(job)
        if job_class is None:
            return False
        self.unreserve(job)
        self.leave(job_class, job)
        self.dirty = self.touched = True
        return True

    def reprioritise(self, job: str, priority: int) -> bool:
        """A pending job moves to another place in the order; False when it is not pending."""
        job_class = self.pending.get(job)
        if job_class is None:
            return False
        request = job_class.jobs[job]
        if request.priority != priority:
            self._resubmit([request._replace(priority=priority)])
        return True

    def allocate(self, allocation: Allocation) -> bool:
        """A job runs already; False when that is known. On a node that is not known it counts for its queue only."""
        job = allocation.request.job
        if job in self.allocations:
            return False
        self.withdraw(job)
        self.keep(allocation, allocated_total(allocation))
        self.dirty = self.touched = True
        for name, members in by_node(allocation).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.hold(state, members)
        return True

    def release(self, job: str) -> bool:
        """What a running job had is free again; False when it held nothing."""
        allocation = self.drop(job)
        if allocation is None:
            return False
        self.shrinks.pop(job, None)
        if job in self.evictions:
            self.evictions[job] = replace(self.evictions[job], gone=True)
        self.dirty = self.touched = True
        for name, members in by_node(allocation).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.give(state, members)
        return True

    def resized(self, job: str, assignments: Iterable[Assignment]) -> bool:
        """A running job has only these of its members left; False when it does not run."""
        allocation, left = self.allocations.get(job), set(assignments)
        if allocation is None:
            return False
        gone = tuple(a for a in allocation.assignments if a not in left)
        self.change(job, tuple(a for a in allocation.assignments if a in left))
        self.shrinks.pop(job, None)
        self.dirty = self.touched = True
        for name, members in by_node(allocation._replace(assignments=gone)).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.give(state, members)
        return True

    def restarted(self, job: str, now: float) -> bool:
        """A running job begins anew where it is: what it did before is lost already; False when it does not run."""
        allocation = self.allocations.get(job)
        if allocation is not None:
            self.allocations[job] = allocation._replace(since=now)
            self.dirty = self.touched = True
        return allocation is not None

    def restore(self, reservation: Reservation) -> bool:
        """Nodes are kept for a job since before; False when that cannot be any more."""
        job_class = self.pending.get(reservation.job)
        sizes = len(job_class.gang.sizes) if job_class else 0
        good = all(name in self.cluster.states and 0 <= at < sizes for name, at, _ in reservation.rows)
        if job_class is None or not good or reservation.job in self.reservations:
            return False
        self.reserve(reservation, job_class)
        return True

    def set_queues(self, queues: Iterable[Queue]) -> None:
        """These queues and no others exist."""
        wanted = {queue.name: queue for queue in queues}
        changed = []
        for name in dict.fromkeys([*self.ledgers, *wanted]):  # not a set: the same events are the same history
            ledger, queue = self.ledger(name), wanted.get(name)
            if ledger.queue != queue:
                changed.append((ledger, ledger.queue, queue))
        if not changed:
            return
        for ledger, old, queue in changed:
            if (old.order if old else "fifo") != (queue.order if queue else "fifo"):
                requests = [request for job_class in ledger.classes.values() for request in job_class.jobs.values()]
                explained = self._take_out(requests)
                ledger.queue = queue
                self._put_in(requests, explained)
            ledger.queue = queue
            if (old and (old.node_labels, old.placement)) != (queue and (queue.node_labels, queue.placement)):
                for job_class in ledger.classes.values():
                    for job in self.reservations.keys() & job_class.jobs.keys():
                        self.unreserve(job)
                    selector = self._selector(ledger, job_class.sample)
                    self.classes.reselect(job_class, selector, self.cluster.pool(selector))
        link(self.ledgers.values())
        recount(self.ledgers.values())
        self._forgive()

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """These nodes and no others exist. Jobs on a node that is gone keep their quota until they are released."""
        wanted = {node.name: node for node in nodes}
        states = self.cluster.states
        gone = [name for name in states if name not in wanted]
        changed = [n for n in wanted.values() if n.name not in states or (states[n.name].node is not n and states[n.name].node != n)]  # fmt: skip
        if not gone and not changed:
            return
        touched = {*gone, *[node.name for node in changed]}
        for reservation in list(self.reservations.values()):
            if any(name in touched for name, _, _ in reservation.rows):
                self.unreserve(reservation.job)
        for name in gone:
            self.cluster.drop_node(name)
        names = {self.cluster.put_node(node).name for node in changed}
        for allocation in self.allocations.values():
            for name, members in by_node(allocation).items():
                if name in names:
                    self.cluster.hold(states[name], members)
        self._empty = self._all = None
        self.slots.forget()
        self._forgive()

    def _forgive(self) -> None:
        """Nodes or quota changed: what could never start may be able to now."""
        self.dirty = self.touched = True
        for ledger in self.ledgers.values():
            for job_class in ledger.classes.values():
                job_class.possible = None

    def _resubmit(self, requests: list[Request]) -> None:
        self._put_in(requests, self._take_out(requests))

    def _take_out(self, requests: list[Request]) -> set[str]:
        """Those among them whose reason was reported already."""
        explained = {request.job for request in requests if request.job not in self.unexplained}
        for request in requests:
            self.withdraw(request.job)
        return explained

    def _put_in(self, requests: list[Request], explained: set[str]) -> None:
        self.submit_many(requests)
        self.mark_explained(explained)

    # --- the cycle ----------------------------------------------------------------------------------------------

    def decide(self, now: float, limit: int | None = None) -> list[Decision]:
        """What starts now (at most `limit` jobs), already counted here, and why the new ones among the rest wait."""
        quiet = not self.dirty and self.now <= now < self._quiet_until
        self.now = now
        if quiet or limit == 0:
            return []
        self.dirty = False
        cycle = Cycle(self, limit)
        cycle.run()
        stale = any(
            ledger.claim is not None and ledger.claim.job in self.allocations for ledger in self.ledgers.values()
        )
        timed = self.rules.preemption or self.rules.elastic  # one claim may leave room for the next
        if cycle.full() or stale or (cycle.decisions and (timed or self.slots.unsure)):
            self.dirty = True
        if cycle.full():
            return cycle.decisions
        self.touched = False
        self._quiet_until = min(self._next_aging(), self._next_allowed())
        unexplained, self.unexplained = self.unexplained, {}
        return cycle.decisions + [Wait(job, reason) for job, reason in self.reasons(unexplained).items()]

    def _next_aging(self) -> float:
        """When the next job will have waited longer than the patience."""
        soonest = float("inf")
        for ledger in self.ledgers.values():
            for priority, band in ledger.bands.items():
                at = bisect_right(band.by_age, (-priority, self.now - self.rules.patience, float("inf")), key=_age)
                if at < len(band.by_age):
                    soonest = min(soonest, band.by_age[at][0][1] + self.rules.patience)
        return soonest

    def _next_allowed(self) -> float:
        """When time alone next allows an eviction, or a change of members, that it does not allow now."""
        rules, now = self.rules, self.now
        moments = []
        if rules.preemption and self.pending:
            moments += [allocation.since + rules.least_run for allocation in self.allocations.values()]
            moments += [eviction.at + rules.window for eviction in self.evictions.values()]
        for allocation in self.elastic_allocations() if rules.elastic else ():
            last = allocation.since if allocation.changed_at is None else allocation.changed_at
            moments += [last + rules.resize_pause, last + rules.restart_pause]
        return min([moment for moment in moments if moment > now], default=float("inf"))

    @property
    def quiet_until(self) -> float:
        """Until then another cycle finds nothing to do, if nothing happens; the past when something has."""
        return float("-inf") if self.dirty else self._quiet_until

    # --- questions ----------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        return len(self.pending)

    def usage(self, queue: str) -> Resources:
        """What the running jobs of a queue and of those below it hold."""
        ledger = self.ledgers.get(queue)
        return ledger.used if ledger else Resources()

    def why(self, job: str) -> Reason:
        """Why a job waits, as things stand now."""
        job_class = self.pending.get(job)
        if job_class is None:
            text = f"{job} holds its resources" if job in self.allocations else f"{job} is not known here"
            return Reason("running" if job in self.allocations else "unknown_job", text)
        return Explainer(self).reason(job_class)

    def explain(self, job: str) -> Reason:
        """The same as a tree: below the reason everything that is in the way, each with its own numbers."""
        job_class = self.pending.get(job)
        return self.why(job) if job_class is None else Explainer(self).tree(job_class)

    def reasons(self, jobs: Iterable[str] | None = None) -> dict[str, Reason]:
        """Why these pending jobs wait, all of them if none are named; equal jobs share one reason."""
        explainer, known, found = Explainer(self), dict[int, Reason](), dict[str, Reason]()
        for job in self.pending if jobs is None else jobs:
            job_class = self.pending[job]
            reason = known.get(job_class.serial)
            if reason is None:
                reason = known[job_class.serial] = explainer.reason(job_class)
            found[job] = reason
        return found

    def waiting(self, most: int) -> dict[tuple[str, str], int]:
        """How many jobs wait, by queue and code of the reason.

        The `most` largest classes are asked for their reason; jobs of the others count as ``other``.
        """
        explainer, found = Explainer(self), dict[tuple[str, str], int]()
        classes = sorted(self.classes.classes.values(), key=lambda each: -len(each.jobs))
        for rank, job_class in enumerate(classes):
            if job_class.jobs:
                code = explainer.reason(job_class).code if rank < most else "other"
                key = job_class.queue, code
                found[key] = found.get(key, 0) + len(job_class.jobs)
        return found

    def impossible(self, request: Request) -> Reason | None:
        """Why a job could never start here, for refusing it at once; None when it could."""
        ledger = self.ledgers.get(request.queue)
        if self._all is None:
            self._all = Cluster(replace(state.node, schedulable=True) for state in self.cluster.states.values())
        path = ledger.path if ledger else ()
        return impossible_on(self._all, request, [above.queue for above in path if above.queue])

    def _selector(self, ledger: QueueLedger, request: Request) -> NodeSelector:
        return selector_of(request, ledger.queue)


def _age(row: tuple[tuple[int, float, int, str], int, object]) -> tuple[int, float, float]:
    return row[0][:3]
