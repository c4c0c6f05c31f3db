"""HTTP/1.1 to one server over kept connections: what a store's client needs, and nothing else.

Small because requests are many and small: an answer of an object store costs a fifth of what the standard library's client
takes for it. Synchronous and thread-safe: each request has a connection of the pool for itself. Errors are `Unavailable`, in
words that say what failed: the name, the port, TLS, or the answer.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from paddleflow.errors import Unavailable

MOST_HEADERS = 64 * 1024  #: bytes of an answer's head
MOST_IDLE = 64  #: connections kept for later
_RECEIVE = 256 * 1024
_PEEK = 8192


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
        head = f"{method} {target} HTTP/1.1\r\nHost: {self.authority}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
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
            received += _more(connection)
        status, headers = _parse_head(received[:end])
        rest = received[end + 4 :]
        if method == "HEAD" or status in (204, 304):
            content, whole = b"", True
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            content, whole = _read_chunks(connection, rest, most)
        elif "content-length" in headers:
            content, whole = _read_length(connection, rest, int(headers["content-length"]), most)
        else:
            content, whole = _read_to_end(connection, rest, most), False
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


def _more(connection: socket.socket) -> bytes:
    received = connection.recv(_RECEIVE)
    if not received:
        raise ValueError("the connection was closed in the middle of an answer")
    return received


def _read_length(connection: socket.socket, rest: bytes, length: int, most: int) -> tuple[bytes, bool]:
    wanted = min(length, most)
    if len(rest) >= wanted:
        return rest[:wanted], len(rest) == length
    flags = 0 if isinstance(connection, ssl.SSLSocket) else socket.MSG_WAITALL
    pieces, at = [rest] if rest else [], len(rest)
    while at < wanted:
        piece = connection.recv(wanted - at, flags)
        if not piece:
            raise ValueError(f"the connection was closed after {at} of {length} bytes")
        pieces.append(piece)
        at += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), wanted == length


def _read_chunks(connection: socket.socket, rest: bytes, most: int) -> tuple[bytes, bool]:
    content = bytearray()
    while True:
        while (end := rest.find(b"\r\n")) < 0:
            rest += _more(connection)
        size = int(rest[:end].split(b";")[0], 16)
        rest = rest[end + 2 :]
        while len(rest) < size + 2:
            rest += _more(connection)
        if size == 0:
            return bytes(content), rest == b"\r\n"
        content += rest[:size]
        rest = rest[size + 2 :]
        if len(content) > most:
            return bytes(content[:most]), False


def _read_to_end(connection: socket.socket, rest: bytes, most: int) -> bytes:
    content = bytearray(rest)
    while len(content) < most and (received := connection.recv(_RECEIVE)):
        content += received
    return bytes(content[:most])
