"""The answers about schedules, as `wire` has them for the rest."""

from __future__ import annotations

from typing import Annotated, TypedDict

from paddleflow.spec.wire import Page
from paddleflow.spec.wire_runs import RunList


class ScheduleMade(TypedDict):
    scheduleID: str


class ScheduleOptions(TypedDict):
    catchup: bool
    expireInterval: int
    concurrency: int
    concurrencyPolicy: str


class ScheduleFs(TypedDict):
    username: Annotated[str, "whose storages its runs use"]


class Schedule(TypedDict):
    """Times are those of the schedule's own zone, except createTime and updateTime."""

    scheduleID: str
    name: str
    desc: str
    pipelineID: str
    pipelineVersionID: str
    username: str
    fsConfig: ScheduleFs
    crontab: str
    timezone: Annotated[str, "empty: the server's own"]
    options: ScheduleOptions
    startTime: str
    endTime: str
    createTime: str
    updateTime: str
    nextRunTime: Annotated[str, "the next slot, or one that is due and waits; empty once there is none"]
    scheduleMsg: str
    status: Annotated[str, "running, paused, success, terminated or failed"]


class ScheduleList(Page):
    scheduleList: list[Schedule]


class ScheduleWithRuns(Schedule):
    runs: RunList


class ScheduleTimes(TypedDict):
    """The coming slots. None for a schedule that has ended."""

    scheduleID: str
    timezone: str
    times: Annotated[list[str], "YYYY-MM-DD hh:mm:ss in the schedule's zone"]
    moments: Annotated[list[str], "the same, RFC 3339 in UTC"]
