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
from paddleflow.scheduling.accounts import Account, beyond
from paddleflow.scheduling.classes import Line
from paddleflow.scheduling.model import Assignment, Held, Reservation
from paddleflow.scheduling.nodes import Given
from paddleflow.scheduling.placement import Short, place, undo
from paddleflow.scheduling.reservations import keep, lift
from paddleflow.scheduling.table import Table, by_node

Rows = dict[str, list[tuple[Resources, Given]]]


class Leaver:
    """A job, or some members of it, that might go: what is then free, on which nodes and under which ceilings."""

    __slots__ = ("amount", "held", "path", "rows")

    def __init__(self, table: Table, held: Held) -> None:
        self.held = held
        self.rows: Rows = by_node(held)
        self.amount = total([size for members in self.rows.values() for size, _ in members])
        self.path = table.accounts[held.request.queue].path


def cheapest(table: Table, line: Line, candidates: Iterable[Held]) -> tuple[list[Held], list[Assignment]] | None:
    """The shortest beginning of the candidates without which the line's first job starts, less those not needed, and where.

    None when it does not start even without all of them, or would have started with all of them.
    """
    leavers = [Leaver(table, held) for held in candidates]
    ceilings = Ceilings(table.accounts[line.queue], line.total)
    first = ceilings.clear(leavers)
    if first is None:
        return None
    with Vacancy(table, line) as vacancy:
        vacancy.leave(leavers[:first])
        while not vacancy.room():
            more = leavers[first : 2 * first + 1]  # ever more at a time: who was not needed comes back below
            if not more:
                return None
            first += len(more)
            for leaver in more:
                ceilings.leave(leaver)
            vacancy.leave(more)
        chosen = [leaver for leaver in reversed(leavers[:first]) if not _spared(leaver, ceilings, vacancy)]
        placed = vacancy.places()
    if placed is None or not 0 < len(chosen) <= table.rules.victims:
        return None
    return [leaver.held for leaver in reversed(chosen)], placed


def _spared(leaver: Leaver, ceilings: Ceilings, vacancy: Vacancy) -> bool:
    """Whether the job starts without this one going; if so it is back."""
    ceilings.come_back(leaver)
    if ceilings.within():
        vacancy.come_back(leaver)
        if vacancy.room():
            return True
        vacancy.leave([leaver])
    ceilings.leave(leaver)
    return False


class Ceilings:
    """Those above a queue, and what is used below them without those who left."""

    def __init__(self, account: Account, wanted: Resources) -> None:
        self._wanted = wanted
        self._limits = account.limits
        self._used = [above.used for above, _ in account.limits]

    def within(self) -> bool:
        """Whether all of them allow what is wanted."""
        limits = zip(self._used, self._limits, strict=True)
        return not any(beyond(self._wanted, used, most) for used, (_, most) in limits)

    def clear(self, leavers: list[Leaver]) -> int | None:
        """So many of them, from the first on, have to leave; None when all are not enough."""
        for count, leaver in enumerate(leavers):
            if self.within():
                return count
            self.leave(leaver)
        return len(leavers) if self.within() else None

    def leave(self, leaver: Leaver) -> None:
        path, amount = leaver.path, leaver.amount
        self._used = [
            u - amount if above in path else u for u, (above, _) in zip(self._used, self._limits, strict=True)
        ]

    def come_back(self, leaver: Leaver) -> None:
        path, amount = leaver.path, leaver.amount
        self._used = [
            u + amount if above in path else u for u, (above, _) in zip(self._used, self._limits, strict=True)
        ]


class Vacancy:
    """The nodes without those who left and without what is kept for the job; at the end all is as it was."""

    def __init__(self, table: Table, line: Line) -> None:
        self._cluster, self._line = table.cluster, line
        self._pool = table.cluster.pool(line.shape.choice)
        self._kept = table.reservations.get(line.key[3])
        self._version = table.cluster.version
        self._gone: dict[int, Leaver] = {}
        self._fits: int | None = None  # members of the one size that the job has; of several sizes, placing must tell

    def __enter__(self) -> Self:
        parts = self._line.shape.parts
        if self._kept is not None:
            lift(self._cluster, self._kept, parts)
        self._fits = self._pool.count(parts[0].each) if len(parts) == 1 else None
        return self

    def __exit__(self, *_: object) -> None:
        for leaver in list(self._gone.values()):
            self.come_back(leaver)
        if self._kept is not None:
            keep(self._cluster, self._kept, self._line.shape.parts)
        self._cluster.version = self._version

    def leave(self, leavers: Iterable[Leaver]) -> None:
        """All at a time, because a node that several leave is then changed once."""
        together: Rows = {}
        for leaver in leavers:
            self._gone[id(leaver)] = leaver
            for name, members in leaver.rows.items():
                together.setdefault(name, []).extend(members)
        self._move(together, away=True)

    def come_back(self, leaver: Leaver) -> None:
        del self._gone[id(leaver)]
        self._move(leaver.rows, away=False)

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
                each = self._line.shape.parts[0].each
                before = state.shares(each)
                move(state, members)
                self._fits += state.shares(each) - before

    def room(self) -> bool:
        """Whether all members find a place."""
        if self._fits is not None:
            return self._fits >= len(self._line.shape.parts[0].members)
        return self.places() is not None

    def places(self) -> list[Assignment] | None:
        """Where the members would go."""
        placed = place(self._cluster, self._pool, self._line.shape.parts)
        if isinstance(placed, Short):
            return None
        undo(self._cluster, placed, self._line.sample.needs)
        return placed


def rows_of(job: str, line: Line, assignments: list[Assignment]) -> Reservation:
    """The places found, as something that can be kept."""
    size = {member: at for at, part in enumerate(line.shape.parts) for member in part.members}
    rows: dict[tuple[str, int], int] = {}
    for assignment in assignments:
        key = (assignment.node, size[assignment.role, assignment.index])
        rows[key] = rows.get(key, 0) + 1
    return Reservation(job, tuple((node, at, count) for (node, at), count in rows.items()))
