"""What people do to jobs that exist: stop, modify, delete. Transaction functions; the engine sees them by `touched`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paddleflow.errors import Conflict, Fault, Invalid
from paddleflow.jobs import dependencies
from paddleflow.jobs.admission import TTL_ANNOTATION, time_to_live
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.queries import get_job
from paddleflow.jobs.rows import SQL, JobRow, delete_at
from paddleflow.settings import JobSettings
from paddleflow.spec.job import JobChange
from paddleflow.store import events
from paddleflow.store.database import Tx

MOST_REFUSED = 500  #: waiting jobs that one transaction ends


class Movable(Protocol):
    """A waiting job as it was read."""

    @property
    def seq(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def touched(self) -> int: ...


class DueJob(NamedTuple):
    """A job whose time to live is over."""

    seq: int
    id: str
    cluster: str
    touched: int
    seen: int


def stop_job(tx: Tx, job: str, message: str, now: float, rules: JobSettings) -> None:
    """A job that holds nothing ends at once; one that runs is ended by the engine. Stopping twice is stopping once."""
    row = get_job(tx, job)
    status = JobStatus(row.status)
    if status.final:
        raise Conflict(
            f"job[{job}] has already ended: {status}",
            code="ActionNotAllowed",
            hint="only a job that has not ended can be stopped",
        )
    gone_at = delete_at(JobStatus.TERMINATED, now, row.ttl, rules)
    if tx.run(SQL["end_unplaced_job"], id=job, message=message, at=now, delete_at=gone_at):
        events.append(tx, "job", job, "status", now, {"status": JobStatus.TERMINATED, "message": message})
        tx.run(SQL["delete_dependencies"], id=job)
        dependencies.settle(tx, [(job, JobStatus.TERMINATED, message)], rules, now)
    elif tx.run(SQL["ask_to_stop"], id=job, message=message, at=now):
        events.append(tx, "job", job, "status", now, {"status": JobStatus.TERMINATING, "message": message})


def refuse_waiting(tx: Tx, user: str, resource_type: str, resource_id: str, now: float, rules: JobSettings) -> bool:
    """End jobs of a user that wait for what a grant gave them, when that is taken back; whether there may be more of them."""
    statement = SQL["waiting_in_queue" if resource_type == "queue" else "waiting_for_storage"]
    found = tx.all(statement, user_name=user, resource=resource_id, limit=MOST_REFUSED)
    message = f"user[{user}] may no longer use {resource_type}[{resource_id}]: the grant was revoked"
    for row in found:
        stop_job(tx, row["id"], message, now, rules)
    return len(found) == MOST_REFUSED


def modify_job(tx: Tx, job: str, change: JobChange, now: float, rules: JobSettings) -> None:
    """Priority while it waits; labels and annotations in any status. All of a change is made, or none."""
    row = get_job(tx, job)
    given = change.model_dump(by_alias=True, exclude_defaults=True)
    if not given:
        return
    if change.priority and not tx.run(SQL["change_priority"], id=job, priority=change.priority, at=now):
        raise Conflict(
            f"the priority of job[{job}] cannot change, it is {row.status}",
            code="ActionNotAllowed",
            hint="a priority can change while the job is init or pending and has no place yet",
        )
    if change.labels or change.annotations:
        labels = json.loads(row.labels) | change.labels
        annotations = json.loads(row.annotations) | change.annotations
        tx.run(SQL["change_notes"], id=job, labels=_text(labels), annotations=_text(annotations), at=now)
        tx.many(SQL["insert_label"], [{"job_id": job, "key": k, "value": v} for k, v in change.labels.items()])
    if TTL_ANNOTATION in change.annotations:
        _change_ttl(tx, row, change, rules)
    events.append(tx, "job", job, "modified", now, given)


def _change_ttl(tx: Tx, row: JobRow, change: JobChange, rules: JobSettings) -> None:
    try:
        ttl = time_to_live(change.annotations)
    except ValueError as error:
        raise Invalid.of([Fault(f"annotations.{TTL_ANNOTATION}", str(error))], code=change.code) from error
    gone_at = delete_at(JobStatus(row.status), row.finished_at, ttl, rules)
    tx.run(SQL["change_ttl"], id=row.id, ttl=ttl, delete_at=gone_at)


def _text(notes: dict[str, str]) -> str:
    return json.dumps(notes, ensure_ascii=False)


def move_jobs(tx: Tx, jobs: Sequence[Movable], source: str, target: str, now: float) -> list[str]:
    """Waiting jobs go to another cluster; those of them that nobody has placed, stopped or moved meanwhile."""
    moved = []
    for job in jobs:
        if tx.run(SQL["move_job"], seq=job.seq, touched=job.touched, source=source, target=target, at=now):
            tx.run(SQL["note_moved"], seq=job.seq, id=job.id, cluster=source)
            events.append(tx, "job", job.id, "cluster", now, {"from": source, "to": target})
            moved.append(job.id)
    return moved


def delete_job(tx: Tx, job: str) -> JobRow:
    """An ended job goes with everything that the database has of it; its folder is the caller's business."""
    row = get_job(tx, job)
    if not JobStatus(row.status).final:
        raise Conflict(
            f"job[{job}] cannot be deleted, it is {row.status}",
            code="ActionNotAllowed",
            hint=f"stop it first: paddleflow job stop {job}",
        )
    if row.run_id is not None:
        raise Conflict(
            f"job[{job}] cannot be deleted, it ran a step of run[{row.run_id}]",
            code="ActionNotAllowed",
            hint=f"it goes with its run: paddleflow run delete {row.run_id}",
        )
    forget_job(tx, row)
    return row


def forget_job(tx: Tx, row: JobRow | DueJob) -> None:
    """Everything that the database has of an ended job; for a run's jobs when their run goes."""
    if row.touched > row.seen:
        tx.run(SQL["note_deleted"], seq=row.seq, id=row.id, cluster=row.cluster)
    for statement in (
        "delete_tasks",
        "delete_sizes",
        "delete_labels",
        "delete_storages",
        "delete_secrets",
        "delete_dependencies",
        "delete_job",
    ):
        tx.run(SQL[statement], id=row.id)
    events.delete_for(tx, "job", row.id)


def any_due(tx: Tx, cluster: str, now: float) -> bool:
    """Whether a cluster has a job whose time to live is over."""
    return tx.one(SQL["jobs_to_delete"], cluster=cluster, now=now, limit=1) is not None


def delete_due(tx: Tx, cluster: str, now: float, limit: int) -> list[str]:
    """Delete jobs of a cluster whose time to live is over, at most so many; their ids."""
    rows = tx.rows(DueJob, SQL["jobs_to_delete"], cluster=cluster, now=now, limit=limit)
    for row in rows:
        forget_job(tx, row)
    return [row.id for row in rows]
