"""The websocket of the Kubernetes client, against a server that speaks bytes of the RFC."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Unavailable
from paddleflow.kube.transport import Endpoint, HttpTransport
from paddleflow.kube.websocket import MOST_MESSAGE, NoUpgrade, WebSocket, masked

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@asynccontextmanager
async def opened(serve: Serve, refuse: bytes = b"") -> AsyncIterator[WebSocket | NoUpgrade]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
        accept = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        writer.write(
            refuse
            or b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Protocol: v5\r\nSec-WebSocket-Accept: %s\r\n\r\n" % accept
        )
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await HttpTransport(Endpoint("127.0.0.1", port)).websocket("/exec", ("v5", "v4"))
        yield found
        if isinstance(found, WebSocket):
            await found.close()


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masking_twice_gives_the_same(data: bytes, mask: bytes) -> None:
    assert masked(masked(data, mask), mask) == data


async def test_messages_in_fragments_pings_and_the_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        large = b"x" * 70_000
        writer.write(b"\x02\x03one" + b"\x89\x02hi" + b"\x80\x03two")  # a ping between two fragments
        writer.write(b"\x82\x7f" + struct.pack("!Q", len(large)) + large)
        assert (await reader.readexactly(2))[0] == 0x8A, "a pong"
        writer.write(b"\x88\x00")

    async with opened(serve) as socket:
        assert isinstance(socket, WebSocket)
        assert socket.protocol == "v5"
        assert await socket.receive() == b"onetwo"
        assert await socket.receive() == b"x" * 70_000
        assert await socket.receive() is None


async def test_what_is_sent_arrives_masked() -> None:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, size = await reader.readexactly(2)
        assert size == 0x80 | 126
        (size,) = struct.unpack("!H", await reader.readexactly(2))
        mask = await reader.readexactly(4)
        got.append(masked(await reader.readexactly(size), mask))
        writer.write(b"\x88\x00")

    async with opened(serve) as socket:
        assert isinstance(socket, WebSocket)
        await socket.send(b"y" * 1000)
        assert await socket.receive() is None
    assert got == [b"y" * 1000]


async def test_a_refusal_is_handed_on() -> None:
    refuse = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    async with opened(nothing, refuse) as found:
        assert isinstance(found, NoUpgrade)
        assert (found.status, found.body) == (403, b"no")


@pytest.mark.parametrize("frame", [b"\x82", b"\x82\x7f" + struct.pack("!Q", MOST_MESSAGE + 1)], ids=["broken", "large"])
async def test_broken_and_endless_messages_are_refused(frame: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame)

    async with opened(serve) as socket:
        assert isinstance(socket, WebSocket)
        with pytest.raises(Unavailable):
            await socket.receive()
