"""A load generator that is not the bottleneck: HTTP/1.1 over keep-alive connections, bytes in and bytes out.

Each connection sends its next request when the answer to the last one is there (no pipelining), so the number of
connections is the number of requests under way. Requests are made beforehand; answers are cut out of the stream by
Content-Length and parsed no further.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop

_LENGTH = b"\r\ncontent-length:"


@dataclass
class Answers:
    """What came back. `lost` is how many connections broke with a request under way."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)  #: seconds, one per answer
    bodies: list[bytes] = field(default_factory=list)  #: in order of arrival, when they were to be kept
    lost: int = 0

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return sum(count for status, count in self.statuses.items() if status < 300) / self.seconds

    def check(self) -> Answers:
        """Itself, or an error when anything but success came back."""
        if self.lost or any(status >= 300 for status in self.statuses):
            shown = next((body[:300] for body in self.bodies if b'"code"' in body), b"")
            raise RuntimeError(f"answers: {dict(self.statuses)}, lost connections: {self.lost} {shown!r}")
        return self


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """The bytes of one request."""
    head = (
        f"{method} /api/paddleflow/v1{path} HTTP/1.1\r\nhost: bench\r\nx-pf-authorization: {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Connection(asyncio.Protocol):
    """One connection that works off the shared iterator of requests."""

    def __init__(self, requests: Iterator[bytes], answers: Answers, keep: bool, done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._answers = answers
        self._keep = keep
        self._done = done
        self._buffer = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of that class
        self._next()

    def _next(self) -> None:
        following = next(self._requests, None)
        if following is None:
            self._sent_at = 0.0
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(following)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        found = self._buffer[: head + 2].lower().find(_LENGTH)
        if found < 0:
            self._done.set_exception(RuntimeError(f"an answer without content-length: {self._buffer[:200]!r}"))
            self._transport.abort()
            return
        begin = found + len(_LENGTH)
        size = int(self._buffer[begin : self._buffer.index(b"\r\n", begin)])
        if len(self._buffer) < head + 4 + size:
            return
        self._answers.delays.append(time.perf_counter() - self._sent_at)
        self._answers.statuses[int(self._buffer[9:12])] += 1
        if self._keep:
            self._answers.bodies.append(self._buffer[head + 4 : head + 4 + size])
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if self._sent_at:
            self._answers.lost += 1
        if not self._done.done():
            self._done.set_result(None)


def send(url: str, requests: Iterable[bytes], connections: int = 16, keep: bool = False) -> Answers:
    """Send all requests over so many connections and wait for the answers; `keep` keeps the bodies."""
    return uvloop.run(_send(url, iter(requests), connections, keep))


async def _send(url: str, requests: Iterator[bytes], connections: int, keep: bool) -> Answers:
    place = urlsplit(url)
    host, port = place.hostname or "127.0.0.1", place.port or 80
    answers = Answers()
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for end in ends:
        await loop.create_connection(partial(_Connection, requests, answers, keep, end), host, port)
    await asyncio.gather(*ends)
    answers.seconds = time.perf_counter() - began
    return answers
