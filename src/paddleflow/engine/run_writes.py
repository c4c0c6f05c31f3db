"""What a turn writes about runs: collected from the states that the machines changed, and written in the same transaction as
everything else of the turn, so that a step that follows another one costs no commit of its own. Called by `run_engine` (collect)
and `changeset` (write).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import NamedTuple, TypeAlias

from paddleflow.base.json_text import json_text
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound
from paddleflow.jobs.changes import stop_job
from paddleflow.jobs.model import JobStatus, NewJob
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.jobs.rows import JobRow, inserted_job
from paddleflow.jobs.submission import index_job
from paddleflow.runs import artifacts, caches
from paddleflow.runs.artifacts import INPUT, OUTPUT, NewArtifact
from paddleflow.runs.caches import NewCache
from paddleflow.runs.facts import Measurement
from paddleflow.runs.model import ComponentStatus
from paddleflow.runs.rows import SQL, component_row, run_row
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered, on_storage
from paddleflow.settings import JobSettings
from paddleflow.spec.pipeline.model import Step
from paddleflow.store import leases
from paddleflow.store.database import Tx, Value
from paddleflow.store.events import NewEvent

Collected: TypeAlias = "list[tuple[RunState, Instance]]"
RenderedSteps: TypeAlias = "dict[tuple[str, int], Rendered]"
NOT_MEASURED = Measurement("missing")


@dataclass(frozen=True, slots=True)
class FreshJob:
    """The job of a step, which the board knows before the database does."""

    job: NewJob
    run: str
    row: Mapping[str, Value]  #: as `jobs.rows.job_row` has it
    held_back: str = ""  #: why it is held back; empty: it is not
    elsewhere: bool = False  #: it belongs to another cluster, whose engine finds its row


@dataclass(slots=True)
class RunWrites:
    """Rows of runs, components and what belongs to them."""

    lease: tuple[str, int] | None = None  #: of runs, with its token
    jobs: dict[str, FreshJob] = field(default_factory=dict)  #: of steps that begin
    stops: list[tuple[str, str]] = field(default_factory=list)  #: jobs of other clusters, and why they are stopped
    releases: list[str] = field(default_factory=list)  #: jobs of other clusters that are not gated any more
    runs: list[dict[str, Value]] = field(default_factory=list)
    components: list[dict[str, Value]] = field(default_factory=list)
    loops: list[dict[str, Value]] = field(default_factory=list)
    artifacts: list[artifacts.NewArtifact] = field(default_factory=list)
    caches: list[caches.NewCache] = field(default_factory=list)
    seen: list[dict[str, Value]] = field(default_factory=list)  #: runs: seq, touched
    numbers: list[dict[str, Value]] = field(default_factory=list)  #: id, numbers: of runs with withdrawn components
    withdrawn: list[dict[str, Value]] = field(default_factory=list)  #: components whose rows go: run_id, number
    abandoned: list[dict[str, Value]] = field(default_factory=list)  #: run_id, message, at: their components end
    events: list[NewEvent] = field(default_factory=list)

    @property
    def concerns_others(self) -> bool:
        """Whether engines of other clusters have something to do by it."""
        return bool(self.stops or self.releases) or any(new.elsewhere for new in self.jobs.values())

    def __bool__(self) -> bool:
        others = self.seen or self.events or self.withdrawn or self.abandoned or self.stops or self.releases
        return bool(self.jobs or self.runs or self.components or self.loops or others)


def collect(run: RunState, rendered: RenderedSteps, writes: RunWrites, now: float) -> Collected:
    """Take the changes out of a run's state and into the writes; the components that have ended."""
    ended: Collected = []
    for item in run.changed.values():
        found = rendered.pop((run.id, item.number), None)
        row = component_row(run, item, found)
        writes.components.append(row)
        writes.events.append(NewEvent("run", run.id, now, "step", _event(item)))
        if found is not None and found.inputs and item.tries <= 1:
            writes.artifacts += [_input(run, item, name, path) for name, path in found.inputs.items()]
        if item.status.final:
            ended.append((run, item))
            if isinstance(item.component, Step) and item.status is ComponentStatus.SUCCEEDED:
                _succeeded(run, item, writes)
    run.changed.clear()
    writes.withdrawn += [{"run_id": run.id, "number": number} for number in run.withdrawn]
    if run.withdrawn:
        writes.numbers.append({"id": run.id, "numbers": run.next_number})
    run.withdrawn.clear()
    for frame, name, items in run.loops:
        writes.loops.append({"run_id": run.id, "parent": frame, "name": name, "items": json_text(list(items))})
    run.loops.clear()
    if run.changed_itself:
        run.changed_itself = False
        writes.runs.append(run_row(run, now))
        writes.events.append(NewEvent("run", run.id, now, "status", {"status": run.status, "message": run.message}))
    return ended


def _event(item: Instance) -> dict[str, object]:
    data: dict[str, object] = {"step": item.full_name, "status": item.status, "message": item.message}
    if item.job:
        data["jobID"] = item.job
    if item.reused_run:
        data["reusedFrom"] = item.reused_run
    return data


def _record(
    run: RunState, item: Instance, kind: str, name: str, path: str, seen: Measurement, meta: str
) -> NewArtifact:
    main = run.pipeline.main_fs
    return NewArtifact(
        run_id=run.id,
        fs_id=run.fs_id,
        fs_name=main.name if main is not None else "",
        user_name=run.user,
        path=on_storage(run, path),
        step=item.full_name,
        job_id=item.job,
        kind=kind,
        name=name,
        hash=seen.hash,
        size=seen.size,
        meta=meta,
    )


