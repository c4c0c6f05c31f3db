"""One operator from its start to its end; `paddleflow operator` calls `run`.

Caches are filled before the lease is held, so that a follower takes over at once. Whoever loses the lease stops writing at that
moment (the client asks the lease before each write) and stands in line again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from paddleflow import settings
from paddleflow.base.clock import SystemClock, rfc3339
from paddleflow.base.log import Log
from paddleflow.errors import Forbidden, PaddleFlowError
from paddleflow.kube import config
from paddleflow.kube.client import Client
from paddleflow.kube.controller import Controller
from paddleflow.kube.lease import Lease, LeaseLost
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import PADDLEJOBS, PODGROUPS
from paddleflow.kube.transport import HttpTransport
from paddleflow.operator.controller import PaddleJobController
from paddleflow.operator.etcd import Etcd, Keys
from paddleflow.operator.metrics import Metrics
from paddleflow.operator.paddlejob.job import Options
from paddleflow.operator.probes import serve_pages
from paddleflow.operator.scope import Scope
from paddleflow.spec.paddlejob import crd

COMPONENT = "paddlejob-controller"
LEASE = "paddleflow-operator"
WORKERS = 4  #: jobs that are worked on at once; each writes all its objects at once
GATHER = 0.05  #: seconds in which changes of a job's pods are reconciled together: they start together
IN_FLIGHT = 32  #: requests at once: a busy API server takes long for each, and the operator only waits meanwhile
#: Objects come in large and short-lived: by its own defaults the collector walks over all modules again and again, while a
#: job waits, and finds nothing.
COLLECTOR = (20_000, 20, 50)
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
    options: Options = field(default_factory=Options)
    etcd_keys: Keys = field(default_factory=Keys)


def definitions() -> list[dict[str, Any]]:
    """The definitions of the kinds that the operator reconciles, for `paddleflow operator --crd`."""
    return [crd.definition()]


def run(arguments: Arguments) -> int:
    """Run until stopped; the exit code."""
    configure_logging()
    gc.set_threshold(*COLLECTOR)
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(arguments))
    except PaddleFlowError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return 0


async def serve(arguments: Arguments, stopping: asyncio.Event | None = None) -> None:
    """Everything that runs in this process."""
    stop = stopping or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        file = Path(arguments.kubeconfig) if arguments.kubeconfig else None
        where = config.find(settings.kubernetes_environment(), file)
        await where.credentials.get()  # an exec plugin that cannot run should end the process, with its hint
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
        identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
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
        metrics = jobs.metrics = Metrics(
            lambda: len(controller.queue), jobs.every_job, leads, lambda: len(scope.overlaps)
        )
        pages = {"/metrics": lambda: (200, metrics.page())}
        health = {"/healthz": lambda: (200, b"ok\n"), "/readyz": lambda: readiness(jobs)}
        await stack.enter_async_context(serve_pages(arguments.metrics_address, "--metrics-bind-address", pages))
        await stack.enter_async_context(serve_pages(arguments.health_address, "--health-probe-bind-address", health))
        work = _led(lease, controller) if arguments.leader_elect else controller.run
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
                _log.warning("Volcano's PodGroup is not known to the API server: jobs wait until it is")
                jobs.pod_groups.subscribe_owners(PADDLEJOBS.kind, controller.enqueue_soon)
        tasks += [group.create_task(cache.run(), name=f"cache {cache.resource.kind}") for cache in caches]
        tasks += [group.create_task(loop()) for loop in loops]
        _log.info("running", namespace=arguments.namespace or "all", volcano=arguments.options.volcano)
        await stop.wait()
        for task in tasks:
            task.cancel()


def _led(lease: Lease, controller: Controller) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        while True:
            try:
                await lease.lead(controller.run)
            except LeaseLost as error:
                _log.warning("stands in line again", error=error.message)

    return work


def readiness(jobs: PaddleJobController) -> tuple[int, bytes]:
    """Whether everything that the operator needs is watched; if not, what, and why."""
    waiting = [cache for cache in jobs.watched if not cache.synced.is_set() or isinstance(cache.error, Forbidden)]
    if not waiting:
        return 200, b"ok\n"
    why = "; ".join(
        f"{cache.resource.kind}: {cache.error.message if cache.error else 'not listed yet'}" for cache in waiting
    )
    return 503, f"{why}\n".encode()


# ---- the log: one JSON object per line, or text on a terminal


class _LogFormatter(logging.Formatter):
    def __init__(self, people: bool) -> None:
        super().__init__()
        self._people = people

    def format(self, record: logging.LogRecord) -> str:
        fields = {str(key): str(value) for key, value in (getattr(record, "fields", None) or {}).items()}
        at, level, message = rfc3339(record.created), record.levelname.lower(), record.getMessage()
        if self._people:
            return f"{at} {level:7} {message} " + " ".join(f"{key}={value}" for key, value in fields.items())
        return json.dumps(
            {"at": at, "level": level, "logger": record.name, "event": message, **fields}, ensure_ascii=False
        )


def configure_logging() -> None:
    """Send everything that is logged to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter(sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
