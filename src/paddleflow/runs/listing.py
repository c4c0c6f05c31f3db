"""Finding runs: newest first, pages that neither repeat nor lose a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddleflow.errors import NotFound
from paddleflow.runs.artifacts import select
from paddleflow.runs.model import ACTIVE_RUNS, FINAL_RUNS
from paddleflow.runs.rows import SQL
from paddleflow.store.database import Row, Tx


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; everything that is given must hold."""

    users: Sequence[str] = ()
    storages: Sequence[str] = ()
    runs: Sequence[str] = ()
    names: Sequence[str] = ()
    statuses: Sequence[str] = ()
    schedules: Sequence[str] = ()


def find_runs(tx: Tx, wanted: RunFilter, before: int, limit: int) -> list[Row]:
    """Runs, newest first. `before` is the position of the last row of the page before, 0 at first."""
    columns = (
        ("user_name", wanted.users),
        ("fs_name", wanted.storages),
        ("id", wanted.runs),
        ("name", wanted.names),
        ("status", _statuses(wanted.statuses)),
        ("schedule_id", wanted.schedules),
    )
    return select(tx, "runs", columns, before, limit)


def _statuses(words: Sequence[str]) -> list[str]:
    """`active` and `final` stand for the states that are."""
    found: list[str] = []
    for word in words:
        found += sorted(ACTIVE_RUNS) if word == "active" else sorted(FINAL_RUNS) if word == "final" else [word]
    return found


def get_run(tx: Tx, run: str) -> Row:
    """One run's row, or NotFound."""
    row = tx.one(SQL["run_by_id"], id=run)
    if row is None:
        raise NotFound(
            f"run[{run[:80]}] does not exist", code="RunNotFound", hint="paddleflow run list shows those there are"
        )
    return row


def get_components(tx: Tx, run: str) -> list[Row]:
    return tx.all(SQL["components_of_run"], run_id=run)
