"""Fair use of what all requests share: seats in the handlers, threads that compute, and answers that are everybody's.

However many requests one user sends, `READS` of them that read and `WRITES` that write are in work, and one of them computes; the others of
that user wait in order, and cost nothing meanwhile. So the request of another user waits behind a handful of others, never behind all that one user
can send. A write spends its time waiting for the disk, and those that wait together are committed together: hence the larger number.

Whatever computes for a user for longer than a few milliseconds is handed to `Computing`. Threads of Python share one interpreter:
with each thread that computes, the event loop gets the interpreter back later, at every single event.

Callers who are not logged in have no seat: what they may ask for is cheap, or computed once for all who ask at the same time (`SharedAnswer`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Generic, ParamSpec, TypeVar

from paddleflow.errors import TooMany

READS = 8  #: GET requests of one user that are in work at once, streams that are being sent not counted
WRITES = 64  #: other requests of one user that are in work at once
WAITING = 1_000  #: requests of one user that wait for either
THREADS = 4  #: users for whom something is computed at once
P = ParamSpec("P")
T = TypeVar("T")


class UserQueue:
    """At most `each` of one user at once; further ones of that user wait, first come first served. One per event loop."""

    def __init__(self, each: int, waiting: int = WAITING) -> None:
        self._each, self._most = each, waiting
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def enter(self, user: str) -> bool:
        """Wait for a seat, which is the caller's until `leave`; whether that was necessary. `TooMany` when too many wait already."""
        inside = self._inside.get(user, 0)
        if inside < self._each:
            self._inside[user] = inside + 1
            return False
        waiting = self._waiting.setdefault(user, deque())
        if len(waiting) >= self._most:
            raise TooMany(
                f"{self._most} requests of user[{user}] wait already", hint="wait for the answers of some of them"
            )
        seat = asyncio.get_running_loop().create_future()
        waiting.append(seat)
        try:
            await seat
        except asyncio.CancelledError:
            if seat.cancelled():  # it is skipped when it is the next
                raise
            self.leave(user)
            raise
        return True

    @asynccontextmanager
    async def seat(self, user: str) -> AsyncIterator[None]:
        """A seat for the length of an ``async with``."""
        await self.enter(user)
        try:
            yield
        finally:
            self.leave(user)

    def leave(self, user: str) -> None:
        """Give the seat to the request that has waited longest."""
        waiting = self._waiting.get(user)
        while waiting:
            seat = waiting.popleft()
            if not seat.done():
                seat.set_result(None)
                return
        self._waiting.pop(user, None)
        inside = self._inside[user] - 1
        if inside:
            self._inside[user] = inside
        else:
            del self._inside[user]


class Seats:
    """The seats of one request in queues of its user, given back together and once."""

    __slots__ = ("_seats",)

    def __init__(self) -> None:
        self._seats: list[tuple[UserQueue, str]] = []

    async def enter(self, queue: UserQueue, user: str) -> bool:
        waited = await queue.enter(user)
        self._seats.append((queue, user))
        return waited

    def leave(self) -> None:
        while self._seats:
            queue, user = self._seats.pop()
            queue.leave(user)


class SharedAnswer(Generic[T]):
    """An answer that is computed once for all who ask for it before it is begun. One per event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0
        self._answers: list[T] = []  #: the last one; empty when it could not be computed

    async def get(self, compute: Callable[[], Awaitable[T]]) -> T:
        asked = self._begun
        async with self._lock:
            if asked == self._begun or not self._answers:
                self._begun += 1
                self._answers = []
                self._answers = [await compute()]
            return self._answers[0]


class Computing:
    """Threads for what takes the interpreter for long, one at a time of each user."""

    def __init__(self) -> None:
        self._users = UserQueue(1)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="computing")

    async def run(self, user: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same as a call, in a thread, in the one seat of this user. Who stops waiting frees it when the thread is free."""
        await self._users.enter(user)
        try:
            future = self._threads.submit(function, *args, **kwargs)
        except BaseException:
            self._users.leave(user)
            raise
        loop = asyncio.get_running_loop()

        def free(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._users.leave, user)

        future.add_done_callback(free)
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # an error's traceback holds this frame: they would hold each other, with all that was computed
