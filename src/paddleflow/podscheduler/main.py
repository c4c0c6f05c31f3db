"""One scheduler from its start to its end; `paddleflow scheduler` calls `run`.

Caches are filled before the lease is held, so that a follower takes over at once. There is one lease for a cluster, whatever
namespace schedulers run in: two that decide about the same free room would undo each other's work.
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
from paddleflow.kube.lease import Lease
from paddleflow.kube.probes import serve_pages
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.transport import HttpTransport
from paddleflow.podscheduler.foreign_pods import LEASE, LEASE_NAMESPACE
from paddleflow.podscheduler.metrics import Metrics
from paddleflow.podscheduler.scheduler import PodScheduler
from paddleflow.podscheduler.writer import IN_FLIGHT
from paddleflow.runtimes.kubernetes.pods import SCHEDULER
from paddleflow.scheduling.rules import Rules

COMPONENT = "paddleflow-scheduler"
_log = Log("podscheduler")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    kubeconfig: str = ""
    scheduler: str = SCHEDULER
    placement: str = "pack"
    lease_namespace: str = LEASE_NAMESPACE
    metrics_address: str = ":8080"
    health_address: str = ":8081"
    rules: Rules = field(default_factory=lambda: Rules(preemption=True))


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
        recorder = Recorder(plain, COMPONENT, clock)
        lease = Lease(plain, LEASE, arguments.lease_namespace, process.lease_identity(), clock)
        client.fence = lease.check
        pods = PodScheduler(client, recorder, clock, arguments.rules, arguments.placement, arguments.scheduler)
        metrics = pods.metrics = Metrics(lambda: pods.board.waiting, lambda: lease.leads)
        pages = {"/metrics": lambda: (200, metrics.page())}
        health = {"/healthz": lambda: (200, b"ok\n"), "/readyz": lambda: process.readiness(pods.caches.watched, lease)}
        await stack.enter_async_context(serve_pages(arguments.metrics_address, "--metrics-bind-address", pages))
        await stack.enter_async_context(serve_pages(arguments.health_address, "--health-probe-bind-address", health))
        await _work(pods, [recorder.run, lambda: process.lead(lease, pods.run)], arguments, stop)


async def _work(
    pods: PodScheduler,
    loops: list[Callable[[], Coroutine[Any, Any, None]]],
    arguments: Arguments,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        working = group.create_task(_run(pods, loops, arguments))
        await stop.wait()
        working.cancel()


async def _run(pods: PodScheduler, loops: list[Callable[[], Coroutine[Any, Any, None]]], arguments: Arguments) -> None:
    if not await process.served(pods.caches.find_volcano):
        _log.warning("Queue and PodGroup are not known to the API server: pods are scheduled one by one")
    async with asyncio.TaskGroup() as group:
        for cache in pods.caches.all:
            group.create_task(cache.run(), name=f"cache {cache.resource.kind}")
        for loop in loops:
            group.create_task(loop())
        _log.info("running", scheduler=arguments.scheduler, placement=arguments.placement)
