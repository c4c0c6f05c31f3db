"""The changeset of a turn: what it wants written, in one transaction, and done afterwards.

`turn`, `preemption` and the run engine collect it, `cluster_engine` writes it with `write_turn` and then acts. Every write is
guarded by the lease, and by `seq` and `touched`: the row must be the very one that was read (an id may be used again once its
job is deleted), and as it was then. A guard that matches no row means that somebody else changed the job: it is left out of
the result, and the engine reads the row again because it is still unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from paddleflow.base.ids import AttemptId
from paddleflow.base.json_text import json_text
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.engine.board import Active
from paddleflow.engine.launch import MemberPlacement, PreparedLaunch
from paddleflow.engine.run_writes import RunWrites, write_runs
from paddleflow.errors import Conflict
from paddleflow.jobs import dependencies
from paddleflow.jobs.machine import JobState, TaskState, changed_tasks
from paddleflow.jobs.model import JobStatus, TaskStatus
from paddleflow.jobs.queries import placeable_jobs
from paddleflow.jobs.rows import SQL, JobRow, delete_at
from paddleflow.runtimes.runtime import AttemptObservation
from paddleflow.settings import JobSettings
from paddleflow.store import events, leases
from paddleflow.store.database import Tx, Value
from paddleflow.store.events import NewEvent


@dataclass(frozen=True, slots=True)
class Placement:
    """The durable intent to start a job."""

    job: str
    seq: int
    touched: int
    attempt: int
    places: tuple[MemberPlacement, ...]
    waiting: frozenset[tuple[str, int]]  #: members of later stages
    at: float  #: when it got its place; for one that was ahead that is in the past


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """A step of the machine that must be written."""

    after: JobState
    tasks: Sequence[TaskState]
    ttl: float | None
    history: Sequence[tuple[float, JobStatus, str]]  #: every status that it went through, with moment and message


@dataclass(frozen=True, slots=True)
class Join:
    """Members that come to a job that runs: the durable intent before they are started."""

    job: str
    attempt: int
    places: tuple[MemberPlacement, ...]


@dataclass(slots=True)
class Writes:
    """Everything that one turn writes."""

    waits: list[tuple[str, int, int, str]] = field(default_factory=list)  #: job, seq, touched, reason
    placements: list[Placement] = field(default_factory=list)
    successors: list[Placement] = field(default_factory=list)  #: of prefetched jobs that have begun already
    changes: list[JobUpdate] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)  #: seq, touched
    deleted: list[int] = field(default_factory=list)  #: positions of rows that are gone, forgotten now
    runs: RunWrites = field(default_factory=RunWrites)
    joins: list[Join] = field(default_factory=list)
    evictions: list[tuple[str, float, str, float]] = field(default_factory=list)  #: job, at, for whom, seconds lost
    resizes: list[tuple[str, float, bool, float]] = field(
        default_factory=list
    )  #: job, at, by starting anew, seconds lost
    sizes: list[tuple[str, Resources]] = field(default_factory=list)  #: what jobs hold whose members come and go
    events: list[NewEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        moves = self.successors or self.joins or self.evictions or self.resizes or self.sizes or self.events
        return bool(self.waits or self.placements or self.changes or self.seen or self.deleted or self.runs or moves)


@dataclass(slots=True)
class Moved:
    """A job that took steps in this turn."""

    active: Active
    tasks: Sequence[TaskState]  #: before the first step
    history: list[tuple[float, JobStatus, str]] = field(default_factory=list)  #: every status it went through


@dataclass(slots=True)
class Changeset:
    """What a turn wants: first written, then done."""

    writes: Writes = field(default_factory=Writes)
    launches: list[PreparedLaunch] = field(default_factory=list)
    halts: list[AttemptId] = field(default_factory=list)
    recalls: list[AttemptId] = field(default_factory=list)  #: prefetched attempts that the runtime gives back
    ended: list[AttemptId] = field(default_factory=list)  #: recorded by this turn's write; the runtime may forget them
    stale: list[AttemptId] = field(default_factory=list)  #: of nobody any more; the runtime must forget them first
    synthetic: list[AttemptObservation] = field(default_factory=list)  #: of members without a process of their own
    moved: dict[str, Moved] = field(default_factory=dict)  #: jobs whose machines took a step

    def close(self) -> None:
        """Collect the changes of all machines that moved."""
        for moved in self.moved.values():
            after = moved.active.state
            tasks = changed_tasks(moved.tasks, after.tasks)
            self.writes.changes.append(JobUpdate(after, tasks, moved.active.ttl, moved.history))


class Written(NamedTuple):
    """What became of a turn's writes."""

    rows: dict[str, JobRow]  #: of the jobs whose placement stood, and of those that steps of runs made
    released: bool  #: jobs that waited for others were released or cancelled: their engines must look


