"""One operator from its start to its end; `paddleflow operator` calls `run`.

Caches are filled before the lease is held, so that a follower takes over at once. Whoever loses the lease stops writing at that
moment (the client asks the lease before each write) and stands in line again.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from paddleflow import settings
from paddleflow.base.clock import SystemClock
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.kube import config
from paddleflow.kube.client import Client
from paddleflow.kube.controller import Controller
from paddleflow.kube.lease import Lease, LeaseLost
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import PADDLEJOBS, PODGROUPS
from paddleflow.kube.transport import HttpTransport
from paddleflow.operator.etcd import Etcd, Keys
from paddleflow.operator.logs import configure
from paddleflow.operator.metrics import Metrics
from paddleflow.operator.paddlejob.job import Options
from paddleflow.operator.paddlejobs import PaddleJobs
from paddleflow.operator.probes import door

COMPONENT = "paddlejob-controller"
LEASE = "paddleflow-operator"
WORKERS = 4  #: jobs that are worked on at once; each writes all its objects at once
GATHER = 0.05  #: seconds in which changes of a job's pods are one look: they start together
IN_FLIGHT = 32  #: requests at once: a busy API server takes long for each, and the operator only waits meanwhile
#: Objects come in large and short-lived: by its own defaults the collector walks over all modules again and again, while a
#: job waits, and finds nothing.
COLLECTOR = (20_000, 20, 50)
_log = Log("operator")


@dataclass(frozen=True, slots=True)
class Running:
    """What the command line says."""

    kubeconfig: str = ""
    namespace: str = ""  #: empty: all
    leader_elect: bool = False
    lease_namespace: str = ""
    metrics_address: str = ":8080"
    health_address: str = ":8081"
    options: Options = field(default_factory=Options)
    etcd_keys: Keys = field(default_factory=Keys)


def run(running: Running) -> int:
    """Work until told to stop; the exit code."""
    configure()
    gc.set_threshold(*COLLECTOR)
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(running))
    except PaddleFlowError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return 0


async def serve(running: Running, stopping: asyncio.Event | None = None) -> None:
    """Everything that runs in this process."""
    stop = stopping or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        file = Path(running.kubeconfig) if running.kubeconfig else None
        where = config.find(settings.kubernetes_environment(), file)
        client = Client(HttpTransport(where, limit=IN_FLIGHT), manager=COMPONENT)
        plain = Client(HttpTransport(where), manager=COMPONENT)
        stack.push_async_callback(client.close)
        stack.push_async_callback(plain.close)
        clock = SystemClock()
        recorder = Recorder(client, COMPONENT, clock)
        etcd = Etcd(running.options.etcd, running.etcd_keys) if running.options.etcd else None
        jobs = PaddleJobs(client, recorder, clock, running.options, running.namespace, etcd)
        controller = Controller(
            "paddlejob",
            jobs.look,
            clock,
            workers=WORKERS,
            gather=GATHER,
            observe=lambda turn: metrics.observe(turn),
        )
        identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        lease = Lease(plain, LEASE, running.lease_namespace or where.namespace or "default", identity, clock)
        leads = (lambda: lease.leads) if running.leader_elect else (lambda: True)
        if running.leader_elect:
            client.fence = lease.check
        metrics = jobs.metrics = Metrics(lambda: len(controller.queue), jobs.every_job, leads)
        pages = {"/metrics": lambda: (200, metrics.page())}
        health = {"/healthz": lambda: (200, b"ok\n"), "/readyz": lambda: readiness(jobs)}
        await stack.enter_async_context(door(running.metrics_address, "--metrics-bind-address", pages))
        await stack.enter_async_context(door(running.health_address, "--health-probe-bind-address", health))
        work = _led(lease, controller) if running.leader_elect else controller.run
        await _work(client, jobs, controller, recorder, work, running, stop)


async def _work(
    client: Client,
    jobs: PaddleJobs,
    controller: Controller,
    recorder: Recorder,
    work: Callable[[], Awaitable[None]],
    running: Running,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(recorder.run(), name="events")]
        controller.watch(jobs.jobs)
        caches = [jobs.jobs, jobs.pods, jobs.config_maps, jobs.services]
        for cache in caches[1:]:
            controller.watch_owned(cache, PADDLEJOBS.kind)
        if running.options.volcano:
            caches.append(jobs.pod_groups)
            if await client.serves(PODGROUPS):
                controller.watch_owned(jobs.pod_groups, PADDLEJOBS.kind)
            else:  # jobs say that it is missing; when it is installed the cache comes to life
                _log.warning("Volcano's PodGroup is not known to the API server: jobs wait until it is")
                jobs.pod_groups.subscribe_owners(PADDLEJOBS.kind, controller.enqueue_soon)
        tasks += [group.create_task(cache.run(), name=f"cache {cache.resource.kind}") for cache in caches]
        tasks.append(group.create_task(_ensure(work()), name="controller"))
        _log.info("running", namespace=running.namespace or "all", volcano=running.options.volcano)
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _ensure(work: Awaitable[None]) -> None:
    await work


def _led(lease: Lease, controller: Controller) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        while True:
            try:
                await lease.lead(controller.run)
            except LeaseLost as error:
                _log.warning("stands in line again", error=error.message)

    return work


def readiness(jobs: PaddleJobs) -> tuple[int, bytes]:
    """Whether the caches are filled; if not, why."""
    waiting = [cache for kind, cache in jobs.caches.items() if kind != "PodGroup" and not cache.synced.is_set()]
    if not waiting:
        return 200, b"ok\n"
    why = "; ".join(
        f"{cache.resource.kind}: {cache.error.message if cache.error else 'not listed yet'}" for cache in waiting
    )
    return 503, f"{why}\n".encode()
