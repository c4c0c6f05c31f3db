"""Leases: only one process at a time acts on a thing, and one that was too slow notices.

A lease is taken with a token that grows with each taking. The holder names its token in every write (`check` inside the
same transaction); once somebody else has taken the lease, the old token touches nothing any more, however late the old
holder wakes up. Time decides only when a lease may be taken, never whether a write counts. Called by the engine's loops.
"""

from __future__ import annotations

from paddleflow.errors import Temporary
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.store", "leases.sql")


class LeaseLost(Temporary):
    """Somebody else has gone on with it: forget what you were doing."""


def acquire(tx: Tx, name: str, holder: str, now: float, ttl: float) -> int | None:
    """The token of the lease, held until ``now + ttl``; None while another holds it.

    A holder that asks again gets a new token: its former self is fenced off too.
    """
    if not holder:
        raise ValueError("a lease needs a holder")
    token: int | None = tx.value(SQL["acquire"], name=name, holder=holder, now=now, expires_at=now + ttl)
    return token


def renew(tx: Tx, name: str, token: int, now: float, ttl: float) -> bool:
    """Hold it until ``now + ttl``; False when it was lost or given back."""
    return tx.run(SQL["renew"], name=name, token=token, expires_at=now + ttl) == 1


def check(tx: Tx, name: str, token: int) -> None:
    """`LeaseLost` unless `token` is the newest one; call it in each transaction that the lease guards."""
    if tx.value(SQL["held"], name=name, token=token) is None:
        raise LeaseLost(f"lease {name}: token {token} is no longer the newest one")


def release(tx: Tx, name: str, token: int) -> None:
    """Give it back at once; nothing happens when it was lost before."""
    tx.run(SQL["release"], name=name, token=token)
