"""The disciplines: who is tried next. None of them is used by the server."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from paddleflow.scheduling.baselines.model import Dispatcher, Waiting

_LOOK_PAST = 16  #: SRTF tries so many jobs behind one that finds no place
_MOST_VICTIMS = 64
_ANY = 1 << 30  #: larger than any job


class Fifo:
    """Strictly one after the other: nobody passes the first."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def arrive(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)

    def leave(self, job: str) -> None:
        """It does not matter here who runs."""

    def serve(self, now: float, dispatcher: Dispatcher) -> None:
        while self._waiting and self._waiting[0].size <= dispatcher.free and dispatcher.start(self._waiting[0].job):
            self._waiting.popleft()


class FairShare:
    """The group that has least now goes first, in each group one after the other; who finds no place is passed over."""

    def __init__(self) -> None:
        self._groups: dict[str, deque[Waiting]] = {}
        self._used: dict[str, int] = {}
        self._running: dict[str, Waiting] = {}
        self._stuck = _ANY  # jobs of this size have found no place since somebody left

    def arrive(self, waiting: Waiting) -> None:
        self._groups.setdefault(waiting.group, deque()).append(waiting)

    def leave(self, job: str) -> None:
        self._stuck = _ANY
        gone = self._running.pop(job)
        self._used[gone.group] -= gone.size

    def serve(self, now: float, dispatcher: Dispatcher) -> None:
        todo = [(self._used.get(group, 0), group) for group, line in self._groups.items() if line]
        todo.sort(reverse=True)
        while todo and dispatcher.free:
            _, group = todo.pop()
            line = self._groups[group]
            if line[0].size > dispatcher.free or line[0].size >= self._stuck:
                continue
            if not dispatcher.start(line[0].job):
                self._stuck = line[0].size
                continue
            started = line.popleft()
            self._running[started.job] = started
            self._used[group] = self._used.get(group, 0) + started.size
            if line:
                todo.append((self._used[group], group))
                todo.sort(reverse=True)


class ShortestRemaining:
    """An oracle: whoever has least left runs, and every so often displaces whoever has more left, at no cost."""

    def __init__(self, every: float = 300.0) -> None:
        self._every = every  # seconds between rounds in which somebody may be displaced
        self._round = float("-inf")
        self._waiting: list[tuple[float, int, Waiting]] = []
        self._ends: list[tuple[float, int, str]] = []  # running jobs, the latest end first; may be out of date
        self._running: dict[str, tuple[float, int]] = {}  # when it will end, and its size
        self._serial = 0
        self._stuck = _ANY  # jobs of this size have found no place since somebody left

    def arrive(self, waiting: Waiting) -> None:
        self._serial += 1
        heappush(self._waiting, (waiting.remaining, self._serial, waiting))

    def leave(self, job: str) -> None:
        self._stuck = _ANY
        self._running.pop(job, None)

    def serve(self, now: float, dispatcher: Dispatcher) -> None:
        passed: list[tuple[float, int, Waiting]] = []
        displaces = now >= self._round + self._every
        if displaces:
            self._round = now
        while self._waiting and len(passed) < _LOOK_PAST:
            row = heappop(self._waiting)
            waiting = row[2]
            if self._fits(waiting, dispatcher) or (displaces and self._displace(waiting, now, dispatcher)):
                end = now + waiting.remaining
                self._running[waiting.job] = (end, waiting.size)
                heappush(self._ends, (-end, row[1], waiting.job))
            else:
                passed.append(row)
                if not dispatcher.free and not (displaces and self._longer(now + waiting.remaining)):
                    break
        for row in passed:
            heappush(self._waiting, row)

    def _fits(self, waiting: Waiting, dispatcher: Dispatcher) -> bool:
        if waiting.size > dispatcher.free or waiting.size >= self._stuck:
            return False
        started = dispatcher.start(waiting.job)
        if not started:
            self._stuck = waiting.size
        return started

    def _longer(self, end: float) -> bool:
        """Whether somebody runs who ends later than this."""
        while self._ends and self._running.get(self._ends[0][2], (0.0, 0))[0] != -self._ends[0][0]:
            heappop(self._ends)
        return bool(self._ends) and -self._ends[0][0] > end

    def _displace(self, waiting: Waiting, now: float, dispatcher: Dispatcher) -> bool:
        """Evict those with most left until it finds a place; only if their GPUs are enough at all."""
        victims: list[tuple[float, int, str]] = []
        found = dispatcher.free
        while found < waiting.size and len(victims) < _MOST_VICTIMS and self._longer(now + waiting.remaining):
            victims.append(heappop(self._ends))
            found += self._running[victims[-1][2]][1]
        if found < waiting.size or not victims:
            for row in victims:
                heappush(self._ends, row)
            return False
        for _, _, job in victims:
            dispatcher.evict(job)
        return self._fits(waiting, dispatcher)
