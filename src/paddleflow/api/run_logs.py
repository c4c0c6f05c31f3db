"""GET /log/run/{id}: pages of the logs of a run's steps, as the reference has them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from paddleflow.access.callers import Caller
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.api.runs import owned_run
from paddleflow.base.clock import local_text
from paddleflow.base.ids import task_id
from paddleflow.errors import NotFound, Unavailable
from paddleflow.jobs.log_pages import LogPage
from paddleflow.jobs.queries import find_job, get_tasks
from paddleflow.jobs.rows import JobRow, TaskRow
from paddleflow.runs.log_pages import log_page, log_range
from paddleflow.runs.rows import RunRow
from paddleflow.runs.runs import get_components
from paddleflow.runtimes.log_store import LogStore, TaskAddress
from paddleflow.spec import wire_jobs
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import RunLogQuery
from paddleflow.store import events
from paddleflow.store.database import Tx

EVENT_LINES = 100  #: of a job's history shown beside its log


async def run_log(platform: Platform, call: Call[NoBody, RunLogQuery]) -> wire.RunLog:
    query = call.query
    run, jobs = await platform.database.read(_jobs, call.caller, call.path["id"], query.job_id)
    store = platform.jobs_run_here.runtime.logs
    logs: list[wire.RunJobLog] = []
    for job, tasks, lines in jobs:
        parts = [await _task_log(store, job.id, task, query) for task in tasks]
        logs.append({"jobID": job.id, "name": job.name, "type": job.kind, "taskList": parts, "eventList": lines})
    return {"submitLog": run.message, "runLog": logs, "runID": run.id}


def _jobs(tx: Tx, caller: Caller, run: str, job: str) -> tuple[RunRow, list[tuple[JobRow, list[TaskRow], list[str]]]]:
    """The run, and its jobs (or one of them) with their members and history. Jobs of runs that it goes on with count too."""
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


async def _task_log(store: LogStore, job: str, task: TaskRow, query: RunLogQuery) -> wire_jobs.TaskLog:
    from_end = query.log_file_position == "end"
    page = LogPage("", False, False)
    with suppress(NotFound, Unavailable):
        chunk = await store.read(TaskAddress(job, task.role, task.idx), *log_range(from_end))
        page = await asyncio.to_thread(log_page, chunk, query.page_no, query.page_size, from_end=from_end)
    info: wire_jobs.LogInfo = {
        "logContent": page.content,
        "hasNextPage": page.has_next_page,
        "truncated": page.truncated,
    }
    return {"taskID": task_id(job, task.role, task.idx), "logInfo": info}


ROUTES = (
    Route(
        "GET", "/log/run/{id}", run_log, "Pages of the logs of a run's steps.",
        query=RunLogQuery, answer=wire.RunLog, leader="cluster", leader_only=True, errors=("404 RunNotFound", "403 AccessDenied", "404 JobNotFound"),
    ),
)  # fmt: skip
