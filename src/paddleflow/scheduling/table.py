"""Everything the scheduler knows at one moment, with its indexes: nodes, queues, what runs, what waits, what is kept.

`Core` adds the events and questions, `cycle` walks over it and decides; both only change it through the moves here, so
that used, free, pending and held always agree.
"""

from __future__ import annotations

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.accounts import Account
from paddleflow.scheduling.classes import Families, Line, held_total
from paddleflow.scheduling.model import Assignment, Eviction, Held, Reservation, Start
from paddleflow.scheduling.nodes import Cluster, Given
from paddleflow.scheduling.placement import Short, place, undo
from paddleflow.scheduling.policy import DEFAULTS, Rules
from paddleflow.scheduling.reservations import keep, lift, opened, place_kept
from paddleflow.scheduling.rooms import Rooms


class Table:
    """The state of a cluster and its queues."""

    def __init__(self, rules: Rules = DEFAULTS) -> None:
        self.rules = rules
        self.cluster = Cluster()
        self.accounts: dict[str, Account] = {}
        self.held: dict[str, Held] = {}
        self.reservations: dict[str, Reservation] = {}
        self.families = Families()
        self.pending: dict[str, Line] = {}
        self.fresh: dict[str, None] = {}  #: submitted, and nobody has been told yet why they wait
        self.rooms = Rooms(self.cluster, self.families)
        self.evictions: dict[str, Eviction] = {}  #: the last of each job, as long as it counts
        self.shrinks: dict[str, Eviction] = {}  #: members that were told to go and are still there, by job
        self.now = float("-inf")
        self.dirty = True  #: something happened since a cycle found nothing to start
        self.touched = True  #: something happened since the last cycle that came to its end
        self._empty: Cluster | None = None  # the same nodes without jobs
        self._stuck: dict[str, int] = {}  # jobs that room kept did not help, and at which version of the cluster

    # --- moves --------------------------------------------------------------------------------------------------

    def account(self, name: str) -> Account:
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, self.rules.half_life)
        return account

    def keep(self, held: Held, total: Resources) -> None:
        """A job runs, and takes this much of its queue."""
        request = held.request
        self.held[request.job] = held
        self.account(request.queue).charge(request.job, request.user, total)

    def leave(self, line: Line, job: str) -> None:
        """A job is no longer in its line."""
        account = self.accounts[line.queue]
        del self.pending[job]
        self.fresh.pop(job, None)
        first, priority = line.key[3] == job, -line.key[0]
        if first:
            account.delist(line)
        line.remove(job)
        if not line.jobs:
            self.families.forget(line)
            account.forget(line, priority)
        elif first:
            account.enlist(line)

    def reserve(self, reservation: Reservation, line: Line) -> None:
        self.reservations[reservation.job] = reservation
        keep(self.cluster, reservation, line.shape.parts)

    def unreserve(self, job: str) -> None:
        """What was kept for a job is open to all; nothing happens when nothing was."""
        reservation = self.reservations.pop(job, None)
        self._stuck.pop(job, None)
        if reservation is not None:
            parts = self.pending[job].shape.parts
            opened(self.cluster, lift(self.cluster, reservation, parts))
            self.dirty = True

    def change(self, job: str, assignments: tuple[Assignment, ...]) -> None:
        """A running job has these members now; what they take on nodes was counted by the caller."""
        held = self.held[job] = self.held[job]._replace(assignments=assignments, changed_at=self.now)
        self.accounts[held.request.queue].recharge(job, held_total(held))

    # --- leaving ------------------------------------------------------------------------------------------------

    def leaving(self, job: str) -> bool:
        """Whether a running job was told to make way and has not gone yet."""
        held, eviction = self.held.get(job), self.evictions.get(job)
        return held is not None and eviction is not None and not eviction.gone and eviction.at >= held.since

    def may_leave(self, held: Held) -> bool:
        """Whether a job has run long enough and was not evicted lately."""
        eviction = self.evictions.get(held.request.job)
        lately = eviction is not None and self.now < eviction.at + self.rules.window
        return self.now >= held.since + self.rules.least_run and not lately and not self.leaving(held.request.job)

    def may_change(self, held: Held, *, grow: bool = False) -> bool:
        """Whether members of a job may go now, or come; growing is not worth much to a job that must start anew for it."""
        job, last = held.request.job, held.since if held.changed_at is None else held.changed_at
        pause = self.rules.restart_pause if grow and held.request.restarts else self.rules.resize_pause
        return self.now >= last + pause and job not in self.shrinks and not self.leaving(job)

    # --- starting -----------------------------------------------------------------------------------------------

    def start(self, line: Line) -> Start | None:
        """Start the line's first job where there is room for all its members; None when there is not."""
        job, shape = line.key[3], line.shape
        reservation = self.reservations.get(job)
        if reservation is not None:
            return self._start_kept(line, reservation)
        if shape.waits:
            return None
        if line.sample.data:
            near = self._near(line)
            if near is None or not isinstance(near, Short):
                return None if near is None else self._started(line, tuple(near))
        placed = None if shape.short() else place(self.cluster, self.cluster.pool(shape.choice), shape.parts)
        if placed is None or isinstance(placed, Short):
            self.rooms.wait(shape, placed)
            return None
        return self._started(line, tuple(placed))

    def _near(self, line: Line) -> list[Assignment] | Short | None:
        """Places on nodes that hold the job's data; None while it is worth waiting for them."""
        choice = line.shape.choice
        labels = tuple(sorted({*choice.labels, *line.sample.data}))
        pool = self.cluster.pool(choice._replace(labels=labels))
        placed = place(self.cluster, pool, line.shape.parts)
        if isinstance(placed, Short) and pool.members and self.now < line.key[1] + self.rules.data_wait:
            self.dirty = True  # time alone changes this
            return None
        return placed

    def _start_kept(self, line: Line, reservation: Reservation) -> Start | None:
        shape, version = line.shape, self.cluster.version
        if self._stuck.get(reservation.job) == version:
            return None
        before = lift(self.cluster, reservation, shape.parts)
        placed = place_kept(self.cluster, self.cluster.pool(shape.choice), reservation, shape.parts)
        if isinstance(placed, Short):
            keep(self.cluster, reservation, shape.parts)
            self.cluster.version = self._stuck[reservation.job] = version
            return None
        del self.reservations[reservation.job]
        self._stuck.pop(reservation.job, None)
        opened(self.cluster, before)
        self.rooms.wake()
        self.dirty = True
        return self._started(line, tuple(placed))

    def _started(self, line: Line, assignments: tuple[Assignment, ...]) -> Start:
        job = line.key[3]
        self.keep(Held(line.jobs[job], assignments, self.now), line.total)
        self.leave(line, job)
        return Start(job, assignments)

    # --- what could be ------------------------------------------------------------------------------------------

    def possible(self, line: Line) -> bool:
        """Whether the line's jobs could start if nothing else were there."""
        if line.possible is None:
            mosts = [a.queue.most for a in self.accounts[line.queue].path if a.queue]
            within = all(most is None or line.total.fits(most) for most in mosts)
            line.possible = within and not line.fault and self._placeable(line)
        return line.possible

    def _placeable(self, line: Line) -> bool:
        shape = line.shape
        if shape.possible is None:
            empty = self.empty_cluster()
            placed = place(empty, empty.pool(shape.choice), shape.parts)
            shape.possible = not isinstance(placed, Short)
            if not isinstance(placed, Short):
                undo(empty, placed, line.sample.needs)
        return shape.possible

    def empty_cluster(self) -> Cluster:
        if self._empty is None:
            self._empty = Cluster(state.node for state in self.cluster.states.values())
        return self._empty


def by_node(held: Held) -> dict[str, list[tuple[Resources, Given]]]:
    """What a job takes on each node; members of a role that the request does not have take nothing."""
    each = {need.role: need.each for need in held.request.needs}
    found: dict[str, list[tuple[Resources, Given]]] = {}
    for role, _, node, devices in held.assignments:
        if role in each:
            found.setdefault(node, []).append((each[role], devices))
    return found
