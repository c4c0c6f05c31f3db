"""The engine ends when it is told to, whatever it is doing, and takes its time only where nobody waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.errors import Unavailable
from paddleflow.jobs.rows import SQL
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.runtimes.runtime import Runtime
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.connection import open_database


class Failing(ClusterEngine):
    """Its task group ends by an error, and a member of it takes its time to end."""

    def __init__(self, parts: Parts, runtime: Runtime) -> None:
        super().__init__(parts, runtime)
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
        parts = Parts(database, clock, LocalBus(), Settings(), tmp_path, "engine")
        engine = Failing(parts, MemoryRuntime(clock))
        task = asyncio.ensure_future(engine.run())
        await engine.failed.wait()
        task.cancel()
        await asyncio.sleep(0)
        engine.go_on.set()
        _, pending = await asyncio.wait([task], timeout=60)
        assert not pending
        assert task.cancelled()
    finally:
        await database.close()


async def test_while_a_queue_is_full_new_jobs_gather_but_an_end_is_dealt_with_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time stands still: whatever happens here, happens without waiting for company."""
    clock, bus, room = SystemClock(), LocalBus(), Resources.of(1000, 2**30)
    runtime = MemoryRuntime(clock, room)
    database = await open_database("", tmp_path, durable=False)

    async def send(job: str) -> None:
        document = SingleJob(id=job, command="true", flavour=FlavourChoice(cpu="1", mem="1Mi"))
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", room)]})
        await database.write(submit, Submission([job_set_of(document)], submitter, clock.now()))
        bus.wake(JOBS)

    async def reaches(job: str, status: str) -> None:
        async with asyncio.timeout(30):
            while await database.read(lambda tx: tx.value(SQL["job_status"], id=job)) != status:
                await asyncio.sleep(0.001)

    try:
        await database.write(ensure_defaults, clock.now(), room)
        timing = Timing(gather=3600.0, poll=3600.0)
        engine = ClusterEngine(Parts(database, clock, bus, Settings(), tmp_path, "engine", timing=timing), runtime)
        async with asyncio.TaskGroup() as group:
            moving = group.create_task(engine.run())
            await engine.first_turn.wait()
            await send("first")
            await reaches("first", "running")
            await send("second")
            await reaches("second", "pending")
            await send("third")
            runtime.finish(runtime.cluster.launched[0].attempt, 0)
            await reaches("first", "succeeded")
            await reaches("second", "running")
            assert await database.read(lambda tx: tx.value(SQL["job_status"], id="third")) == "init"
            moving.cancel()
    finally:
        await database.close()
