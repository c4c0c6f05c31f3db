"""Connections of a server to the API server of a cluster are few, and those for the lease are kept apart."""

from __future__ import annotations

import asyncio

from paddleflow.kube.credentials import StaticToken
from paddleflow.kube.transport import Endpoint, HttpTransport, Request
from paddleflow.server.kubernetes_clusters import CHECK_CONNECTIONS, CONNECTIONS
from tests.patience import soon


async def test_so_many_connections_at_once() -> None:
    open_, most, go = 0, 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_, most
        open_ += 1
        most = max(most, open_)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await go.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except asyncio.IncompleteReadError:
            pass
        finally:
            open_ -= 1
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    endpoint = Endpoint("127.0.0.1", listener.sockets[0].getsockname()[1], credentials=StaticToken("secret"))
    for limit in (CONNECTIONS, CHECK_CONNECTIONS):
        most = 0
        go.clear()
        wire = HttpTransport(endpoint, limit=limit)
        async with asyncio.TaskGroup() as group:
            for _ in range(limit + 10):
                group.create_task(wire.send(Request("GET", "/x")))
            await soon(lambda: most >= limit)  # noqa: B023 - called at once
            go.set()
        assert most == limit
        await wire.close()
        await soon(lambda: open_ == 0)
    listener.close()
