"""Ports for processes that need one before anybody listens on it."""

from __future__ import annotations

import random
import socket

#: Neither the system hands these out by itself, nor a server of ours (`local.ports`), nor an operator (host ports).
RANGE = range(10_000, 20_000)


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that somebody whom a test starts may listen on."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe:
            port = random.choice(RANGE)
            if port not in found and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return tuple(found)
