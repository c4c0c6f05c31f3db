"""The clusters that this server runs: one runtime and one engine for each, started as clusters come and stopped as they go.

The composition root gives a runtime factory for each type of cluster that this server can run, and runs `ClusterEngines.run`; API
handlers find the engine of a job by the job's cluster. A cluster whose `owner` is another server's machine is left alone: only that
server can see its processes. One cluster whose runtime cannot be opened does not affect the others: clusters beyond
this machine are opened concurrently, and retried until they answer. A cluster that was set offline
is disconnected, one whose connection was changed is reconnected; its jobs keep running meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from paddleflow.base.log import Log
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.engine.cluster_choice import ClusterChoice
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.engine.housekeeping import delete_for_ever, sample_for_ever
from paddleflow.engine.start_choice import StartChoice
from paddleflow.errors import PaddleFlowError
from paddleflow.queues.clusters import every_cluster
from paddleflow.queues.model import COUNTER, Cluster
from paddleflow.runs.counters import RunCounters
from paddleflow.runtimes.memory import MemoryRuntime
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.store import counters
from paddleflow.store.bus import CLUSTERS
from paddleflow.store.database import Tx

OPEN_AGAIN = 2.0  #: seconds before a cluster that could not be opened is tried again

log = Log("engine")

#: Makes the runtime of a cluster, not opened yet.
RuntimeFactory = Callable[[Cluster], Runtime]
#: The variables that every job on these nodes gets.
BaseEnvironment = Callable[[Cluster, Sequence[NodeInfo]], dict[str, str]]


@dataclass(slots=True)
class _Running:
    """A cluster at work; one whose runtime could not be opened yet has no task."""

    runtime: Runtime
    engine: ClusterEngine
    connection: tuple[str, ...]  #: what the runtime was made from
    task: asyncio.Task[None] | None = None
    opening: asyncio.Task[None] | None = None


def _connection(cluster: Cluster) -> tuple[str, ...]:
    """What of a cluster's row its runtime depends on."""
    return (
        cluster.id,
        cluster.cluster_type,
        cluster.endpoint,
        cluster.credential,
        cluster.setting,
        *cluster.namespaces,
    )


def _read_clusters(tx: Tx) -> tuple[int, list[Cluster]]:
    return counters.value(tx, COUNTER), every_cluster(tx)


