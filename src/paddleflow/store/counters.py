"""Numbers that change with something: whoever keeps a copy of a configuration sees by one query that it is old.

A change raises its number by a step that nobody knows beforehand. So a number that was seen in a transaction which was
undone later does not come back for another change, and what was learnt there is not taken for the truth.
"""

from __future__ import annotations

import random

from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.store", "counters.sql")


#: Raised by every change of what the document of a job may name, besides queues: flavours, storages, and grants.
NAMED = "named"


def value(tx: Tx, name: str) -> int:
    """0 for what never changed."""
    return int(tx.value(SQL["counter_value"], name=name) or 0)


def both(tx: Tx, name: str, other: str) -> int:
    """One number for two things: another one as soon as either has changed."""
    return int(tx.value(SQL["counter_sum"], name=name, other=other))


def bump(tx: Tx, name: str) -> None:
    """In the same transaction as the change."""
    tx.run(SQL["bump_counter"], name=name, step=random.randint(1, 2**31))  # noqa: S311 - nobody gains by guessing it
