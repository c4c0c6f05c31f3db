"""The listening socket of a server and the HTTP server behind it; `main` opens both."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.config import WS_PROTOCOLS
from uvicorn.importer import import_from_string

from paddleflow.api.application import build
from paddleflow.api.platform import Platform
from paddleflow.api.routes import ROUTE_GROUPS, SOCKETS
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, PaddleFlowError, Unavailable
from paddleflow.server.connections import budget
from paddleflow.server.transport import bounded
from paddleflow.settings import ServerSettings, Settings

MOST_MESSAGE = 2**20  #: bytes of a message that a client sends over a websocket
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
#: Connections that are accepted in one iteration of the loop. libuv accepts one for each listening descriptor, and an iteration is long
#: while many ask: in a queue that moves by one, a new client waits for everybody's connections instead of for one iteration.
ACCEPTS = 16
RELOAD_EVERY = 10.0  #: seconds between two checks of the files of the certificate

log = Log("server")


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
        return f"{self._scheme}://{shown}:{port}"

    def advertised(self, host: str) -> str:
        """The URL for other servers: as set, or the name of this machine when all its addresses are listened on."""
        given = self.platform.settings.server.advertise
        if given:
            return given.rstrip("/")
        if host not in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
            return self.address(host)
        return f"{self._scheme}://{socket.gethostname()}:{self.listener.getsockname()[1]}"

    @property
    def _scheme(self) -> str:
        return "https" if self.platform.settings.server.tls_cert else "http"

    async def prepare(self) -> None:
        """Everything that can be done before the first request."""
        app = build(self.platform, ROUTE_GROUPS, SOCKETS)
        settings = self.platform.settings.server
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            http=bounded(budget(settings)),
            ws=_websocket,  # type: ignore[arg-type]  # uvicorn calls it, as it calls a class
            ws_max_size=MOST_MESSAGE,
            lifespan="off",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=settings.keep_alive,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies or None,
            backlog=2048,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
        )
        if settings.tls_cert:
            tls_context(settings)  # says what is wrong with the files
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
            background = [
                group.create_task(self._reload_certificate()),
                group.create_task(self.platform.audit.run()),
            ]
            await server.serve([self.listener, *(self.listener.dup() for _ in range(ACCEPTS - 1))])
            for task in background:
                task.cancel()

    async def _reload_certificate(self) -> None:
        """New files are used for new connections; files that cannot be used are left alone, with a line in the log."""
        settings, context = self.platform.settings.server, self._server.config.ssl
        if context is None:
            return
        seen = _changed_at(settings)
        while True:
            await asyncio.sleep(RELOAD_EVERY)
            now = _changed_at(settings)
            if now == seen:
                continue
            seen = now
            try:
                tls_context(settings)
                context.load_cert_chain(settings.tls_cert, settings.tls_key)
            except PaddleFlowError as error:
                log.warning("the certificate was not reloaded", reason=error.message)
            else:
                log.info("certificate reloaded", file=settings.tls_cert)


def _websocket(**parts: Any) -> asyncio.Protocol:
    """uvicorn's protocol of an upgraded connection, imported with the first one."""
    kind = import_from_string(WS_PROTOCOLS["websockets-sansio"])
    made: asyncio.Protocol = kind(**parts)
    return made


def tls_context(settings: ServerSettings) -> ssl.SSLContext:
    """A context with the certificate of the settings; `Invalid` says what is wrong with the files."""
    if not settings.tls_cert or not settings.tls_key:
        raise Invalid("TLS needs both server.tls_cert and server.tls_key", hint="--tls-cert FILE --tls-key FILE")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise Invalid(f"certificate {settings.tls_cert} with key {settings.tls_key}: {error}") from error
    return context


def peer_contexts(settings: ServerSettings) -> list[ssl.SSLContext]:
    """How this server checks another one: by name, with the system's authorities or its own certificate; or, because servers of a deployment
    know each other by addresses that no certificate names, by presenting the very certificate that this one has."""
    if not settings.tls_cert:
        return []
    named = ssl.create_default_context()
    named.load_verify_locations(settings.tls_cert)
    same = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    same.check_hostname = False
    same.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    first = (
        Path(settings.tls_cert).read_text("utf-8").partition(_BEGIN)[2].partition(_END)[0]
    )  # not those that signed it
    same.load_verify_locations(cadata=f"{_BEGIN}{first}{_END}\n")
    return [named, same]


def _changed_at(settings: ServerSettings) -> tuple[float, ...]:
    try:
        return tuple(Path(file).stat().st_mtime for file in (settings.tls_cert, settings.tls_key))
    except OSError:
        return ()


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
