"""Clients that hold connections, send half a request or never read: others are served, and nothing piles up."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from paddleflow.access import tokens, users
from paddleflow.api.platform import Platform
from paddleflow.base.clock import SystemClock
from paddleflow.server.listener import HttpServer, open_listener
from paddleflow.settings import ServerSettings, Settings
from paddleflow.store import events
from paddleflow.store.bus import EVENTS, LocalBus
from paddleflow.store.connection import open_database
from paddleflow.store.database import Tx
from tests.patience import PATIENCE, soon

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def served(folder: Path, **limits: float) -> AsyncIterator[tuple[Platform, int]]:
    """A real HTTP server with these limits; its port."""
    server_settings = replace(ServerSettings(port=0, data=str(folder)), **limits)  # type: ignore[arg-type]  # by name
    settings = Settings(server=server_settings)
    async with AsyncExitStack() as stack:
        database = await open_database("", folder)
        stack.push_async_callback(database.close)
        listener = stack.enter_context(open_listener(settings))
        platform = Platform(settings=settings, database=database, clock=SystemClock(), bus=LocalBus())
        server = HttpServer(platform, listener)
        await server.prepare()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            await soon(lambda: server.started)
            try:
                yield platform, listener.getsockname()[1]
            finally:
                server.stop()


async def answer(port: int, request: bytes = HEALTH) -> bytes:
    """The first line of the answer to a request; empty when the connection was closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE):
            return await reader.readline()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_idle_connections_lock_nobody_out(tmp_path: Path) -> None:
    async with served(tmp_path, max_connections=40) as (_, port):
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        try:
            for _ in range(5):
                assert await answer(port) == b"HTTP/1.1 200 OK\r\n"
        finally:
            for each in held:
                each.close()


def test_a_crowd_is_let_in_many_at_a_time(tmp_path: Path) -> None:
    """On the loop that the server has, which accepts one connection in each iteration for each descriptor that listens."""

    async def answered() -> int:
        async with served(tmp_path) as (_, port), AsyncExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(96)]
            for each in crowd:
                each.sendall(HEALTH)
            for _ in range(48):
                await asyncio.sleep(0)  # an iteration
            return len(select.select(crowd, [], [], 0)[0])

    assert uvloop.run(answered()) == 96


async def test_half_a_head_is_not_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, head_timeout=0.05) as (_, port):
        assert await answer(port, b"GET /healthz HTTP/1.1\r\nhost: x") == b""
        assert await answer(port, b"") == b""
        assert await answer(port) == b"HTTP/1.1 200 OK\r\n"


async def test_a_connection_without_requests_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, keep_alive=1) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")  # until the server ends it
        writer.close()


async def test_a_head_without_end_is_cut_off(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, port):
        with pytest.raises(OSError):
            await _endless_head(port)


async def _endless_head(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(b"GET /healthz HTTP/1.1\r\n")
            while True:
                writer.write(b"x: %s\r\n" % (b"y" * 1000))
                await writer.drain()
                await asyncio.sleep(0)
    finally:
        writer.close()


def _some_events(tx: Tx) -> None:
    for _ in range(400):
        events.append(tx, "job", "j", "note", 1.0, {"text": "x" * 40_000})  # more than the kernel keeps for a socket


async def test_a_follower_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    async with served(tmp_path, write_timeout=0.2) as (platform, port):
        now = platform.clock.now()
        await platform.database.write(users.add, "root", "x", now)
        token = await platform.database.write(tokens.issue, "root", now, 1)
        with socket.socket() as follower:
            follower.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            follower.connect(("127.0.0.1", port))
            path = "/api/paddleflow/v1/events"
            follower.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nx-pf-authorization: {token}\r\n\r\n".encode())
            await platform.database.write(_some_events)
            platform.bus.wake(EVENTS)
            await soon(lambda: _reset(follower), "the follower is cut off")
        assert await answer(port) == b"HTTP/1.1 200 OK\r\n"


def _reset(line: socket.socket) -> bool:
    return line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
