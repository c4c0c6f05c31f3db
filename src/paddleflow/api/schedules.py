"""Routes of schedules. A schedule belongs to its owner; root sees and changes all."""

from __future__ import annotations

from itertools import islice

from paddleflow.access.callers import Caller, require_owner
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.pipelines import filtered_users, owned_pipeline
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text, rfc3339
from paddleflow.base.names import nearest
from paddleflow.errors import Invalid
from paddleflow.runs import pipelines
from paddleflow.runs.rows import RunRow
from paddleflow.runs.runs import RunFilter, find_runs
from paddleflow.runs.views import run_summary
from paddleflow.schedules import rules, schedules
from paddleflow.schedules.model import Schedule
from paddleflow.schedules.schedules import ScheduleFilter
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.schedule import (
    ACTIONS,
    NewSchedule,
    NextQuery,
    ScheduleActionQuery,
    ScheduleQuery,
    ScheduleRunsQuery,
)
from paddleflow.storage.storages import require_user
from paddleflow.store.bus import EVENTS, SCHEDULES
from paddleflow.store.database import Tx


def owned_schedule(tx: Tx, caller: Caller, id: str) -> Schedule:
    """A schedule for its owner or root."""
    schedule = schedules.get(tx, id)
    require_owner(caller, schedule.user, f"resource[schedule] with ID[{schedule.id}]")
    return schedule


async def create_schedule(platform: Platform, call: Call[NewSchedule, NoQuery]) -> wire.ScheduleMade:
    user, now = call.body.username or call.caller.name, platform.clock.now()
    rules.new_schedule(call.body, user, call.body.pipeline_version_id, now)  # its own faults first, all of them

    def create(tx: Tx) -> Schedule:
        require_user(tx, user)
        registered = owned_pipeline(tx, call.caller, call.body.pipeline_id)
        version = pipelines.get_version(tx, registered, call.body.pipeline_version_id)
        return schedules.create(tx, rules.new_schedule(call.body, user, version.id, now))

    made = await platform.database.write(create)
    platform.bus.wake(SCHEDULES)
    return {"scheduleID": made.id}


async def list_schedules(platform: Platform, call: Call[NoBody, ScheduleQuery]) -> wire.ScheduleList:
    query = call.query
    wanted = ScheduleFilter(
        users=filtered_users(call.caller, query.user_filter),
        pipelines=listed(query.ppl_filter),
        versions=listed(query.ppl_version_filter),
        ids=listed(query.schedule_filter),
        names=listed(query.name_filter),
        statuses=listed(query.status_filter),
    )
    found = await platform.database.read(schedules.list_schedules, wanted, query.after, query.limit)
    rows, truncated, marker = page(found, query)
    shown = [schedule_answer(row) for row in rows]
    return {**page_fields(query, truncated, marker), "scheduleList": shown}


async def show_schedule(platform: Platform, call: Call[NoBody, ScheduleRunsQuery]) -> wire.ScheduleWithRuns:
    query = call.query

    def find(tx: Tx) -> tuple[Schedule, list[RunRow]]:
        schedule = owned_schedule(tx, call.caller, call.path["id"])
        wanted = RunFilter(schedules=[schedule.id], runs=listed(query.run_filter), statuses=listed(query.status_filter))
        return schedule, find_runs(tx, wanted, query.after, query.limit)

    schedule, found = await platform.database.read(find)
    rows, truncated, marker = page(found, query)
    return {
        **schedule_answer(schedule),
        "runs": {**page_fields(query, truncated, marker), "runList": [run_summary(row) for row in rows]},
    }


async def change_schedule(platform: Platform, call: Call[NoBody, ScheduleActionQuery]) -> None:
    action, now, who = call.query.action, platform.clock.now(), call.caller.name
    if action not in ACTIONS:
        raise Invalid(f"action[{action[:40]}] is not supported", hint=nearest(action[:40], ACTIONS))

    def change(tx: Tx) -> None:
        schedule = owned_schedule(tx, call.caller, call.path["id"])
        if action == "stop":
            schedules.stop(tx, schedule, f"stopped by {who}", now)
        elif action == "pause":
            schedules.pause(tx, schedule, f"paused by {who}", now)
        else:
            schedules.resume(tx, schedule, now)

    await platform.database.write(change)
    platform.bus.wake(SCHEDULES)
    platform.bus.wake(EVENTS)


async def delete_schedule(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    def delete(tx: Tx) -> None:
        schedules.delete(tx, owned_schedule(tx, call.caller, call.path["id"]))

    await platform.database.write(delete)


async def show_next(platform: Platform, call: Call[NoBody, NextQuery]) -> wire.ScheduleTimes:
    schedule = await platform.database.read(owned_schedule, call.caller, call.path["id"])
    moments = list(islice(rules.coming(schedule, platform.clock.now()), call.query.count))
    return {
        "scheduleID": schedule.id,
        "timezone": schedule.timezone,
        "times": [rules.shown(schedule, at) for at in moments],
        "moments": [rfc3339(at) for at in moments],
    }


def schedule_answer(schedule: Schedule) -> wire.Schedule:
    options = schedule.options
    return {
        "scheduleID": schedule.id,
        "name": schedule.name,
        "desc": schedule.description,
        "pipelineID": schedule.pipeline,
        "pipelineVersionID": schedule.version,
        "username": schedule.user,
        "fsConfig": {"username": schedule.user},
        "crontab": schedule.crontab,
        "timezone": schedule.timezone,
        "options": {
            "catchup": options.catchup,
            "expireInterval": options.expire_interval,
            "concurrency": options.concurrency,
            "concurrencyPolicy": options.policy.value,
        },
        "startTime": rules.shown(schedule, schedule.start_at),
        "endTime": rules.shown(schedule, schedule.end_at),
        "createTime": local_text(schedule.created_at),
        "updateTime": local_text(schedule.updated_at),
        "nextRunTime": rules.shown(schedule, schedule.next_at),
        "scheduleMsg": schedule.message,
        "status": schedule.status.value,
    }


_THERE = ("ScheduleNotFound", "AccessDenied")

ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/schedule", create_schedule, "Run a registered pipeline at the times of a crontab",
        body=NewSchedule, answer=wire.ScheduleMade, status=201,
        errors=("InvalidNamePattern", "DuplicatedName", "PipelineNotFound", "AccessDenied", "UserNotExist"),
    ),
    Route(
        "GET", "/schedule", list_schedules, "List one's own schedules, or everybody's for root",
        query=ScheduleQuery, answer=wire.ScheduleList, errors=("OnlyRootAllowed",),
    ),
    Route(
        "GET", "/schedule/{id}", show_schedule, "Show a schedule with its runs, a page of them, newest first",
        query=ScheduleRunsQuery, answer=wire.ScheduleWithRuns, errors=_THERE,
    ),
    Route(
        "PUT", "/schedule/{id}", change_schedule, "Stop a schedule for good, pause it, or resume it; its runs go on",
        query=ScheduleActionQuery, errors=("InvalidArguments", "ActionNotAllowed", *_THERE),
    ),
    Route(
        "DELETE", "/schedule/{id}", delete_schedule, "Delete a schedule that has ended; its runs stay",
        errors=("ActionNotAllowed", *_THERE),
    ),
    Route(
        "GET", "/schedule/{id}/next", show_next, "The coming slots of a schedule",
        query=NextQuery, answer=wire.ScheduleTimes, errors=_THERE,
    ),
)  # fmt: skip
