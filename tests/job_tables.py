"""Rows of jobs and their members as the database gives them back, without a database."""

from __future__ import annotations

from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.jobs.model import Member, NewJob
from paddleflow.jobs.rows import ChangedJob, JobRow, TaskRow, WaitingClass, class_of, job_row

EACH = Resources.of(1000, 2**30, {"nvidia.com/gpu": 1000})
WORKER = Member("worker", 1, ("sh", "-c", "true"), {}, EACH, EACH, document={"command": "true"})
JOB = NewJob("job-1", "n", "alice", "q", "default-cluster", "single", "standalone", "HIGH", (WORKER,), {"k": "ü"}, {"a": "b"}, None, EACH, 5.0)  # fmt: skip


def row_of(job: NewJob, **columns: Any) -> JobRow:
    """The row as the database gives it back."""
    given: dict[str, Any] = {**job_row(job, 10.0), "status": "init", "message": "", "updated_at": 10.0, "seq": 7}
    return JobRow(**{**given, **columns})


def task_row(role: str = "worker", index: int = 0, attempt: int = 1, **columns: Any) -> TaskRow:
    fresh: dict[str, Any] = {
        "job_id": "job-1", "role": role, "idx": index, "attempt": attempt, "status": "running", "node": "n1",
        "devices": '[["nvidia.com/gpu", [0, 2]]]', "ports": "[]", "ready": 1, "exit_code": None, "message": "",
        "started_at": 11.0, "finished_at": None, "cpu_seconds": None, "peak_memory": None, "leaving": 0,
    }  # fmt: skip
    return TaskRow(**{**fresh, **columns})


def changed(row: JobRow, **columns: Any) -> ChangedJob:
    """The same row as the engine reads it after somebody changed these columns."""
    row = row._replace(**columns)
    return ChangedJob(**{name: getattr(row, name) for name in ChangedJob._fields if name not in ("expected", "data")})


def waiting(*rows: JobRow) -> list[WaitingClass]:
    """Rows of jobs that wait, each a class of its own."""
    return [class_of(changed(row)) for row in rows]
