"""The wire against servers that misbehave: every fault of the network is `Unavailable`, and nothing is sent twice unasked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager

import pytest
import uvloop

from paddleflow.errors import Unavailable
from paddleflow.kube.credentials import StaticToken
from paddleflow.kube.transport import Endpoint, HttpTransport, Request, Response
from tests.patience import soon

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]
GET = Request("GET", "/a")
POST = Request("POST", "/a", b"{}")


class Server:
    """Plays one handler per connection, which gets the number of the connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._handler(reader, writer, self.connections)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(handler: Handler, **options: float) -> AsyncIterator[tuple[Server, HttpTransport]]:
    server = Server(handler)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port: int = listener.sockets[0].getsockname()[1]
    wire = HttpTransport(Endpoint("127.0.0.1", port, credentials=StaticToken("secret")), limit=2, **options)
    try:
        async with asyncio.timeout(30):
            yield server, wire
    finally:
        await wire.close()
        listener.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def answer(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    while True:
        writer.write(answer(await request(reader)))


async def test_a_connection_is_kept_and_carries_the_token() -> None:
    async with serving(echo) as (server, wire):
        for _ in range(5):
            got = await wire.send(POST)
        assert server.connections == 1
        assert got.status == 200
        assert b"Authorization: Bearer secret\r\n" in got.body
        assert got.body.endswith(b"\r\n\r\n{}")


async def test_more_requests_than_turns_wait() -> None:
    async with serving(echo) as (server, wire):
        await asyncio.gather(*(wire.send(GET) for _ in range(20)))
        assert server.connections == 2


async def test_a_chunked_answer_is_put_together() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.write(b"2\r\nde\r\n0\r\n\r\n")

    async with serving(handler) as (_, wire):
        got = await wire.send(GET)
    assert (got.status, got.body, got.headers["x-a"]) == (201, b"abcde", "b")


async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """The first connection answers once and breaks at the second request; later ones go on."""
    while True:
        writer.write(answer(await request(reader)))
        if number == 1:
            await request(reader)
            return


async def test_a_read_on_a_dead_kept_connection_is_asked_again() -> None:
    async with serving(once) as (server, wire):
        await wire.send(GET)
        assert (await wire.send(GET)).status == 200
        assert server.connections == 2


async def test_a_write_on_a_dead_kept_connection_is_not_sent_again() -> None:
    async with serving(once) as (server, wire):
        await wire.send(GET)
        with pytest.raises(Unavailable, match=r"POST /a: lost the connection to http://127.0.0.1"):
            await wire.send(POST)
        assert (await wire.send(POST)).status == 200
        assert server.connections == 2


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await request(reader)
        writer.write(answer(b"bye", more="Connection: close\r\n"))

    async with serving(handler) as (server, wire):
        for _ in range(3):
            assert (await wire.send(POST)).body == b"bye"
        assert server.connections == 3


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b""])
async def test_half_an_answer_is_no_answer(said: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await request(reader)
        writer.write(said)

    async with serving(handler) as (_, wire):
        with pytest.raises(Unavailable, match="GET /a"):
            await wire.send(GET)


async def test_silence_ends_after_the_timeout_and_the_turn_is_free_again() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await request(reader)
        await reader.read()

    async with serving(handler, timeout=0.05) as (server, wire):
        for _ in range(3):
            with pytest.raises(Unavailable, match=r"did not answer within 0.05 s"):
                await wire.send(GET)
        await soon(lambda: server.connections == 3, "three connections")  # the last may have been given up before that


async def test_nobody_there_is_said() -> None:
    gone = HttpTransport(Endpoint("127.0.0.1", 1))
    with pytest.raises(Unavailable, match=r"cannot reach http://127.0.0.1:1"):
        await gone.send(GET)
    with pytest.raises(Unavailable, match="cannot reach"):
        async for _ in gone.stream(GET, 1.0):
            pass


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        got = await request(reader)
        if number > 1:
            writer.write(answer(got))
        await reader.read()

    async with serving(handler) as (server, wire):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(wire.send(GET))
            while not server.connections:
                await asyncio.sleep(0)
            task.cancel()
        assert (await wire.send(GET)).status == 200
        assert server.connections == 2


# ---- answers that grow ---------------------------------------------------------------------------------------------


async def grow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    await request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        writer.write(b"3\r\nab\n\r\n")
        await writer.drain()


async def read(wire: HttpTransport, into: list[Response | bytes], quiet: float = 20.0) -> None:
    into.extend([part async for part in wire.stream(GET, quiet)])


async def test_a_growing_answer_comes_in_parts_until_it_ends() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await grow(reader, writer, number)
        writer.write(b"0\r\n\r\n")
        await reader.read()

    parts: list[Response | bytes] = []
    async with serving(handler) as (_, wire):
        await read(wire, parts)
    assert isinstance(parts[0], Response)
    assert b"".join(part for part in parts[1:] if isinstance(part, bytes)) == b"ab\n" * 3


async def test_a_growing_answer_that_breaks_is_unavailable() -> None:
    async with serving(grow) as (_, wire):
        with pytest.raises(Unavailable, match="lost the connection"):
            await read(wire, [])


async def test_a_growing_answer_that_falls_silent_is_unavailable() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await grow(reader, writer, number)
        await reader.read()

    async with serving(handler) as (_, wire):
        with pytest.raises(Unavailable, match="quiet for too long"):
            await read(wire, [], quiet=0.05)


async def test_a_growing_answer_that_ended_leaves_its_connection_to_others() -> None:
    async with serving(echo) as (server, wire):
        for _ in range(3):
            await read(wire, [])
        await wire.send(POST)
        assert server.connections == 1


async def test_a_growing_answer_that_nobody_read_to_its_end_takes_its_connection_along() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        await grow(reader, writer, number)
        await reader.read()

    async with serving(handler) as (server, wire):
        for _ in range(3):
            async with aclosing(wire.stream(GET, 20.0)) as parts:
                assert isinstance(await anext(parts), Response)
        assert server.connections == 3


async def test_no_more_connections_are_kept_than_requests_may_be_made_at_once() -> None:
    closed = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal closed
        await request(reader)
        await soon(lambda: server.connections == 5, "five connections")
        writer.write(answer(b"a"))
        await reader.read()
        closed += 1

    async with serving(handler) as (server, wire):
        await asyncio.gather(*(read(wire, []) for _ in range(5)))
        await soon(lambda: closed == 3, "three of them closed")


async def test_a_growing_answer_on_a_dead_kept_connection_is_asked_for_again() -> None:
    async with serving(once) as (server, wire):
        await read(wire, [])
        parts: list[Response | bytes] = []
        await read(wire, parts)
        assert isinstance(parts[0], Response)
        assert server.connections == 2


async def test_a_slow_reader_slows_the_server_and_loses_nothing() -> None:
    size = 40
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal sent
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(size):
            writer.write(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with serving(handler) as (_, wire):
        total, early = 0, 0
        async for part in wire.stream(GET, 20.0):
            if isinstance(part, Response):
                for _ in range(200):
                    await asyncio.sleep(0.001)
                early = sent
            else:
                total += len(part)
    assert total == size << 20
    assert early < size


@pytest.mark.parametrize(
    "scene",
    [
        test_a_connection_is_kept_and_carries_the_token,
        test_a_read_on_a_dead_kept_connection_is_asked_again,
        test_a_cancelled_request_closes_its_connection,
        test_nobody_there_is_said,
        test_a_growing_answer_that_breaks_is_unavailable,
        test_a_growing_answer_that_falls_silent_is_unavailable,
        test_a_slow_reader_slows_the_server_and_loses_nothing,
    ],
)
def test_the_same_on_uvloop(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    """The operator runs on it, and its transports differ in small things."""
    uvloop.run(scene())
