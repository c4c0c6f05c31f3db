"""Trying stores out before storages and links of them are made: in threads of its own, a few at a time for each user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paddleflow.base.user_limit import UserLimit
from paddleflow.objects.check import MOST_CHECKS, MOST_OF_ONE, check

T = TypeVar("T")


class StoreChecks:
    """A check takes up to five seconds when a server is silent: neither logins nor files wait for it."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(MOST_CHECKS, thread_name_prefix="store-checks")
        self._running = UserLimit("checks of stores", MOST_OF_ONE)

    async def check(self, user: str, url: str, properties: Mapping[str, str]) -> None:
        """`objects.check.Unreachable` says at which stage a store cannot be reached."""
        await self.run(user, lambda: check(url, properties, owner=f"user[{user}]"))

    async def run(self, user: str, call: Callable[[], T]) -> T:
        """Something else that asks a store, in the name of a user."""
        with self._running.counted(user):
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
