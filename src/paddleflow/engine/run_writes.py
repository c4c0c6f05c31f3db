"""What a turn writes about runs, in the same transaction as everything else of the turn: so a step that follows another one
costs no commit of its own. Called by `writes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddleflow.jobs.model import JobStatus, NewJob
from paddleflow.jobs.prototypes import note
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.runs import artifacts, caches
from paddleflow.runs.rows import SQL
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.events import NewEvent


@dataclass(frozen=True, slots=True)
class FreshJob:
    """The job of a step, which the board knows before the database does."""

    job: NewJob
    run: str
    row: Mapping[str, Value]  #: as `jobs.rows.job_row` has it


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
    events: list[NewEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.runs or self.components or self.loops or self.seen or self.events)


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
    if writes.components:
        tx.many(SQL["put_component"], writes.components)
    artifacts.note(tx, writes.artifacts, now)
    caches.keep(tx, writes.caches, now)
    told.extend(writes.events)
    return {job: _insert(tx, new, attempts, reasons, now) for job, new in writes.jobs.items()}


def _insert(tx: Tx, new: FreshJob, attempts: Mapping[str, int], reasons: Mapping[str, str], now: float) -> Row:
    """The row of a new job: as if it had been submitted, looked at and perhaps placed, in one go."""
    attempt = attempts.get(new.job.id, 0)
    given = dict(new.row)
    given["status"] = JobStatus.PENDING if attempt or new.job.id in reasons else JobStatus.INIT
    given["message"] = reasons.get(new.job.id, "")
    given |= {"placed": int(attempt > 0), "placed_at": now if attempt else None, "attempt": attempt, "run_id": new.run}
    row = tx.one(JOBS["insert_step_job"], **given)
    assert row is not None
    note(tx, new.job)
    return row
