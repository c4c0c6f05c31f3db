"""One server from its start to its end (see the package's docstring); ``paddleflow server`` calls `run`."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from paddleflow.api import memory
from paddleflow.api.job_metrics import JobMetrics, RunMetrics, WaitingMetrics
from paddleflow.api.peers import Peers
from paddleflow.api.platform import Compute, Platform
from paddleflow.base.clock import Clock, SystemClock
from paddleflow.base.log import Log
from paddleflow.base.quantity import total
from paddleflow.engine.cluster_engine import Parts
from paddleflow.engine.clusters import ClusterEngines
from paddleflow.engine.job_storages import JobStorages
from paddleflow.engine.launch import GPU
from paddleflow.engine.schedule_engine import ScheduleEngine
from paddleflow.engine.shared_mounts import SharedMounts, Spawn
from paddleflow.environment import inherited
from paddleflow.errors import PaddleFlowError
from paddleflow.queues.clusters import encrypt_credentials
from paddleflow.queues.defaults import claim_machine
from paddleflow.queues.model import DEFAULT_CLUSTER, KUBERNETES, LOCAL, Cluster
from paddleflow.runs.counters import RunCounters
from paddleflow.runtimes.local.capacity import this_machine
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.local.remote_storages import RemoteStorages
from paddleflow.runtimes.local.turns import take_short_turns
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.server.bootstrap import announce, bootstrap
from paddleflow.server.data_folder import lock_data_folder, server_id
from paddleflow.server.encrypted_columns import ENCRYPTED_COLUMNS
from paddleflow.server.listener import HttpServer, open_listener, peer_contexts
from paddleflow.server.logs import configure
from paddleflow.server.node_usage import ClusterNodes
from paddleflow.server.readiness import ReadinessMetrics, database_check, disk_check
from paddleflow.settings import LocalSettings, Settings, kubernetes_environment, unknown_variables
from paddleflow.storage.file_pool import FilePool
from paddleflow.storage.storages import local_folders
from paddleflow.storage.stores import Stores
from paddleflow.store.connection import open_bus, open_database
from paddleflow.store.database import Database
from paddleflow.store.encryption import Keyring, open_keyring

if TYPE_CHECKING:
    from paddleflow.api.cluster_view import ClusterCheck
    from paddleflow.server.kubernetes_clusters import KubernetesClusters

log = Log("server")


#: A server keeps very many small objects for long, and makes many at a time that stay: by its own defaults the collector
#: walks over all of them again and again while the scheduler decides, and finds nothing.
COLLECTOR = (20_000, 20, 50)
#: Seconds after which a thread that computes hands over the interpreter. The loop hands it over with every system call and waits that
#: long to get it back, for each thread that computes: with the default of 5 ms, two busy threads made a request wait for seconds.
SWITCH = 0.002
#: Seconds that a server has to end, once it was told to or something in it failed: requests that are answered, ten of them. A thread may
#: be in a call that takes long, such as one to a store of a user's choice, and Python would wait for it without end.
ENDS = 20.0


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit code."""
    memory.limit_arenas()
    gc.set_threshold(*COLLECTOR)
    gc.freeze()  # what was imported stays
    gc.enable()
    sys.setswitchinterval(SWITCH)
    take_short_turns()  # this thread, which is the loop's: also beside its own threads and busy jobs
    configure(settings.server.log_level, settings.server.log_format)
    for unknown in unknown_variables():
        log.warning("variable ignored", variable=unknown.where, reason=unknown.message, hint=unknown.hint)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except PaddleFlowError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return 0


async def serve(settings: Settings) -> None:
    """Everything that runs in this process."""
    async with AsyncExitStack() as stack:
        data = settings.data_folder
        stack.enter_context(lock_data_folder(data))
        listener = stack.enter_context(open_listener(settings))
        parts, platform, engines, schedules = await stack.enter_async_context(assembled(settings, data))
        server = HttpServer(platform, listener)
        address = server.address(settings.server.host)
        await asyncio.gather(
            bootstrap(platform, data, address), server.prepare()
        )  # a hash takes another processor a while
        stack.callback((data / "server.json").unlink, missing_ok=True)
        async with asyncio.TaskGroup() as group:
            advertised = server.advertised(settings.server.host)
            background = [
                group.create_task(_end_in_time(platform.closing), name="end"),
                group.create_task(announce(platform, parts.holder, advertised), name="announcement"),
                group.create_task(engines.run(), name="engines"),
                group.create_task(memory.trim_for_ever(), name="memory"),
                group.create_task(platform.user_folders.follow_for_ever(), name="folders of users"),
                group.create_task(schedules.run(), name="schedules"),
            ]
            await server.serve()
            for task in background:
                task.cancel()
        log.info("stopped", note="running jobs go on; the next start takes them up")


async def _end_in_time(closing: asyncio.Event) -> None:
    """Wait until the server is told to end, or this is cancelled because another task failed; from then on it has `ENDS` seconds."""
    try:
        await closing.wait()
    finally:
        threading.Thread(target=_end_later, args=(not closing.is_set(),), name="end", daemon=True).start()


def _end_later(failed: bool) -> None:
    time.sleep(ENDS)
    busy = ", ".join(sorted(thread.name for thread in threading.enumerate() if not thread.daemon))
    log.warning("ended without waiting any longer", threads=busy, seconds=ENDS)
    os._exit(int(failed))


