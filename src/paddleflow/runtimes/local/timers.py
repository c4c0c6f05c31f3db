"""Things to do later, in one thread: a heap of moments. Used by the keeper's loop."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from paddleflow.base.clock import Clock


class Timers:
    """Calls that are due at a moment. A call cannot be taken back: it checks itself whether it is still wanted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def after(self, seconds: float, call: Callable[[], None], grid: float = 0.0) -> None:
        """With a `grid` the moment is put off to its next multiple, so that many such calls share one waking."""
        moment = self._clock.monotonic() + seconds
        if grid:
            moment += grid - moment % grid
        heapq.heappush(self._heap, (moment, next(self._count), call))

    def delay(self) -> float | None:
        """Seconds until the next call is due; None when there is none."""
        return max(self._heap[0][0] - self._clock.monotonic(), 0.0) if self._heap else None

    def run(self) -> None:
        """Call what is due."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
