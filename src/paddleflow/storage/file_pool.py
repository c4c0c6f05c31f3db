"""Work on users' files, in threads of its own: slow or hostile files never starve logins, logs or the database.

A user has `EACH` of the threads at most (`of`), half of them for long work: a store that is a server of the user's own choice may
take a minute for each answer, and only its user waits. A thread counts until it is really free, whoever still waits for it.

`THREADS` work at once. One that is still not free after `HELD` seconds is most likely waiting for such a store, and leaves its place
to another one: so several users with slow stores take nothing from the rest. `MOST_THREADS` bounds all of them together.

Long work is a generator that yields from time to time; each piece of it, of about `SLICE` seconds, is a task of its own. So
pieces of many take turns on few threads, and work is cancelled between two pieces. What needs more than one piece shares `LONG`
threads, so that small files find a thread, and the server a core, whatever else is being read: in turns, and a piece that blocks
gives its turn away. One pool per server, used by the run
engine and by downloads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from paddleflow.base.user_limit import UserLimit
from paddleflow.base.values import dataclass
from paddleflow.errors import TooMany

THREADS = 16  #: that work at once
HELD = 0.25  #: seconds after which a thread leaves its place among them to another one
MOST_THREADS = 256  #: working or blocked
EACH = 4  #: threads of one user
LONG = 3  #: threads for work that takes long
LONG_EACH = 2
LONG_HELD = (
    1.0  #: seconds after which a piece that still blocks, as with a slow store, leaves its place among `LONG` to others
)
STREAMS = 256  #: downloads at once: each holds a piece for a client that reads slowly
STREAMS_EACH = 16  #: of them, of one user
SLICE = 0.05  #: seconds
T = TypeVar("T")
P = ParamSpec("P")
SlicedWork = Generator[int, None, T]  #: yields how many bytes it has dealt with; returns its result


class _Done(Generic[T]):
    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class _Turns:
    """The threads of one user."""

    def __init__(self, each: int) -> None:
        self.short = asyncio.Semaphore(each)
        self.long = asyncio.Semaphore(LONG_EACH)
        self.users = 0  #: who waits for a turn, or has one


class FilePool:
    """Threads for files."""

    def __init__(
        self,
        threads: int = THREADS,
        slice_seconds: float = SLICE,
        long: int = LONG,
        each: int = EACH,
        held: float = HELD,
        long_held: float = LONG_HELD,
        name: str = "files",
    ) -> None:
        self.slice = slice_seconds
        self.long, self.long_held = asyncio.Semaphore(long), long_held
        self._places, self._held = asyncio.Semaphore(threads), held
        self._executor = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=name)
        self._each = each
        self._turns: dict[str, _Turns] = {}
        self.streams = UserLimit("downloads", STREAMS_EACH, STREAMS)

    def of(self, user: str) -> UserFiles:
        """The threads that this user may have."""
        return UserFiles(self, user)

    @contextmanager
    def turns(self, user: str) -> Iterator[_Turns]:
        turns = self._turns.setdefault(user, _Turns(self._each))
        turns.users += 1
        try:
            yield turns
        finally:
            self._leave(user, turns)

    def _leave(self, user: str, turns: _Turns) -> None:
        turns.users -= 1
        if not turns.users:
            self._turns.pop(user, None)

    async def submit(self, user: str, function: Callable[[], T]) -> Future[T]:
        """Start something as soon as the user has a thread, which counts until it is free."""
        with self.turns(user) as turns, ExitStack() as taken:
            await turns.short.acquire()
            taken.callback(turns.short.release)
            await self._places.acquire()
            taken.enter_context(_until_held(self._places, self._held))
            future = self._executor.submit(function)
            turns.users += 1
            counted = taken.pop_all()

        loop = asyncio.get_running_loop()

        def free() -> None:
            counted.close()
            self._leave(user, turns)

        def done(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(free)

        future.add_done_callback(done)
        return future

    def soon(self, function: Callable[[], None]) -> None:
        """Something that nobody waits for."""
        with suppress(RuntimeError):  # the pool is closed
            self._executor.submit(function)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The pool, as one user has it."""

    pool: FilePool
    user: str

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Something short."""
        return await asyncio.wrap_future(await self.pool.submit(self.user, lambda: function(*args, **kwargs)))

    async def run_in_slices(self, work: SlicedWork[T], report: Callable[[int], None] | None = None) -> T:
        """Something that may take long. `report` is called on the event loop with the progress, between two pieces; what
        it raises ends the work."""
        piece = partial(_advance, work, self.pool.slice)
        done = await self.step(work, piece)
        with self.pool.turns(self.user) as turns:
            while not isinstance(done, _Done):
                try:
                    if report is not None:
                        report(done)
                    await turns.long.acquire()
                except BaseException:
                    work.close()
                    raise
                try:
                    done = await self._long_step(work, piece)
                finally:
                    turns.long.release()
        return done.value

    async def _long_step(self, work: SlicedWork[T], piece: Callable[[], _Done[T] | int]) -> _Done[T] | int:
        try:
            await self.pool.long.acquire()
        except BaseException:
            work.close()
            raise
        with _until_held(self.pool.long, self.pool.long_held):
            return await self.step(work, piece)

    def iterate(self, source: Generator[bytes, None, None], close: Callable[[], None]) -> FileStream:
        """The pieces of a source that blocks on the disk, and what closes its store; `TooMany` at the limit of the user."""
        return FileStream(self, source, close)

    async def step(self, work: Generator[Any, None, Any], function: Callable[[], T]) -> T:
        """One call in a thread. When that is cancelled, the work is closed as soon as the thread has left it."""
        try:
            future = await self.pool.submit(self.user, function)
        except BaseException:
            work.close()
            raise
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda _: work.close())
            raise


class FileStream:
    """Pieces of a file, for a response. Whoever asked for it closes it, whether or not a piece was taken."""

    def __init__(self, files: UserFiles, source: Generator[bytes, None, None], close: Callable[[], None]) -> None:
        self._files, self._source, self._close = files, source, close
        self._counted = ExitStack()
        try:
            self._counted.enter_context(files.pool.streams.counted(files.user))
        except TooMany:
            files.pool.soon(close)
            raise

    def __aiter__(self) -> FileStream:
        return self

    async def __anext__(self) -> bytes:
        piece: bytes | None = await self._files.step(self._source, partial(next, self._source, None))
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._counted.close()
        with suppress(ValueError):  # a thread is in it, and closes it
            self._source.close()
            self._files.pool.soon(self._close)  # a source that was not begun closes nothing


@contextmanager
def _until_held(places: asyncio.Semaphore, seconds: float) -> Iterator[None]:
    """A place that was taken: it is given back at the end, or after so many seconds."""
    with ExitStack() as place:
        place.callback(places.release)
        timer = asyncio.get_running_loop().call_later(seconds, place.close)
        place.callback(timer.cancel)
        yield


def _advance(work: SlicedWork[T], seconds: float) -> _Done[T] | int:
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
