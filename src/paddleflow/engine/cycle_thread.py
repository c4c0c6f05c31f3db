"""Where the pure part of a turn runs: on the event loop while it is short, on a thread of its own when it is long.

A cycle over a hundred thousand jobs takes a second of pure Python. On the event loop that would be a second in which no request is
answered; on a thread the loop gets the interpreter back within a few milliseconds whenever it wants it. A hop to a thread costs
more than most turns take, so it is made only for work that is known to be large, or that took long the last time.

Other readers of the board check first: `busy` says whether a thread is changing it, `free` waits until none is. `cluster_engine`
is the only user; it awaits the work that it handed over, so at most one thread works on a board.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LARGE = 1000  #: jobs from which on work goes to the thread
LONG = 0.01  #: seconds; so does what took longer than that the last time

T = TypeVar("T")


class CycleThread:
    """Runs the pure part of turns, one after the other."""

    def __init__(self, large: int = LARGE, long: float = LONG) -> None:
        self._large = large
        self._long = long
        self._last = 0.0  # seconds that the last work took
        self._free = asyncio.Event()
        self._free.set()
        self._thread = ThreadPoolExecutor(1, "engine-cycle")  # starts its thread when it is first needed

    @property
    def busy(self) -> bool:
        """Whether a thread is changing the board."""
        return not self._free.is_set()

    async def free(self) -> None:
        """Wait until no thread is changing the board."""
        await self._free.wait()

    async def run(self, work: Callable[[], T], size: int) -> T:
        """What `work` returns; `size` is how many jobs it is about."""
        if size < self._large and self._last < self._long:
            return self._timed(work)
        self._free.clear()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, work)
        finally:
            self._free.set()

    def _timed(self, work: Callable[[], T]) -> T:
        began = time.thread_time()  # of the processor: a busy machine makes nothing long
        try:
            return work()
        finally:
            self._last = time.thread_time() - began
