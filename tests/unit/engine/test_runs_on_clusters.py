"""Runs apart from clusters: the steps of one run on several clusters, through restarts, and one server at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddleflow.access import users
from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import Parts, Timing
from paddleflow.engine.clusters import ClusterEngines
from paddleflow.jobs.rows import SQL as JOBS_SQL
from paddleflow.queues.clusters import claim_cluster, get_cluster, insert_cluster
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER, DEFAULT_QUEUE, LOCAL, Cluster
from paddleflow.queues.queues import find_queue, insert_queue
from paddleflow.runs.model import NewRun
from paddleflow.runs.rows import ComponentRow
from paddleflow.runs.runs import create, get_components, get_run, stop_run
from paddleflow.runtimes.memory import EXIT, MemoryCluster, MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.spec.pipeline.model import Pipeline, Retry, Step
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Tx
from tests.patience import PATIENCE, soon

CLOCK = SystemClock()
CAPACITY = Resources.of(4000, 8 * 2**30)
HERE: dict[str, str] = {}
THERE = {"PF_JOB_QUEUE_NAME": "second-queue"}
OK = {EXIT: "0"}


class World:
    """A database with two clusters, and what runs on them whatever becomes of servers."""

    def __init__(self, database: Database, data: Path) -> None:
        self.database, self.data, self.bus = database, data, LocalBus()
        self.clusters = {name: MemoryCluster() for name in (DEFAULT_CLUSTER, "second")}
        self.runtimes: dict[str, MemoryRuntime] = {}

    async def prepare(self, owner: str = "") -> None:
        def fill(tx: Tx) -> None:
            ensure_defaults(tx, CLOCK.now(), CAPACITY)
            users.add(tx, "root", "", CLOCK.now())
            found, queue = get_cluster(tx, DEFAULT_CLUSTER), find_queue(tx, DEFAULT_QUEUE)
            assert queue is not None
            insert_cluster(tx, replace(found, id="cluster-second", name="second"))
            insert_queue(tx, replace(queue, id="queue-second", name="second-queue", cluster="second"))
            if owner:
                claim_cluster(tx, DEFAULT_CLUSTER, owner)
                claim_cluster(tx, "second", owner)

        await self.database.write(fill)

    def runtime(self, cluster: Cluster) -> MemoryRuntime:
        made = self.runtimes[cluster.name] = MemoryRuntime(CLOCK, CAPACITY, self.clusters[cluster.name])
        return made

    @asynccontextmanager
    async def server(self, name: str = "server") -> AsyncIterator[ClusterEngines]:
        """Killed at the end: nothing is written or released any more."""
        parts = Parts(self.database, CLOCK, self.bus, Settings(), self.data, name, timing=Timing(lease=0.3))
        engines = ClusterEngines(parts, {LOCAL: self.runtime})
        await engines.prepare()
        task = asyncio.ensure_future(engines.run())
        try:
            yield engines
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def submit(self, *steps: Step, **more: Any) -> str:
        pipeline = Pipeline("p", {step.name: step for step in steps}, **more)
        run = await self.database.write(create, NewRun("root", pipeline, "text", ""), CLOCK.now())
        self.bus.wake(JOBS)
        return run

    async def launched(self, cluster: str, run: str, step: str, tries: int = 1) -> AttemptId:
        def found() -> AttemptId | None:
            launches = self.clusters[cluster].launched
            mine = [each.attempt for each in launches if each.attempt.startswith(f"job-{run}-{step}-")]
            return mine[tries - 1] if len(mine) >= tries else None

        attempt = await soon(found, f"try {tries} of {step} runs on {cluster}")
        assert attempt is not None
        return attempt

    async def finish(self, cluster: str, run: str, step: str, code: int = 0, tries: int = 1) -> None:
        self.runtimes[cluster].finish(await self.launched(cluster, run, step, tries), code)

    async def steps(self, run: str) -> dict[str, ComponentRow]:
        return {row.full_name: row for row in await self.database.read(get_components, run)}

    async def until(self, run: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (row := await self.database.read(get_run, run)).status != status:
                assert not (row.status != status and row.finished_at), (row, await self.steps(run))
                await asyncio.sleep(0.002)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await open_database("", tmp_path, durable=False)
    yield World(database, tmp_path)
    await database.close()


def step(name: str, *deps: str, env: dict[str, str], **more: Any) -> Step:
    return Step(name, "true", deps=deps, env=env, **more)


async def test_steps_of_one_run_go_to_the_clusters_of_their_queues(world: World) -> None:
    await world.prepare()
    async with world.server():
        run = await world.submit(
            step("a", env=HERE),
            step("b", "a", env=THERE),
            step("c", "b", env=HERE),
            step("d", "c", env={**THERE, **OK}),
        )
        await world.finish(DEFAULT_CLUSTER, run, "a")
        await world.launched("second", run, "b")

        async def is_running() -> None:
            async with asyncio.timeout(PATIENCE):
                while (await world.steps(run))["b"].status != "running":
                    await asyncio.sleep(0.002)

        await is_running()
        await world.finish("second", run, "b")
        await world.finish(DEFAULT_CLUSTER, run, "c")
        await world.until(run, "succeeded")
    assert len(world.clusters[DEFAULT_CLUSTER].launched) == len(world.clusters["second"].launched) == 2


async def test_short_steps_of_two_clusters_alternate(world: World) -> None:
    """What is prefetched on this board, and must not be on the other."""
    await world.prepare()
    steps = [
        step(f"s{n}", *([f"s{n - 1}"] if n else []), env={**(THERE if n % 5 == 4 else HERE), **OK}) for n in range(30)
    ]
    async with world.server():
        run = await world.submit(*steps)
        await world.until(run, "succeeded")
    assert len(world.clusters["second"].launched) == 6


async def test_a_failure_on_another_cluster_has_its_words_and_its_retry(world: World) -> None:
    await world.prepare()
    async with world.server():
        run = await world.submit(step("a", env=THERE, retry=Retry(times=1, delay=0.001, exit_codes=(7,))))
        await world.finish("second", run, "a", 7)
        await world.finish("second", run, "a", 3, tries=2)
        await world.until(run, "failed")
        assert "exit" in (await world.steps(run))["a"].message


async def test_a_stop_reaches_steps_on_every_cluster(world: World) -> None:
    await world.prepare()
    async with world.server():
        run = await world.submit(step("a", env=HERE), step("b", env=THERE))
        await world.launched(DEFAULT_CLUSTER, run, "a")
        await world.launched("second", run, "b")
        await world.database.write(stop_run, run, False, "enough", CLOCK.now())
        world.bus.wake(JOBS)
        await world.until(run, "terminated")
        found = await world.steps(run)
    assert {name: row.status for name, row in found.items()} == {"a": "terminated", "b": "terminated"}


async def test_a_server_that_is_killed_goes_on_with_steps_of_both_clusters(world: World) -> None:
    await world.prepare()
    async with world.server():
        run = await world.submit(step("a", env=HERE), step("b", env=THERE), step("c", "a", "b", env=THERE))
        attempts = [await world.launched(DEFAULT_CLUSTER, run, "a"), await world.launched("second", run, "b")]
    world.runtimes["second"].finish(attempts[1], 0)  # while nobody looks
    async with world.server():
        await world.finish(DEFAULT_CLUSTER, run, "a")
        await world.launched("second", run, "c")
    async with world.server():
        await world.finish("second", run, "c")
        await world.until(run, "succeeded")
    assert len(world.clusters["second"].launched) == 2
    jobs = await world.database.read(lambda tx: tx.all(JOBS_SQL["jobs_of_run"], run_id=run))
    assert len(jobs) == 3


async def test_another_server_takes_over_runs_and_never_both_move_them(world: World) -> None:
    """The second server runs no cluster: it moves runs, and what it submits is run by the first one."""
    await world.prepare(owner="first")
    async with world.server("second"):
        run = await world.submit(step("a", env=HERE), step("b", "a", env=THERE))

        async def submitted() -> None:
            async with asyncio.timeout(PATIENCE):
                while "a" not in await world.steps(run):
                    await asyncio.sleep(0.002)

        await submitted()
        async with world.server("first"):
            await world.finish(DEFAULT_CLUSTER, run, "a")
            await world.finish("second", run, "b")
            await world.until(run, "succeeded")
    assert len(world.clusters[DEFAULT_CLUSTER].launched) == len(world.clusters["second"].launched) == 1
