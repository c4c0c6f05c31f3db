"""Whose end would start a waiting job: the search, whatever the rules about who may end.

`preemption` asks with those whom its contract allows, `suggestions` with those whom a person may end. Nothing is changed:
the nodes are cleared for as long as the search takes (`Vacancy`). Each candidate is moved away at most once and back at
most once, and how many members would then fit is counted along on the nodes that it touches, so the search costs as much
as the candidates hold, not as much as the cluster is large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.classes import JobClass
from paddleflow.scheduling.cluster_state import ClusterState, by_node
from paddleflow.scheduling.ledgers import QueueLedger, beyond
from paddleflow.scheduling.model import Allocation, Assignment, Reservation
from paddleflow.scheduling.nodes import DeviceNumbers
from paddleflow.scheduling.placement import Shortfall, place, undo
from paddleflow.scheduling.reservations import keep, lift

Rows = dict[str, list[tuple[Resources, DeviceNumbers]]]


class Victim:
    """A job, or some members of it, that might go: what is then free, on which nodes and under which ceilings."""

    __slots__ = ("allocation", "amount", "path", "rows")

    def __init__(self, state: ClusterState, allocation: Allocation) -> None:
        self.allocation = allocation
        self.rows: Rows = by_node(allocation)
        self.amount = total([size for members in self.rows.values() for size, _ in members])
        self.path = state.ledgers[allocation.request.queue].path


def cheapest(
    state: ClusterState, job_class: JobClass, candidates: Iterable[Allocation]
) -> tuple[list[Allocation], list[Assignment]] | None:
    """The shortest beginning of the candidates without which the class's first job starts, less those not needed, and where.

    None when it does not start even without all of them, or would have started with all of them.
    """
    victims = [Victim(state, allocation) for allocation in candidates]
    ceilings = Ceilings(state.ledgers[job_class.queue], job_class.total)
    first = ceilings.clear(victims)
    if first is None:
        return None
    with Vacancy(state, job_class) as vacancy:
        vacancy.leave(victims[:first])
        while not vacancy.room():
            more = victims[first : 2 * first + 1]  # ever more at a time: who was not needed comes back below
            if not more:
                return None
            first += len(more)
            for victim in more:
                ceilings.leave(victim)
            vacancy.leave(more)
        chosen = [victim for victim in reversed(victims[:first]) if not _spared(victim, ceilings, vacancy)]
        placed = vacancy.places()
    if placed is None or not 0 < len(chosen) <= state.rules.victims:
        return None
    return [victim.allocation for victim in reversed(chosen)], placed


def _spared(victim: Victim, ceilings: Ceilings, vacancy: Vacancy) -> bool:
    """Whether the job starts without this one going; if so it is back."""
    ceilings.come_back(victim)
    if ceilings.within():
        vacancy.come_back(victim)
        if vacancy.room():
            return True
        vacancy.leave([victim])
    ceilings.leave(victim)
    return False


class Ceilings:
    """Those above a queue, and what is used below them without those who left."""

    def __init__(self, ledger: QueueLedger, wanted: Resources) -> None:
        self._wanted = wanted
        self._limits = ledger.limits
        self._used = [above.used for above, _ in ledger.limits]

    def within(self) -> bool:
        """Whether all of them allow what is wanted."""
        limits = zip(self._used, self._limits, strict=True)
        return not any(beyond(self._wanted, used, most) for used, (_, most) in limits)

    def clear(self, victims: list[Victim]) -> int | None:
        """So many of them, from the first on, have to leave; None when all are not enough."""
        for count, victim in enumerate(victims):
            if self.within():
                return count
            self.leave(victim)
        return len(victims) if self.within() else None

    def leave(self, victim: Victim) -> None:
        path, amount = victim.path, victim.amount
        self._used = [
            u - amount if above in path else u for u, (above, _) in zip(self._used, self._limits, strict=True)
        ]

    def come_back(self, victim: Victim) -> None:
        path, amount = victim.path, victim.amount
        self._used = [
            u + amount if above in path else u for u, (above, _) in zip(self._used, self._limits, strict=True)
        ]


class Vacancy:
    """The nodes without those who left and without what is kept for the job; at the end all is as it was."""

    def __init__(self, state: ClusterState, job_class: JobClass) -> None:
        self._cluster, self._class_of = state.cluster, job_class
        self._pool = state.cluster.pool(job_class.gang.selector)
        self._kept = state.reservations.get(job_class.key[3])
        self._version = state.cluster.version
        self._gone: dict[int, Victim] = {}
        self._fits: int | None = None  # members of the one size that the job has; of several sizes, placing must tell

    def __enter__(self) -> Self:
        sizes = self._class_of.gang.sizes
        if self._kept is not None:
            lift(self._cluster, self._kept, sizes)
        self._fits = self._pool.count(sizes[0].each) if len(sizes) == 1 else None
        return self

    def __exit__(self, *_: object) -> None:
        for victim in list(self._gone.values()):
            self.come_back(victim)
        if self._kept is not None:
            keep(self._cluster, self._kept, self._class_of.gang.sizes)
        self._cluster.version = self._version

    def leave(self, victims: Iterable[Victim]) -> None:
        """All at a time, because a node that several leave is then changed once."""
        together: Rows = {}
        for victim in victims:
            self._gone[id(victim)] = victim
            for name, members in victim.rows.items():
                together.setdefault(name, []).extend(members)
        self._move(together, away=True)

    def come_back(self, victim: Victim) -> None:
        del self._gone[id(victim)]
        self._move(victim.rows, away=False)

    def _move(self, rows: Rows, *, away: bool) -> None:
        cluster, pool = self._cluster, self._pool
        move = cluster.put if away else cluster.hold
        for name, members in rows.items():
            state = cluster.states.get(name)
            if state is None:
                continue
            if self._fits is None or name not in pool.members:
                move(state, members)
            else:
                each = self._class_of.gang.sizes[0].each
                before = state.shares(each)
                move(state, members)
                self._fits += state.shares(each) - before

    def room(self) -> bool:
        """Whether all members find a place."""
        if self._fits is not None:
            return self._fits >= len(self._class_of.gang.sizes[0].members)
        return self.places() is not None

    def places(self) -> list[Assignment] | None:
        """Where the members would go."""
        placed = place(self._cluster, self._pool, self._class_of.gang.sizes, self._class_of.gang.constraint)
        if isinstance(placed, Shortfall):
            return None
        undo(self._cluster, placed, self._class_of.sample.member_sets)
        return placed


def rows_of(job: str, job_class: JobClass, assignments: list[Assignment]) -> Reservation:
    """The places found, as something that can be kept."""
    size = {member: at for at, size in enumerate(job_class.gang.sizes) for member in size.members}
    rows: dict[tuple[str, int], int] = {}
    for assignment in assignments:
        key = (assignment.node, size[assignment.role, assignment.index])
        rows[key] = rows.get(key, 0) + 1
    return Reservation(job, tuple((node, at, count) for (node, at), count in rows.items()))
