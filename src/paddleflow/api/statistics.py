"""Routes of statistics: what jobs use now and used over time, and the card time of queues."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from paddleflow.access.callers import Caller
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Invalid
from paddleflow.jobs.cards import Scalars, card_use, scalars_of
from paddleflow.jobs.queries import card_jobs, card_sizes, get_tasks
from paddleflow.jobs.rows import JobRow, TaskRow, member_sets_of
from paddleflow.queues.queues import get_queue
from paddleflow.runtimes.log_store import TaskAddress
from paddleflow.runtimes.usage import MOST_POINTS, metrics_text, series, stepped
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.job_query import CardTimeDocument, PeriodQuery, StatisticsQuery, parse_time
from paddleflow.store.database import Tx

Points = dict[str, list[tuple[float, float]]]


def _job_and_tasks(tx: Tx, caller: Caller, job: str) -> tuple[JobRow, list[TaskRow]]:
    return owned_job(tx, caller, job), get_tasks(tx, job)


async def _read_series(platform: Platform, row: JobRow, tasks: Sequence[TaskRow]) -> list[tuple[str, Points]]:
    samples = platform.jobs_run_here.samples(row.cluster)
    each = {need.role: need.each for need in member_sets_of(row.member_sets)}
    return [
        (
            f"{task.role}-{task.idx}",
            series(await samples.read(TaskAddress(row.id, task.role, task.idx)), each[task.role]),
        )
        for task in tasks
    ]


async def job_statistics(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.JobStatistics:
    row, tasks = await platform.database.read(_job_and_tasks, call.caller, call.path["id"])
    members = await _read_series(platform, row, tasks)
    return {"metricsInfo": cast(wire.Metrics, metrics_text([points for _, points in members]))}


async def job_statistics_detail(platform: Platform, call: Call[NoBody, StatisticsQuery]) -> wire.JobStatisticsDetail:
    query = call.query
    row, tasks = await platform.database.read(_job_and_tasks, call.caller, call.path["id"])
    members = await _read_series(platform, row, tasks)
    start = query.start if query.start is not None else row.started_at or row.accepted_at
    end = query.end if query.end is not None else row.finished_at or platform.clock.now()
    if end < start:
        raise Invalid(f"end[{end}] is before start[{start}]", code="InvalidURI")
    truncated = (end - start) / query.step > MOST_POINTS
    if truncated:
        end = start + MOST_POINTS * query.step
    result: list[wire.TaskSeries] = [
        {
            "taskName": name,
            "taskInfo": [
                {"metric": metric, "values": stepped(values, start, end, query.step)}
                for metric, values in points.items()
            ],
        }
        for name, points in members
    ]
    return {"result": result, "truncated": truncated}


async def card_time(platform: Platform, call: Call[CardTimeDocument, NoQuery]) -> wire.CardTime:
    since, until = _period(platform, call.body)
    names = list(dict.fromkeys(call.body.queue_names))
    return {"data": await platform.database.read(_card_times, call.caller, names, since, until)}


async def queue_card_time(platform: Platform, call: Call[NoBody, PeriodQuery]) -> wire.CardQueue:
    since, until = _period(platform, call.query)
    return (await platform.database.read(_card_times, call.caller, [call.path["queue"]], since, until))[0]


def _period(platform: Platform, given: CardTimeDocument | PeriodQuery) -> tuple[float, float]:
    """Both ends of the period, which is over at this moment at the latest: what has not happened yet does not count."""
    since, until = parse_time("startTime", given.start_time), parse_time("endTime", given.end_time)
    if until < since:
        raise Invalid(f"endTime[{given.end_time}] is before startTime[{given.start_time}]", code=given.code)
    return since, min(until, platform.clock.now())


def _card_times(tx: Tx, caller: Caller, queues: Sequence[str], since: float, until: float) -> list[wire.CardQueue]:
    report: list[wire.CardQueue] = []
    for name in queues:
        get_queue(tx, name, user=caller.name, root=caller.root)
        users: dict[str, list[wire.CardJob]] = defaultdict(list)
        device = ""
        sizes: dict[str, list[tuple[float, Scalars]]] = defaultdict(list)
        for size in card_sizes(tx, name, since, until):
            sizes[size.job_id].append((size.at, json.loads(size.scalars)))
        for row in card_jobs(tx, name, since, until):
            held = sizes.get(row.id) or [(row.started_at, scalars_of(member_sets_of(row.member_sets)))]
            use = card_use(held, row.started_at, row.finished_at, since, until)
            if not use.cards or not (caller.root or row.user_name == caller.name):
                continue
            device = device or use.device
            users[row.user_name].append(
                {
                    "jobId": row.id,
                    "cardTime": use.hours,
                    "createTime": local_text(row.accepted_at),
                    "startTime": local_text(row.started_at),
                    "finishTime": local_text(row.finished_at),
                    "deviceCount": use.cards,
                }
            )
        detail: list[wire.CardUser] = [
            {"userName": user, "jobInfoList": jobs, "jobCount": len(jobs), "totalCardTime": _sum(jobs)}
            for user, jobs in users.items()
        ]
        whole = _floor(sum(user["totalCardTime"] for user in detail))
        report.append({"queueName": name, "cardTime": whole, "deviceType": device, "detail": detail})
    return report


def _sum(jobs: Sequence[wire.CardJob]) -> float:
    return _floor(sum(job["cardTime"] for job in jobs))


def _floor(hours: float) -> float:
    return math.floor(hours * 100 + 1e-6) / 100


ROUTES = (
    Route(
        "GET", "/statistics/job/{id}", job_statistics, "What a job uses, as of the last sample.",
        answer=wire.JobStatistics, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "GET", "/statistics/jobDetail/{id}", job_statistics_detail, "What each member of a job used over time.",
        query=StatisticsQuery, answer=wire.JobStatisticsDetail, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "GET", "/statistics/cardTime/{queue}", queue_card_time, "Card hours of a queue between two moments.",
        query=PeriodQuery, answer=wire.CardQueue, errors=("404 QueueNameNotFound", "403 AccessDenied"),
    ),
    Route(
        "POST", "/statistics/cardTime", card_time, "Card hours of several queues between two moments.",
        body=CardTimeDocument, answer=wire.CardTime, errors=("404 QueueNameNotFound", "403 AccessDenied"),
    ),
)  # fmt: skip
