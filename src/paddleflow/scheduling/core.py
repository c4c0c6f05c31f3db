"""The scheduler: `decide(snapshot)`, and `Core`, the same thing with indexes that events keep up.

One cycle (`Core.decide`), numbered as in docs/internals/scheduling.md:
  1. account for what was freed since the last cycle: wake the lines and shapes that it may help;
  2. take the first job in order (priority, then age) among those that may be tried;
  3. ask its queue: open? nobody older held up in front of it? within the maximum? otherwise the line stands aside;
  4. place all its members or none; otherwise the shape stands aside;
  5. start it, and go on with 2 until nothing is left to try;
  6. say why each job waits that was not looked at before.

Guarantees: decisions depend on the snapshot only (`Core.of(core.snapshot(now))` decides the same); a job is started at
most once; nothing raises for bad input; work is proportional to what changed, not to what waits. The engine, the
Kubernetes scheduler and the simulator call it; they bring the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappush

from paddleflow.base.quantity import Resources
from paddleflow.scheduling import policy
from paddleflow.scheduling.accounts import Account
from paddleflow.scheduling.agenda import Agenda
from paddleflow.scheduling.classes import LAST, Families, Line, line_key, total_of
from paddleflow.scheduling.model import Decision, Held, Node, Queue, Reason, Request, Snapshot, Start, Wait
from paddleflow.scheduling.nodes import Cluster, Given, selector
from paddleflow.scheduling.placement import Short, place, undo
from paddleflow.scheduling.reasons import Sight, impossible_on


def decide(snapshot: Snapshot) -> list[Decision]:
    """Everything that starts now, in order, then why each of the others waits."""
    return Core.of(snapshot).decide(snapshot.now)


class Core:
    """The state of a cluster and its queues. Feed it what happens; ask it what to do."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.accounts: dict[str, Account] = {}
        self.held: dict[str, Held] = {}
        self._families = Families()
        self._pending: dict[str, Line] = {}
        self._fresh: dict[str, None] = {}  # submitted, and nobody has been told yet why they wait
        self._agenda = Agenda(self.cluster, self._families)
        self._refunded: set[str] = set()  # queues whose usage fell since the last cycle
        self._empty: Cluster | None = None  # the same nodes without jobs
        self._all: Cluster | None = None  # and with those that take no jobs at the moment
        self._now = float("-inf")

    @staticmethod
    def of(snapshot: Snapshot) -> Core:
        core = Core()
        core.set_nodes(snapshot.nodes)
        core.set_queues(snapshot.queues)
        for held in snapshot.held:
            core.hold(held)
        core.submit_many(snapshot.pending)
        return core

    def snapshot(self, now: float) -> Snapshot:
        """What a new core must be told to decide the same."""
        nodes = tuple(state.node for state in self.cluster.states.values())
        queues = tuple(account.queue for account in self.accounts.values() if account.queue)
        pending = tuple(line.jobs[job] for job, line in self._pending.items())
        return Snapshot(now, nodes, queues, pending, tuple(self.held.values()))

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        """A job waits from now on; False when it is known already, and then nothing changes."""
        job = request.job
        if job in self._pending or job in self.held:
            return False
        identity = line_key(request)
        line = self._families.lines.get(identity)
        if line is None:
            account = self._account(request.queue)
            labels = self._labels(account, request)
            line = self._families.line(identity, request, labels, self.cluster.pool(labels))
            account.lines[line.serial] = line
        self._pending[job] = line
        self._fresh[job] = None
        if line.add(request):
            self._account(line.queue).enlist(line)
            self._unpark([line])  # parked or not: it stands elsewhere in the order now
        return True

    def submit_many(self, requests: Iterable[Request]) -> int:
        """How many of them were new."""
        return sum([self.submit(request) for request in requests])

    def withdraw(self, job: str) -> bool:
        """A pending job is gone; False when it was not pending."""
        self._fresh.pop(job, None)
        line = self._pending.pop(job, None)
        if line is None:
            return False
        self._leave(line, job)
        return True

    def reprioritise(self, job: str, priority: int) -> bool:
        """A pending job moves to another place in the order; False when it is not pending."""
        line = self._pending.get(job)
        if line is None:
            return False
        request, fresh = line.jobs[job], job in self._fresh
        if request.priority != priority:
            self.withdraw(job)
            self.submit(replace(request, priority=priority))
            if not fresh:
                del self._fresh[job]
        return True

    def hold(self, held: Held) -> bool:
        """A job runs already; False when that is known. On a node that is not known it counts for its queue only."""
        job = held.request.job
        if job in self.held:
            return False
        self.withdraw(job)
        self._keep(held)
        for name, members in _by_node(held).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.hold(state, members)
        return True

    def release(self, job: str) -> bool:
        """What a running job had is free again; False when it held nothing."""
        held = self.held.pop(job, None)
        if held is None:
            return False
        self._account(held.request.queue).refund(job)
        self._refunded.add(held.request.queue)
        for name, members in _by_node(held).items():
            state = self.cluster.states.get(name)
            if state is not None:
                self.cluster.give(state, members)
        return True

    def set_queues(self, queues: Iterable[Queue]) -> None:
        """These queues and no others exist."""
        wanted = {queue.name: queue for queue in queues}
        for name in list(self.accounts.keys() | wanted.keys()):
            account, queue = self._account(name), wanted.get(name)
            old, account.queue = account.queue, queue
            if old == queue:
                continue
            if (old.node_labels if old else ()) != (queue.node_labels if queue else ()):
                for line in account.lines.values():
                    labels = self._labels(account, line.sample)
                    self._families.reshape(line, labels, self.cluster.pool(labels))
                    line.parked = True  # so that it is offered below, under its new shape
            account.forgive()
            account.take_parked()
            self._unpark([line for line in account.lines.values() if line.parked])

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """These nodes and no others exist. Jobs on a node that is gone keep their quota until they are released."""
        wanted = {node.name: node for node in nodes}
        states = self.cluster.states
        gone = [name for name in states if name not in wanted]
        changed = [n for n in wanted.values() if n.name not in states or (states[n.name].node is not n and states[n.name].node != n)]  # fmt: skip
        if not gone and not changed:
            return
        for name in gone:
            self.cluster.drop_node(name)
        names = {self.cluster.put_node(node).name for node in changed}
        for held in self.held.values():
            for name, members in _by_node(held).items():
                if name in names:
                    self.cluster.hold(states[name], members)
        self._empty = self._all = None
        self._agenda.forget_room()
        for account in self.accounts.values():
            account.forgive()
            self._unpark(account.take_behind(LAST))

    # --- the cycle ----------------------------------------------------------------------------------------------

    def decide(self, now: float, limit: int | None = None) -> list[Decision]:
        """What starts now (at most `limit` jobs), already counted here, and why the new ones among the rest wait."""
        if now < self._now:  # the clock was set back: who was held back by an aged job may not be any more
            for account in self.accounts.values():
                self._unpark(account.take_behind(LAST))
        self._now = now
        for name in self._refunded:
            self._unpark(self.accounts[name].take_full())
        self._refunded.clear()
        self._agenda.wake()
        decisions: list[Decision] = []
        while limit is None or len(decisions) < limit:
            line = self._agenda.first()
            if line is None:
                break
            if not self._admitted(line):
                line.parked = True
            elif (started := self._try(line, now)) is not None:
                decisions.append(started)
        if not self._agenda:
            self._tell(decisions)
        return decisions

    def _admitted(self, line: Line) -> bool:
        """Step 3: whether the queue lets the line's first job start; otherwise the line is put where it waits."""
        account = self.accounts[line.queue]
        if account.queue is None or not account.queue.open or line.fault:
            account.shut.append(line)
            return False
        holder = account.holder(self._now - policy.PATIENCE, self.possible)
        if holder is not None and holder.key < line.key:
            heappush(account.behind, (line.key, line.serial, line))
            return False
        dimension = account.over(line.total)
        if dimension:
            account.park_full(line, dimension)
            return False
        return True

    def _try(self, line: Line, now: float) -> Start | None:
        """Steps 4 and 5: start the line's first job, or let its shape wait for room."""
        shape = line.shape
        placed = None if shape.short() else place(self.cluster, self.cluster.pool(shape.labels), shape.parts)
        if placed is None or isinstance(placed, Short):
            self._agenda.wait(shape, placed)
            return None
        job, assignments = line.key[3], tuple(placed)
        self._keep(Held(line.jobs[job], assignments, now))
        self._fresh.pop(job, None)
        del self._pending[job]
        self._leave(line, job)
        return Start(job, assignments)

    def _tell(self, decisions: list[Decision]) -> None:
        """Step 6: one `Wait` for each job that nobody has heard of yet; equal jobs share the reason."""
        if not self._fresh:
            return
        decisions.extend([Wait(job, reason) for job, reason in self.reasons(self._fresh).items()])
        self._fresh.clear()

    # --- questions ----------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def usage(self, queue: str) -> Resources:
        """What the running jobs of a queue hold."""
        account = self.accounts.get(queue)
        return account.used if account else Resources()

    def why(self, job: str) -> Reason:
        """Why a job waits, as things stand now."""
        line = self._pending.get(job)
        if line is None:
            text = f"{job} holds its resources" if job in self.held else f"{job} is not known here"
            return Reason("running" if job in self.held else "unknown_job", text)
        return self._sight().reason(line)

    def impossible(self, request: Request) -> Reason | None:
        """Why a job could never start here, for refusing it at once; None when it could."""
        account = self.accounts.get(request.queue)
        if self._all is None:
            self._all = Cluster(replace(state.node, schedulable=True) for state in self.cluster.states.values())
        return impossible_on(self._all, request, account.queue if account else None)

    def _sight(self) -> Sight:
        return Sight(self.cluster, self.accounts, self.held, self.possible, self._empty_cluster, self._now)

    def reasons(self, jobs: Iterable[str] | None = None) -> dict[str, Reason]:
        """Why these pending jobs wait, all of them if none are named; equal jobs share one reason."""
        sight, known, told = self._sight(), dict[int, Reason](), dict[str, Reason]()
        for job in self._pending if jobs is None else jobs:
            line = self._pending[job]
            reason = known.get(line.serial)
            if reason is None:
                reason = known[line.serial] = sight.reason(line)
            told[job] = reason
        return told

    def possible(self, line: Line) -> bool:
        """Whether the line's jobs could start if nothing else were there."""
        if line.possible is None:
            queue = self.accounts[line.queue].queue
            within = queue is None or queue.most is None or line.total.fits(queue.most)
            line.possible = within and not line.fault and self._placeable(line)
        return line.possible

    def _placeable(self, line: Line) -> bool:
        shape = line.shape
        if shape.possible is None:
            empty = self._empty_cluster()
            placed = place(empty, empty.pool(shape.labels), shape.parts)
            shape.possible = not isinstance(placed, Short)
            if not isinstance(placed, Short):
                undo(empty, placed, line.sample.needs)
        return shape.possible

    def _empty_cluster(self) -> Cluster:
        if self._empty is None:
            self._empty = Cluster(state.node for state in self.cluster.states.values())
        return self._empty

    # --- moving lines and shapes about --------------------------------------------------------------------------

    def _account(self, name: str) -> Account:
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name)
        return account

    def _labels(self, account: Account, request: Request) -> tuple[tuple[str, str], ...]:
        return selector(request.node_labels, account.queue.node_labels if account.queue else ())

    def _keep(self, held: Held) -> None:
        self.held[held.request.job] = held
        self._account(held.request.queue).charge(held.request.job, total_of(held.request))

    def _leave(self, line: Line, job: str) -> None:
        """A job is no longer in its line."""
        account = self.accounts[line.queue]
        first_changed = line.remove(job)
        if not line.jobs:
            self._families.forget(line)
            account.drop(line)
        if first_changed and account.behind:
            holder = account.holder(self._now - policy.PATIENCE, self.possible)
            self._unpark(account.take_behind(holder.key if holder else LAST))

    def _unpark(self, lines: Iterable[Line]) -> None:
        for line in lines:
            line.parked = False
            if line.jobs:
                self._agenda.offer(line)


def _by_node(held: Held) -> dict[str, list[tuple[Resources, Given]]]:
    """What a job takes on each node; members of a role that the request does not have take nothing."""
    each = {need.role: need.each for need in held.request.needs}
    found: dict[str, list[tuple[Resources, Given]]] = {}
    for assignment in held.assignments:
        if assignment.role in each:
            found.setdefault(assignment.node, []).append((each[assignment.role], assignment.devices))
    return found
