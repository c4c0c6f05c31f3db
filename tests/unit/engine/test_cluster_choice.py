"""Queues of several clusters: a job that waits is taken over by the first cluster that has room, once, and in the order of preference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_choice import ClusterChoice
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.errors import Conflict
from paddleflow.jobs.changes import move_jobs
from paddleflow.jobs.queries import find_job, waiting_jobs
from paddleflow.jobs.rows import request_of
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.clusters import get_cluster, insert_cluster
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER, DEFAULT_QUEUE
from paddleflow.queues.queues import change_queue, find_queue, insert_queue
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SchedulingPolicy, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.spec.queue import QueueChange
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.database import Database, Tx
from tests.patience import soon

CLOCK = SystemClock()
ROOM = {
    DEFAULT_CLUSTER: Resources.of(2000, 2**30),
    "second": Resources.of(4000, 2**30),
    "third": Resources.of(4000, 2**30),
}


class Engines:
    """Three clusters of one database, with a queue of all of them."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.bus = database, LocalBus()
        self.parts = Parts(database, CLOCK, self.bus, Settings(), folder, "server", timing=Timing(poll=0.05))
        self.runtimes = {name: MemoryRuntime(CLOCK, room) for name, room in ROOM.items()}
        self.engines = {
            name: ClusterEngine(self.parts, runtime, name, hosts_runs=False) for name, runtime in self.runtimes.items()
        }

    def choice(self, cluster: str, step: float = 0.0) -> ClusterChoice:
        return ClusterChoice(self.engines[cluster], self.parts, step=step)

    async def submit(self, job: str, cpu: str = "2") -> None:
        document = SingleJob(
            id=job,
            command="true",
            flavour=FlavourChoice(cpu=cpu, mem="1Mi"),
            scheduling_policy=SchedulingPolicy(queue="shared"),
        )
        nodes = {name: [("memory", room)] for name, room in ROOM.items()}
        await self.database.write(
            submit, Submission([job_set_of(document)], Submitter("root", True, nodes), CLOCK.now())
        )
        self.bus.wake(JOBS)

    async def where(self, job: str) -> tuple[str, str]:
        row = await self.database.read(find_job, job)
        assert row is not None
        return row.cluster, row.status

    async def reaches(self, job: str, cluster: str, status: str) -> None:
        async with asyncio.timeout(60):
            while await self.where(job) != (cluster, status):
                await asyncio.sleep(0.005)

    def launched(self) -> list[str]:
        return [
            f"{name} {each.attempt.split('.')[0]}" for name, r in self.runtimes.items() for each in r.cluster.launched
        ]


@asynccontextmanager
async def running(database: Database, folder: Path) -> AsyncIterator[Engines]:
    def fill(tx: Tx) -> None:
        ensure_defaults(tx, CLOCK.now(), Resources.of(64000, 2**36))
        first, queue = get_cluster(tx, DEFAULT_CLUSTER), find_queue(tx, DEFAULT_QUEUE)
        assert queue is not None
        for name in ("second", "third"):
            insert_cluster(tx, replace(first, id=f"cluster-{name}", name=name))
        insert_queue(tx, replace(queue, id="queue-shared", name="shared", other_clusters=("second", "third")))

    await database.write(fill)
    world = Engines(database, folder)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(engine.run()) for engine in world.engines.values()]
        for engine in world.engines.values():
            await engine.first_turn.wait()
        yield world
        for task in tasks:
            task.cancel()


async def taken(choice: ClusterChoice) -> list[str]:
    """What a cluster takes over, once it takes anything."""
    found: list[str] = []

    async def look() -> bool:
        found.extend(await choice.take_over())
        return bool(found)

    async with asyncio.timeout(60):
        while not await look():
            await asyncio.sleep(0.005)
    return found


async def test_a_job_that_waits_is_taken_over_by_a_cluster_with_room(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as world:
        await world.submit("first")
        await world.reaches("first", DEFAULT_CLUSTER, "running")
        for job in ("a", "b", "c"):
            await world.submit(job)
            await world.reaches(job, DEFAULT_CLUSTER, "pending")
        assert await world.choice("third", step=3600.0).take_over() == [], "it is not its turn yet"
        assert await taken(world.choice("second")) == ["a", "b"], "as many as there is room for"
        for job in ("a", "b"):
            await world.reaches(job, "second", "running")
        assert await world.choice("second").take_over() == []
        row = await database.read(find_job, "c")
        assert row is not None
        assert "shared" in row.queue
        attempt = world.runtimes[DEFAULT_CLUSTER].cluster.launched[0].attempt
        world.runtimes[DEFAULT_CLUSTER].finish(attempt, 0)
        await world.reaches("c", DEFAULT_CLUSTER, "running")
        assert sorted(world.launched()) == ["default-cluster c", "default-cluster first", "second a", "second b"]


async def test_a_job_too_large_for_the_first_cluster_goes_where_it_fits(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as world:
        await world.submit("large", cpu="4")
        await world.reaches("large", DEFAULT_CLUSTER, "pending")
        assert await taken(world.choice("third")) == ["large"]
        await world.reaches("large", "third", "running")
        with pytest.raises(Conflict, match="1 jobs of queue"):
            await database.write(change_queue, "shared", QueueChange(other_clusters=["second"]), CLOCK.now())


async def test_what_changed_meanwhile_is_not_moved_and_nothing_runs_twice(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as world:
        await world.submit("first")
        await world.reaches("first", DEFAULT_CLUSTER, "running")
        await world.submit("job")
        await world.reaches("job", DEFAULT_CLUSTER, "pending")
        (row,) = await database.read(waiting_jobs, DEFAULT_CLUSTER)
        now = CLOCK.now()
        assert await database.write(move_jobs, [row], DEFAULT_CLUSTER, "second", now) == ["job"]
        assert await database.write(move_jobs, [row], DEFAULT_CLUSTER, "third", now) == [], "it is not there any more"
        world.runtimes[DEFAULT_CLUSTER].finish(world.runtimes[DEFAULT_CLUSTER].cluster.launched[0].attempt, 0)
        world.bus.wake(JOBS)
        await world.reaches("job", "second", "running")
        core = await soon(lambda: world.engines[DEFAULT_CLUSTER].scheduler, "the first cluster's scheduler")
        assert core is not None
        await soon(lambda: "job" not in core.pending, "the first cluster has forgotten it")
        assert sorted(world.launched()) == ["default-cluster first", "second job"]


async def test_why_not_there_has_words(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as world:
        await world.submit("huge", cpu="4")
        row = await database.read(find_job, "huge")
        assert row is not None
        asked = request_of(row)
        assert "4" in (await world.engines[DEFAULT_CLUSTER].why_not(asked) or "")
        assert await world.engines["second"].why_not(asked) == ""
        larger = asked._replace(member_sets=tuple(replace(each, count=3) for each in asked.member_sets))
        assert await world.engines["second"].why_not(larger)
