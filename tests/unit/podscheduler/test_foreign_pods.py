"""One ledger: the engine of a server places its jobs and the pods of others on the same nodes, and nobody else decides there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.jobs.rows import SQL
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.kube.client import Client
from paddleflow.kube.lease import Lease, LeaseLost, LeaseTiming
from paddleflow.kube.resources import LEASES, PODS, QUEUES, Object
from paddleflow.kube.transport import Request, Response
from paddleflow.podscheduler.foreign_pods import LEASE, LEASE_NAMESPACE, ForeignPods
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.settings import Settings
from paddleflow.spec.job import FlavourChoice, SingleJob
from paddleflow.spec.job_sets import job_set_of
from paddleflow.store.bus import JOBS, LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database
from paddleflow.testing.api_server import MemoryApiServer
from tests.unit.podscheduler.test_scheduler import add_node, condition, placed, pod, until

ROOM = Resources.of(4000, 8 * 2**30)


class PodRuntime(MemoryRuntime):
    """Jobs in memory, on a node that pods of others go to as well."""

    def __init__(self, clock: SystemClock, foreign: ForeignPods) -> None:
        super().__init__(clock, ROOM)
        self.set_nodes([NodeInfo("n0", "n0", ROOM)])
        self._foreign = foreign

    @property
    def prefetching(self) -> None:  # type: ignore[override]  # pods have no prefetch queue
        return None

    @property
    def foreign_pods(self) -> ForeignPods | None:  # type: ignore[override]  # this one has some
        return self._foreign if self._foreign.usable else None


class Scene:
    def __init__(
        self, client: Client, database: Database, bus: LocalBus, runtime: PodRuntime, engine: ClusterEngine
    ) -> None:
        self.client, self.database, self.bus, self.runtime, self.engine = client, database, bus, runtime, engine

    async def submit(self, job: str, cpu: str) -> None:
        document = SingleJob(id=job, command="true", flavour=FlavourChoice(cpu=cpu, mem="1Mi"))
        submitter = Submitter("root", True, {DEFAULT_CLUSTER: [("n0", ROOM)]})
        await self.database.write(submit, Submission([job_set_of(document)], submitter, SystemClock().now()))
        self.bus.wake(JOBS)

    async def reaches(self, job: str, status: str) -> None:
        async with asyncio.timeout(60):
            while await self.database.read(lambda tx: tx.value(SQL["job_status"], id=job)) != status:
                await asyncio.sleep(0.005)

    def finish(self, job: str) -> None:
        attempt = next(each.attempt for each in self.runtime.cluster.launched if each.attempt.startswith(f"{job}."))
        self.runtime.finish(AttemptId(attempt), 0)


def allow_everything(request: Request) -> Response | None:
    """The API server in memory knows no users."""
    if "selfsubjectaccessreviews" in request.path:
        return Response(201, {}, b'{"status": {"allowed": true}}')
    return None


@asynccontextmanager
async def managed(folder: Path, server: MemoryApiServer) -> AsyncIterator[Scene]:
    """A server's engine on a cluster of one node with four cores."""
    clock, bus = SystemClock(), LocalBus()
    database = await open_database("", folder, durable=False)
    client = Client(server)
    server.refuse = allow_everything
    await add_node(client, "n0")
    try:
        await database.write(ensure_defaults, clock.now(), ROOM)
        async with asyncio.TaskGroup() as group:
            foreign = ForeignPods(
                Client(server), Client(server), clock, group.create_task, cluster="c", identity="server"
            )
            await foreign.open()
            runtime = PodRuntime(clock, foreign)
            engine = ClusterEngine(Parts(database, clock, bus, Settings(), folder, "engine"), runtime)
            moving = group.create_task(engine.run())
            await engine.first_turn.wait()
            yield Scene(client, database, bus, runtime, engine)
            moving.cancel()
            await asyncio.wait([moving])
            await foreign.close()
    finally:
        await database.close()


async def test_jobs_and_pods_of_others_share_the_room_of_a_node(tmp_path: Path) -> None:
    server = MemoryApiServer()
    async with managed(tmp_path, server) as scene:
        await scene.submit("job", "3")
        await scene.reaches("job", "running")
        await scene.client.create(PODS, pod("guest", cpu="2"))
        waits = await until(scene.client, "guest", lambda each: bool(condition(each, "PodScheduled")))
        assert "1 Insufficient cpu" in condition(waits, "PodScheduled")["message"]
        scene.finish("job")
        assert (await until(scene.client, "guest", placed))["spec"]["nodeName"] == "n0"
        await scene.submit("next", "3")
        await scene.reaches("next", "pending")
        await scene.client.delete(PODS, "guest", "default", grace=0)
        await scene.reaches("next", "running")


