"""Work on users' files, in threads of its own: slow or hostile files never starve logins, logs or the database.

Long work is a generator that yields from time to time; each piece of it, of about `SLICE` seconds, is a task of its own. So
pieces of many take turns on few threads, and work is cancelled between two pieces. What needs more than one piece shares `LONG`
threads, so that small files find a thread, and the server a core, whatever else is being read. One pool per server, used by the run
engine and by downloads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

THREADS = 8
LONG = 2  #: threads for work that takes long
SLICE = 0.05  #: seconds
T = TypeVar("T")
P = ParamSpec("P")
Progress = Generator[int, None, T]  #: yields how many bytes it has dealt with; returns its result


class _Done(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class FilePool:
    """Threads for files."""

    def __init__(self, threads: int = THREADS, slice_seconds: float = SLICE, long: int = LONG) -> None:
        self._long = asyncio.Semaphore(long)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="files")
        self._slice = slice_seconds

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Something short."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: function(*args, **kwargs))

    async def run_in_slices(self, work: Progress[T], report: Callable[[int], None] | None = None) -> T:
        """Something that may take long. `report` is called on the event loop with the progress, between two pieces; what
        it raises ends the work."""
        piece = partial(_advance, work, self._slice)
        done = await self._step(work, piece)
        while True:
            if isinstance(done, _Done):
                return done.value
            try:
                if report is not None:
                    report(done)
            except BaseException:
                work.close()
                raise
            try:
                await self._long.acquire()
            except BaseException:
                work.close()
                raise
            try:
                done = await self._step(work, piece)
            finally:
                self._long.release()

    async def iterate(self, source: Generator[bytes, None, None]) -> AsyncIterator[bytes]:
        """The pieces of a source that blocks on the disk."""
        try:
            while (piece := await self._step(source, partial(next, source, None))) is not None:
                yield piece
        except GeneratorExit:  # the reader has gone; nothing is under way
            source.close()
            raise

    async def _step(self, work: Generator[Any, None, Any], function: Callable[[], T]) -> T:
        """One call in a thread. When that is cancelled, the work is closed as soon as the thread has left it."""
        future = self._executor.submit(function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda _: work.close())
            raise

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _advance(work: Progress[T], seconds: float) -> _Done[T] | int:
    """In a thread: a piece of the work; its progress, or its result."""
    until = time.monotonic() + seconds
    progress = 0
    while True:
        try:
            progress = next(work)
        except StopIteration as stop:
            return _Done(stop.value)
        if time.monotonic() >= until:
            return progress
