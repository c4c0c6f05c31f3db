"""Threads that execute database calls for event loops: one queue, some workers, and a batch of results per wake-up.

Switching threads is the price of a transaction, not the SQL in it. So a worker takes everything that is queued, and all
results of a batch reach the event loop with one wake-up. Used by `sqlite` and `postgres`, which bring the workers.

A caller that is cancelled just stops waiting: a call that has not begun by then is left out, one that has begun runs to
its end. Any event loop may call, several at once too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from paddleflow.errors import Unavailable
from paddleflow.store.database import Tx

P = ParamSpec("P")
T = TypeVar("T")


class DatabaseCall(Generic[T]):
    """One function for a database thread; the worker leaves the value or the error in it."""

    __slots__ = ("args", "durable", "error", "fn", "future", "kwargs", "loop", "value")

    def __init__(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], *, durable: bool = True
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.durable = durable  #: it is answered when even a power cut cannot take it back
        self.loop: asyncio.AbstractEventLoop  #: where its answer goes
        self.future: asyncio.Future[None]
        self.value: T  #: only where there is no error
        self.error: BaseException | None = None

    def result(self) -> T:
        """The value, or the error raised; only after the worker has answered."""
        if self.error is not None:
            raise self.error
        return self.value


#: Serves some calls: when it returns, each has its value or its error.
Worker = Callable[[list[DatabaseCall[Any]]], None]


class WorkerThreads:
    """Threads that serve one queue, one thread per worker."""

    def __init__(self, name: str, workers: Sequence[Worker], *, at_once: int) -> None:
        """`at_once`: the most calls that a worker is given in one go."""
        self._name = name
        self._queue: SimpleQueue[DatabaseCall[Any] | None] = SimpleQueue()
        self._gate = threading.Lock()  # no call may be queued behind the end marks
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(worker, at_once), name=f"{name}-{number}", daemon=True)
            for number, worker in enumerate(workers, 1)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``fn(tx, …)`` on one of the threads; its value, or its error raised."""
        call = self._enqueue(DatabaseCall(fn, args, kwargs))
        await call.future
        try:
            return call.result()
        finally:
            del call  # an error's traceback holds this frame: without this line they would hold each other

    async def run_soon(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same, without waiting for the disk."""
        call = self._enqueue(DatabaseCall(fn, args, kwargs, durable=False))
        await call.future
        try:
            return call.result()
        finally:
            del call

    def _enqueue(self, call: DatabaseCall[T]) -> DatabaseCall[T]:
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        with self._gate:
            if self._closed:
                raise Unavailable(f"{self._name}: the database is closed")
            self._queue.put(call)
        return call

    async def close(self) -> None:
        """Finish what is queued, then end the threads."""
        with self._gate:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _serve(self, worker: Worker, at_once: int) -> None:
        while True:
            calls, ended = self._take(at_once)
            calls = [call for call in calls if not call.future.cancelled()]
            if calls:
                try:
                    worker(calls)
                except BaseException as error:  # the thread must live on, and nobody may wait for ever
                    for call in calls:
                        call.error = error
                _deliver(calls)
            if ended:
                return
            del calls  # nothing is kept alive while waiting for the next call

    def _take(self, at_once: int) -> tuple[list[DatabaseCall[Any]], bool]:
        """Wait for a call, then take those behind it; True when the end mark came."""
        calls: list[DatabaseCall[Any]] = []
        try:
            call = self._queue.get()
            while call is not None:
                calls.append(call)
                if len(calls) == at_once:
                    return calls, False
                call = self._queue.get_nowait()
        except Empty:
            return calls, False
        return calls, True


def _deliver(calls: list[DatabaseCall[Any]]) -> None:
    loops = {call.loop for call in calls}
    for loop in loops:
        here = calls if len(loops) == 1 else [call for call in calls if call.loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, here)
        except RuntimeError:  # that loop is closed, and with it went everybody who waited
            continue


def _resolve(calls: list[DatabaseCall[Any]]) -> None:
    for call in calls:
        if not call.future.done():
            call.future.set_result(None)
