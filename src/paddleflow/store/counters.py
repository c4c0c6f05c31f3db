"""How often something has changed: lets a loop notice in one look that its copy of a configuration is old."""

from __future__ import annotations

from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.store", "counters.sql")


def value(tx: Tx, name: str) -> int:
    """0 for what never changed."""
    return int(tx.value(SQL["counter_value"], name=name) or 0)


def bump(tx: Tx, name: str) -> None:
    """In the same transaction as the change."""
    tx.run(SQL["bump_counter"], name=name)
