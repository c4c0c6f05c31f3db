"""Transactions on schedules. Who may do what is decided in ``api.schedules``; what becomes of slots in `machine`.

Each change of status writes its event (kind ``schedule``) in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound
from paddleflow.schedules.model import (
    ConcurrencyPolicy,
    Schedule,
    ScheduleOptions,
    ScheduleStatus,
    parse_schedule_id,
    schedule_id,
)
from paddleflow.store import events
from paddleflow.store.conditions import Conditions
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.schedules", "schedules.sql")


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules; everything that is given must hold."""

    users: Sequence[str] = ()
    pipelines: Sequence[str] = ()
    versions: Sequence[str] = ()
    ids: Sequence[str] = ()
    names: Sequence[str] = ()
    statuses: Sequence[str] = ()


def create(tx: Tx, new: Schedule) -> Schedule:
    """Write a schedule that `rules` made; `Conflict` when its owner has one of that name."""
    seq = tx.value(
        SQL["insert_schedule"],
        name=new.name,
        description=new.description,
        pipeline=new.pipeline,
        version=new.version,
        user_name=new.user,
        crontab=new.crontab,
        timezone=new.timezone,
        catchup=int(new.options.catchup),
        expire_interval=new.options.expire_interval,
        concurrency=new.options.concurrency,
        policy=new.options.policy,
        start_at=new.start_at,
        end_at=new.end_at,
        anchor_at=new.anchor_at,
        created_at=new.created_at,
        **_columns(new),
    )
    if seq is None:
        raise Conflict(
            f"CreateSchedule failed: user[{new.user}] already has schedule with name[{new.name}]",
            code="DuplicatedName",
            hint="choose another name, or delete that one",
        )
    made = replace(new, seq=seq)
    _tell(tx, made, made.created_at)
    return made


def get(tx: Tx, id: str) -> Schedule:
    """The schedule of this id, or `NotFound`."""
    seq = parse_schedule_id(id)
    found = None if seq is None else find(tx, seq)
    if found is None:
        raise NotFound(
            f"schedule[{id[:80]}] does not exist",
            code="ScheduleNotFound",
            hint="paddleflow schedule list shows all; an id looks like schedule-000001",
        )
    return found


def find(tx: Tx, seq: int) -> Schedule | None:
    row = tx.one(SQL["schedule_by_seq"], seq=seq)
    return schedule_of(row) if row else None


def list_schedules(tx: Tx, wanted: ScheduleFilter, after: int, limit: int) -> list[Schedule]:
    """Schedules behind the position `after`, oldest first."""
    where = Conditions()
    where.add("seq > :after", after=after)
    where.one_of("user_name", wanted.users)
    where.one_of("pipeline", wanted.pipelines)
    where.one_of("version", wanted.versions)
    where.one_of("name", wanted.names)
    where.one_of("status", wanted.statuses)
    if wanted.ids:
        where.one_of("seq", [parse_schedule_id(id) or 0 for id in wanted.ids])
    statement = where.statement("select * from schedules", "order by seq limit :limit")
    return [schedule_of(row) for row in tx.all(statement, limit=limit, **where.params)]


def using(tx: Tx, pipeline: str, version: str = "") -> list[str]:
    """The ids of the running and paused schedules that use a pipeline, or one version of it."""
    rows = tx.all(SQL["schedules_using"], pipeline=pipeline, version=version)
    return [schedule_id(row["seq"]) for row in rows]


def due(tx: Tx, now: float, after: int, limit: int) -> list[int]:
    """The positions of schedules that must be looked at now, behind `after`."""
    return [row["seq"] for row in tx.all(SQL["due_schedules"], now=now, after=after, limit=limit)]


def next_check(tx: Tx) -> float | None:
    """When the next schedule must be looked at, if nothing happens before."""
    at: float | None = tx.value(SQL["next_check"])
    return at


def stop(tx: Tx, schedule: Schedule, message: str, now: float) -> Schedule:
    """It never fires again; its runs go on."""
    _refuse_ended(schedule, "stopped")
    return change(tx, schedule, ScheduleStatus.TERMINATED, message, now)


def pause(tx: Tx, schedule: Schedule, message: str, now: float) -> Schedule:
    """It fires nothing until it is resumed."""
    _refuse_ended(schedule, "paused")
    if schedule.status is ScheduleStatus.PAUSED:
        return schedule
    return change(tx, schedule, ScheduleStatus.PAUSED, message, now)


def resume(tx: Tx, schedule: Schedule, now: float) -> Schedule:
    """It fires again; slots that came meanwhile are treated as its options say."""
    _refuse_ended(schedule, "resumed")
    if schedule.status is ScheduleStatus.RUNNING:
        return schedule
    return change(tx, schedule, ScheduleStatus.RUNNING, "", now)


def _refuse_ended(schedule: Schedule, what: str) -> None:
    if schedule.status.final:
        raise Conflict(
            f"schedule[{schedule.id}] cannot be {what}: it is in status[{schedule.status}]",
            hint="only running and paused schedules can",
        )


def change(tx: Tx, schedule: Schedule, status: ScheduleStatus, message: str, now: float) -> Schedule:
    """Another status. One that has ended has no slot any more."""
    changed = replace(schedule, status=status, message=message)
    if status.final:
        changed = replace(changed, next_at=None, check_at=None, suspended=False)
    elif status is ScheduleStatus.RUNNING:
        changed = replace(changed, check_at=schedule.next_at, suspended=False)
    return save(tx, schedule, changed, now)


def save(tx: Tx, before: Schedule, after: Schedule, now: float) -> Schedule:
    """Write what changed of a schedule, and record another status as an event."""
    if after == before:
        return before
    after = replace(after, updated_at=now)
    tx.run(SQL["update_schedule"], seq=after.seq, **_columns(after))
    if after.status != before.status:
        _tell(tx, after, now)
    return after


def delete(tx: Tx, schedule: Schedule) -> None:
    """Take one away that has ended; its runs stay."""
    if not schedule.status.final:
        raise Conflict(
            f"schedule[{schedule.id}] cannot be deleted: it is in status[{schedule.status}]",
            hint=f"stop it first: paddleflow schedule stop {schedule.id}",
        )
    tx.run(SQL["delete_schedule"], seq=schedule.seq)
    events.delete_for(tx, "schedule", schedule.id)


def _tell(tx: Tx, schedule: Schedule, now: float) -> None:
    events.append(tx, "schedule", schedule.id, "status", now, {"status": schedule.status, "message": schedule.message})


def schedule_of(row: Row) -> Schedule:
    return Schedule(
        seq=row["seq"],
        name=row["name"],
        description=row["description"],
        pipeline=row["pipeline"],
        version=row["version"],
        user=row["user_name"],
        crontab=row["crontab"],
        timezone=row["timezone"],
        options=ScheduleOptions(
            bool(row["catchup"]), row["expire_interval"], row["concurrency"], ConcurrencyPolicy(row["policy"])
        ),
        start_at=row["start_at"],
        end_at=row["end_at"],
        anchor_at=row["anchor_at"],
        status=ScheduleStatus(row["status"]),
        message=row["message"],
        next_at=row["next_at"],
        check_at=row["check_at"],
        suspended=bool(row["suspended"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _columns(schedule: Schedule) -> dict[str, Value]:
    """What of a schedule may change."""
    return {
        "status": schedule.status,
        "message": schedule.message,
        "next_at": schedule.next_at,
        "check_at": schedule.check_at,
        "suspended": int(schedule.suspended),
        "updated_at": schedule.updated_at,
    }
