"""A job that starts nowhere now waits on the cluster where the forecast says that it starts first, with a server for each cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from paddleflow.base.clock import ManualClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_choice import ClusterChoice
from paddleflow.engine.cluster_engine import ClusterEngine, Parts, Timing
from paddleflow.engine.start_choice import StartChoice
from paddleflow.jobs.expected_starts import ExpectedStart, expected_starts
from paddleflow.jobs.queries import find_job
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.clusters import get_cluster, insert_cluster
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER, DEFAULT_QUEUE
from paddleflow.queues.queues import find_queue, insert_queue
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SchedulingPolicy, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.database import Database, Tx

ROOM = {DEFAULT_CLUSTER: Resources.of(2000, 2**30), "second": Resources.of(4000, 2**30)}


class Servers:
    """Two servers on one database, each with one of the clusters of a queue."""

    def __init__(self, database: Database, folder: Path, clock: ManualClock) -> None:
        self.database, self.clock = database, clock
        self.runtimes = {name: MemoryRuntime(clock, room) for name, room in ROOM.items()}
        self.parts = {
            name: Parts(
                database, clock, LocalBus(), Settings(), folder / name, f"server-{name}", timing=Timing(poll=0.02)
            )
            for name in ROOM
        }
        self.engines = {
            name: ClusterEngine(self.parts[name], runtime, name, hosts_runs=False)
            for name, runtime in self.runtimes.items()
        }
        self.choices = {
            name: StartChoice(engine, self.parts[name], settled=0.0) for name, engine in self.engines.items()
        }

    async def submit(self, job: str, cpu: str = "2", name: str = "train") -> None:
        flavour, policy = FlavourChoice(cpu=cpu, mem="1Mi"), SchedulingPolicy(queue="shared")
        document = SingleJob(id=job, name=name, command="true", flavour=flavour, scheduling_policy=policy)
        nodes = {each: [("memory", room)] for each, room in ROOM.items()}
        order = Submission([job_set_of(document)], Submitter("root", True, nodes), self.clock.now())
        await self.database.write(submit, order)
        self.parts[DEFAULT_CLUSTER].bus.wake(JOBS)

    async def reaches(self, job: str, cluster: str, status: str) -> None:
        async with asyncio.timeout(60):
            while True:
                row = await self.database.read(find_job, job)
                if row is not None and (row.cluster, row.status) == (cluster, status):
                    return
                await asyncio.sleep(0.005)

    async def finish(self, job: str, cluster: str) -> None:
        (attempt,) = [
            each.attempt for each in self.runtimes[cluster].cluster.launched if each.attempt.startswith(f"{job}.")
        ]
        self.runtimes[cluster].finish(attempt, 0)
        await self.reaches(job, cluster, "succeeded")

    async def starts(self, job: str, cluster: str) -> None:
        await self.submit(job)
        if cluster != DEFAULT_CLUSTER:
            await self.reaches(job, DEFAULT_CLUSTER, "pending")
            taking = ClusterChoice(self.engines[cluster], self.parts[cluster], step=0.0)
            async with asyncio.timeout(60):
                while not await taking.take_over():
                    await asyncio.sleep(0.005)
        await self.reaches(job, cluster, "running")

    async def compare(self, cluster: str, job: str) -> list[str]:
        """One look of a cluster, once its engine knows what waits; the jobs that it took over."""
        async with asyncio.timeout(60):
            while True:
                moved = await self.choices[cluster].compare()
                if moved or cluster in await self.said(job):
                    return moved
                await asyncio.sleep(0.005)

    async def said(self, job: str) -> dict[str, ExpectedStart]:
        return await self.database.read(expected_starts, job, self.clock.now())


@asynccontextmanager
async def running(database: Database, folder: Path) -> AsyncIterator[Servers]:
    clock = ManualClock(1_000_000.0)

    def fill(tx: Tx) -> None:
        ensure_defaults(tx, clock.now(), Resources.of(64000, 2**36))
        first, queue = get_cluster(tx, DEFAULT_CLUSTER), find_queue(tx, DEFAULT_QUEUE)
        assert queue is not None
        insert_cluster(tx, replace(first, id="cluster-second", name="second"))
        insert_queue(tx, replace(queue, id="queue-shared", name="shared", other_clusters=("second",)))

    await database.write(fill)
    servers = Servers(database, folder, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(engine.run()) for engine in servers.engines.values()]
        for engine in servers.engines.values():
            await engine.first_turn.wait()
        yield servers
        for task in tasks:
            task.cancel()


async def test_a_job_waits_where_it_starts_first(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as servers:
        for number in range(8):
            await servers.starts(f"past-{number}", DEFAULT_CLUSTER)
            servers.clock.advance(1000.0)
            await servers.finish(f"past-{number}", DEFAULT_CLUSTER)
        await servers.starts("early", DEFAULT_CLUSTER)
        for job in ("there-1", "there-2"):
            await servers.starts(job, "second")
        servers.clock.advance(900.0)
        await servers.finish("early", DEFAULT_CLUSTER)
        await servers.starts("late", DEFAULT_CLUSTER)  # a thousand seconds there, a hundred on the second cluster
        for job in ("a", "b", "c"):
            await servers.submit(job)
            await servers.reaches(job, DEFAULT_CLUSTER, "pending")
        servers.clock.advance(1.0)
        assert await servers.compare(DEFAULT_CLUSTER, "c") == []
        assert await servers.compare("second", "c") == ["a"], "one at a time"
        await servers.reaches("a", "second", "pending")
        assert await servers.said("b") == {}, "what was said before the move is not true any more"
        moved = []
        for _ in range(4):
            for cluster in ROOM:
                moved += await servers.compare(cluster, "c")
        assert moved == ["b"], "c starts on the first cluster, behind nobody, before it would behind a and b"
        told = await servers.said("c")
        starts_at = told[DEFAULT_CLUSTER].starts_at
        assert starts_at is not None
        assert 1_009_890.0 < starts_at < 1_009_910.0, "when the job there ends, that runs for a thousand seconds"
        for job in ("there-1", "there-2"):
            await servers.finish(job, "second")
        for job in ("a", "b"):
            await servers.reaches(job, "second", "running")
        await servers.finish("late", DEFAULT_CLUSTER)
        await servers.reaches("c", DEFAULT_CLUSTER, "running")
        launched = [
            each.attempt.split(".")[0] for runtime in servers.runtimes.values() for each in runtime.cluster.launched
        ]
        assert len(launched) == len(set(launched)), "nothing ran twice"
        for cluster in ROOM:
            await servers.choices[cluster].compare()
        assert await servers.said("c") == {}, "nothing waits, so nothing is said"


async def test_a_job_that_never_starts_where_it_is_waits_elsewhere(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as servers:
        await servers.starts("first", DEFAULT_CLUSTER)
        await servers.starts("there", "second")
        await servers.submit("large", "4")
        await servers.reaches("large", DEFAULT_CLUSTER, "pending")
        servers.clock.advance(1.0)
        await servers.compare(DEFAULT_CLUSTER, "large")
        assert await servers.compare("second", "large") == ["large"], (
            "too large for the nodes of the first, whatever runs how long"
        )
        await servers.finish("there", "second")
        await servers.reaches("large", "second", "running")


async def test_without_knowledge_of_durations_jobs_stay(database: Database, tmp_path: Path) -> None:
    async with running(database, tmp_path) as servers:
        await servers.starts("first", DEFAULT_CLUSTER)
        for job in ("there-1", "there-2"):
            await servers.starts(job, "second")
        await servers.submit("job")
        await servers.reaches("job", DEFAULT_CLUSTER, "pending")
        servers.clock.advance(1.0)
        for cluster in (*ROOM, *ROOM):
            assert await servers.compare(cluster, "job") == []
        assert (await servers.said("job"))["second"].rests_on in {"there-1", "there-2"}
