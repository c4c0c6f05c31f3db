"""What a turn writes about runs, in the same transaction as everything else of the turn: so a step that follows another one
costs no commit of its own. Called by `writes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddleflow.jobs.model import UNTIL_TOLD, JobStatus, NewJob
from paddleflow.jobs.prototypes import note
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.jobs.rows import json_text
from paddleflow.runs import artifacts, caches
from paddleflow.runs.rows import SQL
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.events import NewEvent

#: what a row that was just inserted has, besides what was given
NEW: Row = {
    **dict.fromkeys(("outcome", "not_before", "started_at", "finished_at", "resized_at")),
    **dict.fromkeys(("preemptions", "resizes"), 0),
    "touched": 1,
}


@dataclass(frozen=True, slots=True)
class FreshJob:
    """The job of a step, which the board knows before the database does."""

    job: NewJob
    run: str
    row: Mapping[str, Value]  #: as `jobs.rows.job_row` has it
    held_back: str = ""  #: why it is held back; empty: it is not


@dataclass(slots=True)
class RunWrites:
    """Rows of runs, components and what belongs to them."""

    jobs: dict[str, FreshJob] = field(default_factory=dict)  #: of steps that begin
    runs: list[dict[str, Value]] = field(default_factory=list)
    components: list[dict[str, Value]] = field(default_factory=list)
    loops: list[dict[str, Value]] = field(default_factory=list)
    artifacts: list[artifacts.NewArtifact] = field(default_factory=list)
    caches: list[caches.NewCache] = field(default_factory=list)
    seen: list[dict[str, Value]] = field(default_factory=list)  #: runs: seq, touched
    unbegun: list[dict[str, Value]] = field(default_factory=list)  #: components whose rows go: run_id, number
    events: list[NewEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        told = self.seen or self.events or self.unbegun
        return bool(self.jobs or self.runs or self.components or self.loops or told)


def write_runs(
    tx: Tx,
    writes: RunWrites,
    attempts: Mapping[str, int],
    reasons: Mapping[str, str],
    now: float,
    told: list[NewEvent],
) -> dict[str, Row]:
    """Write all of it; the rows of the new jobs. `attempts` are those that were placed at once, `reasons` why others wait."""
    for row in writes.runs:
        tx.run(SQL["update_run"], **row)
    if writes.seen:
        tx.many(SQL["mark_run_seen"], writes.seen)
    if writes.loops:
        tx.many(SQL["insert_loop"], writes.loops)
    if writes.unbegun:
        tx.many(SQL["forget_component"], writes.unbegun)
    if writes.components:
        tx.many(SQL["put_component"], writes.components)
    artifacts.note(tx, writes.artifacts, now)
    caches.keep(tx, writes.caches, now)
    told.extend(writes.events)
    told.extend(_held_back(job, new.held_back, now) for job, new in writes.jobs.items() if new.held_back)
    return _insert(tx, writes.jobs, attempts, reasons, now) if writes.jobs else {}


def _held_back(job: str, why: str, now: float) -> NewEvent:
    return NewEvent("job", job, now, "status", {"status": JobStatus.PENDING, "message": why})


def _insert(
    tx: Tx, jobs: Mapping[str, FreshJob], attempts: Mapping[str, int], reasons: Mapping[str, str], now: float
) -> dict[str, Row]:
    """The rows of new jobs: as if they had been submitted, looked at and perhaps placed, in one go."""
    rows: list[Row] = []
    for job, new in jobs.items():
        attempt = attempts.get(job, 0)
        looked_at = attempt or new.held_back or job in reasons
        rows.append(
            {
                **NEW,
                **new.row,
                "status": JobStatus.PENDING if looked_at else JobStatus.INIT,
                "message": reasons.get(job, new.held_back),
                "not_before": UNTIL_TOLD if new.held_back and not attempt else None,
                "placed": int(attempt > 0),
                "placed_at": now if attempt else None,
                "attempt": attempt,
                "run_id": new.run,
            }
        )
        note(tx, new.job)
    tx.many(JOBS["insert_step_job"], rows)
    found = tx.all(JOBS["positions"], ids=json_text([[job] for job in jobs]))
    seqs = {row["id"]: row["seq"] for row in found}
    return {row["id"]: {**row, "seq": seqs[row["id"]]} for row in rows}
