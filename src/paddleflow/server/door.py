"""The door of a server: the lock of its data folder, its socket, and the HTTP server behind it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from paddleflow.api import (
    artifacts,
    cluster_nodes,
    clusters,
    events,
    flavours,
    grants,
    jobs,
    logs,
    pipelines,
    pools,
    queues,
    run_caches,
    run_logs,
    run_pictures,
    runs,
    scheduler,
    schedules,
    statistics,
    storages,
    users,
    why,
)
from paddleflow.api.application import build
from paddleflow.api.platform import Platform
from paddleflow.errors import Conflict, Unavailable
from paddleflow.server.gathering import GatheringProtocol
from paddleflow.settings import Settings

ROUTE_GROUPS = (
    users.ROUTES, grants.ROUTES, clusters.ROUTES, cluster_nodes.ROUTES, queues.ROUTES, flavours.ROUTES, pools.ROUTES, storages.ROUTES,
    pipelines.ROUTES, runs.ROUTES, run_pictures.ROUTES, run_logs.ROUTES, run_caches.ROUTES, artifacts.ROUTES, schedules.ROUTES,
    jobs.ROUTES, why.ROUTES, scheduler.ROUTES, logs.ROUTES, events.ROUTES, statistics.ROUTES,
)  # fmt: skip


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """One server per data folder: a second one is refused in words."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (data / "server.lock").open("a+")
    except OSError as error:
        raise Unavailable(
            f"data folder {data}: {error.strerror}", hint="choose another with --data or PADDLEFLOW_SERVER_DATA"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            other = file.read().strip() or "unknown"
            raise Conflict(
                f"another server (process {other}) already runs on the data folder {data}",
                hint="stop it, or choose another folder with --data",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The socket, bound before anything else is opened, so that a taken port is the first thing to be said."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(2048)  # only a listener that listens keeps a second server away
        except (OSError, OverflowError) as error:
            raise Unavailable(
                f"cannot listen on {host}:{port}: {error}", hint="choose another port with --port, or 0 for a free one"
            ) from error
        listener.set_inheritable(False)
        yield listener


@dataclass(slots=True)
class Server:
    """uvicorn, with our own handling of signals and streams."""

    platform: Platform
    listener: socket.socket
    _server: _Quiet = field(init=False)

    def address(self, host: str) -> str:
        port = self.listener.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
        return f"http://{shown}:{port}"

    async def prepare(self) -> None:
        """Everything that can be done before somebody is let in."""
        app = build(self.platform, ROUTE_GROUPS, events.SOCKETS)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            http=GatheringProtocol,
            ws="websockets-sansio",
            lifespan="off",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=75,
            proxy_headers=False,
            backlog=2048,
        )
        config.load()
        self._server = _Quiet(config)

    async def serve(self) -> None:
        server = self._server
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.platform.closing.set()
            server.should_exit = True

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(_build_documents))
            await server.serve([self.listener])


def _build_documents() -> None:
    """Documents are built at first use; do that while nobody waits for it."""
    for route in (route for group in ROUTE_GROUPS for route in group):
        for kind in (route.body, route.query):
            if kind is not None:
                kind.model_rebuild()


class _Quiet(uvicorn.Server):
    """uvicorn takes signals away from us otherwise."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
