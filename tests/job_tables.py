"""Rows of jobs and their members as the database gives them back, without a database."""

from __future__ import annotations

from typing import Any

from paddleflow.base.quantity import Resources
from paddleflow.jobs.model import Member, NewJob
from paddleflow.jobs.rows import job_row

EACH = Resources.of(1000, 2**30, {"nvidia.com/gpu": 1000})
WORKER = Member("worker", 1, ("sh", "-c", "true"), {}, EACH, EACH, document={"command": "true"})
JOB = NewJob("job-1", "n", "alice", "q", "default-cluster", "single", "standalone", "HIGH", (WORKER,), {"k": "ü"}, {"a": "b"}, None, EACH, 5.0)  # fmt: skip


def row_of(job: NewJob, **columns: Any) -> dict[str, Any]:
    """The row as the database gives it back."""
    fresh = {
        "seq": 7, "status": "init", "message": "", "outcome": None, "placed": 0, "attempt": 0, "not_before": None, "gated": 0,
        "started_at": None, "finished_at": None, "updated_at": 10.0, "delete_at": None, "touched": 1, "seen": 0,
        "placed_at": None, "preemptions": 0, "evicted_at": None, "evicted_by": "", "lost_seconds": 0.0, "resizes": 0,
        "resized_at": None,
    }  # fmt: skip
    return {**job_row(job, 10.0), **fresh, **columns}


def task_row(role: str = "worker", index: int = 0, attempt: int = 1, **columns: Any) -> dict[str, Any]:
    return {
        "job_id": "job-1", "role": role, "idx": index, "attempt": attempt, "status": "running", "node": "n1",
        "devices": '[["nvidia.com/gpu", [0, 2]]]', "ports": "[]", "ready": 1, "exit_code": None, "message": "",
        "started_at": 11.0, "finished_at": None, "cpu_seconds": None, "peak_memory": None, "leaving": 0, **columns,
    }  # fmt: skip
