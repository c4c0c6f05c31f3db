"""The queries of the job, log and statistics routes."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, field_validator

from paddleflow.base import clock
from paddleflow.base.quantity import parse_quantity
from paddleflow.spec.document import Document
from paddleflow.spec.query import PageQuery, Query, among

JOB_STATUSES = (
    "init", "pending", "running", "terminating", "preempting",
    "succeeded", "failed", "terminated", "cancelled", "skipped", "preempted",
)  # fmt: skip
MOST_LINES = 1_000_000
MOST_LOG_BYTES = 10**9
MOST_OFFSETS = 4096  #: characters


class JobListQuery(PageQuery):
    """GET /job"""

    status: Annotated[str, among("status", JOB_STATUSES)] = Field(default="", description="comma-separated statuses")
    timestamp: float | None = Field(default=None, description="unix seconds: only jobs changed since", ge=0, le=1e11)
    start_time: str = Field(default="", description="YYYY-MM-DD HH:MM:SS: only jobs started since")
    queue: str = Field(default="", description="comma-separated queue names")
    labels: str = Field(default="", description="JSON object: only jobs that carry all of these")
    user_filter: str = Field(default="", description="only jobs of this user; others than root see their own anyway")
    array: str = Field(default="", description="only jobs of this array")
    run_id: str = Field(default="", alias="runID", description="only jobs of the steps of this run")
    fold: bool = Field(
        default=False, description="of the jobs of a run or of an array, only the newest, with how many there are"
    )

    @field_validator("start_time")
    @classmethod
    def _time(cls, value: str) -> str:
        if value:
            parse_time("startTime", value)
        return value

    @field_validator("labels")
    @classmethod
    def _object(cls, value: str) -> str:
        if value:
            label_filter(value)
        return value


def parse_time(field: str, value: str) -> float:
    """A moment in the reference's format; ValueError with a sentence otherwise."""
    try:
        return clock.parse_local(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{field}[{value[:40]}] format not correct, should be YYYY-MM-DD hh:mm:ss") from error


def label_filter(text: str) -> dict[str, str]:
    """The labels of a filter; ValueError when it is not a JSON object of texts."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"labels must be a JSON object, found {text[:60]!r}") from error
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()) or len(data) > 32:
        raise ValueError(f"labels must be a JSON object of at most 32 texts, found {text[:60]!r}")
    return data


class JobActionQuery(Query):
    """PUT /job/{id}"""

    action: str = Field(pattern="^(stop|modify)$", description="stop or modify")


class TaskLogQuery(Query):
    """GET /job/{id}/log"""

    task: str = Field(default="", description="role and number, as in worker-0; empty: all, each line with its task")
    offset: int = Field(
        default=0, ge=-(2**62), le=2**62, description="first byte; negative: from the end. Only with one task"
    )
    follow: bool = Field(default=False, description="go on until the job has ended")
    attempt: int = Field(
        default=0, ge=0, le=10**6, alias="try", description="only this try, 1 is the first; 0: all of them"
    )
    tail_lines: int | None = Field(
        default=None, ge=0, le=MOST_LINES, description="only so many lines at the end of each task"
    )
    since_seconds: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        description="only what was written within so many seconds, as exactly as it is known",
    )
    offsets: str = Field(
        default="", max_length=MOST_OFFSETS, description="of several tasks, the first byte of each: worker-0:17,…"
    )


class JobLogQuery(Query):
    """GET /log/job"""

    job_id: str = Field(default="", alias="jobID")
    name: str = ""
    namespace: str = ""
    cluster_name: str = ""
    type: str = ""
    framework: str = ""
    read_from_tail: bool = False
    line_limit: int = Field(default=1000, ge=1, le=MOST_LINES)
    size_limit: str = Field(default="100M", description="a quantity, at most 1G")

    @field_validator("size_limit")
    @classmethod
    def _size(cls, value: str) -> str:
        size = parse_quantity(value)
        if not 1 <= size <= MOST_LOG_BYTES:
            raise ValueError(f"sizeLimit[{value[:40]}] must be between 1 and 1G")
        return value


class StatisticsQuery(Query):
    """GET /statistics/jobDetail/{id}"""

    start: float | None = Field(default=None, ge=0, le=1e11, description="unix seconds")
    end: float | None = Field(default=None, ge=0, le=1e11, description="unix seconds")
    step: float = Field(default=60, ge=1, le=86400, description="seconds between two values")


class PeriodQuery(Query):
    """GET /statistics/cardTime/{queue}"""

    start_time: str
    end_time: str

    @field_validator("start_time", "end_time")
    @classmethod
    def _time(cls, value: str) -> str:
        parse_time("time", value)
        return value


class CardTimeDocument(Document):
    """POST /statistics/cardTime"""

    start_time: str
    end_time: str
    queue_names: list[str] = Field(min_length=1, max_length=1000)

    @field_validator("start_time", "end_time")
    @classmethod
    def _time(cls, value: str) -> str:
        parse_time("time", value)
        return value
