"""Ports for tests that need one before anybody listens on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.lib.ports import free_ports

__all__ = ["closed_port", "free_ports"]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and that nobody else gets meanwhile: it is bound."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
