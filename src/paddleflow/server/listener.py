"""The listening socket of a server and the HTTP server behind it; `running` opens both."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn

from paddleflow.api.application import build
from paddleflow.api.platform import Platform
from paddleflow.api.routes import ROUTE_GROUPS, SOCKETS
from paddleflow.errors import Unavailable
from paddleflow.server.connections import budget
from paddleflow.server.transport import bounded
from paddleflow.settings import Settings


@contextmanager
def open_listener(settings: Settings) -> Iterator[socket.socket]:
    """The socket, bound before anything else is opened, so that a taken port is the first thing to be said."""
    budget(settings.server)  # too few descriptors: said before the keeper fails for want of them
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
class HttpServer:
    """uvicorn, with our own handling of signals and streams."""

    platform: Platform
    listener: socket.socket
    _server: _UvicornServer = field(init=False)

    def address(self, host: str) -> str:
        port = self.listener.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
        return f"http://{shown}:{port}"

    async def prepare(self) -> None:
        """Everything that can be done before the first request."""
        app = build(self.platform, ROUTE_GROUPS, SOCKETS)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            http=bounded(budget(self.platform.settings.server)),
            ws="websockets-sansio",
            lifespan="off",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=self.platform.settings.server.keep_alive,
            proxy_headers=bool(self.platform.settings.server.trusted_proxies),
            forwarded_allow_ips=self.platform.settings.server.trusted_proxies or None,
            backlog=2048,
        )
        config.load()
        self._server = _UvicornServer(config)

    @property
    def started(self) -> bool:
        return self._server.started

    def stop(self) -> None:
        """Answer what has begun, end the streams, and return from `serve`."""
        self.platform.closing.set()
        self._server.should_exit = True

    async def serve(self) -> None:
        server = self._server
        loop = asyncio.get_running_loop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(_build_documents))
            await server.serve([self.listener])


def _build_documents() -> None:
    """Documents are built at first use; do that while nobody waits for it."""
    for route in (route for group in ROUTE_GROUPS for route in group):
        for kind in (route.body, route.query):
            if kind is not None:
                kind.model_rebuild()


class _UvicornServer(uvicorn.Server):
    """Leaves the signals to `HttpServer.serve`; uvicorn would install its own handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
