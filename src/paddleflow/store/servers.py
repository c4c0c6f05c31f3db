"""The servers that share a database, and which of them holds a lease: so that one can ask another.

A server announces itself at its start and every `ANNOUNCE_EVERY` seconds. Called by `server` and by `api.peers`.
"""

from __future__ import annotations

from paddleflow.base.values import dataclass
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.store", "servers.sql")
ANNOUNCE_EVERY = 30.0  #: seconds


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The server that acts on something now."""

    server: str
    address: str  #: empty: not known


def announce(tx: Tx, server: str, address: str, now: float) -> None:
    tx.run(SQL["announce_server"], id=server, address=address, now=now)


def withdraw(tx: Tx, server: str) -> None:
    tx.run(SQL["withdraw_server"], id=server)


def holder_of(tx: Tx, lease: str, now: float) -> LeaseHolder | None:
    """Who holds a lease; None when nobody does."""
    row = tx.one(SQL["lease_holder"], name=lease, now=now)
    return LeaseHolder(row["holder"], row["address"]) if row else None


def cluster_of_job(tx: Tx, job: str) -> str:
    """The name of the cluster that a job belongs to; empty for a job that there is not."""
    return str(tx.value(SQL["cluster_of_job"], id=job) or "")


def running(tx: Tx, now: float, but: str) -> list[str]:
    """The addresses of servers other than `but` that have announced themselves lately."""
    rows = tx.all(SQL["running_servers"], since=now - 3 * ANNOUNCE_EVERY, but=but)
    return [row["address"] for row in rows]