def write_turn(tx: Tx, writes: Writes, lease: tuple[str, int], rules: JobSettings, now: float) -> Written:
    """Write all of it."""
    leases.check(tx, *lease)
    new_events: list[NewEvent] = list(writes.events)
    _write_preemptions(tx, writes, now)
    _place_successors(tx, writes.successors, now, new_events)
    released = _change(
        tx, writes.changes, rules, now, new_events
    )  # first: an attempt may fail and the next one be placed in one turn
    fresh: dict[str, JobRow] = {}
    if writes.runs:
        attempts = {item.job: item.attempt for item in writes.placements}
        reasons = {job: reason for job, _, _, reason in writes.waits}
        fresh = write_runs(tx, writes.runs, attempts, reasons, rules, now, new_events)
    placed = _place(tx, writes.placements, fresh, now, new_events)
    # Placing and waiting mark a row as seen themselves; where their guard failed, the row must be looked at again.
    marked = {item.seq for item in writes.placements} | {seq for _, seq, _, _ in writes.waits}
    rest: list[dict[str, Value]] = [
        {"seq": seq, "touched": touched} for seq, touched in writes.seen if seq not in marked
    ]
    if rest:
        tx.many(SQL["mark_seen"], rest)
    if writes.deleted:
        tx.many(SQL["forget_deleted"], [{"seq": seq} for seq in writes.deleted])
    events.append_many(tx, new_events)
    _wait(tx, writes.waits, fresh, now)
    return Written({**fresh, **placed}, released)


def _wait(tx: Tx, waits: Sequence[tuple[str, int, int, str]], fresh: Mapping[str, JobRow], now: float) -> None:
    """Jobs that come in crowds wait for the same reason: one statement for each, and one for the events."""
    alike: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for job, seq, touched, reason in waits:
        alike.setdefault((touched, reason), []).append((job, seq))
    for (touched, reason), jobs in alike.items():
        seqs = json_text([[seq] for job, seq in jobs if job not in fresh])
        rows = tx.all(SQL["mark_waiting"], seqs=seqs, touched=touched, message=reason, at=now)
        stood = {row["seq"] for row in rows}
        jobs_written = [job for job, seq in jobs if job in fresh or seq in stood]
        events.append_alike(tx, "job", jobs_written, "status", now, {"status": JobStatus.PENDING, "message": reason})


def _place(
    tx: Tx, placements: Sequence[Placement], fresh: Mapping[str, JobRow], now: float, new_events: list[NewEvent]
) -> dict[str, JobRow]:
    waiting = placeable_jobs(tx, [item.seq for item in placements if item.job not in fresh])
    placed: dict[str, JobRow] = {}
    updates: list[Mapping[str, Value]] = []
    tasks: list[Mapping[str, Value]] = []
    for item in placements:
        row = fresh.get(item.job)
        if row is None:
            row = waiting.get(item.seq)
            if row is None or row.touched != item.touched:
                continue
            updates.append(_placed_row(item, now))
        for place in item.places:
            later = place.key in item.waiting
            tasks.append(_task_row(item, place, TaskStatus.WAITING if later else TaskStatus.PENDING))
        new_events.append(_placed_event(item))
        placed[item.job] = row
    tx.many(SQL["place_job"], updates)
    tx.many(SQL["insert_task"], tasks)
    return placed


