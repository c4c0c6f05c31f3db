"""HTTP/1.1 to one API server over kept connections: one exchange, or one answer that grows (a watch).

Measured against the libraries (docs/decisions): what an API client needs of HTTP is little, and here it costs one write,
one C parser and one future per request. Errors of the network become `Unavailable` and never leave in another form; a
request is never sent twice, except a GET whose kept connection turned out to be dead before a byte of the response came, and
one that was refused with 401 while another credential was to be had. A growing answer that ended leaves its connection to others: a
handshake costs both sides more than a request, and logs that cannot be had are asked for by the thousand.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Protocol, cast

import httptools

from paddleflow import __version__
from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable
from paddleflow.kube.credentials import Credential, Credentials, StaticToken
from paddleflow.kube.proxy import Proxy, open_tunnel
from paddleflow.kube.resources import request_words
from paddleflow.kube.websocket import NoUpgrade, WebSocket, handshake

#: Bytes of a websocket that are read before somebody asks for them. A TLS connection whose reading is paused when the other side closes
#: can lose what has not been read yet.
READ_AHEAD = 4 * 2**20
KEPT = 60.0  #: seconds after which an idle connection is not used again; API servers close theirs after 90
STREAM_BUFFER = 1 << 20  #: bytes of a growing answer that wait for their reader before the socket is left alone


@dataclass(frozen=True, slots=True)
class Request:
    """`path` has its query; a body comes with the type of its content."""

    method: str
    path: str
    body: bytes = b""
    content: str = "application/json"

    def __str__(self) -> str:
        return request_words(self.method, self.path)


@dataclass(slots=True)
class Response:
    """A whole answer, or the beginning of one that grows; header names are in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Transport(Protocol):
    """What a `Client` stands on: an API server over HTTP, or one in memory."""

    async def send(self, request: Request) -> Response:
        """The whole answer; `Unavailable` when there was none in time."""
        ...

    def stream(self, request: Request, quiet: float) -> AsyncGenerator[Response | bytes, None]:
        """The beginning of the answer, then its parts as they come, until the server ends it.

        `Unavailable` when the line breaks or nothing came for `quiet` seconds.
        """
        ...

    async def close(self) -> None:
        """Ends all connections."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an API server is and how to authenticate there. `credentials` are asked before each request."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    prefix: str = ""  #: before every path, for servers behind a proxy
    server_name: str = ""  #: the name in the certificate, if it is not the host
    credentials: Credentials = field(default_factory=StaticToken)
    namespace: str = "default"  #: of those who name none
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}{self.prefix}"


class _Lost(Exception):
    """The connection ended; `unanswered` if no byte of the answer had come."""

    def __init__(self, message: str, *, unanswered: bool) -> None:
        super().__init__(message)
        self.unanswered = unanswered


class _Connection(asyncio.Protocol):
    """One connection: at most one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None  # one per request
        self._response = Response(0)
        self._parts: list[bytes] = []
        self._waiting: asyncio.Future[Response] | None = None
        self._streaming = False
        self._wake: asyncio.Event | None = None
        self._whole = False
        self._touched = False  # a byte of the answer came
        self._held = 0  # bytes of a stream that nobody has read yet
        self._paused = False
        self._error = ""
        self._silent = False  # a stream brought nothing for too long
        self._waits_since: float | None = None  # whoever reads a stream; None while nobody waits
        self.open = False
        self.idle_since = 0.0
        self.tls: ssl.SSLContext | None = (
            None  # the context it was made with: another client certificate needs another one
        )

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.open = True
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._touched = True
        if self._parser is None:
            return  # closed, and what was on its way came nevertheless
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"it sent something that is not HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(str(exc) if exc else "it closed the connection")
        self._parser = None  # it knows us: without this the buffers would wait for the garbage collector

    def _fail(self, message: str) -> None:
        if not self._whole:
            self._error = self._error or message or "the connection broke"
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(_Lost(self._error, unanswered=not self._touched))
        if self._wake is not None:
            self._wake.set()

    # ---- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "it called"
        self._response.status = self._parser.get_status_code()
        if self._streaming and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._response)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        if self._wake is not None:
            self._held += len(body)
            if self._held > STREAM_BUFFER and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            self._wake.set()

    def on_message_complete(self) -> None:
        self._whole = True
        assert self._parser is not None, "it called"
        if not self._parser.should_keep_alive():
            self.close()
        if self._wake is not None:
            self._wake.set()
        elif self._waiting is not None and not self._waiting.done():
            self._response.body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._waiting.set_result(self._response)

    # ---- called by the pool

    def _begin(self, message: bytes, *, streaming: bool) -> asyncio.Future[Response]:
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._response, self._parts, self._error = Response(0), [], ""
        self._whole = self._touched = False
        self._streaming, self._held, self._silent = streaming, 0, False
        self._wake = asyncio.Event() if streaming else None
        self._waiting = self._loop.create_future()
        if not self.open:
            self._waiting.set_exception(_Lost("it closed the connection", unanswered=True))
        else:
            self._transport.write(message)
        return self._waiting

    async def exchange(self, message: bytes) -> Response:
        return await self._begin(message, streaming=False)

    async def begin(self, message: bytes) -> Response:
        """The status and headers of an answer whose body is read by `parts`."""
        return await self._begin(message, streaming=True)

    async def parts(self, quiet: float) -> AsyncIterator[bytes]:
        """What comes, until the end; `TimeoutError` when somebody has waited for `quiet` seconds. One timer for all waits, because a
        watch of many nodes brings dozens of parts a second."""
        assert self._wake is not None
        assert self._transport is not None
        self._silence = self._loop.call_later(quiet, self._listen, quiet)
        try:
            while True:
                if self._parts:
                    found, self._parts, self._held = b"".join(self._parts), [], 0
                    if self._paused and self.open:
                        self._paused = False
                        self._transport.resume_reading()
                    yield found
                elif self._whole:
                    return
                elif self._error:
                    raise _Lost(self._error, unanswered=False)
                elif self._silent:
                    raise TimeoutError
                else:
                    self._wake.clear()
                    self._waits_since = self._loop.time()
                    await self._wake.wait()
                    self._waits_since = None
        finally:
            self._silence.cancel()

    def _listen(self, quiet: float) -> None:
        left = quiet if self._waits_since is None else self._waits_since + quiet - self._loop.time()
        if left > 0:
            self._silence = self._loop.call_later(left, self._listen, quiet)
        elif self._wake is not None:
            self._silent = True
            self._wake.set()

    @property
    def reusable(self) -> bool:
        """Whether the answer is over and another one may follow."""
        return self.open and self._whole and not self._paused

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()


