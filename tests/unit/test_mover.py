"""The mover ends when it is told to, whatever it is doing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from paddleflow.base.clock import SystemClock
from paddleflow.engine.mover import Mover, Parts
from paddleflow.errors import Unavailable
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.store.bus import LocalBus
from paddleflow.store.opening import open_database


class Failing(Mover):
    """Its task group ends by an error, and a member of it takes its time to end."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.failed = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _hold_and_move(self) -> None:
        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.failed.set()
                await self.go_on.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            await asyncio.sleep(0)
            raise Unavailable("the database is gone")


async def test_a_cancellation_that_comes_while_it_begins_anew_is_not_lost(tmp_path: Path) -> None:
    clock = SystemClock()
    database = await open_database("", tmp_path, durable=False)
    try:
        parts = Parts(database, MemoryRuntime(clock), clock, LocalBus(), Settings(), tmp_path, {}, "engine")
        mover = Failing(parts)
        task = asyncio.ensure_future(mover.run())
        await mover.failed.wait()
        task.cancel()
        await asyncio.sleep(0)
        mover.go_on.set()
        _, pending = await asyncio.wait([task], timeout=60)
        assert not pending
        assert task.cancelled()
    finally:
        await database.close()