async def test_pods_of_others_wait_in_queues_of_the_platform_and_what_others_placed_counts(tmp_path: Path) -> None:
    server = MemoryApiServer()
    async with managed(tmp_path, server) as scene:
        other: Object = pod("daemon", cpu="2", nodeName="n0")
        other["spec"]["schedulerName"] = "default-scheduler"
        await scene.client.create(PODS, other)
        await scene.submit("job", "3")
        await scene.reaches("job", "pending")
        guest = pod("guest", cpu="1")
        guest["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "default-queue"}
        await scene.client.create(PODS, guest)
        await until(scene.client, "guest", placed)
        async with asyncio.timeout(60):
            while (core := scene.engine.scheduler) is None or core.usage("default-queue").cpu != 1000:
                await asyncio.sleep(0.005)
        await scene.client.create(QUEUES, QUEUES.object("small", spec={"capability": {"cpu": "1"}}))
        late = pod("late", cpu="2")
        late["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "small"}
        await scene.client.create(PODS, late)
        found = await until(
            scene.client, "late", lambda each: "small" in condition(each, "PodScheduled").get("message", "")
        )
        assert not placed(found)
        forecast = await scene.engine.snapshot(0.0)
        assert forecast is not None
        assert forecast.nodes[0].reserved.cpu == 2000
        assert not any(request.constraint for request in forecast.pending)


async def test_a_pod_of_the_platforms_own_is_not_counted_twice(tmp_path: Path) -> None:
    server = MemoryApiServer()
    async with managed(tmp_path, server) as scene:
        await scene.submit("job", "3")
        await scene.reaches("job", "running")
        own = pod("job-pod", cpu="3", nodeName="n0")
        own["metadata"] |= {
            "labels": {"paddleflow.org/cluster": "c"},
            "annotations": {"paddleflow.org/attempt": scene.runtime.cluster.launched[0].attempt},
        }
        await scene.client.create(PODS, own)
        await scene.client.create(PODS, pod("guest", cpu="1"))
        await until(scene.client, "guest", placed)
        await scene.client.create(PODS, pod("too-much", cpu="100m"))
        waits = await until(scene.client, "too-much", lambda each: bool(condition(each, "PodScheduled")))
        assert "Insufficient cpu" in condition(waits, "PodScheduled")["message"]


async def test_a_scheduler_that_runs_alone_makes_way_for_a_server(tmp_path: Path) -> None:
    server, clock = MemoryApiServer(), SystemClock()
    timing = LeaseTiming(duration=60, renew_within=50.0, every=0.02)
    alone = Lease(Client(server), LEASE, LEASE_NAMESPACE, "alone", clock, timing)
    standby = Lease(Client(server), LEASE, LEASE_NAMESPACE, "standby", clock, timing)
    began: list[str] = []

    async def work(name: str) -> None:
        began.append(name)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        first = asyncio.ensure_future(alone.lead(lambda: work("alone")))
        async with asyncio.timeout(30):
            while not began:
                await asyncio.sleep(0.005)
        second = group.create_task(standby.lead(lambda: work("standby")))
        async with managed(tmp_path, server):
            with pytest.raises(LeaseLost, match="server goes first"):
                await first
            record = await Client(server).get(LEASES, LEASE, LEASE_NAMESPACE)
            assert record["spec"]["holderIdentity"] == "server"
            assert began == ["alone"]
        async with asyncio.timeout(30):  # the server has given it back
            while began != ["alone", "standby"]:
                await asyncio.sleep(0.005)
        second.cancel()


async def test_the_runtime_of_a_cluster_and_its_scheduler_watch_pods_and_nodes_once(tmp_path: Path) -> None:
    server, clock = MemoryApiServer(), SystemClock()
    watches: list[str] = []

    def note(request: Request) -> Response | None:
        if "watch=1" in request.path:
            watches.append(request.path.partition("?")[0])
        return allow_everything(request)

    server.refuse = note
    await add_node(Client(server), "n0")
    await Client(server).create(PODS, pod("there", nodeName="n0"))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        foreign = ForeignPods(Client(server), Client(server), clock, group.create_task, cluster="c", identity="server")
        settings = PodSettings("c")
        runtime = KubernetesRuntime(
            Client(server), clock, tmp_path, group.create_task, settings=settings, foreign_pods=foreign
        )
        await runtime.open()
        (node,) = await runtime.nodes()
        assert node.taken.cpu == 1000
        assert foreign.caches.nodes.keys() == ["n0"]
        await Client(server).create(PODS, pod("later"))
        while len(foreign.caches.pods) < 2:
            await asyncio.sleep(0)
        assert sorted(foreign.caches.pods.keys()) == ["default/later", "default/there"]
        await runtime.close()
    assert watches.count("/api/v1/pods") == 1
    assert watches.count("/api/v1/nodes") == 1
