"""The documents and queries of schedules. What a crontab or a zone means is checked by ``schedules.rules``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from paddleflow.spec.document import Document
from paddleflow.spec.fields import ShortText
from paddleflow.spec.query import PageQuery, Query, among
from paddleflow.spec.registered import Description
from paddleflow.spec.run import RUN_STATUSES

POLICIES = ("suspend", "replace", "skip")
ACTIONS = ("stop", "pause", "resume")


def _given(value: object) -> object:
    return 0 if value == "" else value


#: A whole number, which existing clients also send as text, empty for none.
Count = Annotated[int, BeforeValidator(_given), Field(le=10**9)]


class NewSchedule(Document):
    """POST /schedule"""

    name: ShortText = Field(description="2 to 50 letters, digits or '_', no digit first; its runs have the same name")
    desc: Description = ""
    pipeline_id: str = Field(alias="pipelineID", description="the registered pipeline that runs")
    pipeline_version_id: str = Field(default="", alias="pipelineVersionID", description="empty: its newest version now")
    crontab: str = Field(description="five fields, @daily and the like, or @every 1h30m")
    timezone: ShortText = Field(default="", description="such as Europe/Berlin; empty: the server's own")
    start_time: str = Field(default="", description="YYYY-MM-DD hh:mm:ss in that zone; slots come after it")
    end_time: str = Field(default="", description="YYYY-MM-DD hh:mm:ss in that zone; slots come up to it")
    concurrency: Count = Field(default=0, description="most runs at once; 0: any number")
    concurrency_policy: str = Field(
        default="suspend", description="of a slot that finds no room: suspend, replace or skip"
    )
    expire_interval: Count = Field(default=0, description="seconds after which a slot is left out; 0: never")
    catchup: bool = Field(default=True, description="false: of the slots that are due only the newest runs")
    username: str = Field(default="", description="in whose name; only root may name another user")


SCHEDULE_STATUSES = ("running", "paused", "success", "terminated", "failed")


class ScheduleQuery(PageQuery):
    """GET /schedule"""

    user_filter: str = Field(default="", description="only schedules of these users, separated by commas; for root")
    ppl_filter: str = Field(default="", description="only of these pipelines")
    ppl_version_filter: str = Field(default="", description="only of these versions")
    schedule_filter: str = Field(default="", description="only these schedules")
    name_filter: str = Field(default="", description="only schedules of these names")
    status_filter: Annotated[str, among("status", SCHEDULE_STATUSES)] = Field(
        default="", description="only schedules in these statuses"
    )


class ScheduleRunsQuery(PageQuery):
    """GET /schedule/{id}"""

    run_filter: str = Field(default="", description="only these runs, separated by commas")
    status_filter: Annotated[str, among("status", RUN_STATUSES)] = Field(
        default="", description="only runs in these statuses, separated by commas"
    )


class ScheduleActionQuery(Query):
    """PUT /schedule/{id}"""

    action: str = Field(default="stop", description=f"one of {', '.join(ACTIONS)}")


class NextQuery(Query):
    """GET /schedule/{id}/next"""

    count: int = Field(default=5, ge=1, le=1000, description="how many slots")
