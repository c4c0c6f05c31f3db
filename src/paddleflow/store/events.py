"""The event log: what happened, in one order for everybody who follows it.

Each transition writes its event in its own transaction, so the log and the rows never disagree. Followers (server-sent
events, the command line, the engine) remember the last `seq` they saw and ask for what is `after` it.

Positions become visible in order: who has seen `seq` n will never be shown a smaller one later. SQLite has one writer.
On PostgreSQL a sequence alone would not do, as a smaller number may be committed after a greater one; there the writers'
lock (see `postgres`) is held from before the number is drawn until it is committed. Numbers may be missing: a
transaction that was undone takes its own with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddleflow.base.json_text import ascii_json_text
from paddleflow.base.values import dataclass
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.store", "events.sql")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a thing."""

    seq: int  #: position in the log
    kind: str  #: sort of thing, such as ``job``
    subject: str  #: id of the thing
    at: float
    type: str  #: what happened
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that has no position yet."""

    kind: str
    subject: str
    at: float
    type: str
    data: Mapping[str, Any]


def append(tx: Tx, kind: str, subject: str, type: str, at: float, data: Mapping[str, Any]) -> None:
    """Write one event; `data` holds JSON values."""
    tx.run(SQL["append"], kind=kind, subject=subject, at=at, type=type, data=ascii_json_text(data))


def append_many(tx: Tx, rows: Iterable[NewEvent]) -> None:
    """Write many events in their order, in one go."""
    tx.many(
        SQL["append"],
        (
            {
                "kind": row.kind,
                "subject": row.subject,
                "at": row.at,
                "type": row.type,
                "data": ascii_json_text(row.data),
            }
            for row in rows
        ),
    )


def append_alike(tx: Tx, kind: str, subjects: Sequence[str], type: str, at: float, data: Mapping[str, Any]) -> None:
    """The same event of many things, in their order."""
    tx.run(
        SQL["append_alike"],
        kind=kind,
        subjects=ascii_json_text([[each] for each in subjects]),
        at=at,
        type=type,
        data=ascii_json_text(data),
    )


def after(tx: Tx, kind: str, subject: str | None, seq: int, limit: int) -> list[Event]:
    """Up to `limit` events behind position `seq`, oldest first: of one thing, or with None of all of that kind."""
    if subject is None:
        rows = tx.all(SQL["after_kind"], kind=kind, seq=seq, limit=limit)
    else:
        rows = tx.all(SQL["after_subject"], kind=kind, subject=subject, seq=seq, limit=limit)
    return [_event(row) for row in rows]


def last_seq(tx: Tx) -> int:
    """The newest position; 0 in an empty log."""
    seq: int = tx.value(SQL["last_seq"])
    return seq


def delete_for(tx: Tx, kind: str, subject: str) -> None:
    """Forget the history of one thing."""
    tx.run(SQL["delete_for"], kind=kind, subject=subject)


def _event(row: Row) -> Event:
    return Event(row["seq"], row["kind"], row["subject"], row["at"], row["type"], json.loads(row["data"]))
