"""A websocket to the API server (RFC 6455, client side), for the subresources that speak in both directions: exec, attach.

Messages only, whole or in fragments; pings are answered. Reading holds the other side up while nobody reads; `send` waits while the
other side does not read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress

from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  #: of the RFC
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
MOST_MESSAGE = 4 * 2**20  #: bytes of a message that is read: kubelets send 32 KiB at a time
CLOSE_TIMEOUT = 2.0  #: seconds that the other side has to answer a close


class WebSocket:
    """One that is open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str) -> None:
        self._reader = reader
        self._writer = writer
        self._closing = False
        self.protocol = protocol  #: the one that the server chose

    async def send(self, data: bytes) -> None:
        await self._send(_BINARY, data)

    def post(self, data: bytes) -> None:
        """Send a short message without waiting until the other side reads; one that has gone does not get it."""
        with suppress(OSError):
            self._write(_BINARY, data)

    async def receive(self) -> bytes | None:
        """The next message; None once the other side has closed. `Unavailable` when the connection breaks."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                last, kind, data = await self._frame()
                if kind == _PING:
                    await self._send(_PONG, data)
                elif kind == _CLOSE:
                    if not self._closing:
                        self._closing = True
                        await self._send(_CLOSE, data[:2])
                    return None
                elif kind in {_CONTINUED, _TEXT, _BINARY}:
                    parts.append(data)
                    size += len(data)
                    if size > MOST_MESSAGE:
                        raise Unavailable(f"a message of a websocket has more than {MOST_MESSAGE} bytes")
                    if last:
                        return b"".join(parts)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Unavailable(f"the websocket to the API server broke: {error}") from error

    async def close(self) -> None:
        with suppress(OSError, Unavailable, TimeoutError):
            if not self._closing:
                self._closing = True
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._send(_CLOSE, struct.pack("!H", 1000))
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if size > MOST_MESSAGE:
            raise Unavailable(f"a message of a websocket has {size} bytes, at most {MOST_MESSAGE} are read")
        mask = await self._reader.readexactly(4) if second & 0x80 else b""
        data = await self._reader.readexactly(size)
        return bool(first & 0x80), first & 0x0F, masked(data, mask) if mask else data

    async def _send(self, kind: int, data: bytes) -> None:
        try:
            self._write(kind, data)
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(f"the websocket to the API server broke: {error}") from error

    def _write(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 2**16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = secrets.token_bytes(4)
        self._writer.write(head + mask + masked(data, mask))


def masked(data: bytes, mask: bytes) -> bytes:
    """The same function masks and unmasks."""
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


@dataclass(frozen=True, slots=True)
class NoUpgrade:
    """The server's answer, when it opens no websocket."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def handshake(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, protocols: Sequence[str]
) -> WebSocket | NoUpgrade:
    """Ask for a websocket on a new connection; `head` is the request without its empty line."""
    key = base64.b64encode(secrets.token_bytes(16))
    asked = (
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n"
    )
    writer.write(head + asked % (key, ", ".join(protocols).encode()))
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(lines[0].split(" ", 2)[1])
    named = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    wanted = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    if status == 101 and headers.get("sec-websocket-accept") == wanted:
        return WebSocket(reader, writer, headers.get("sec-websocket-protocol", ""))
    size = headers.get("content-length", "0")
    body = await reader.readexactly(min(int(size), MOST_MESSAGE)) if size.isdecimal() else b""
    return NoUpgrade(status, headers, body)
