"""What each queue's jobs use, and the lines that their queue holds back.

An `Account` exists for every queue that is known, used or asked for; `queue` is None while nobody has described it.
Its lines stand in exactly one of: free to be tried, `shut` (queue closed or unknown), `full` (over the queue's maximum,
by the dimension that is short, so that a release wakes only those it may help) or `behind` (an older job has waited
longer than the patience and goes first).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush, heapreplace

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import LAST, Key, Line
from paddleflow.scheduling.model import Queue

_STALE = 64


class Account:
    """One queue's side of the scheduler."""

    __slots__ = ("_order", "_priorities", "behind", "full", "held", "lines", "name", "never", "queue", "shut", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: Queue | None = None
        self.used = Resources()
        self.held: dict[str, Resources] = {}  #: what each running job takes
        self.lines: dict[int, Line] = {}
        self.shut: list[Line] = []
        self.full: dict[str, list[tuple[int, int, Line]]] = {}
        self.behind: list[tuple[Key, int, Line]] = []
        self.never: list[Line] = []  #: could not start if everything were empty: these hold nobody back
        self._order: dict[int, list[tuple[Key, int, Line]]] = {}  # heaps by priority
        self._priorities: list[int] = []  # highest first

    def charge(self, job: str, total: Resources) -> None:
        self.held[job] = total
        self.used = self.used + total

    def refund(self, job: str) -> None:
        total = self.held.pop(job, None)
        if total is not None:
            self.used = self.used - total

    def over(self, total: Resources) -> str:
        """The first dimension in which the maximum does not allow this much more; empty when it does."""
        queue = self.queue
        if queue is None or queue.most is None:
            return ""
        used, most = self.used, queue.most
        if total.cpu and used.cpu + total.cpu > most.cpu:
            return "cpu"
        if total.memory and used.memory + total.memory > most.memory:
            return "memory"
        for name, amount in total.scalars:
            if used.scalar(name) + amount > most.scalar(name):
                return name
        return ""

    def enlist(self, line: Line) -> None:
        """The line has a new first job: it stands at that job's place in the queue's order."""
        priority = -line.key[0]
        heap = self._order.get(priority)
        if heap is None:
            heap = self._order[priority] = []
            insort(self._priorities, priority, key=int.__neg__)
        heappush(heap, (line.key, line.serial, line))

    def holder(self, before: float, possible: Callable[[Line], bool]) -> Line | None:
        """The first line in order whose first job is as old as `before` and can be served: all behind it wait."""
        for priority in self._priorities:
            heap = self._order[priority]
            while heap:
                key, _, line = heap[0]
                if line.key != key:
                    if key < line.key < LAST:
                        heapreplace(heap, (line.key, line.serial, line))
                    else:
                        heappop(heap)
                elif key[1] > before:
                    break
                elif not possible(line):
                    heappop(heap)
                    self.never.append(line)
                else:
                    return line
        return None

    def forgive(self) -> None:
        """Nodes or quota changed: what could never start may be able to now."""
        never, self.never = self.never, []
        for line in self.lines.values():
            line.possible = None
        for line in never:
            if line.jobs:
                self.enlist(line)
        for priority in [p for p, heap in self._order.items() if not heap]:
            del self._order[priority]
            self._priorities.remove(priority)

    def drop(self, line: Line) -> None:
        """An empty line is gone. What is left of it in the heaps is swept when there is much of it."""
        del self.lines[line.serial]
        most = _STALE + 4 * len(self.lines)
        if len(self.behind) + len(self.shut) + sum([len(rows) for rows in self.full.values()]) > most:
            self.shut = [other for other in self.shut if other.jobs]
            self.behind = sorted(row for row in self.behind if row[2].jobs)
            self.full = {name: [row for row in rows if row[2].jobs] for name, rows in self.full.items()}
        if sum([len(heap) for heap in self._order.values()]) + len(self.never) > most:
            self._order.clear()
            self._priorities.clear()
            self.never = []
            for other in self.lines.values():
                self.enlist(other)

    def park_full(self, line: Line, dimension: str) -> None:
        insort(self.full.setdefault(dimension, []), (line.total.amount(dimension), line.serial, line))

    def take_full(self) -> list[Line]:
        """Lines that wait for quota and have room for their first job now, each taken by itself."""
        most = self.queue.most if self.queue else None
        found: list[Line] = []
        for dimension, rows in list(self.full.items()):
            end = len(rows)
            if most is not None:
                end = bisect_right(rows, most.amount(dimension) - self.used.amount(dimension), key=_amount)
            self.full[dimension] = rows[end:]
            found.extend([row[2] for row in rows[:end] if row[2].jobs])
        ready = []
        for line in found:
            dimension = self.over(line.total)
            if dimension:
                self.park_full(line, dimension)
            else:
                ready.append(line)
        return ready

    def take_behind(self, limit: Key) -> Iterable[Line]:
        """Lines that no older job holds back any more: those before `limit` in order."""
        while self.behind and self.behind[0][0] <= limit:
            yield heappop(self.behind)[2]

    def take_parked(self) -> Iterable[Line]:
        """Every line that stands aside, for a fresh look."""
        parked = self.shut + [row[2] for rows in self.full.values() for row in rows] + [row[2] for row in self.behind]
        self.shut, self.full, self.behind = [], {}, []
        return parked


def _amount(row: tuple[int, int, Line]) -> int:
    return row[0]
