"""The engine under faults: every store operation fails once, and the engine is killed at any await.

The world (what "runs") outlives the engine, as processes do. However far it got, afterwards every acknowledged job ends
as it would have without the fault, and nothing was started twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.changes import stop_job
from paddleflow.jobs.queries import JobFilter, find_jobs
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.memory import EXIT, MemoryCluster, MemoryRuntime
from paddleflow.settings import JobSettings, Settings
from paddleflow.spec.job import DistributedJob, FlavourChoice, MemberDocument, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database
from tests.databases import MakeDatabase
from tests.fault.faulty import FaultyDatabase, InjectedFault, killed_at_random_awaits, run_until_no_fault

CAPACITY = Resources.of(2000, 2 * 2**30)
SMALL = FlavourChoice(cpu="1", mem="1Mi")
CLOCK = SystemClock()
IMPATIENT = Timing(poll=0.02, first_pause=0.005)  #: a lost wake-up costs little


def documents() -> list[SingleJob | DistributedJob]:
    servers = MemberDocument(role="pserver", replicas=1, command="serve", flavour=SMALL)
    workers = MemberDocument(role="worker", replicas=1, command="work", flavour=SMALL, env={EXIT: "0"})
    return [
        SingleJob(id="good", command="true", flavour=SMALL, env={EXIT: "0"}),
        SingleJob(id="bad", command="false", flavour=SMALL, env={EXIT: "3"}),
        SingleJob(id="endless", command="sleep", flavour=SMALL),
        DistributedJob(id="gang", framework="paddle", members=[servers, workers]),
        SingleJob(id="again", command="x", flavour=SMALL, env={EXIT: "1", "PF_JOB_RESTART_POLICY": "OnFailure"}),
    ]


EXPECTED = {
    "good": "succeeded",
    "bad": "failed",
    "endless": "terminated",
    "gang": "succeeded",
    "again": "failed",
}


class Scene:
    """One life of the platform: submit, run, stop one, until all have ended; with as many engines as it takes."""

    def __init__(self, database: Database, data: Path) -> None:
        self.database = database
        self.data = data
        self.cluster = MemoryCluster()
        self.bus = LocalBus()
        self.settings = Settings(jobs=JobSettings(restart_limit=1, restart_delay=0.01))

    async def prepare(self) -> None:
        await self.retry(lambda: self.database.write(ensure_defaults, CLOCK.now(), CAPACITY))
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("memory", CAPACITY)]})
        for document in documents():
            await self.retry(partial(self._submit, document, submitter))

    async def _submit(self, document: SingleJob | DistributedJob, submitter: Submitter) -> None:
        rows, _ = await self.database.read(find_jobs, JobFilter(), 0, 100)
        if document.id not in {row.id for row in rows}:
            await self.database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))

    async def retry(self, act: Callable[[], Awaitable[None]]) -> None:
        """As a client does: once more after a fault."""
        try:
            await act()
        except InjectedFault:
            await act()

    def engine(self) -> ClusterEngine:
        runtime = MemoryRuntime(CLOCK, CAPACITY, self.cluster)
        return ClusterEngine(
            Parts(self.database, CLOCK, self.bus, self.settings, self.data, "engine", timing=IMPATIENT), runtime
        )

    async def statuses(self) -> dict[str, str]:
        rows, _ = await self.database.read(find_jobs, JobFilter(), 0, 100)
        return {row.id: row.status for row in rows}

    async def supervise(self) -> None:
        """Stop the endless one once it runs; return when all have ended."""
        while True:
            with suppress(PaddleFlowError):
                now = await self.statuses()
                if now.get("endless") == "running":
                    rules = self.settings.jobs
                    await self.database.write(stop_job, "endless", "stopped by root", CLOCK.now(), rules)
                    self.bus.wake("jobs")
                if len(now) == len(EXPECTED) and now == EXPECTED:
                    return
            await asyncio.sleep(0.002)

    def check_started_once(self) -> None:
        twice = [attempt for attempt, n in Counter(launch.attempt for launch in self.cluster.launched).items() if n > 1]
        assert twice == []


@pytest.mark.timeout(300)
async def test_every_store_operation_fails_once(tmp_path: Path, make_database: MakeDatabase) -> None:
    async def scenario(database: FaultyDatabase) -> None:
        scene = Scene(database, tmp_path)
        await scene.prepare()
        await _run_to_the_end(scene)

    survived = await run_until_no_fault(make_database, scenario, postgres_every=4)
    assert survived > 30


async def _run_to_the_end(scene: Scene) -> None:
    engine = scene.engine()
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            running = group.create_task(engine.run())
            await scene.supervise()
            running.cancel()
    except TimeoutError:
        pytest.fail(f"not all jobs ended as they should: {await scene.statuses()}; the board: {engine._board}")
    scene.check_started_once()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(25))
async def test_the_engine_is_killed_at_random_awaits(seed: int, tmp_path: Path, make_database: MakeDatabase) -> None:
    rng = random.Random(seed)
    async with make_database() as database:
        scene = Scene(database, tmp_path)
        await scene.prepare()
        await killed_at_random_awaits(rng, lambda: scene.engine().run(), lives=6, awaits=120)
        await _run_to_the_end(scene)
