"""HTTP/1.1 to one server over kept connections: what a store's client needs, and nothing else.

Small because requests are many and small: an answer of an object store costs a fifth of what the standard library's client
takes for it. Synchronous and thread-safe: each request has a connection of the pool for itself. Errors are `Unavailable`, in
words that say what failed: the name, the port, TLS, or the answer.

The server may be anybody's, and lie: an answer is bounded in bytes and in time, redirects are not followed, nothing is unpacked, and
nothing is said to a machine's metadata service, which gives its credentials to whoever asks from there.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from paddleflow.errors import Invalid, Unavailable
from paddleflow.objects.addresses import refuse_metadata_service

MOST_HEADERS = 64 * 1024  #: bytes of an answer's head
MOST_IDLE = 64  #: connections kept for later
SLOWEST = 16 * 1024  #: bytes a second that an answer must bring, on average, when its time is over
_RECEIVE = 256 * 1024
_PEEK = 8192
_MOST_LINE = 256  #: bytes of the size of a chunk


class Answer(NamedTuple):
    """An answer, whole. Names of headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Stale(Exception):
    """A kept connection that the server had closed meanwhile."""


class Connections:
    """A pool of connections to `host`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: bool,
        verify: bool = True,
        connect_seconds: float = 5.0,
        seconds: float = 60.0,
    ) -> None:
        self.host, self.port = host, port
        self.authority = host if port == (443 if tls else 80) else f"{host}:{port}"
        self._connect_seconds, self._seconds = connect_seconds, seconds
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.create_default_context()
            if not verify:
                self._context.check_hostname = False
                self._context.verify_mode = ssl.CERT_NONE

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | memoryview = b"",
        *,
        most: int,
        large: bool = False,
    ) -> Answer:
        """One request, one answer. An answer with more than `most` bytes is cut there, and its connection closed.

        `large`: the answer is expected to have a megabyte or more, and is received without copies.
        """
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.authority}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "".join(f"{line}\r\n" for line in lines)
        if head.count("\n") != len(lines) or head.count("\r") != len(lines):
            raise Invalid(
                f"a request to {self.authority} cannot be made: its path or a property holds the end of a line"
            )
        if body or method in ("PUT", "POST"):
            head += f"Content-Length: {len(body)}\r\n"
        sent = (head + "\r\n").encode("latin-1")
        while True:
            connection, kept = self._take()
            try:
                return self._exchange(connection, method, sent, body, most, kept, large)
            except _Stale:
                continue  # nothing was answered on it: another one, until a fresh one
            except (OSError, ValueError) as error:
                connection.close()
                why = "no answer in time" if isinstance(error, TimeoutError | BlockingIOError) else str(error)
                raise Unavailable(f"{method} at {self.authority} failed: {why}") from error
            except BaseException:
                connection.close()
                raise

    def _take(self) -> tuple[socket.socket, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return self._connect(), False

    def _connect(self) -> socket.socket:
        try:
            plain = socket.create_connection((self.host, self.port), self._connect_seconds)
        except socket.gaierror as error:
            hint = "see the endpoint's spelling and this machine's name servers"
            raise Unavailable(f"the name {self.host} cannot be resolved: {error.strerror}", hint=hint) from error
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
            raise Unavailable(f"no connection to {self.host} port {self.port}: {why}") from error
        try:
            refuse_metadata_service(plain.getpeername()[0])
        except BaseException:
            plain.close()
            raise
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            # The kernel keeps the time: a blocking socket waits for a whole block in one call.
            plain.settimeout(None)
            limit = struct.pack("@ll", int(self._seconds), int(self._seconds % 1 * 1_000_000))
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            return plain
        plain.settimeout(self._seconds)
        try:
            return self._context.wrap_socket(plain, server_hostname=self.host)
        except OSError as error:
            plain.close()
            raise Unavailable(f"TLS with {self.host} port {self.port} failed: {error}") from error

    def _exchange(
        self,
        connection: socket.socket,
        method: str,
        sent: bytes,
        body: bytes | memoryview,
        most: int,
        kept: bool,
        large: bool,
    ) -> Answer:
        try:
            if len(body) <= 16_384:
                connection.sendall(sent + bytes(body))
            else:
                connection.sendall(sent)
                connection.sendall(body)
            incoming = _Incoming(connection, self._seconds)
            received = _receive_head(connection, large)
        except (BrokenPipeError, ConnectionResetError) as error:
            if kept:
                connection.close()
                raise _Stale from error
            raise
        if not received:
            if kept:
                connection.close()
                raise _Stale
            raise ValueError("the connection was closed without an answer")
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > MOST_HEADERS:
                raise ValueError(f"an answer with a head of more than {MOST_HEADERS} bytes")
            received += incoming.more()
        status, headers = _parse_head(received[:end])
        rest = received[end + 4 :]
        if method == "HEAD" or status in (204, 304):
            content, whole = b"", True
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            content, whole = _read_chunks(incoming, rest, most)
        elif "content-length" in headers:
            content, whole = _read_length(incoming, rest, int(headers["content-length"]), most)
        else:
            content, whole = _read_to_end(incoming, rest, most), False
        self._give_back(connection, whole and headers.get("connection", "").lower() != "close")
        return Answer(status, headers, content)

    def _give_back(self, connection: socket.socket, usable: bool) -> None:
        if usable:
            with self._lock:
                if len(self._idle) < MOST_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(OSError):
                connection.close()


def _receive_head(connection: socket.socket, large: bool) -> bytes:
    """The first bytes of an answer; of a large one only its head, so that the content comes in one piece."""
    if not large or isinstance(connection, ssl.SSLSocket):
        return connection.recv(_RECEIVE)
    seen = connection.recv(_PEEK, socket.MSG_PEEK)
    end = seen.find(b"\r\n\r\n")
    return connection.recv(end + 4 if end >= 0 else max(1, len(seen)))


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"an answer that is not HTTP: {first[:60]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(words[1]), headers


class _Incoming:
    """What a server sends in answer to one request. Each call has a time; this is that of all together, so that a byte a minute is none."""

    __slots__ = ("_connection", "_until", "tls")

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._until = monotonic() + seconds
        self.tls = isinstance(connection, ssl.SSLSocket)

    def receive(self, size: int = _RECEIVE, flags: int = 0) -> bytes:
        received = self._connection.recv(size, flags)
        self._until += len(received) / SLOWEST
        if monotonic() > self._until:
            raise TimeoutError
        return received

    def more(self) -> bytes:
        received = self.receive()
        if not received:
            raise ValueError("the connection was closed in the middle of an answer")
        return received


def _read_length(incoming: _Incoming, rest: bytes, length: int, most: int) -> tuple[bytes, bool]:
    wanted = min(length, most)
    if len(rest) >= wanted:
        return rest[: max(wanted, 0)], len(rest) == length
    flags = 0 if incoming.tls else socket.MSG_WAITALL
    pieces, at = [rest] if rest else [], len(rest)
    while at < wanted:
        piece = incoming.receive(wanted - at, flags)
        if not piece:
            raise ValueError(f"the connection was closed after {at} of {length} bytes")
        pieces.append(piece)
        at += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), wanted == length


def _read_chunks(incoming: _Incoming, rest: bytes, most: int) -> tuple[bytes, bool]:
    content, buffer = bytearray(), bytearray(rest)
    while True:
        while (end := buffer.find(b"\r\n")) < 0:
            if len(buffer) > _MOST_LINE:
                raise ValueError("a chunk that does not say its size")
            buffer += incoming.more()
        size = int(buffer[:end].split(b";")[0], 16)
        del buffer[: end + 2]
        wanted = min(max(size, 0), most - len(content))  # whatever a chunk says of itself
        while len(buffer) < wanted + (2 if wanted == size else 0):
            buffer += incoming.more()
        content += buffer[:wanted]
        if wanted < size or size < 0:
            return bytes(content), False
        if size == 0:
            return bytes(content), buffer == b"\r\n"
        del buffer[: size + 2]


def _read_to_end(incoming: _Incoming, rest: bytes, most: int) -> bytes:
    content = bytearray(rest)
    while len(content) < most and (received := incoming.receive()):
        content += received
    return bytes(content[:most])
