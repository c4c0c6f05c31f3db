"""What a turn writes about runs, in the same transaction as everything else of the turn: so a step that follows another one
costs no commit of its own. Called by `writes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddleflow.jobs.model import JobStatus, NewJob
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.jobs.rows import job_row
from paddleflow.runs import artifacts, caches
from paddleflow.runs.rows import SQL
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.events import NewEvent


@dataclass(slots=True)
class RunWrites:
    """Rows of runs, components and what belongs to them."""

    jobs: dict[str, tuple[NewJob, str]] = field(default_factory=dict)  #: new ones, with the run that each belongs to
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
    return {job.id: _insert(tx, job, run, attempts, reasons, now) for job, run in writes.jobs.values()}


def _insert(tx: Tx, job: NewJob, run: str, attempts: Mapping[str, int], reasons: Mapping[str, str], now: float) -> Row:
    """The row of a new job: as if it had been submitted, looked at and perhaps placed, in one go."""
    attempt = attempts.get(job.id, 0)
    waits = job.id in reasons
    row: Row = job_row(job, now)
    row["status"] = JobStatus.PENDING if attempt or waits else JobStatus.INIT
    row["message"] = reasons.get(job.id, "")
    row.update(placed=int(attempt > 0), attempt=attempt, run_id=run)
    seq = tx.value(JOBS["insert_step_job"], **row)
    storages: list[dict[str, Value]] = [
        {"job_id": job.id, "fs_id": storage.id} for member in job.members for storage in member.storages
    ]
    if storages:
        tx.many(JOBS["insert_storage"], storages)
    if job.labels:
        tx.many(JOBS["insert_label"], [{"job_id": job.id, "key": k, "value": v} for k, v in job.labels.items()])
    row.update(
        seq=seq, outcome=None, not_before=None, started_at=None, finished_at=None, updated_at=now, touched=1, seen=1
    )
    return row
