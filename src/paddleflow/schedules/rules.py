"""What a person may ask of a schedule, every fault at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo

from paddleflow.base import names
from paddleflow.base.names import nearest
from paddleflow.schedules import timetable
from paddleflow.schedules.model import ConcurrencyPolicy, Schedule, ScheduleOptions, ScheduleStatus
from paddleflow.schedules.timetable import Timetable
from paddleflow.spec.faults import Faults
from paddleflow.spec.schedule import NewSchedule

_FORM = "%Y-%m-%d %H:%M:%S"
_FAILED = "create schedule failed, "


def new_schedule(document: NewSchedule, user: str, version: str, now: float) -> Schedule:
    """The schedule that a document asks for, not yet written; `Invalid` lists all that is wrong with it."""
    faults = Faults(NewSchedule.code)
    if fault := names.SCHEDULE.fault(document.name):
        faults.add("name", fault, code="InvalidNamePattern")
    options = _options(document, faults)
    zone = _zone(document.timezone, faults)
    start_at, end_at = _span(document, zone or timetable.SERVER, now, faults)
    anchor = now if start_at is None else start_at
    table = _table(document, document.timezone if zone else "", anchor, faults)
    faults.check()
    assert table is not None
    next_at = table.next(anchor)
    return Schedule(
        seq=0,
        name=document.name,
        description=document.desc,
        pipeline=document.pipeline_id,
        version=version,
        user=user,
        crontab=document.crontab,
        timezone=document.timezone,
        options=options,
        start_at=start_at,
        end_at=end_at,
        anchor_at=anchor,
        status=ScheduleStatus.RUNNING,
        message="",
        next_at=next_at,
        check_at=now if next_at is None or (end_at is not None and next_at > end_at) else next_at,
        suspended=False,
        created_at=now,
        updated_at=now,
    )


def table_of(schedule: Schedule) -> Timetable:
    """The times of a schedule that was accepted once; ValueError when its zone is not known any more."""
    return timetable.parse(schedule.crontab, schedule.timezone, schedule.anchor_at)


def coming(schedule: Schedule, now: float) -> Iterator[float]:
    """The slots that will come; without those that are due and wait. None for one that has ended."""
    table, end = table_of(schedule), float("inf") if schedule.end_at is None else schedule.end_at
    first = schedule.next_at
    if first is not None and first <= now:
        first = table.next(now)
    return table.slots(first, end)


def shown(schedule: Schedule, at: float | None) -> str:
    """A moment as the schedule's owner wrote it: in the schedule's zone; empty for None."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, timetable.zone(schedule.timezone)).strftime(_FORM)


def _options(document: NewSchedule, faults: Faults) -> ScheduleOptions:
    if document.concurrency < 0:
        faults.add(
            "concurrency",
            f"{_FAILED}err:[concurrency should not be negative], found {document.concurrency}",
            "0 stands for any number",
        )
    if document.expire_interval < 0:
        faults.add(
            "expireInterval",
            f"{_FAILED}err:[expire interval should not be negative], found {document.expire_interval}",
            "0 stands for never",
        )
    policy = document.concurrency_policy or ConcurrencyPolicy.SUSPEND
    if policy not in list(ConcurrencyPolicy):
        message = f"{_FAILED}err:[concurrency policy[{policy[:40]}] not supported]"
        faults.add("concurrencyPolicy", message, nearest(policy[:40], list(ConcurrencyPolicy)))
        policy = ConcurrencyPolicy.SUSPEND
    return ScheduleOptions(document.catchup, document.expire_interval, document.concurrency, ConcurrencyPolicy(policy))


def _zone(name: str, faults: Faults) -> tzinfo | None:
    try:
        return timetable.zone(name)
    except ValueError as error:
        faults.add("timezone", f"{_FAILED}{error}")
        return None


def _span(document: NewSchedule, zone: tzinfo, now: float, faults: Faults) -> tuple[float | None, float | None]:
    start_at = _moment("startTime", document.start_time, zone, now, faults)
    end_at = _moment("endTime", document.end_time, zone, now, faults)
    if start_at is not None and end_at is not None and end_at <= start_at:
        message = f"{_FAILED}endtime[{document.end_time}] not after startTime[{document.start_time}]"
        faults.add("endTime", message)
    return start_at, end_at


def _moment(field: str, text: str, zone: tzinfo, now: float, faults: Faults) -> float | None:
    """The moment that a text names; None, with or without a fault, when there is none that counts."""
    if not text:
        return None
    try:
        at = datetime.strptime(text, _FORM).replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        shown = text[:40]
        faults.add(field, f"{_FAILED}{field.lower()}[{shown}] format not correct, should be YYYY-MM-DD hh:mm:ss")
        return None
    if at <= now:
        current = datetime.fromtimestamp(now, zone).strftime(_FORM)
        faults.add(field, f"{_FAILED}{field.lower()}[{text}] not after currentTime[{current}]")
        return None
    return at


def _table(document: NewSchedule, zone: str, anchor: float, faults: Faults) -> Timetable | None:
    try:
        return timetable.parse(document.crontab, zone, anchor)
    except ValueError as error:
        faults.add(
            "crontab",
            f"check crontab failed in creating schedule. error:{error}",
            "five fields such as 0 3 * * * (each day at 3:00), @daily, or @every 1h30m",
        )
        return None
