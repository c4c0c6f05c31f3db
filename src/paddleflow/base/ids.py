"""Identifiers: typed strings with a readable prefix, and the opaque markers of paged lists."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NewType

from paddleflow.errors import Invalid

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)  #: ``<job>.<role>-<index>``
AttemptId = NewType("AttemptId", str)  #: ``<job>.<role>-<index>.<attempt>``: what a runtime starts at most once


def new_job_id(now: float) -> JobId:
    """``job-``, 8 hex digits of the second and 16 of chance. Ids that are made together lie together: an index of wholly
    random ones would be written all over at every submission."""
    return JobId(f"job-{int(now) & 0xFFFFFFFF:08x}{os.urandom(8).hex()}")


def new_short_id(prefix: str) -> str:
    """``queue-1a2b3c4d`` and the like."""
    return f"{prefix}-{os.urandom(4).hex()}"


def task_id(job: str, role: str, index: int) -> TaskId:
    return TaskId(f"{job}.{role}-{index}")


def attempt_id(task: str, attempt: int) -> AttemptId:
    return AttemptId(f"{task}.{attempt}")


@lru_cache(maxsize=4096)
def parse_attempt(attempt: str) -> tuple[str, tuple[str, int], int]:
    """(job id, (role, index), attempt) of an attempt id of ours."""
    task, _, number = attempt.rpartition(".")
    job, _, member = task.rpartition(".")
    role, _, index = member.rpartition("-")
    return job, (role, int(index)), int(number)


_MARKER_KEY = 0x5F3759DF


def encode_marker(position: int) -> str:
    """The opaque marker behind a row's position; carries a check digit, so that a made-up one is refused."""
    return f"{position ^ _MARKER_KEY:x}{position % 251:02x}"


def decode_marker(marker: str) -> int:
    """The position behind a marker of ours; Invalid for anything else."""
    try:
        position = int(marker[:-2], 16) ^ _MARKER_KEY
        good = position >= 0 and encode_marker(position) == marker
    except ValueError:
        good = False
    if not good:
        raise Invalid(
            f"marker[{marker[:80]}] is not one that this server gave",
            code="InvalidMarker",
            hint="use the nextMarker of the page before, or leave it out",
        )
    return position
