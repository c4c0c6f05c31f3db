"""What happens beside the turns goes on after a failure: of the runtime, of the database, of the folder of logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import Parts
from paddleflow.engine.housekeeping import delete_for_ever, sample_for_ever
from paddleflow.errors import Unavailable
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.store.bus import LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database
from tests.patience import soon

CLOCK = ManualClock(1000.0)


class Flaky(MemoryRuntime):
    """Every second answer is an error."""

    def __init__(self) -> None:
        super().__init__(CLOCK, Resources.of(1000, 2**30))
        self.asked = 0

    async def sample(self) -> Mapping[AttemptId, Sample]:
        self.asked += 1
        if self.asked % 2:
            raise Unavailable("no answer")
        return {AttemptId("job-1.worker-0.1"): Sample(CLOCK.now(), 0.5, 1)}


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    database = await open_database("", tmp_path, durable=False)
    settings = Settings()
    often = replace(settings, local=replace(settings.local, sample_every=0.001))
    yield Parts(database, CLOCK, LocalBus(), often, tmp_path, "server")
    await database.close()


async def test_samples_are_taken_again_after_a_failure(parts: Parts) -> None:
    runtime = Flaky()
    task = TaskAddress("job-1", "worker", 0)
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(sample_for_ever(runtime, parts))
        await soon(lambda: len(runtime.cluster.samples.get(task, ())) >= 2, "two samples are kept")
        loop.cancel()
    assert runtime.asked >= 4, "every second one failed"


async def test_jobs_are_deleted_after_a_database_that_did_not_answer(parts: Parts) -> None:
    asked: list[str] = []

    class Unanswered:
        """The database, but for the first two questions."""

        async def read(self, fn: Callable[..., bool], cluster: str, now: float) -> bool:
            asked.append(cluster)
            if len(asked) <= 2:
                raise Unavailable("no answer")
            return await parts.database.read(fn, cluster, now)

    silent = replace(parts, database=cast(Database, Unanswered()))
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(delete_for_ever(Flaky(), DEFAULT_CLUSTER, silent, every=0.001))
        await soon(lambda: len(asked) >= 4, "it asks again after both failures, and after an answer")
        loop.cancel()
    assert set(asked) == {DEFAULT_CLUSTER}
