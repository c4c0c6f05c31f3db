"""What-if documents: a change that is tried on the recent past and the state of now, and not applied."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from paddleflow.base import names
from paddleflow.spec.document import Document
from paddleflow.spec.fields import MOST_ENTRIES, Amounts, named
from paddleflow.spec.job_query import parse_time
from paddleflow.spec.query import Query
from paddleflow.spec.queue import QueueChange

Count = Annotated[int, Field(ge=1, le=10_000)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]


class QueueIf(QueueChange):
    """A queue as it would be: one that is there with changes, or a new one."""

    name: Annotated[str, named(names.QUEUE)]


class NodesIf(Document):
    """Nodes that would be added."""

    count: Count = 1
    each: Amounts = Field(description="what one of them has")


class TeamIf(Document):
    """What a new team would bring: equal jobs, one after the other."""

    queue: Annotated[str, named(names.QUEUE)]
    jobs: Count = 20
    every: Seconds = Field(default=60.0, description="seconds from one submission to the next")
    seconds: Seconds = Field(default=600.0, description="that each of them runs")
    replicas: Count = 1
    each: Amounts = Field(description="what one member takes")


class RulesIf(Document):
    """Rules of the scheduler as they would be; what is left out stays."""

    preemption: bool | None = None
    elastic: bool | None = None
    patience: Seconds | None = None
    least_run: Seconds | None = None
    window: Seconds | None = None
    half_life: Seconds | None = None


class WhatIf(Document):
    """POST /queue/whatif"""

    code: ClassVar[str] = "QueueInvalidField"

    queues: Annotated[list[QueueIf], Field(max_length=MOST_ENTRIES)] = Field(default=[])
    nodes_lost: Annotated[list[str], Field(max_length=MOST_ENTRIES)] = Field(default=[])
    nodes_added: Annotated[list[NodesIf], Field(max_length=MOST_ENTRIES)] = Field(default=[])
    team: TeamIf | None = None
    rules: RulesIf = Field(default_factory=RulesIf)
    past: Seconds = Field(default=3600.0, description="seconds of the past that are played again")
    horizon: Seconds = Field(default=86_400.0, description="seconds after now at which the play ends at the latest")


class ReplayQuery(Query):
    """GET /scheduler/replay"""

    since: str = Field(default="", description="YYYY-MM-DD hh:mm:ss; empty: from the beginning of the record")
    until: str = Field(default="", description="YYYY-MM-DD hh:mm:ss; empty: to its end")

    @field_validator("since", "until")
    @classmethod
    def _time(cls, value: str) -> str:
        if value:
            parse_time("time", value)
        return value
