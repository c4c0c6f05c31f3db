"""The scheduler: `decide(snapshot)`, and `Core`, the same thing with indexes that events keep up.

Guarantees: decisions depend on the snapshot only (`Core.of(core.snapshot(now))` decides the same); a job is started at
most once; nothing raises for bad input; a cycle costs a look at each line of equal jobs, and nothing at all when nothing
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
from paddleflow.scheduling.accounts import Account, link, recount
from paddleflow.scheduling.classes import COMMON, LAST, Line, held_total, line_key
from paddleflow.scheduling.cycle import Cycle
from paddleflow.scheduling.model import (
    Assignment,
    Decision,
    Held,
    Node,
    Queue,
    Reason,
    Request,
    Reservation,
    Snapshot,
    Wait,
)
from paddleflow.scheduling.nodes import Choice, Cluster, choice_of
from paddleflow.scheduling.policy import DEFAULTS, Rules
from paddleflow.scheduling.reasons import Sight, impossible_on
from paddleflow.scheduling.table import Table, by_node


def decide(snapshot: Snapshot) -> list[Decision]:
    """Everything that starts now, in order, then why each of the others waits."""
    return Core.of(snapshot).decide(snapshot.now)


class Core(Table):
    """The state of a cluster and its queues. Feed it what happens; ask it what to do."""

    def __init__(self, rules: Rules = DEFAULTS) -> None:
        super().__init__(rules)
        self._all: Cluster | None = None  # the nodes without jobs, and those that take no jobs at the moment too
        self._quiet_until = float("-inf")  # until then nothing ages that could matter

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        core = cls(snapshot.rules)
        core.now = snapshot.now  # what changes before the first cycle changes now, not at the beginning of time
        core.set_nodes(snapshot.nodes)
        core.set_queues(snapshot.queues)
        for past in snapshot.past:
            core.account(past.queue).history.restore(past)
        for held in snapshot.held:
            core.hold(held)
        core.submit_many(snapshot.pending)
        for reservation in snapshot.reservations:
            core.restore(reservation)
        core.evictions = {eviction.job: eviction for eviction in snapshot.evictions}
        core.shrinks = {shrink.job: shrink for shrink in snapshot.shrinks if shrink.job in core.held}
        return core

    def snapshot(self, now: float) -> Snapshot:
        """What a new core must be told to decide the same."""
        nodes = tuple(state.node for state in self.cluster.states.values())
        queues = tuple(account.queue for account in self.accounts.values() if account.queue)
        pending = tuple(line.jobs[job] for job, line in self.pending.items())
        past = tuple(row for account in self.accounts.values() for row in account.history.rows(account.name))
        kept = tuple(self.reservations.values())
        going = tuple(self.evictions.values()), tuple(self.shrinks.values())
        return Snapshot(now, nodes, queues, pending, tuple(self.held.values()), kept, past, *going, self.rules)

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        """A job waits from now on; False when it is known already, and then nothing changes."""
        job = request.job
        if job in self.pending or job in self.held:
            return False
        account, line = self._line(request)
        self.pending[job] = line
        self.fresh[job] = None
        self.dirty = self.touched = True
        if line.leads(request):
            if line.key != LAST:
                account.delist(line)
            line.add(request, leads=True)
            account.enlist(line)
        else:
            line.add(request, leads=False)
        return True

    def submit_many(self, requests: Iterable[Request]) -> int:
        """How many of them were new. Equal jobs that follow each other join their line together."""
        return sum([len(self._submit_alike(list(alike))) for _, alike in groupby(requests, key=COMMON)])

    def _submit_alike(self, requests: Sequence[Request]) -> Sequence[Request]:
        """The same for jobs that differ in id, age and order only; those of them that were new."""
        known, new = self.pending, dict[str, Request]()
        for request in requests:
            if request.job not in known and request.job not in self.held:
                new.setdefault(request.job, request)
        if len(new) > 1:
            account, line = self._line(requests[0])
            known.update(dict.fromkeys(new, line))
            self.fresh.update(dict.fromkeys(new))
            self.dirty = self.touched = True
            if line.key != LAST:
                account.delist(line)
            line.add_many(new)
            account.enlist(line)
            return list(new.values())
        return [request for request in new.values() if self.submit(request)]

    def _line(self, request: Request) -> tuple[Account, Line]:
        """Where this job waits."""
        account = self.account(request.queue)
        identity = line_key(request, account.identity(request))
        line = self.families.lines.get(identity)
        if line is None:
            choice = self._choice(account, request)
            line = self.families.line(identity, request, choice, self.cluster.pool(choice))
            account.lines[line.serial] = line
        return account, line

    def told(self, jobs: Iterable[str]) -> None:
        """Nobody needs to hear again why these wait."""
        for job in jobs:
            self.fresh.pop(job, None)

    def withdraw(self, job: str) -> bool:
        """A pending job is gone; False when it was not pending."""
        line = self.pending.get(job)
        if line is None:
            return False
        self.unreserve(job)
        self.leave(line, job)
        self.dirty = self.touched = True
        return True

    def reprioritise(self, job: str, priority: int) -> bool:
        """A pending job moves to another place in the order; False when it is not pending."""
        line = self.pending.get(job)
        if line is None:
            return False
        request = line.jobs[job]
        if request.priority != priority:
            self._resubmit([request._replace(priority=priority)])
        return True

    def hold(self, held: Held) -> bool:
        """A job runs already; False when that is known. On a node that is not known it counts for its queue only."""
        job = held.request.job
        if job in self.held:
            return False
        self.withdraw(job)
        self.keep(held, held_total(held))
        self.dirty = self.touched = True
        for name, members in by_node(held).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.hold(state, members)
        return True

    def release(self, job: str) -> bool:
        """What a running job had is free again; False when it held nothing."""
        held = self.held.pop(job, None)
        if held is None:
            return False
        self.account(held.request.queue).refund(job)
        self.shrinks.pop(job, None)
        if job in self.evictions:
            self.evictions[job] = replace(self.evictions[job], gone=True)
        self.dirty = self.touched = True
        for name, members in by_node(held).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.give(state, members)
        return True

    def resized(self, job: str, assignments: Iterable[Assignment]) -> bool:
        """A running job has only these of its members left; False when it does not run."""
        held, left = self.held.get(job), set(assignments)
        if held is None:
            return False
        gone = tuple(a for a in held.assignments if a not in left)
        self.change(job, tuple(a for a in held.assignments if a in left))
        self.shrinks.pop(job, None)
        self.dirty = self.touched = True
        for name, members in by_node(held._replace(assignments=gone)).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.give(state, members)
        return True

    def restarted(self, job: str, now: float) -> bool:
        """A running job begins anew where it is: what it did before is lost already; False when it does not run."""
        held = self.held.get(job)
        if held is not None:
            self.held[job] = held._replace(since=now)
            self.dirty = self.touched = True
        return held is not None

    def restore(self, reservation: Reservation) -> bool:
        """Nodes are kept for a job since before; False when that cannot be any more."""
        line = self.pending.get(reservation.job)
        sizes = len(line.shape.parts) if line else 0
        good = all(name in self.cluster.states and 0 <= at < sizes for name, at, _ in reservation.rows)
        if line is None or not good or reservation.job in self.reservations:
            return False
        self.reserve(reservation, line)
        return True

    def set_queues(self, queues: Iterable[Queue]) -> None:
        """These queues and no others exist."""
        wanted = {queue.name: queue for queue in queues}
        changed = []
        for name in dict.fromkeys([*self.accounts, *wanted]):  # not a set: the same events are the same history
            account, queue = self.account(name), wanted.get(name)
            if account.queue != queue:
                changed.append((account, account.queue, queue))
        if not changed:
            return
        for account, old, queue in changed:
            if (old.policy if old else "fifo") != (queue.policy if queue else "fifo"):
                requests = [request for line in account.lines.values() for request in line.jobs.values()]
                told = self._take_out(requests)
                account.queue = queue
                self._put_in(requests, told)
            account.queue = queue
            if (old and (old.node_labels, old.placement)) != (queue and (queue.node_labels, queue.placement)):
                for line in account.lines.values():
                    for job in self.reservations.keys() & line.jobs.keys():
                        self.unreserve(job)
                    choice = self._choice(account, line.sample)
                    self.families.reshape(line, choice, self.cluster.pool(choice))
        link(self.accounts.values())
        recount(self.accounts.values())
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
        for held in self.held.values():
            for name, members in by_node(held).items():
                if name in names:
                    self.cluster.hold(states[name], members)
        self._empty = self._all = None
        self.rooms.forget_room()
        self._forgive()

    def _forgive(self) -> None:
        """Nodes or quota changed: what could never start may be able to now."""
        self.dirty = self.touched = True
        for account in self.accounts.values():
            for line in account.lines.values():
                line.possible = None

    def _resubmit(self, requests: list[Request]) -> None:
        self._put_in(requests, self._take_out(requests))

    def _take_out(self, requests: list[Request]) -> set[str]:
        """Those among them that have been told why they wait."""
        told = {request.job for request in requests if request.job not in self.fresh}
        for request in requests:
            self.withdraw(request.job)
        return told

    def _put_in(self, requests: list[Request], told: set[str]) -> None:
        self.submit_many(requests)
        self.told(told)

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
        stale = any(account.claim is not None and account.claim.job in self.held for account in self.accounts.values())
        timed = self.rules.preemption or self.rules.elastic  # one claim may leave room for the next
        if cycle.full() or stale or (cycle.decisions and (timed or self.rooms.unsure)):
            self.dirty = True
        if cycle.full():
            return cycle.decisions
        self.touched = False
        self._quiet_until = min(self._next_aging(), self._next_allowed())
        fresh, self.fresh = self.fresh, {}
        return cycle.decisions + [Wait(job, reason) for job, reason in self.reasons(fresh).items()]

    def _next_aging(self) -> float:
        """When the next job will have waited longer than the patience."""
        soonest = float("inf")
        for account in self.accounts.values():
            for priority, level in account.levels.items():
                at = bisect_right(level.ages, (-priority, self.now - self.rules.patience, float("inf")), key=_age)
                if at < len(level.ages):
                    soonest = min(soonest, level.ages[at][0][1] + self.rules.patience)
        return soonest

    def _next_allowed(self) -> float:
        """When time alone next allows an eviction, or a change of members, that it does not allow now."""
        rules, now = self.rules, self.now
        moments = []
        if rules.preemption and self.pending:
            moments += [held.since + rules.least_run for held in self.held.values()]
            moments += [eviction.at + rules.window for eviction in self.evictions.values()]
        for held in self.held.values() if rules.elastic else ():
            if any(need.least is not None for need in held.request.needs):
                last = held.since if held.changed_at is None else held.changed_at
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
        account = self.accounts.get(queue)
        return account.used if account else Resources()

    def why(self, job: str) -> Reason:
        """Why a job waits, as things stand now."""
        line = self.pending.get(job)
        if line is None:
            text = f"{job} holds its resources" if job in self.held else f"{job} is not known here"
            return Reason("running" if job in self.held else "unknown_job", text)
        return Sight(self).reason(line)

    def explain(self, job: str) -> Reason:
        """The same as a tree: below the reason everything that is in the way, each with its own numbers."""
        line = self.pending.get(job)
        return self.why(job) if line is None else Sight(self).tree(line)

    def reasons(self, jobs: Iterable[str] | None = None) -> dict[str, Reason]:
        """Why these pending jobs wait, all of them if none are named; equal jobs share one reason."""
        sight, known, told = Sight(self), dict[int, Reason](), dict[str, Reason]()
        for job in self.pending if jobs is None else jobs:
            line = self.pending[job]
            reason = known.get(line.serial)
            if reason is None:
                reason = known[line.serial] = sight.reason(line)
            told[job] = reason
        return told

    def impossible(self, request: Request) -> Reason | None:
        """Why a job could never start here, for refusing it at once; None when it could."""
        account = self.accounts.get(request.queue)
        if self._all is None:
            self._all = Cluster(replace(state.node, schedulable=True) for state in self.cluster.states.values())
        path = account.path if account else ()
        return impossible_on(self._all, request, [above.queue for above in path if above.queue])

    def _choice(self, account: Account, request: Request) -> Choice:
        return choice_of(request, account.queue)


def _age(row: tuple[tuple[int, float, int, str], int, object]) -> tuple[int, float, float]:
    return row[0][:3]
