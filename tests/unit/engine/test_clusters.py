"""Several clusters in one server: each has its engine, its nodes, which change, and its quotas; none sees the jobs of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import Parts, Timing
from paddleflow.engine.clusters import ClusterEngines
from paddleflow.errors import Unavailable
from paddleflow.jobs.rows import SQL
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.queues.clusters import claim_cluster, delete_cluster, get_cluster, insert_cluster
from paddleflow.queues.defaults import claim_machine, ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER, DEFAULT_QUEUE, LOCAL, Cluster
from paddleflow.queues.queues import delete_queue, find_queue, insert_queue
from paddleflow.runtimes.memory import MemoryCluster, MemoryRuntime
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SchedulingPolicy, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import CLUSTERS, JOBS, LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Tx
from tests.patience import PATIENCE, soon

CLOCK = SystemClock()
ONE = Resources.of(1000, 2**30)
A, B = NodeInfo("a", "10.0.0.1", ONE), NodeInfo("b", "10.0.0.2", ONE)


class Memory:
    """Runtimes in memory, one for each cluster; what runs outlives the servers of a test."""

    def __init__(self) -> None:
        self.clusters: dict[str, MemoryCluster] = {}
        self.runtimes: dict[str, MemoryRuntime] = {}
        self.broken: set[str] = set()

    def __call__(self, cluster: Cluster) -> MemoryRuntime:
        world = self.clusters.setdefault(cluster.name, MemoryCluster())
        made = self.runtimes[cluster.name] = _Runtime(self, cluster.name, world)
        return made

    def launched(self, cluster: str) -> list[str]:
        return [launch.attempt.split(".")[0] for launch in self.clusters[cluster].launched]

    def finish(self, cluster: str, job: str) -> None:
        attempt = next(each.attempt for each in self.clusters[cluster].launched if each.attempt.startswith(f"{job}."))
        self.runtimes[cluster].finish(attempt, 0)


class _Runtime(MemoryRuntime):
    def __init__(self, memory: Memory, name: str, world: MemoryCluster) -> None:
        super().__init__(CLOCK, ONE, world)
        self._memory, self._name = memory, name

    async def open(self) -> None:
        if self._name in self._memory.broken:
            raise Unavailable(f"{self._name} cannot be reached")


def add_cluster(tx: Tx, name: str, owner: str = "") -> None:
    """A cluster with a queue ``<name>-queue``."""
    found, queue = get_cluster(tx, DEFAULT_CLUSTER), find_queue(tx, DEFAULT_QUEUE)
    assert queue is not None
    insert_cluster(tx, replace(found, id=f"cluster-{name}", name=name))
    insert_queue(tx, replace(queue, id=f"queue-{name}", name=f"{name}-queue", cluster=name))
    if owner:
        claim_cluster(tx, name, owner)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_database("", tmp_path, durable=False)
    await database.write(ensure_defaults, CLOCK.now(), ONE)
    yield database
    await database.close()


@asynccontextmanager
async def server(
    database: Database, memory: Memory, data: Path, bus: LocalBus, poll: float = 1.0
) -> AsyncIterator[ClusterEngines]:
    parts = Parts(database, CLOCK, bus, Settings(), data, "server", timing=Timing(poll=poll))
    engines = ClusterEngines(parts, {LOCAL: memory})
    await engines.prepare()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(engines.run())
        yield engines
        task.cancel()


async def send(database: Database, bus: LocalBus, engines: ClusterEngines, job: str, queue: str) -> None:
    document = SingleJob(
        id=job,
        command="true",
        flavour=FlavourChoice(cpu="1", mem="1Mi"),
        scheduling_policy=SchedulingPolicy(queue=queue),
    )
    submitter = Submitter("root", True, engines.capacities())
    await database.write(submit, Submission([job_set_of(document)], submitter, CLOCK.now()))
    bus.wake(JOBS)


async def reaches(database: Database, job: str, status: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await database.read(lambda tx: tx.value(SQL["job_status"], id=job)) != status:
            await asyncio.sleep(0.002)


async def test_jobs_run_on_the_cluster_of_their_queue_and_quotas_are_apart(database: Database, tmp_path: Path) -> None:
    memory, bus = Memory(), LocalBus()
    await database.write(add_cluster, "second")
    async with server(database, memory, tmp_path, bus) as engines:
        for cluster, queue in ((DEFAULT_CLUSTER, DEFAULT_QUEUE), ("second", "second-queue")):
            for number in (1, 2):
                await send(database, bus, engines, f"{cluster}-{number}", queue)
        for cluster in (DEFAULT_CLUSTER, "second"):
            await reaches(database, f"{cluster}-1", "running")
            await reaches(database, f"{cluster}-2", "pending")
            engine, other = (
                engines.engine(cluster),
                engines.engine("second" if cluster != "second" else DEFAULT_CLUSTER),
            )
            assert engine is not None
            assert other is not None
            assert engine.why(f"{cluster}-2") is not None
            assert other.why(f"{cluster}-2") is None, "the engine of the other cluster never saw it"
            assert memory.launched(cluster) == [f"{cluster}-1"]
        assert set(engines.capacities()) == {DEFAULT_CLUSTER, "second"}
    # Another server goes on with both, and what ran goes on running.
    async with server(database, memory, tmp_path, bus):
        for cluster in (DEFAULT_CLUSTER, "second"):
            memory.finish(cluster, f"{cluster}-1")
            await reaches(database, f"{cluster}-1", "succeeded")
            await reaches(database, f"{cluster}-2", "running")
            assert memory.launched(cluster) == [f"{cluster}-1", f"{cluster}-2"]


async def test_clusters_are_followed_as_they_come_and_go(database: Database, tmp_path: Path) -> None:
    memory, bus = Memory(), LocalBus()
    async with server(database, memory, tmp_path, bus) as engines:
        await database.write(add_cluster, "late")
        bus.wake(CLUSTERS)
        await soon(lambda: engines.engine("late") is not None, "the new cluster has an engine")
        await send(database, bus, engines, "job", "late-queue")
        await reaches(database, "job", "running")
        memory.finish("late", "job")
        await reaches(database, "job", "succeeded")

        def remove(tx: Tx) -> None:
            delete_queue(tx, "late-queue", 0)
            delete_cluster(tx, "late")

        await database.write(remove)
        bus.wake(CLUSTERS)
        await soon(lambda: engines.engine("late") is None, "it has none any more")


async def test_a_cluster_that_cannot_be_opened_is_named_and_tried_again(database: Database, tmp_path: Path) -> None:
    memory, bus = Memory(), LocalBus()
    memory.broken.add("far")
    await database.write(add_cluster, "far")
    async with server(database, memory, tmp_path, bus, poll=0.01) as engines:
        await soon(lambda: engines.problems == {"far": "far cannot be reached"}, "it says why")
        await send(database, bus, engines, "near", DEFAULT_QUEUE)
        await reaches(database, "near", "running")
        await send(database, bus, engines, "there", "far-queue")
        memory.broken.clear()
        await reaches(database, "there", "running")
        assert engines.problems == {}


async def test_the_machine_of_another_server_is_left_alone(database: Database, tmp_path: Path) -> None:
    memory, bus = Memory(), LocalBus()
    await database.write(add_cluster, "theirs", "another")
    async with server(database, memory, tmp_path, bus) as engines:
        await send(database, bus, engines, "near", DEFAULT_QUEUE)
        await reaches(database, "near", "running")
        assert engines.elsewhere == {"theirs": "another"}
        assert engines.engine("theirs") is None
        assert "theirs" not in memory.runtimes


async def test_a_machine_is_claimed_once_and_taken_over_only_on_demand(database: Database, tmp_path: Path) -> None:
    """Two servers on one database: the second one never moves the jobs whose processes only the first one can see."""
    small = Resources.of(500, 2**20)
    assert await database.write(claim_machine, CLOCK.now(), ONE, "server", take=False)
    assert not await database.write(claim_machine, CLOCK.now(), small, "second", take=False)
    queue = await database.read(find_queue, DEFAULT_QUEUE)
    assert queue is not None
    assert queue.most == ONE, "the ceiling follows the machine of the cluster, not that of the other server"
    memory, bus = Memory(), LocalBus()
    async with server(database, memory, tmp_path, bus) as engines:
        await send(database, bus, engines, "job", DEFAULT_QUEUE)
        await reaches(database, "job", "running")
        second = ClusterEngines(Parts(database, CLOCK, bus, Settings(), tmp_path, "second"), {LOCAL: Memory()})
        await second.prepare()
        assert second.engine(DEFAULT_CLUSTER) is None
        assert second.elsewhere == {DEFAULT_CLUSTER: "server"}
        assert await second.health() == ""
        assert await database.write(claim_machine, CLOCK.now(), ONE, "second", take=True)
        bus.wake(CLUSTERS)
        await soon(lambda: engines.engine(DEFAULT_CLUSTER) is None, "the first one lets go")
        await second.prepare()
        assert second.engine(DEFAULT_CLUSTER) is not None


def add_wide_queue(tx: Tx) -> None:
    """A queue that is never the reason for waiting."""
    queue = find_queue(tx, DEFAULT_QUEUE)
    assert queue is not None
    insert_queue(tx, replace(queue, id="queue-wide", name="wide", most=Resources.of(64_000, 2**36), follows=False))


async def test_jobs_start_on_nodes_as_they_come_change_and_go(database: Database, tmp_path: Path) -> None:
    memory, bus = Memory(), LocalBus()
    await database.write(add_wide_queue)
    async with server(database, memory, tmp_path, bus, poll=3600.0) as engines:  # nothing rests on polling
        runtime = memory.runtimes[DEFAULT_CLUSTER]
        runtime.set_nodes([A])
        for number in range(1, 6):
            await send(database, bus, engines, f"job-{number}", "wide")

        def places() -> dict[str, str]:
            return {each.attempt.split(".")[0]: each.node for each in runtime.cluster.launched}

        await reaches(database, "job-1", "running")
        await reaches(database, "job-2", "pending")
        runtime.set_nodes([A, B])
        await reaches(database, "job-2", "running")
        assert places() == {"job-1": "a", "job-2": "b"}

        runtime.set_nodes([replace(A, schedulable=False), B])
        memory.finish(DEFAULT_CLUSTER, "job-1")
        await reaches(database, "job-1", "succeeded")
        runtime.set_nodes([replace(A, schedulable=False), replace(B, capacity=Resources.of(2000, 2**31))])
        await reaches(database, "job-3", "running")
        assert places()["job-3"] == "b", "the cordoned node takes none, the larger one takes another"

        runtime.set_nodes([A, replace(B, capacity=Resources.of(2000, 2**31))])
        await reaches(database, "job-4", "running")
        assert places()["job-4"] == "a"

        runtime.set_nodes([A])  # what ran on the other is lost, and its room is not given out
        await reaches(database, "job-2", "failed")
        await reaches(database, "job-3", "failed")
        assert "job-5" not in places()
        memory.finish(DEFAULT_CLUSTER, "job-4")
        await reaches(database, "job-5", "running")
        assert places()["job-5"] == "a"
        assert [name for name, _ in engines.capacities()[DEFAULT_CLUSTER]] == ["a"]
