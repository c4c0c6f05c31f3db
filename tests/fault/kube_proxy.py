"""A proxy in front of an API server that does to its clients what networks, overload and restarts do.

It speaks plain HTTP to the client and hands each request to a `Transport` (the real API server, or the one in memory). While it
is `wild` it draws what happens from a seed; a test may also `sever` everything. It notes writes that were answered well and
changed nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from random import Random

import orjson

from paddleflow.errors import Unavailable
from paddleflow.kube.transport import Endpoint, Request, Response, Transport

WRITE_FAULTS = ["cut before", "cut after", "busy", "broken", "conflict", "slow"]
READ_FAULTS = ["cut before", "busy", "broken", "gone", "slow"]
WATCH_FAULTS = ["cut before", "broken", "gone", "error event", "cut within", "fall silent", "twice"]
REFUSALS = {
    "busy": (429, "TooManyRequests"),
    "broken": (500, "InternalError"),
    "conflict": (409, "Conflict"),
    "gone": (410, "Expired"),
}


class Cut(Exception):
    """The connection ends here."""


class FaultProxy:
    """See the module."""

    def __init__(self, upstream: Transport, seed: int, share: float = 0.3) -> None:
        self._upstream = upstream
        self._random = Random(seed)
        self._share = share
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._port = 0
        self.wild = True
        self.faults: Counter[str] = Counter()
        self.writes: list[str] = []  #: all that reached the server
        self.idle_writes: list[str] = []  #: those that changed nothing

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self._port)

    def sever(self) -> None:
        """Every connection ends."""
        for task, writer in list(self._tasks.items()):
            writer.transport.abort()
            task.cancel()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FaultProxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.sever()
            while self._tasks:
                await asyncio.sleep(0)

    def _draw(self, faults: list[str]) -> str:
        if not self.wild or self._random.random() > self._share:
            return ""
        fault = self._random.choice(faults)
        self.faults[fault] += 1
        return fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        try:
            while True:
                request = await _request(reader)
                if "watch=1" in request.path:
                    await self._watch(request, writer)
                else:
                    _send(writer, await self._exchange(request))
        except (Cut, Unavailable, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()  # cancelled by `sever` only
        finally:
            del self._tasks[task]
            writer.close()

    async def _exchange(self, request: Request) -> Response:
        write = request.method != "GET"
        fault = self._draw(WRITE_FAULTS if write else READ_FAULTS)
        if fault == "cut before":
            raise Cut
        if fault == "slow":
            await asyncio.sleep(self._random.uniform(0.02, 0.2))
        if fault in REFUSALS:
            return _refusal(fault)
        before = await self._version(request) if write else ""
        answer = await self._upstream.send(request)
        if write:
            self.writes.append(str(request))
            if answer.status < 300 and before and _version_in(answer) == before:
                self.idle_writes.append(str(request))
        if fault == "cut after":
            raise Cut
        return answer

    async def _version(self, request: Request) -> str:
        if request.method not in {"PATCH", "PUT"}:
            return ""
        there = await self._upstream.send(Request("GET", request.path.partition("?")[0]))
        return _version_in(there) if there.status == 200 else ""

    async def _watch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        fault = self._draw(WATCH_FAULTS)
        if fault == "cut before":
            raise Cut
        if fault in REFUSALS:
            _send(writer, _refusal(fault))
            return
        left, old = self._random.randrange(1, 12), b""
        async with aclosing(self._upstream.stream(request, 600.0)) as parts:
            async for part in parts:
                if isinstance(part, Response):
                    head = f"HTTP/1.1 {part.status} X\r\nTransfer-Encoding: chunked\r\n\r\n"
                    writer.write(head.encode())
                    await writer.drain()
                    continue
                left -= 1
                if fault == "twice":  # said again, at once or after what came since
                    part, old = self._repeated(part, old)
                elif fault and left <= 0 and self.wild:
                    await self._spoil(fault, part, writer)
                writer.write(_chunk(part))
                await writer.drain()
        writer.write(_chunk(b""))

    def _repeated(self, part: bytes, old: bytes) -> tuple[bytes, bytes]:
        """The part and perhaps an older one after it; and which is the older one from now on. Only whole lines are repeated."""
        if not part.endswith(b"\n") or not self.wild or self._random.random() < 0.5:
            return part, old
        return part + (old or part), part

    async def _spoil(self, fault: str, part: bytes, writer: asyncio.StreamWriter) -> None:
        if fault == "fall silent":
            await asyncio.sleep(600)
        if fault == "error event":
            status = {"code": 410, "reason": "Expired", "message": "too old resource version"}
            writer.write(_chunk(orjson.dumps({"type": "ERROR", "object": status}) + b"\n"))
        else:
            writer.write(_chunk(part[: len(part) // 2]))
        await writer.drain()
        raise Cut


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, body, headers.get("content-type", "application/json"))


def _send(writer: asyncio.StreamWriter, answer: Response) -> None:
    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items() if name == "retry-after")
    writer.write(
        f"HTTP/1.1 {answer.status} X\r\nContent-Length: {len(answer.body)}\r\n{more}\r\n".encode() + answer.body
    )


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _refusal(fault: str) -> Response:
    status, reason = REFUSALS[fault]
    return Response(
        status, {"retry-after": "1"}, orjson.dumps({"reason": reason, "message": f"the proxy says {fault}"})
    )


def _version_in(answer: Response) -> str:
    found: str = orjson.loads(answer.body).get("metadata", {}).get("resourceVersion", "")
    return found
