"""One operator from its start to its end; `paddleflow operator` calls `run`.

Caches are filled before the lease is held, so that a follower takes over at once. Whoever loses the lease stops writing at that
moment (the client asks the lease before each write) and stands in line again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import field
from typing import Any

from paddleflow.base.clock import SystemClock
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.kube import process
from paddleflow.kube.client import Client
from paddleflow.kube.controller import Controller
from paddleflow.kube.lease import Lease
from paddleflow.kube.probes import serve_pages
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import PADDLEJOBS, PODGROUPS
from paddleflow.kube.transport import HttpTransport
from paddleflow.operator.controller import PaddleJobController
from paddleflow.operator.etcd import Etcd, Keys
from paddleflow.operator.metrics import OperatorMetrics
from paddleflow.operator.paddlejob.job import OperatorOptions
from paddleflow.operator.scope import Scope
from paddleflow.spec.paddlejob import crd

COMPONENT = "paddlejob-controller"
LEASE = "paddleflow-operator"
WORKERS = 4  #: jobs that are worked on at once; each writes all its objects at once
GATHER = 0.05  #: seconds in which changes of a job's pods are reconciled together: they start together
IN_FLIGHT = 32  #: requests at once: a busy API server takes long for each, and the operator only waits meanwhile
_log = Log("operator")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    kubeconfig: str = ""
    namespace: str = ""  #: empty: all
    leader_elect: bool = False
    lease_namespace: str = ""
    metrics_address: str = ":8080"
    health_address: str = ":8081"
    options: OperatorOptions = field(default_factory=OperatorOptions)
    etcd_keys: Keys = field(default_factory=Keys)


def definitions() -> list[dict[str, Any]]:
    """The definitions of the kinds that the operator reconciles, for `paddleflow operator --crd`."""
    return [crd.definition()]


def run(arguments: Arguments) -> int:
    """Run until stopped; the exit code."""
    return process.run(lambda: serve(arguments))


async def serve(arguments: Arguments) -> None:
    """Everything that runs in this process."""
    stop = process.stopped_by_signal()
    async with AsyncExitStack() as stack:
        where = await process.find_endpoint(arguments.kubeconfig)
        client = Client(HttpTransport(where, limit=IN_FLIGHT), manager=COMPONENT)
        plain = Client(HttpTransport(where), manager=COMPONENT)
        stack.push_async_callback(client.close)
        stack.push_async_callback(plain.close)
        clock = SystemClock()
        recorder = Recorder(client, COMPONENT, clock)
        etcd = Etcd(arguments.options.etcd, arguments.etcd_keys) if arguments.options.etcd else None
        jobs = PaddleJobController(client, recorder, clock, arguments.options, arguments.namespace, etcd)
        controller = Controller(
            "paddlejob",
            jobs.reconcile,
            clock,
            workers=WORKERS,
            gather=GATHER,
            observe=lambda turn: metrics.observe(turn),
        )
        identity = process.lease_identity()
        home = arguments.lease_namespace or where.namespace or "default"
        lease = Lease(plain, LEASE, home, identity, clock)
        leads = (lambda: lease.leads) if arguments.leader_elect else (lambda: True)
        if arguments.leader_elect:
            client.fence = lease.check
        scope = Scope(
            plain,
            recorder,
            clock,
            installation=f"{home}/{LEASE}" if arguments.leader_elect else identity,
            namespace=arguments.namespace,
            home=home,
            leads=leads,
        )
        metrics = jobs.metrics = OperatorMetrics(
            lambda: len(controller.queue), jobs.every_job, leads, lambda: len(scope.overlaps)
        )
        pages = {"/metrics": lambda: (200, metrics.page())}
        health = {"/healthz": lambda: (200, b"ok\n"), "/readyz": lambda: process.readiness(jobs.watched)}
        await stack.enter_async_context(serve_pages(arguments.metrics_address, "--metrics-bind-address", pages))
        await stack.enter_async_context(serve_pages(arguments.health_address, "--health-probe-bind-address", health))
        work = (lambda: process.lead(lease, controller.run)) if arguments.leader_elect else controller.run
        await _work(client, jobs, controller, [recorder.run, scope.run, work], arguments, stop)


async def _work(
    client: Client,
    jobs: PaddleJobController,
    controller: Controller,
    loops: list[Callable[[], Coroutine[Any, Any, None]]],
    arguments: Arguments,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        controller.watch(jobs.jobs)
        caches = [jobs.jobs, jobs.pods, jobs.config_maps, jobs.services]
        for cache in caches[1:]:
            controller.watch_owned(cache, PADDLEJOBS.kind)
        if arguments.options.volcano:
            caches.append(jobs.pod_groups)
            if await client.serves(PODGROUPS):
                jobs.watched.append(jobs.pod_groups)
                controller.watch_owned(jobs.pod_groups, PADDLEJOBS.kind)
            else:  # jobs report that it is missing; once it is installed the cache fills
                _log.warning("PodGroup is not known to the API server: jobs wait until it is")
                jobs.pod_groups.subscribe_owners(PADDLEJOBS.kind, controller.enqueue_soon)
        tasks += [group.create_task(cache.run(), name=f"cache {cache.resource.kind}") for cache in caches]
        tasks += [group.create_task(loop()) for loop in loops]
        _log.info("running", namespace=arguments.namespace or "all", volcano=arguments.options.volcano)
        await stop.wait()
        for task in tasks:
            task.cancel()
