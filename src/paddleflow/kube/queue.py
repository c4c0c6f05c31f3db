"""Keys to reconcile: each queued at most once, never with two workers at once, delayed or rate limited.

`KeyQueue` is the pure core, with time as a number that comes in. What it promises: a key that is added while a worker holds it
comes again when it is done, so no change is missed however it falls between a read and a write; keys come in the order of
their first addition; of several "later" the earliest counts; a delay is not lost when the key comes earlier for another
reason. `WorkQueue` is the same for asyncio.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from random import Random

from paddleflow.base.clock import Clock

FIRST_PAUSE = 0.005
LONGEST_PAUSE = 60.0


_RANDOM = Random()  # noqa: S311  spreading load needs no secrets; one for all: making one costs more than a pause


class Backoff:
    """Pauses that double from `first` to `longest`, each shortened by up to a third so that many do not come at once."""

    def __init__(
        self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE, random: Random | None = None
    ) -> None:
        self._first = first
        self._longest = longest
        self._random = random or _RANDOM
        self.failures = 0

    def next(self) -> float:
        pause = self.after(self.failures)
        self.failures += 1
        return pause

    def after(self, failures: int) -> float:
        """The pause after so many failures before this one."""
        full = min(self._first * 2.0 ** min(failures, 40), self._longest)
        return full * (1 - self._random.random() / 3)

    def reset(self) -> None:
        self.failures = 0


class KeyQueue:
    """The queue without waiting."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._ready: deque[str] = deque()
        self._queued: set[str] = set()  # in `_ready`
        self._held: set[str] = set()  # with a worker
        self._again: set[str] = set()  # added while held
        self._due: dict[str, float] = {}  # when a delayed key comes
        self._heap: list[tuple[float, int, str]] = []  # the same, sorted; an entry that `_due` does not confirm is old
        self._order = itertools.count()
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        """How many keys are in line, beside those that are worked on and those that wait for a moment."""
        return len(self._ready) + len(self._again)

    @property
    def ready(self) -> bool:
        """Whether a worker could begin now."""
        return bool(self._ready)

    @property
    def delayed(self) -> int:
        return len(self._due)

    def failures(self, key: str) -> int:
        """How often it was `add_rate_limited` since it was forgotten."""
        return self._failures.get(key, 0)

    def add(self, key: str) -> None:
        if key in self._held:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)

    def add_at(self, key: str, at: float) -> None:
        """Adds the key at a moment, or earlier if it waits for an earlier one."""
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._heap, (at, next(self._order), key))

    def add_rate_limited(self, key: str, now: float) -> float:
        """Adds the key after a pause that grows with each call; the pause."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = self._backoff.after(failures)
        self.add_at(key, now + pause)
        return pause

    def forget(self, key: str) -> None:
        """The next `add_rate_limited` begins with a short pause again."""
        self._failures.pop(key, None)

    def take(self, now: float) -> str | None:
        """The next key, held from now on until `done`; None when there is none yet."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._queued.discard(key)
        self._held.add(key)
        return key

    def done(self, key: str) -> None:
        self._held.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def next_at(self) -> float | None:
        """When the earliest delayed key is due."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class WorkQueue:
    """A `KeyQueue` with workers that wait for keys."""

    def __init__(self, clock: Clock, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._keys = KeyQueue(backoff)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def delayed(self) -> int:
        return self._keys.delayed

    def add(self, key: str) -> None:
        self._keys.add(key)
        self._wake()

    def add_after(self, key: str, seconds: float) -> None:
        self._keys.add_at(key, self._clock.monotonic() + max(seconds, 0.0))
        self._set_timer()

    def add_rate_limited(self, key: str) -> float:
        """RequeueAfter after a pause that grows with each failure; the pause."""
        pause = self._keys.add_rate_limited(key, self._clock.monotonic())
        self._set_timer()
        return pause

    def forget(self, key: str) -> None:
        self._keys.forget(key)

    def failures(self, key: str) -> int:
        return self._keys.failures(key)

    async def get(self) -> str:
        """The next key; `done` must follow."""
        while True:
            key = self._keys.take(self._clock.monotonic())
            if key is not None:
                self._wake()
                self._set_timer()
                return key
            self._set_timer()
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the call was for us: let another one have it
                else:
                    self._waiting.remove(waiter)
                raise

    def done(self, key: str) -> None:
        self._keys.done(key)
        self._wake()

    def _wake(self) -> None:
        """Wakes one worker, if there is something to do."""
        while self._waiting and self._keys.ready:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """One timer, for the earliest delayed key; one that rings too early does no harm."""
        at = self._keys.next_at()
        if at is None or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(at - self._clock.monotonic(), 0.0), self._fire)

    def _fire(self) -> None:
        """A delayed key is due: the next worker takes it, and sets the timer for the one after."""
        self._timer = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
