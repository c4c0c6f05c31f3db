"""GET /log/run/{id}: pages of the logs of a run's steps, as the reference has them.

Steps of one run may run on clusters of several servers. Each other server that runs one of them is asked the same question, and
of its answer the jobs of its clusters are taken; one that was asked by another server answers with what it can read itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from paddleflow.access.callers import Caller
from paddleflow.api.masked_logs import MaskedLogs, unreadable
from paddleflow.api.peers import FORWARDED
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.api.runs import owned_run
from paddleflow.base.clock import local_text
from paddleflow.base.ids import task_id
from paddleflow.errors import NotFound, Unavailable
from paddleflow.jobs.log_pages import LogPage, log_page, log_range
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.queries import find_job, get_tasks
from paddleflow.jobs.rows import JobRow, TaskRow
from paddleflow.runs.rows import RunRow
from paddleflow.runs.runs import get_components
from paddleflow.spec import wire_jobs
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import RunLogQuery
from paddleflow.store import events
from paddleflow.store.database import Tx

EVENT_LINES = 100  #: of a job's history shown beside its log


async def run_log(platform: Platform, call: Call[NoBody, RunLogQuery]) -> wire.RunLog:
    query = call.query
    run, jobs = await platform.database.read(_jobs, call.caller, call.path["id"], query.job_id)
    elsewhere = await _logs_elsewhere(platform, call, [job for job, _, _ in jobs])
    logs: list[wire.RunJobLog] = []
    for job, tasks, lines in jobs:
        if job.id in elsewhere:
            logs.append(elsewhere[job.id])
            continue
        store = MaskedLogs(platform, job)
        parts = [await _task_log(platform, store, job, task, query) for task in tasks]
        logs.append({"jobID": job.id, "name": job.name, "type": job.kind, "taskList": parts, "eventList": lines})
    return {"submitLog": run.message, "runLog": logs, "runID": run.id}


async def _logs_elsewhere(
    platform: Platform, call: Call[NoBody, RunLogQuery], jobs: Sequence[JobRow]
) -> dict[str, wire.RunJobLog]:
    """The logs of the jobs whose clusters other servers run, by job; `Unavailable` names a server that does not answer."""
    peers, scope = platform.peers, call.request.scope
    headers = dict(scope["headers"])
    if peers is None or FORWARDED in headers:
        return {}
    found: dict[str, wire.RunJobLog] = {}
    for holder, clusters in (await peers.holders({job.cluster for job in jobs})).items():
        wanted = {job.id for job in jobs if job.cluster in clusters}
        answer = cast(wire.RunLog, await peers.ask(holder, scope, headers))
        found |= {each["jobID"]: each for each in answer["runLog"] if each["jobID"] in wanted}
    return found


def _jobs(tx: Tx, caller: Caller, run: str, job: str) -> tuple[RunRow, list[tuple[JobRow, list[TaskRow], list[str]]]]:
    """The run, and its jobs (or one of them) with their members and history. Jobs of the run that it retries are included."""
    row = owned_run(tx, caller, run)
    ids = dict.fromkeys(each.job_id for each in get_components(tx, run) if each.job_id)
    if job:
        if job not in ids:
            raise NotFound(f"run[{run}] has no job[{job[:80]}]", code="JobNotFound")
        ids = {job: None}
    found = []
    for each in ids:
        known = find_job(tx, each)
        if known is not None:
            lines = [
                f"{local_text(event.at)} {event.data.get('status', '')} {event.data.get('message', '')}".rstrip()
                for event in events.after(tx, "job", each, 0, EVENT_LINES)
            ]
            found.append((known, get_tasks(tx, each), lines))
    return row, found


async def _task_log(
    platform: Platform, store: MaskedLogs, job: JobRow, task: TaskRow, query: RunLogQuery
) -> wire_jobs.TaskLog:
    from_end = query.log_file_position == "end"
    ended = JobStatus(job.status).final
    try:
        chunk = await store.part((task.role, task.idx), *log_range(from_end), ended=ended)
        pages = partial(log_page, chunk, query.page_no, query.page_size, from_end=from_end)
        page = await platform.computing.run(store.user, pages)
    except Unavailable as error:
        page = LogPage(unreadable(error), False, False)
    info: wire_jobs.LogInfo = {
        "logContent": page.content,
        "hasNextPage": page.has_next_page,
        "truncated": page.truncated,
    }
    return {"taskID": task_id(job.id, task.role, task.idx), "logInfo": info}


ROUTES = (
    Route(
        "GET", "/log/run/{id}", run_log, "Pages of the logs of a run's steps.",
        query=RunLogQuery, answer=wire.RunLog, errors=("404 RunNotFound", "403 AccessDenied", "404 JobNotFound"),
    ),
)  # fmt: skip