def _input(run: RunState, item: Instance, name: str, path: str) -> NewArtifact:
    return _record(run, item, INPUT, name, path, NOT_MEASURED, "")


def _succeeded(run: RunState, item: Instance, writes: RunWrites) -> None:
    """Records of what it made, and the result that later runs may use."""
    made = run.measured.pop(item.number, {})
    for name, path in item.outputs.items():
        seen = made.get(name, NOT_MEASURED)
        writes.artifacts.append(
            _record(run, item, OUTPUT, name, path, seen, "reused" if item.reused_run else seen.kind)
        )
    if item.prints.first and not item.reused_run:
        main = run.pipeline.main_fs
        outputs = {name: (path, made.get(name, NOT_MEASURED).hash) for name, path in item.outputs.items()}
        writes.caches.append(
            NewCache(
                prints=item.prints,
                run_id=run.id,
                pipeline=run.pipeline.name,
                step=item.full_name,
                job_id=item.job,
                fs_id=run.fs_id,
                fs_name=main.name if main is not None else "",
                user_name=run.user,
                expired_time=item.step.cache.max_expired_time,
                outputs=outputs,
                source=run.source,
            )
        )


def write_runs(
    tx: Tx,
    writes: RunWrites,
    attempts: Mapping[str, int],
    reasons: Mapping[str, str],
    rules: JobSettings,
    now: float,
    events: list[NewEvent],
) -> dict[str, JobRow]:
    """Write all of it; the rows of the new jobs. `attempts` are those that were placed at once, `reasons` why others wait."""
    if writes.lease is not None:
        leases.check(tx, *writes.lease)
    for row in writes.runs:
        tx.run(SQL["update_run"], **row)
    for row in writes.abandoned:
        tx.run(SQL["end_components"], **row)
    if writes.seen:
        tx.many(SQL["mark_run_seen"], writes.seen)
    if writes.loops:
        tx.many(SQL["insert_loop"], writes.loops)
    for row in writes.numbers:
        tx.run(SQL["keep_numbers"], **row)
    if writes.withdrawn:
        tx.many(SQL["forget_component"], writes.withdrawn)
    if writes.components:
        tx.many(SQL["put_component"], writes.components)
    for job, message in writes.stops:
        with suppress(NotFound, Conflict):  # it has ended or was deleted meanwhile: its row says so
            stop_job(tx, job, message, now, rules)
    for job in writes.releases:
        tx.run(SQL["release_job"], id=job, at=now)
    artifacts.note(tx, writes.artifacts, now)
    caches.keep(tx, writes.caches, now)
    events.extend(writes.events)
    events.extend(_held_back(job, new.held_back, now) for job, new in writes.jobs.items() if new.held_back)
    return _insert(tx, writes.jobs, attempts, reasons, now) if writes.jobs else {}


def _held_back(job: str, why: str, now: float) -> NewEvent:
    return NewEvent("job", job, now, "status", {"status": JobStatus.PENDING, "message": why})


def _insert(
    tx: Tx, jobs: Mapping[str, FreshJob], attempts: Mapping[str, int], reasons: Mapping[str, str], now: float
) -> dict[str, JobRow]:
    """The rows of new jobs: as if they had been submitted, seen and perhaps placed, in one go."""
    rows: list[dict[str, Value]] = []
    for job, new in jobs.items():
        attempt = attempts.get(job, 0)
        looked_at = attempt or new.held_back or job in reasons
        rows.append(
            {
                **new.row,
                "status": JobStatus.PENDING if looked_at else JobStatus.INIT,
                "message": reasons.get(job, new.held_back),
                "gated": int(bool(new.held_back) and not attempt),
                "placed": int(attempt > 0),
                "placed_at": now if attempt else None,
                "attempt": attempt,
                "seen": int(not new.elsewhere),
                "run_id": new.run,
            }
        )
        index_job(tx, new.job)
    tx.many(JOBS["insert_step_job"], rows)
    found = tx.all(JOBS["positions"], ids=json_text([[job] for job in jobs]))
    seqs = {row["id"]: row["seq"] for row in found}
    return {job: inserted_job(row, seqs[job], now) for job, row in zip(jobs, rows, strict=True)}


def taken_ids(tx: Tx, jobs: Sequence[str]) -> list[str]:
    """Those of these ids that jobs have already."""
    return [row["id"] for row in tx.all(JOBS["positions"], ids=json_text([[job] for job in jobs]))]


class OtherJob(NamedTuple):
    """What the row of a job on another cluster says."""

    id: str
    status: str
    message: str
    started_at: float | None
    finished_at: float | None
    exit_code: int | None = None  #: of its first member that failed


def read_other_jobs(tx: Tx, jobs: Sequence[str]) -> dict[str, OtherJob]:
    """By id, those that are there."""
    found = {
        row["id"]: OtherJob(**row) for row in tx.all(SQL["states_of_jobs"], ids=json_text([[job] for job in jobs]))
    }
    for job, row in found.items():
        if row.status == JobStatus.FAILED:
            found[job] = row._replace(exit_code=tx.value(SQL["last_exit_code"], job_id=job))
    return found
