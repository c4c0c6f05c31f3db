"""How many connections a server keeps, and for how long: so that who holds many of them locks nobody out.

The rules (``docs/internals/limits.md``):

* At most `Connections.most` at once, fitted to the process's file descriptors at start (`budget`), and at most
  ``server.max_connections_per_address`` from one address.
* At either limit the connection that has been idle longest makes place for the new one. Idle is who has no request in
  work: kept alive, not yet begun, or with half a head sent. Where none is idle, the new one is closed.
* A head arrives within ``server.head_timeout`` seconds and has at most `MOST_HEAD` bytes.
* A client that reads nothing for ``server.write_timeout`` seconds while data waits for it is cut off; until then no more
  than the buffer of its socket is kept for it.

`transport.BoundedProtocol` reports to the `Connections` of its server.
"""

from __future__ import annotations

import asyncio
import resource
from collections import defaultdict
from dataclasses import field
from typing import Protocol

from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable
from paddleflow.settings import ServerSettings

MOST_HEAD = 64 * 1024  #: bytes of a request's head
RESERVED = 256  #: descriptors for the listener, the database, logs, artifacts and the keeper's sockets
FEWEST = 64  #: connections below which a server does not start


class Closable(Protocol):
    """A connection, as far as it can be ended."""

    def abort(self) -> None: ...


@dataclass(slots=True)
class Connections:
    """The open connections of one server."""

    most: int
    most_per_address: int
    head_timeout: float
    write_timeout: float
    _addresses: dict[str, dict[Closable, None]] = field(default_factory=lambda: defaultdict(dict))
    _open: dict[Closable, str] = field(default_factory=dict)
    _idle: dict[Closable, None] = field(default_factory=dict)  #: longest idle first

    def add(self, connection: Closable, address: str) -> bool:
        """A new connection; False when there is no place for it."""
        same = self._addresses[address]
        if len(same) >= self.most_per_address and not self._evict(same):
            return False
        if len(self._open) >= self.most and not self._evict(self._open):
            return False
        self._open[connection] = address
        self._addresses[address][connection] = None
        self._idle[connection] = None
        return True

    def begin(self, connection: Closable) -> None:
        """A request of it is in work."""
        self._idle.pop(connection, None)

    def end(self, connection: Closable) -> None:
        """Its request was answered: it is idle from now on."""
        if connection in self._open:
            self._idle[connection] = None

    def remove(self, connection: Closable) -> None:
        """It is closed."""
        self._idle.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            same = self._addresses[address]
            same.pop(connection, None)
            if not same:
                del self._addresses[address]

    def __len__(self) -> int:
        return len(self._open)

    def _evict(self, among: dict[Closable, str] | dict[Closable, None]) -> bool:
        """Close the longest idle of some connections; False when all of them are at work."""
        found = next((each for each in self._idle if each in among), None)
        if found is None:
            return False
        self.remove(found)
        found.abort()
        return True


def budget(settings: ServerSettings, descriptors: int | None = None) -> Connections:
    """The limits of this process; `Unavailable` when it may open too few files to be of use."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if descriptors is None else descriptors
    unlimited = soft == resource.RLIM_INFINITY
    if not unlimited and soft < RESERVED + FEWEST:
        raise Unavailable(
            f"this process may open {soft} files, a server needs at least {RESERVED + FEWEST}",
            hint="raise the limit: ulimit -n 4096 (LimitNOFILE= in a systemd unit)",
        )
    most = settings.max_connections if unlimited else min(settings.max_connections, soft - RESERVED)
    return Connections(most, settings.max_connections_per_address, settings.head_timeout, settings.write_timeout)


class Deadline:
    """One timer of a connection that ends it when it runs out."""

    def __init__(self, connection: Closable) -> None:
        self._connection = connection
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Run out in so many seconds, unless it runs already."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._connection.abort)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
