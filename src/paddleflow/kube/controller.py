"""Workers around a reconcile function: a key in, done or again out, nothing else.

`reconcile(key)` reads the state and makes it right; it must not care why it was called. What it raises never
ends the controller: the key comes again with back-off, one that was throttled after the time that the server asked for, and
one that raised `Permanent` only when something changes. No key is with two workers at once. With one worker objects are
finished in the order in which they came.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from paddleflow.base.clock import Clock
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, PaddleFlowError, Permanent, TooMany
from paddleflow.kube.cache import Cache
from paddleflow.kube.queue import WorkQueue

_log = Log("kube.controller")


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile again after so many seconds, changed or not."""

    after: float


Result: TypeAlias = Done | RequeueAfter
DONE = Done()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One call of reconcile, for metrics. `result` is done, again, conflict, throttled, permanent, error or crash."""

    key: str
    seconds: float
    result: str


class Controller:
    """One kind of object, kept right by `workers` tasks. Changes within `gather` seconds are reconciled together; what is new is
    reconciled at once."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[Result]],
        clock: Clock,
        *,
        queue: WorkQueue | None = None,
        workers: int = 4,
        gather: float = 0.0,
        observe: Callable[[Reconciled], None] | None = None,
    ) -> None:
        self.name = name
        self.queue = queue or WorkQueue(clock)
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._gather = gather
        self._observe = observe
        self._caches: list[Cache[Any]] = []

    def watch(self, cache: Cache[Any]) -> None:
        """Enqueues each object of the cache when it comes, changes or goes."""
        self._caches.append(cache)
        cache.subscribe(lambda key, old, new: self._note(key, at_once=old is None or new is None))

    def watch_owned(self, cache: Cache[Any], kind: str) -> None:
        """Enqueues the owner of this kind when one of its children in the cache changes."""
        self._caches.append(cache)
        cache.subscribe_owners(kind, self.enqueue_soon)

    def enqueue_soon(self, key: str) -> None:
        """Enqueues it after `gather` seconds: the children of one owner change together, and one reconcile is enough."""
        self._note(key, at_once=False)

    def _note(self, key: str, *, at_once: bool) -> None:
        if at_once or not self._gather:
            self.queue.add(key)
        else:
            self.queue.add_after(key, self._gather)

    async def run(self) -> None:
        """Works until it is cancelled; begins when all its caches have listed, so that nothing counts as missing that was
        only not read yet. The caches are run by whoever made them."""
        for cache in self._caches:
            await cache.synced.wait()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            began = self._clock.monotonic()
            try:
                result = await self._turn(key)
            finally:
                self.queue.done(key)
            if self._observe is not None:
                self._observe(Reconciled(key, self._clock.monotonic() - began, result))

    async def _turn(self, key: str) -> str:
        try:
            outcome = await self._reconcile(key)
        except TooMany as error:
            self.queue.add_after(key, error.retry_after)
            return "throttled"
        except Conflict as error:  # somebody was faster; the next reconcile sees what they did
            pause = self.queue.add_rate_limited(key)
            _log.debug("conflict", controller=self.name, key=key, error=error.message, again_in=round(pause, 3))
            return "conflict"
        except Permanent as error:
            self.queue.forget(key)
            _log.error("given up", controller=self.name, key=key, error=error.message)
            return "permanent"
        except PaddleFlowError as error:
            pause = self.queue.add_rate_limited(key)
            _log.warning("failed", controller=self.name, key=key, error=error.message, again_in=round(pause, 3))
            return "error"
        except Exception as error:  # a fault of ours with one object must not end the others
            pause = self.queue.add_rate_limited(key)
            trace = "".join(traceback.format_exception(error))
            _log.error("crashed", controller=self.name, key=key, again_in=round(pause, 3), trace=trace)
            return "crash"
        self.queue.forget(key)
        if isinstance(outcome, RequeueAfter):
            self.queue.add_after(key, outcome.after)
            return "again"
        return "done"
