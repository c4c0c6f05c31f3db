"""One HTTP/1.1 connection: a request, its answer, and the bytes of the body as they arrive. Called by `transport` only.

Not ``http.client``: that imports the e-mail package for headers and TLS for everybody, a fifth of the time in which a command
is to answer (docs/decisions/0160-own-http-connection.md). TLS is imported for https only. What breaks raises OSError.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

from paddleflow.errors import Invalid

MOST_LINE = 64 * 2**10  #: bytes of a line of an answer's head, and of the head of a chunk
MOST_HEADERS = 200  #: lines of an answer's head
JOINED = 64 * 2**10  #: a body up to this many bytes is sent with the head, in one segment


class BadAnswer(OSError):
    """What came is not HTTP, or ended too early."""


class Response:
    """The answer to one request. `headers` have lower-case names."""

    def __init__(self, connection: Connection) -> None:
        self._file = connection.file
        line = self._line()
        if not line:
            raise BadAnswer("the server closed the connection without an answer")
        version, _, rest = line.partition(" ")
        status, _, self.reason = rest.partition(" ")
        if not version.startswith("HTTP/") or len(status) != 3 or not status.isdigit():
            raise BadAnswer(f"{line[:80]!r} is not the beginning of an HTTP answer")
        self.status = int(status)
        self.headers = self._read_headers()
        transfer = self.headers.get("transfer-encoding", "").lower()
        self._chunked = transfer == "chunked"
        length = self.headers.get("content-length", "")
        self._left: int | None = None  #: bytes of the body or of the current chunk still to come; None: until the end
        if self._chunked or self.status in (101, 204, 304):
            self._left = 0
        elif length.isascii() and length.isdigit():
            self._left = int(length)
        self._ended = self._left == 0 and not self._chunked
        words = self.headers.get("connection", "").lower()
        self.will_close = (
            (self._left is None and not self._chunked)
            or "close" in words
            or (version == "HTTP/1.0" and "keep-alive" not in words)
        )

    def read(self, most: int | None = None) -> bytes:
        """The rest of the body, or at most so many bytes of it."""
        parts = []
        total = 0
        while (most is None or total < most) and (
            part := self.read1(JOINED if most is None else min(JOINED, most - total))
        ):
            parts.append(part)
            total += len(part)
        return b"".join(parts)

    def read1(self, most: int) -> bytes:
        """What is there of the body, at least one byte; nothing at its end."""
        if self._chunked and self._left == 0 and not self._ended:
            self._next_chunk()
        if self._ended:
            return b""
        part = self._file.read1(most if self._left is None else min(most, self._left))
        if self._left is None:
            self._ended = not part
            return part
        if not part:
            raise BadAnswer(f"the connection ended {self._left:,} bytes before the end of the answer")
        self._left -= len(part)
        if self._left == 0:
            if self._chunked:
                self._line()  # the end of line behind a chunk
            else:
                self._ended = True
        return part

    def read_frame(self, size: int) -> bytes:
        """So many bytes after an upgrade, fewer if the connection ends; what came with the answer first."""
        return self._file.read(size)

    def _next_chunk(self) -> None:
        size = self._line().partition(";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError as error:
            raise BadAnswer(f"{size[:80]!r} is not the size of a chunk") from error
        if self._left == 0:
            self._ended = True
            self._read_headers()  # trailers

    def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(MOST_HEADERS):
            line = self._line()
            if not line:
                return headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raise BadAnswer(f"the answer has more than {MOST_HEADERS} headers")

    def _line(self) -> str:
        line = self._file.readline(MOST_LINE + 1)
        if len(line) > MOST_LINE:
            raise BadAnswer(f"a line of the answer's head is longer than {MOST_LINE} bytes")
        return line.decode("latin-1").rstrip("\r\n")


class Connection:
    """A connection to a host, or through it to another one (`tunnel`), secured if `secure`. Made when it is created."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float,
        secure: bool = False,
        tunnel: tuple[str, int, Mapping[str, str]] | None = None,
    ) -> None:
        self.sock = socket.create_connection((host, port), timeout)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.file = self.sock.makefile("rb")
            if tunnel is not None:
                host = tunnel[0]
                self._open_tunnel(*tunnel)
            if secure:
                self._secure(host)
        except BaseException:
            self.sock.close()
            raise

    def exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request and waits for the head of its answer."""
        if body is not None or method in {"POST", "PUT"}:
            headers = {**headers, "Content-Length": str(len(body or b""))}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise Invalid("the token or the path of a request contains a line break")
        head = "\r\n".join([*lines, "", ""]).encode()
        if body is not None and len(body) > JOINED:
            self.sock.sendall(head)
            self.sock.sendall(body)
        else:
            self.sock.sendall(head + (body or b""))
        response = Response(self)
        while response.status in (100, 102, 103):  # not the answer yet
            response = Response(self)
        return response

    def close(self) -> None:
        with suppress(OSError):  # it is closed already; a thread that reads ends with this, and would hold the file
            self.sock.shutdown(socket.SHUT_RDWR)
        self.file.close()
        self.sock.close()

    def _open_tunnel(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        response = self.exchange("CONNECT", there, {"Host": there, **headers}, None)
        if response.status != 200:
            raise OSError(f"the proxy answered {response.status} {response.reason}")

    def _secure(self, host: str) -> None:
        context = import_module("ssl").create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        self.sock = context.wrap_socket(self.sock, server_hostname=host)
        self.file = self.sock.makefile("rb")
