"""Ports for tests that need one before anybody listens on it."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

#: Neither the system hands these out by itself, nor a server of ours (`local.ports`), nor an operator (host ports).
RANGE = range(10_000, 20_000)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and that nobody else gets meanwhile: it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that somebody whom a test starts may listen on."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe:
            port = random.choice(RANGE)
            if port not in found and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return tuple(found)
