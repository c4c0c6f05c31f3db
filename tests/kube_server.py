"""API servers for tests of `kube`: the one in memory, and the real one of the project's own cluster (no nodes, no root)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from paddleflow.kube.client import Client
from paddleflow.kube.resources import NAMESPACES
from paddleflow.kube.wire import HttpWire, Place

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = "kube-tests"


def cluster_call(*arguments: str) -> str:
    """What `scripts/cluster` prints on stdout."""
    done = subprocess.run([ROOT / "scripts/cluster", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cluster_up() -> Path:
    """The kubeconfig of a control plane without nodes; skips where it is not built."""
    check = subprocess.run([ROOT / "scripts/cluster", "build", "--check", "kube"], capture_output=True, check=False)
    if check.returncode:
        pytest.skip("no Kubernetes built here: scripts/cluster build")
    cluster_call("up", "--name", CLUSTER)
    return Path(cluster_call("kubeconfig", "--name", CLUSTER))


@contextlib.asynccontextmanager
async def connected(place: Place) -> AsyncIterator[Client]:
    client = Client(HttpWire(place), manager="kube-tests")
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def own_namespace(client: Client) -> AsyncIterator[str]:
    """A namespace that nobody else uses, gone afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, NAMESPACES.object(name))
    try:
        yield name
    finally:
        await client.delete(NAMESPACES, name)


async def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Waits for a condition, with a deadline that says what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
