"""One server from its start to its end (see the package's docstring); ``paddleflow server`` calls `run`."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import uvloop

from paddleflow import settings as settings_module
from paddleflow.api.job_metrics import JobMetrics
from paddleflow.api.peers import Peers
from paddleflow.api.platform import Platform, Workplace
from paddleflow.api.run_metrics import RunMetrics
from paddleflow.base.clock import SystemClock
from paddleflow.base.log import Log
from paddleflow.base.quantity import total
from paddleflow.engine.cluster_engine import Parts
from paddleflow.engine.clusters import ClusterEngines
from paddleflow.engine.launch import GPU
from paddleflow.engine.schedule_engine import ScheduleEngine
from paddleflow.errors import PaddleFlowError
from paddleflow.queues.defaults import claim_machine
from paddleflow.queues.model import DEFAULT_CLUSTER, LOCAL, Cluster
from paddleflow.runs.counters import RunCounters
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.runtime import NodeInfo, Runtime
from paddleflow.server.bootstrap import announce, bootstrap
from paddleflow.server.data_folder import lock_data_folder, server_id
from paddleflow.server.listener import HttpServer, open_listener, peer_context
from paddleflow.server.logs import configure
from paddleflow.server.node_usage import LocalNodes
from paddleflow.server.readiness import ReadinessMetrics, database_check, disk_check
from paddleflow.settings import Settings, unknown_variables
from paddleflow.storage.file_pool import FilePool
from paddleflow.store.connection import open_bus, open_database

log = Log("server")


#: A server keeps very many small objects for long, and makes many at a time that stay: by its own defaults the collector
#: walks over all of them again and again while the scheduler decides, and finds nothing.
COLLECTOR = (20_000, 20, 50)


def run(settings: Settings) -> int:
    """Serve until told to stop; the exit code."""
    gc.set_threshold(*COLLECTOR)
    gc.freeze()  # what was imported stays
    gc.enable()
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
        parts, platform, engines = await stack.enter_async_context(assembled(settings, data))
        server = HttpServer(platform, listener)
        address = server.address(settings.server.host)
        await asyncio.gather(
            bootstrap(platform, data, address), server.prepare()
        )  # a hash takes another processor a while
        stack.callback((data / "server.json").unlink, missing_ok=True)
        async with asyncio.TaskGroup() as group:
            advertised = server.advertised(settings.server.host)
            background = [
                group.create_task(announce(platform, parts.holder, advertised), name="announcement"),
                group.create_task(engines.run(), name="engines"),
                group.create_task(
                    ScheduleEngine(parts.database, parts.clock, parts.bus, parts.holder).run(), name="schedules"
                ),
            ]
            await server.serve()
            for task in background:
                task.cancel()
        log.info("stopped", note="running jobs go on; the next start takes them up")


@asynccontextmanager
async def assembled(settings: Settings, data: Path) -> AsyncIterator[tuple[Parts, Platform, ClusterEngines]]:
    """The objects of a server, open; closed again in the opposite order."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        runtime = LocalRuntime(settings.local, data, clock)
        database = await open_database(
            settings.database.url, data, durable=settings.database.durable, readers=settings.database.readers
        )
        stack.push_async_callback(database.close)
        bus = await open_bus(settings.database.url)
        stack.push_async_callback(bus.close)
        nodes = await runtime.nodes()
        holder, capacity = server_id(data), total(node.capacity for node in nodes)
        take = settings.local.claim or not settings.database.url  # a database in this data folder is this machine's
        if not await database.write(claim_machine, clock.now(), capacity, holder, take=take):
            log.warning(
                "the jobs of default-cluster run on another machine", hint="PADDLEFLOW_LOCAL_CLAIM=1 takes it over"
            )
        files = FilePool()
        stack.callback(files.close)
        parts = Parts(database, clock, bus, settings, data, holder, files)
        counters = RunCounters()

        def local(cluster: Cluster) -> Runtime:
            if cluster.name == DEFAULT_CLUSTER:
                return runtime
            return LocalRuntime(settings.local, data / "clusters" / cluster.name, clock)

        engines = ClusterEngines(parts, {LOCAL: local}, partial(base_environment, settings), counters)
        await engines.prepare()
        checks = {"disk": disk_check(data), "engine": engines.health}
        platform = Platform(
            checks=checks,
            settings=settings,
            database=database,
            clock=clock,
            bus=bus,
            files=files,
            workplace=Workplace(data, runtime, engines),
            clusters=LocalNodes(database, engines.nodes),
            peers=Peers(database, clock, parts.holder, DEFAULT_CLUSTER, peer_context(settings.server))
            if settings.database.url
            else None,
        )
        platform.refresh.append((await JobMetrics.watching(database, platform.registry)).refresh)
        platform.refresh.append(RunMetrics(database, platform.registry, counters).refresh)
        every = {"database": database_check(database), **checks}
        platform.refresh.append(ReadinessMetrics(platform.registry, every).refresh)
        yield parts, platform, engines


def base_environment(settings: Settings, nodes: Sequence[NodeInfo]) -> dict[str, str]:
    """What every job sees: a few variables of the server, and no GPU unless it was given one."""
    env = settings_module.inherited(settings.local.inherit)
    if any(node.capacity.scalar(GPU) for node in nodes):
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env