class HttpTransport:
    """Implements `Transport` over sockets. At most `limit` exchanges at once, the rest wait their turn; streams are beside them. Of
    connections that nobody uses as many are kept."""

    def __init__(
        self, endpoint: Endpoint, *, limit: int = 16, timeout: float = 30.0, connect_timeout: float = 10.0
    ) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._turns = asyncio.Semaphore(limit)
        self._most_kept = limit
        self._idle: deque[_Connection] = deque()
        self._busy: set[_Connection] = set()
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        self._head = f" HTTP/1.1\r\nHost: {host}:{endpoint.port}\r\nUser-Agent: paddleflow/{__version__}\r\nAccept: application/json\r\n"

    async def send(self, request: Request) -> Response:
        credential = await self._endpoint.credentials.get()
        response = await self._send(request, credential)
        if response.status == 401 and self._endpoint.credentials.reject(credential):
            response = await self._send(request, await self._endpoint.credentials.get())
        return response

    async def _send(self, request: Request, credential: Credential) -> Response:
        message = self._message(request, credential)
        async with self._turns:
            try:
                async with asyncio.timeout(self._timeout):
                    while True:
                        connection, kept = await self._connection(credential)
                        try:
                            return await self._exchange(connection, message)
                        except _Lost as lost:
                            if not (kept and lost.unanswered and request.method == "GET"):
                                raise
            except TimeoutError as error:
                raise Unavailable(f"{request}: {self._endpoint} did not answer within {self._timeout:g} s") from error
            except _Lost as error:
                raise Unavailable(f"{request}: lost the connection to {self._endpoint}: {error}") from error

    async def _exchange(self, connection: _Connection, message: bytes) -> Response:
        self._busy.add(connection)
        try:
            answer = await connection.exchange(message)
        except BaseException:  # whatever ended the wait, this connection is out of step now
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        self._keep(connection)
        return answer

    async def stream(self, request: Request, quiet: float) -> AsyncGenerator[Response | bytes, None]:
        credential = await self._endpoint.credentials.get()
        refused = False
        while True:
            connection, kept = await self._connection(credential)
            async with self._streaming(connection):
                try:
                    response = await self._begin(connection, request, credential)
                except _Lost as lost:
                    if kept and lost.unanswered:
                        continue
                    raise Unavailable(f"{request}: lost the connection to {self._endpoint}: {lost}") from lost
                if not refused and response.status == 401 and self._endpoint.credentials.reject(credential):
                    refused, credential = True, await self._endpoint.credentials.get()
                    continue
                yield response
                async for part in self._parts(connection, request, quiet):
                    yield part
                return

    async def _begin(self, connection: _Connection, request: Request, credential: Credential) -> Response:
        try:
            async with asyncio.timeout(self._timeout):
                return await connection.begin(self._message(request, credential))
        except TimeoutError as error:
            raise Unavailable(f"{request}: {self._endpoint} did not answer within {self._timeout:g} s") from error

    async def _parts(self, connection: _Connection, request: Request, quiet: float) -> AsyncIterator[bytes]:
        try:
            async for part in connection.parts(quiet):
                yield part
        except TimeoutError as error:
            raise Unavailable(f"{request}: {self._endpoint} was quiet for too long") from error
        except _Lost as error:
            raise Unavailable(f"{request}: lost the connection to {self._endpoint}: {error}") from error

    async def websocket(self, path: str, protocols: Sequence[str]) -> WebSocket | NoUpgrade:
        """A websocket at a path, with one of these protocols; or the answer that refuses it."""
        credential = await self._endpoint.credentials.get()
        endpoint = self._endpoint
        tls = credential.tls or endpoint.tls
        name = (endpoint.server_name or endpoint.host) if tls else None
        head = self._message(Request("GET", path), credential)[:-2]
        writer: asyncio.StreamWriter | None = None
        opened: WebSocket | NoUpgrade | None = None
        try:
            async with asyncio.timeout(self._connect_timeout + self._timeout):
                if endpoint.proxy is None:
                    reader, writer = await asyncio.open_connection(
                        endpoint.host, endpoint.port, ssl=tls, server_hostname=name, limit=READ_AHEAD
                    )
                else:
                    tunnel = await open_tunnel(endpoint.proxy, endpoint.host, endpoint.port)
                    reader, writer = await asyncio.open_connection(
                        sock=tunnel, ssl=tls, server_hostname=name, limit=READ_AHEAD
                    )
                opened = await handshake(reader, writer, head, protocols)
                return opened
        except TimeoutError as error:
            raise Unavailable(f"{endpoint} did not open a websocket in time") from error
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
            raise Unavailable(f"cannot open a websocket to {endpoint}: {error}") from error
        finally:
            if writer is not None and not isinstance(opened, WebSocket):
                writer.close()

    @asynccontextmanager
    async def _streaming(self, connection: _Connection) -> AsyncIterator[None]:
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)
            self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        """Keep a connection whose answer is over for the next request."""
        if connection.reusable and len(self._idle) < self._most_kept:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connection(self, credential: Credential) -> tuple[_Connection, bool]:
        """A connection, and whether it was used before."""
        while self._idle:
            connection = self._idle.pop()
            fresh = time.monotonic() - connection.idle_since < KEPT
            if connection.open and fresh and connection.tls is (credential.tls or self._endpoint.tls):
                return connection, True
            connection.close()
        return await self._connect(credential), False

    async def _connect(self, credential: Credential) -> _Connection:
        endpoint = self._endpoint
        tls = credential.tls or endpoint.tls
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._open(tls)
        except TimeoutError as error:
            raise Unavailable(f"no connection to {endpoint} within {self._connect_timeout:g} s") from error
        except OSError as error:  # ssl.SSLError is one
            raise Unavailable(f"cannot reach {endpoint}: {error}") from error
        connection.tls = tls
        return connection

    async def _open(self, tls: ssl.SSLContext | None) -> _Connection:
        loop = asyncio.get_running_loop()
        endpoint = self._endpoint
        name = (endpoint.server_name or endpoint.host) if tls else None
        if endpoint.proxy is None:
            _, connection = await loop.create_connection(
                lambda: _Connection(loop), endpoint.host, endpoint.port, ssl=tls, server_hostname=name
            )
        else:
            tunnel = await open_tunnel(endpoint.proxy, endpoint.host, endpoint.port)
            _, connection = await loop.create_connection(
                lambda: _Connection(loop), sock=tunnel, ssl=tls, server_hostname=name
            )
        return connection

    def _message(self, request: Request, credential: Credential) -> bytes:
        head = f"{request.method} {self._endpoint.prefix}{request.path}{self._head}"
        if credential.token:
            head += f"Authorization: Bearer {credential.token}\r\n"
        if request.body or request.method != "GET":
            head += f"Content-Type: {request.content}\r\nContent-Length: {len(request.body)}\r\n"
        return head.encode("latin-1") + b"\r\n" + request.body

    async def close(self) -> None:
        for connection in [*self._idle, *self._busy]:
            connection.close()
        self._idle.clear()