class ClusterEngines:
    """The engines of this server, by the names of their clusters."""

    def __init__(
        self,
        parts: Parts,
        factories: Mapping[str, RuntimeFactory],
        environment: BaseEnvironment = lambda cluster, nodes: {},
        run_counters: RunCounters | None = None,
    ) -> None:
        self._parts = parts
        self._factories = factories
        self._environment = environment
        self._run_counters = run_counters or RunCounters()
        self._running: dict[str, _Running] = {}
        self._without_cluster: asyncio.Task[None] | None = None  #: moves runs while this server runs no cluster
        self._local: set[str] = set()  #: clusters of this machine
        self.problems: dict[str, str] = {}  #: cluster → why its runtime cannot be opened
        self.elsewhere: dict[str, str] = {}  #: cluster → the server whose machine it is

    def engine(self, cluster: str) -> ClusterEngine | None:
        """The engine of a cluster; None when another server runs it, or nobody."""
        running = self._running.get(cluster)
        return None if running is None else running.engine

    def nodes(self, cluster: str) -> Sequence[NodeInfo]:
        """The nodes of a cluster that this server runs."""
        engine = self.engine(cluster)
        return () if engine is None else engine.nodes

    def capacities(self) -> Mapping[str, Sequence[tuple[str, Resources]]]:
        """What the nodes of each cluster have, as admission wants to know it; equal as long as no node changes."""
        return {name: each.engine.capacities for name, each in self._running.items() if each.engine.capacities}

    async def waiting(self) -> Mapping[tuple[str, str, str], int]:
        """How many jobs wait, by cluster, queue and code of the reason, in the clusters that this server runs."""
        return {
            (name, *key): jobs
            for name, each in self._running.items()
            for key, jobs in (await each.engine.waiting()).items()
        }

    async def health(self) -> str:
        """Which clusters of this machine do not move their jobs, and why; empty when all do. One that is elsewhere may be away
        without fault of this server: `trouble` tells."""
        found = {name: reason for name in self._local if (reason := self.trouble(name))}
        return "; ".join(f"cluster[{name}] {reason}" for name, reason in found.items())

    def runtime(self, cluster: str) -> Runtime | None:
        """Where the jobs of a cluster run; None when this server has nothing to do with it."""
        running = self._running.get(cluster)
        return None if running is None else running.runtime

    def trouble(self, cluster: str) -> str:
        """Why the jobs of a cluster do not move; empty when they do, or when another server moves them."""
        running = self._running.get(cluster)
        return self.problems.get(cluster, "") or ("" if running is None else running.engine.health())

    async def prepare(self) -> None:
        """Make the engines of the clusters that there are, so that questions find them; nothing runs yet."""
        _, clusters = await self._parts.database.read(_read_clusters)
        for cluster in clusters:
            await self._make(cluster)

    async def run(self) -> None:
        """Run the engines of all clusters, and follow as clusters come and go. Never ends by itself."""
        version = -1
        try:
            async with asyncio.TaskGroup() as group:
                with self._parts.bus.subscribe(CLUSTERS) as subscription:
                    while True:
                        try:
                            seen, clusters = await self._parts.database.read(_read_clusters)
                            if seen != version or self.problems:
                                await self._follow(clusters, group)
                                version = seen
                        except PaddleFlowError as error:
                            log.warning("clusters are not followed", reason=error.message)
                        await subscription.wait(self._parts.timing.poll)
        finally:
            for running in self._running.values():
                await running.runtime.close()
            self._running.clear()

    async def _follow(self, clusters: Sequence[Cluster], group: asyncio.TaskGroup) -> None:
        mine = {each.name: each for each in clusters if self._is_mine(each)}
        for name, running in list(self._running.items()):
            if name not in mine or running.connection != _connection(mine[name]):
                await self._stop(name)
        self.problems = {name: why for name, why in self.problems.items() if name in mine}
        for cluster in clusters:
            await self._make(cluster)
            found = self._running.get(cluster.name)
            if found is None or found.task is not None or found.opening is not None:
                continue
            if cluster.local:
                await self._start(cluster, found, group)
            else:
                found.opening = group.create_task(self._open(cluster, found, group))
        await self._host_runs(group)

    async def _host_runs(self, group: asyncio.TaskGroup) -> None:
        """Runs advance in the turns of one engine of this server: the first that runs; without any, in those of one that has no
        cluster, so that this server can take over the runs of another."""
        started = [running.engine for running in self._running.values() if running.task is not None]
        if started and not any(engine.hosts_runs for engine in started):
            started[0].hosts_runs = True
        elif not started and self._without_cluster is None:
            runtime = MemoryRuntime(self._parts.clock, Resources())
            engine = ClusterEngine(self._parts, runtime, "", run_counters=self._run_counters, hosts_runs=True)
            self._without_cluster = group.create_task(engine.run(), name="runs without a cluster")

    def _is_mine(self, cluster: Cluster) -> bool:
        return cluster.owner in {"", self._parts.holder} and (cluster.local or cluster.online)

    async def _make(self, cluster: Cluster) -> None:
        """The runtime and engine of a cluster that this server can run."""
        if cluster.name in self._running or cluster.cluster_type not in self._factories:
            return
        if not cluster.local and not cluster.online:
            return
        if cluster.owner not in {"", self._parts.holder}:
            self.elsewhere[cluster.name] = cluster.owner
            return
        self.elsewhere.pop(cluster.name, None)
        if cluster.local:
            self._local.add(cluster.name)
        try:
            runtime = self._factories[cluster.cluster_type](cluster)
        except PaddleFlowError as error:
            self._note(cluster.name, error)
            return
        nodes = await runtime.nodes()
        engine = ClusterEngine(
            self._parts,
            runtime,
            cluster.name,
            base_env=self._environment(cluster, nodes),
            run_counters=self._run_counters,
            hosts_runs=False,
        )
        engine.set_nodes(nodes)
        self._running[cluster.name] = _Running(runtime, engine, _connection(cluster))

    async def _open(self, cluster: Cluster, running: _Running, group: asyncio.TaskGroup) -> None:
        """Open a cluster beyond this machine, however long that takes; nobody waits for it."""
        while running.task is None:
            await self._start(cluster, running, group)
            if running.task is None:
                await asyncio.sleep(OPEN_AGAIN)
        running.opening = None

    def _note(self, cluster: str, error: PaddleFlowError | OSError) -> None:
        if self.problems.get(cluster) != str(error):
            log.error("a cluster does not run", cluster=cluster, reason=str(error))
        self.problems[cluster] = str(error)

    async def _start(self, cluster: Cluster, running: _Running, group: asyncio.TaskGroup) -> None:
        try:
            await running.runtime.open()
        except (PaddleFlowError, OSError) as error:
            self._note(cluster.name, error)
            return
        self.problems.pop(cluster.name, None)
        if self._without_cluster is not None:
            await _cancel(self._without_cluster)
            self._without_cluster = None
        if not any(each.engine.hosts_runs for each in self._running.values() if each.task is not None):
            running.engine.hosts_runs = True  # from its first turn on
        work = _run_cluster(running, self._parts)
        running.task = group.create_task(work, name=f"cluster {cluster.name}")
        log.info("cluster runs", cluster=cluster.name, type=cluster.cluster_type)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name)
        self.problems.pop(name, None)
        for task in (running.opening, running.task):
            if task is not None:
                await _cancel(task)
        await running.runtime.close()
        log.info("cluster runs no longer", cluster=name)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _run_cluster(running: _Running, parts: Parts) -> None:
    """An engine and what runs beside its turns."""
    async with asyncio.TaskGroup() as group:
        group.create_task(running.engine.run())
        group.create_task(running.engine.keep_decisions())
        group.create_task(sample_for_ever(running.runtime, parts))
        group.create_task(delete_for_ever(running.runtime, running.engine.cluster, parts))
        group.create_task(ClusterChoice(running.engine, parts).run())
        group.create_task(StartChoice(running.engine, parts).run())
