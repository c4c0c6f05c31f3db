"""The audit log: who changed what, when and from where. Append-only; root reads it.

Entries are collected by the event loop and written together a moment later, so that a request does not wait for its entry.
A server that is killed loses at most `FLUSH_EVERY` seconds of them; one that stops loses none. `Application` records,
the server runs `AuditLog.run`, ``GET /audit`` reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict

from paddleflow.access import users
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError, shorten
from paddleflow.store.database import Database, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "audit.sql")
FLUSH_EVERY = 0.5  #: seconds
MOST_WAITING = 10_000  #: entries that wait while the database is away; further ones are counted and logged
_MOST_PATH = 500

log = Log("audit")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request that may have changed something."""

    at: float
    user_name: str
    address: str
    method: str
    path: str
    status: int
    request_id: str
    user_id: int = 0  #: which user of this name; 0: not known, as at a login, until it is stored
    seq: int = 0  #: position in the log; 0 before it is stored


class AuditLog:
    """Collects entries and writes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[AuditEntry] = []
        self._lost = 0

    def record(self, entry: AuditEntry) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
        else:
            self._waiting.append(entry)

    async def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        entries, self._waiting = self._waiting, []
        try:
            await self._database.write(_append, entries)
        except PaddleFlowError:
            self._waiting = (entries + self._waiting)[:MOST_WAITING]
            raise
        if self._lost:
            log.warning("entries of the audit log were lost while the database was away", entries=self._lost)
            self._lost = 0

    async def run(self) -> None:
        """Write every now and then, until cancelled, and what is left at the end."""
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY)
                with contextlib.suppress(PaddleFlowError):  # it is tried again
                    await self.flush()
        finally:
            with contextlib.suppress(PaddleFlowError):
                await self.flush()


def _append(tx: Tx, entries: Sequence[AuditEntry]) -> None:
    ids: dict[str, int] = {}
    for name in {entry.user_name for entry in entries if not entry.user_id}:
        found = users.by_name(tx, name)
        ids[name] = found.seq if found else 0
    rows = [
        asdict(entry) | {"path": shorten(entry.path, _MOST_PATH), "user_id": entry.user_id or ids[entry.user_name]}
        for entry in entries
    ]
    tx.many(SQL["append_audit"], rows)


def list_audit(tx: Tx, user: str, before: int, limit: int) -> list[AuditEntry]:
    """Entries before a position (0: from the newest on), newest first; of one user, or of all when `user` is empty."""
    rows = tx.all(SQL["list_audit"], user_name=user, before=before or 2**62, limit=limit)
    return [AuditEntry(**row) for row in rows]
