"""What tests of `kube` share: a client of the real API server, and a namespace of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

from paddleflow.errors import NotFound
from paddleflow.kube.client import Client
from paddleflow.kube.resources import NAMESPACES, Resource
from paddleflow.kube.transport import Endpoint, HttpTransport

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


@contextlib.asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[Client]:
    client = Client(HttpTransport(endpoint), manager="kube-tests")
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def own_namespace(client: Client) -> AsyncIterator[str]:
    """A namespace that nobody else uses and that takes pods, gone afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, NAMESPACES.object(name))
    try:
        if await _has_account(client, "default"):  # a server that gives them: without its account it takes no pod
            async with asyncio.timeout(90):
                while not await _has_account(client, name):
                    await asyncio.sleep(0.02)
        yield name
    finally:
        await client.delete(NAMESPACES, name)


async def _has_account(client: Client, space: str) -> bool:
    try:
        await client.get(SERVICE_ACCOUNTS, "default", space)
    except NotFound:
        return False
    return True
