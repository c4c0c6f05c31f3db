"""Wake-ups: "query again, something about this topic has changed". They carry no data and may be lost.

Whoever waits queries the database after each wait, woken or not, and waits no longer than it can afford to be late.
`LocalBus` serves one process; `postgres_bus.PostgresBus` several. ``tests/contract/test_bus.py`` holds for both.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

JOBS = "jobs"  #: somebody else than the engine changed a job, a run or a queue
CLUSTERS = "clusters"  #: a cluster was made, changed or removed
EVENTS = "events"  #: something happened that people may follow
SCHEDULES = "schedules"  #: a schedule changed, or a run that one may wait for has ended


class Subscription:
    """Somebody who waits for a topic. A wake-up that comes between two waits ends the next one at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """True when woken, False after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._event.clear()
        return True

    def wake(self) -> None:
        """From any thread; the loop may be closed already."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return


class Bus(Protocol):
    """Carries wake-ups to everybody who waits, in this process or in all of them."""

    def wake(self, topic: str) -> None:
        """Wake all who wait for `topic`. From any thread; never blocks, never raises."""
        ...

    async def wait(self, topic: str, seconds: float) -> bool:
        """Wait once. What is woken before the call does not count: who loops wants `subscribe`."""
        ...

    def subscribe(self, topic: str) -> AbstractContextManager[Subscription]:
        """Wait many times without missing what comes in between."""
        ...

    async def close(self) -> None:
        """Wake everybody for the last time and let go."""
        ...


class LocalBus:
    """Wake-ups within this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Subscription]] = {}

    def wake(self, topic: str) -> None:
        if topic not in self._waiting:  # the common case, without the lock
            return
        with self._lock:
            woken = list(self._waiting.get(topic, ()))
        for subscription in woken:
            subscription.wake()

    def wake_all(self) -> None:
        """For when it is not known which wake-ups were lost."""
        with self._lock:
            topics = list(self._waiting)
        for topic in topics:
            self.wake(topic)

    async def wait(self, topic: str, seconds: float) -> bool:
        with self.subscribe(topic) as subscription:
            return await subscription.wait(seconds)

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[Subscription]:
        subscription = Subscription()
        with self._lock:
            self._waiting.setdefault(topic, set()).add(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                others = self._waiting[topic]
                others.discard(subscription)
                if not others:
                    del self._waiting[topic]

    async def close(self) -> None:
        self.wake_all()