@asynccontextmanager
async def assembled(
    settings: Settings, data: Path
) -> AsyncIterator[tuple[Parts, Platform, ClusterEngines, ScheduleEngine]]:
    """The objects of a server, open; closed again in the opposite order."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        database = await open_database(
            settings.database.url, data, durable=settings.database.durable, readers=settings.database.readers
        )
        stack.push_async_callback(database.close)
        bus = await open_bus(settings.database.url)
        stack.push_async_callback(bus.close)
        keyring = await open_keyring(database, settings.encryption, data, ENCRYPTED_COLUMNS, clock.now())
        await database.write(encrypt_credentials, keyring)
        background = await stack.enter_async_context(asyncio.TaskGroup())
        spawn = background.create_task
        storages = job_storages(stack, settings.local, data, database, clock, Stores(data, keyring), spawn)
        make_local = partial(local_runtime, settings, clock, database, storages)
        runtime = make_local(data)
        nodes = await runtime.nodes()
        holder, capacity = server_id(data), total(node.capacity for node in nodes)
        take = settings.local.claim or not settings.database.url  # a database in this data folder is this machine's
        if not await database.write(claim_machine, clock.now(), capacity, holder, take=take):
            log.warning(
                "the jobs of default-cluster run on another machine", hint="PADDLEFLOW_LOCAL_CLAIM=1 takes it over"
            )
        files = FilePool()
        stack.callback(files.close)
        parts = Parts(database, clock, bus, settings, data, holder, files, keyring=keyring)
        counters = RunCounters()

        def local(cluster: Cluster) -> Runtime:
            if cluster.name == DEFAULT_CLUSTER:
                return runtime
            return make_local(data / "clusters" / cluster.name)

        clusters = LazyKubernetesClusters(settings.files_folder, clock, keyring, spawn, database)
        factories = {LOCAL: local, **dict.fromkeys(KUBERNETES, clusters.runtime)}
        engines = ClusterEngines(parts, factories, partial(base_environment, settings), counters)
        await engines.prepare()
        schedules = ScheduleEngine(database, clock, bus, holder)
        checks = {"disk": disk_check(data), "engine": engines.health, "schedules": schedules.health}
        platform = Platform(
            checks=checks,
            settings=settings,
            database=database,
            clock=clock,
            bus=bus,
            files=files,
            keyring=keyring,
            compute=Compute(data, runtime, engines, files=settings.files_folder),
            clusters=ClusterNodes(database, engines.nodes),
            check_cluster=clusters.check,
            peers=Peers(database, clock, parts.holder, DEFAULT_CLUSTER, peer_contexts(settings.server))
            if settings.database.url
            else None,
        )
        await add_metrics(platform, engines, counters)
        yield parts, platform, engines, schedules


class LazyKubernetesClusters:
    """`KubernetesClusters`, imported with the first cluster of that type: most servers have none, and it is a tenth of what a start imports."""

    def __init__(self, files: Path, clock: Clock, keyring: Keyring, spawn: Spawn, database: Database) -> None:
        self._parts = files, clock, keyring, kubernetes_environment(), spawn, database

    @cached_property
    def _clusters(self) -> KubernetesClusters:
        from paddleflow.server.kubernetes_clusters import KubernetesClusters

        return KubernetesClusters(*self._parts)

    def runtime(self, cluster: Cluster) -> Runtime:
        return self._clusters.runtime(cluster)

    async def check(self, cluster: Cluster) -> ClusterCheck:
        return await (await asyncio.to_thread(lambda: self._clusters)).check(cluster)


async def add_metrics(platform: Platform, engines: ClusterEngines, counters: RunCounters) -> None:
    """What /metrics shows besides requests."""
    database, registry = platform.database, platform.registry
    checks = {"database": database_check(database), **platform.checks}
    added = [
        (await JobMetrics.watching(database, registry)).refresh,
        WaitingMetrics(registry, engines.waiting).refresh,
        RunMetrics(database, registry, counters).refresh,
        ReadinessMetrics(registry, checks).refresh,
    ]
    platform.refresh.extend(added)


def job_storages(
    stack: AsyncExitStack,
    settings: LocalSettings,
    data: Path,
    database: Database,
    clock: SystemClock,
    stores: Stores,
    spawn: Spawn,
) -> JobStorages:
    """How jobs of this machine get at storages that are no folders, with the loop that looks after their mounts."""
    mounts = SharedMounts(database, clock, stores, settings, data, this_machine(settings).name, spawn)
    stack.callback(mounts.close)
    stack.callback(spawn(mounts.run()).cancel)
    return JobStorages(database, stores, mounts, settings, spawn)


def local_runtime(
    settings: Settings, clock: Clock, database: Database, storages: RemoteStorages | None, data: Path
) -> LocalRuntime:
    """Processes of this machine. The folders of all storages are hidden from isolated jobs."""
    found = LocalRuntime(settings.local, data, clock, files=settings.files_folder, storages=storages)
    found.local_storages = partial(database.read, local_folders)
    return found


def base_environment(settings: Settings, cluster: Cluster, nodes: Sequence[NodeInfo]) -> dict[str, str]:
    """What every job of this machine sees: a few variables of the server, and no GPU unless it was given one. A container has its own."""
    if not cluster.local:
        return {}
    env = inherited(settings.local.inherit)
    if any(node.capacity.scalar(GPU) for node in nodes):
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env