def _place_successors(tx: Tx, successors: Sequence[Placement], now: float, new_events: list[NewEvent]) -> None:
    """Jobs that were ahead have begun. If a row was changed meanwhile, the engine rebuilds its board from the rows."""
    if not successors:
        return
    stood = tx.many(SQL["place_job"], [_placed_row(each, now) for each in successors])
    if stood < len(successors):
        raise Conflict("a job was changed at the moment at which it began")
    tx.many(
        SQL["insert_task"], [_task_row(each, place, TaskStatus.PENDING) for each in successors for place in each.places]
    )
    new_events.extend(_placed_event(each) for each in successors)


def _placed_row(item: Placement, now: float) -> dict[str, Value]:
    return {
        "seq": item.seq,
        "touched": item.touched,
        "attempt": item.attempt,
        "placed_at": item.at,
        "at": now,
    }


def _placed_event(item: Placement) -> NewEvent:
    data = {"status": JobStatus.PENDING, "message": "", "attempt": item.attempt}
    return NewEvent("job", item.job, item.at, "status", data)


def _write_preemptions(tx: Tx, writes: Writes, now: float) -> None:
    """Who has to go or to change; before the changes, which write the members that are new."""
    for job, at, by, lost in writes.evictions:
        tx.run(SQL["note_eviction"], id=job, at=at, by=by, lost=lost)
    for job, at, anew, lost in writes.resizes:
        tx.run(SQL["note_resize"], id=job, at=at, anew=int(anew), lost=lost)
    for job, size in writes.sizes:
        scalars = json_text(dict(size.scalars))
        tx.run(SQL["note_size"], id=job, cpu=size.cpu, memory=size.memory, scalars=scalars)
        tx.run(SQL["insert_size"], id=job, at=now, scalars=scalars)
    for join in writes.joins:
        tx.many(SQL["insert_task"], [_task_row(join, place, TaskStatus.WAITING) for place in join.places])


def _task_row(item: Placement | Join, place: MemberPlacement, status: TaskStatus) -> dict[str, Value]:
    return {
        "job_id": item.job,
        "role": place.role,
        "idx": place.index,
        "attempt": item.attempt,
        "status": status,
        "node": place.node,
        "devices": json_text(place.devices),
        "ports": json_text(place.ports),
    }


def _change(tx: Tx, changes: Sequence[JobUpdate], rules: JobSettings, now: float, new_events: list[NewEvent]) -> bool:
    """Whether jobs waited for one that has ended by it."""
    if not changes:
        return False
    tx.many(SQL["update_job"], [_job_update(change, rules, now) for change in changes])
    tx.many(SQL["update_task"], [_task_update(change.after, task) for change in changes for task in change.tasks])
    for change in changes:
        job, gang = change.after.id, len(change.after.tasks) > 1
        if gang:
            new_events.extend(NewEvent("job", job, now, "task", _task_event(task)) for task in change.tasks)
        new_events.extend(
            # The members of a gang tell the time by clocks of their own; events go forward.
            NewEvent("job", job, max(at, now) if gang else at, "status", {"status": status, "message": message})
            for at, status, message in change.history
        )
    ended = [(c.after.id, c.after.status, c.after.message) for c in changes if c.after.status.final]
    return dependencies.settle(tx, ended, rules, now)


def _job_update(change: JobUpdate, rules: JobSettings, now: float) -> dict[str, Value]:
    state = change.after
    return {
        "id": state.id,
        "status": state.status,
        "message": state.message,
        "outcome": state.outcome,
        "placed": int(state.placed),
        "not_before": state.not_before,
        "started_at": state.started_at,
        "finished_at": state.finished_at,
        "at": now,
        "delete_at": delete_at(state.status, state.finished_at, change.ttl, rules),
    }


def _task_update(state: JobState, task: TaskState) -> dict[str, Value]:
    return {
        "job_id": state.id,
        "role": task.role,
        "idx": task.index,
        "attempt": state.attempt,
        "status": task.status,
        "ready": int(task.ready),
        "exit_code": task.exit_code,
        "message": task.message,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "cpu_seconds": task.cpu_seconds,
        "peak_memory": task.peak_memory,
        "leaving": int(task.leaving),
    }


def _task_event(task: TaskState) -> dict[str, object]:
    data: dict[str, object] = {"task": f"{task.role}-{task.index}", "status": task.status}
    if task.status.final:
        data.update(exitCode=task.exit_code, message=task.message)
    return data
