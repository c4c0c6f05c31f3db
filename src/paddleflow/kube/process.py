"""What every long-running process on Kubernetes does: run until a signal, lead by a lease, say whether it is ready.

The operator and the pod scheduler are such processes; each composes its own caches, loops and pages.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from paddleflow import settings
from paddleflow.base.log import Log, log_to_stderr
from paddleflow.errors import Forbidden, PaddleFlowError, TooMany, Unavailable
from paddleflow.kube import config
from paddleflow.kube.cache import Cache
from paddleflow.kube.lease import Lease, LeaseLost
from paddleflow.kube.queue import Backoff
from paddleflow.kube.transport import Endpoint

#: Objects come in large and short-lived: by its own defaults the collector walks over all modules again and again, while
#: somebody waits, and finds nothing.
COLLECTOR = (20_000, 20, 50)
T = TypeVar("T")
_log = Log("kube")


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a process until it is stopped; its exit code."""
    log_to_stderr()
    gc.set_threshold(*COLLECTOR)
    gc.freeze()
    failed = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except* PaddleFlowError as errors:
        failed = True
        for error in _leaves(errors):
            sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
    return int(failed)


def _leaves(errors: BaseExceptionGroup[PaddleFlowError]) -> Iterator[PaddleFlowError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def stopped_by_signal() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def find_endpoint(kubeconfig: str) -> Endpoint:
    """The API server of a kubeconfig, or of the cluster that this runs in. An exec plugin that cannot run is found out here."""
    found = config.find(settings.kubernetes_environment(), Path(kubeconfig) if kubeconfig else None)
    await found.credentials.get()
    return found


def lease_identity() -> str:
    """A name that no other process has, for a lease."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


async def lead(lease: Lease, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the work whenever this process holds the lease, for ever."""
    while True:
        try:
            await lease.lead(work)
        except LeaseLost as error:
            _log.warning("waits for the lease again", error=error.message)


async def served(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The answer to the first question of a process. An API server that starts or is overloaded is waited for."""
    backoff = Backoff(0.2, 10.0)
    while True:
        try:
            return await ask()
        except (Unavailable, TooMany) as error:
            _log.warning("the API server does not answer yet", error=error.message)
            await asyncio.sleep(backoff.next())


def readiness(watched: Iterable[Cache[Any]], lease: Lease | None = None) -> tuple[int, bytes]:
    """The page of a readiness probe: whether everything that must be watched is; if not, what, and why. A process that stands by
    is ready, and says for whom it does."""
    waiting = [cache for cache in watched if not cache.synced.is_set() or isinstance(cache.error, Forbidden)]
    if not waiting:
        return 200, b"ok\n" if lease is None or lease.leads else f"ok: {lease.standing}\n".encode()
    why = "; ".join(
        f"{cache.resource.kind}: {cache.error.message if cache.error else 'not listed yet'}" for cache in waiting
    )
    return 503, f"{why}\n".encode()
