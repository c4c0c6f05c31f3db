"""GlusterFS for tests: a test skips, with one line that says why, where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

from paddleflow.objects.store import ObjectStore
from paddleflow.objects.urls import open_store
from scripts.lib import gluster_server as servers
from scripts.lib.gluster_server import GlusterServer
from scripts.lib.s3_servers import NotInstalled

__all__ = ["GlusterServer", "gluster_server", "gluster_store"]
_numbers = count(1)


@contextmanager
def gluster_server() -> Iterator[GlusterServer]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(servers.gluster_server())
        except NotInstalled as error:
            pytest.skip(str(error))
        yield server


def gluster_store(server: GlusterServer) -> ObjectStore:
    """A folder of the caller's own."""
    name = f"some-{next(_numbers)}"
    top = open_store(server.url)
    top.make_folder(name)
    top.close()
    return open_store(f"{server.url}/{name}")
