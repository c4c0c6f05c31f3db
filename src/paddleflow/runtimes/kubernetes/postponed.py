"""Launches whose pods the API server cannot admit at the moment, because a webhook of somebody else does not answer.

They are tried again beside everything else: a webhook concerns its own namespaces and kinds, so nobody else's pods wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from paddleflow.base.ids import AttemptId
from paddleflow.errors import PaddleFlowError
from paddleflow.runtimes.runtime import Launch

AGAIN = 2.0  #: seconds between two tries
_WORDS = "failed calling webhook"  #: of the API server


def is_webhook(error: PaddleFlowError) -> bool:
    """Whether a request failed because a webhook did not answer."""
    return _WORDS in error.message


class Postponed:
    """Tried again until there is a pod, a refusal, or nobody wants it any more."""

    def __init__(
        self,
        start: Callable[[Launch], Awaitable[None]],
        is_settled: Callable[[AttemptId], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._start, self._is_settled, self._spawn = start, is_settled, spawn
        self._tasks: dict[AttemptId, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    def __contains__(self, attempt: AttemptId) -> bool:
        return attempt in self._tasks

    def add(self, launch: Launch) -> None:
        if launch.attempt not in self._tasks:
            unwanted = asyncio.Event()
            self._tasks[launch.attempt] = unwanted, self._spawn(self._try(launch, unwanted))

    async def _try(self, launch: Launch, unwanted: asyncio.Event) -> None:
        try:
            while not self._is_settled(launch.attempt):
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN):
                        await unwanted.wait()
                if unwanted.is_set():
                    return
                with suppress(PaddleFlowError):  # the API server is away: the next try finds out
                    await self._start(launch)
        finally:
            self._tasks.pop(launch.attempt, None)

    async def end(self, attempt: AttemptId) -> None:
        """No more tries; one that is on its way is waited for."""
        if (found := self._tasks.get(attempt)) is not None:
            unwanted, task = found
            unwanted.set()
            await asyncio.wait([task])

    def cancel(self) -> list[asyncio.Task[None]]:
        """End all of them; the next server launches them anew."""
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        return tasks
