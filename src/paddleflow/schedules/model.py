"""What a schedule is, inside the platform."""

from __future__ import annotations

import re
from enum import StrEnum

from paddleflow.base.values import dataclass

_ID = re.compile(r"schedule-(\d{6,18})", re.ASCII)


class ScheduleStatus(StrEnum):
    """Conditions a schedule stands. Only running ones fire; paused ones may run again, all others have ended."""

    RUNNING = "running"
    PAUSED = "paused"
    SUCCESS = "success"  #: no slot is left
    TERMINATED = "terminated"  #: stopped
    FAILED = "failed"  #: it can never fire again; the message says why

    @property
    def final(self) -> bool:
        return self not in {ScheduleStatus.RUNNING, ScheduleStatus.PAUSED}


class ConcurrencyPolicy(StrEnum):
    """What becomes of a slot that finds as many runs as are allowed at once."""

    SUSPEND = "suspend"  #: it waits until one ends
    REPLACE = "replace"  #: the oldest run is stopped for it
    SKIP = "skip"  #: it is left out


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """How slots are treated."""

    catchup: bool = True  #: slots that were missed run too; False: only the newest that is due, older ones are left out
    expire_interval: int = 0  #: seconds after which a slot that did not run is left out; 0: never
    concurrency: int = 0  #: most runs at once; 0: as many as there are slots
    policy: ConcurrencyPolicy = ConcurrencyPolicy.SUSPEND


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule and where it stands."""

    seq: int
    name: str
    description: str
    pipeline: str  #: id of the registered pipeline
    version: str  #: of that pipeline
    user: str
    crontab: str
    timezone: str  #: name of the zone that the crontab means; empty: the server's own
    options: ScheduleOptions
    start_at: float | None
    end_at: float | None
    anchor_at: float  #: start, or when it was made: `@every` counts from here
    status: ScheduleStatus
    message: str
    next_at: float | None  #: the oldest slot that nothing was decided about; None once there is none
    check_at: float | None  #: when to look again; None: only when something happens
    suspended: bool  #: a slot is due and waits for a run to end
    created_at: float
    updated_at: float

    @property
    def id(self) -> str:
        return schedule_id(self.seq)


def schedule_id(seq: int) -> str:
    """``schedule-000001``"""
    return f"schedule-{seq:06}"


def parse_schedule_id(id: str) -> int | None:
    """The position behind an id; None for what is none."""
    match = _ID.fullmatch(id)
    return int(match[1]) if match and schedule_id(int(match[1])) == id else None
