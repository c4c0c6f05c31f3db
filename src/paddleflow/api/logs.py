"""Routes of logs: a limited part as the reference has it, and a stream that follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.responses import StreamingResponse

from paddleflow.access.callers import Caller
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.base.clock import local_text
from paddleflow.base.ids import task_id
from paddleflow.base.names import nearest
from paddleflow.base.quantity import parse_quantity
from paddleflow.errors import Invalid, NotFound
from paddleflow.jobs.folders import log_file
from paddleflow.jobs.listing import get_tasks
from paddleflow.jobs.log_pages import limited
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.rows import SQL
from paddleflow.runtimes.runtime import LogChunk, Runtime
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.job_query import MOST_LOG_BYTES, JobLogQuery, TaskLogQuery
from paddleflow.store import events
from paddleflow.store.database import Row, Tx

CHUNK = 2**18
LOOK_AGAIN = 0.2  #: seconds between two looks at a log that is followed
EVENT_LINES = 200  #: of a job's history shown beside its log


async def job_log(platform: Platform, call: Call[NoBody, JobLogQuery]) -> wire.JobLog:
    query = call.query
    if not query.job_id:
        raise Invalid(
            "jobID is empty: a cluster of type Local has no pods or deployments whose logs could be named",
            code="InvalidURI",
            hint="name the job: paddleflow log job -j JOB_ID -f FRAMEWORK",
        )
    row, tasks, history = await platform.database.read(_job_with_history, call.caller, query.job_id)
    size = parse_quantity(query.size_limit)
    parts: list[wire.TaskLog] = []
    for task in tasks:
        path = log_file(platform.jobs_run_here.data, row["id"], task["role"], task["idx"])
        data = await _whole(platform.jobs_run_here.runtime, str(path))
        page = limited(data, query.line_limit, size, query.read_from_tail)
        info: wire.LogInfo = {
            "logContent": page.content,
            "hasNextPage": page.has_next_page,
            "truncated": page.truncated,
        }
        parts.append({"taskID": task_id(row["id"], task["role"], task["idx"]), "logInfo": info})
    return {"jobID": row["id"], "name": row["name"], "type": row["kind"], "taskList": parts, "eventList": history}


async def _whole(runtime: Runtime, path: str) -> bytes:
    """All that is kept of a log; the runtime's limit bounds it."""
    parts = []
    chunk = await _part(runtime, path, 0, MOST_LOG_BYTES)
    while chunk.data:
        parts.append(chunk.data)
        chunk = await _part(runtime, path, chunk.next_offset, MOST_LOG_BYTES)
    return b"".join(parts)


async def _part(runtime: Runtime, path: str, offset: int, limit: int) -> LogChunk:
    """Part of a log; one that was never written, as that of a member without a process, is empty."""
    try:
        return await runtime.log(path, offset, limit)
    except NotFound:
        return LogChunk(b"", 0, 0, 0)


def _job_with_history(tx: Tx, caller: Caller, job: str) -> tuple[Row, list[Row], list[str]]:
    row = owned_job(tx, caller, job)
    lines = [
        f"{local_text(event.at)} {event.type} {event.data.get('task', '')} {event.data.get('status', '')} "
        f"{event.data.get('message', '')}".replace("  ", " ").rstrip()
        for event in events.after(tx, "job", job, 0, EVENT_LINES)
    ]
    return row, get_tasks(tx, job), lines


async def stream_log(platform: Platform, call: Call[NoBody, TaskLogQuery]) -> StreamingResponse:
    query, job = call.query, call.path["id"]
    row, tasks, _ = await platform.database.read(_job_with_history, call.caller, job)
    names = [f"{task['role']}-{task['idx']}" for task in tasks]
    if query.task and (tasks or JobStatus(row["status"]).final) and query.task not in names:
        raise NotFound(
            f"job[{job}] has no task[{query.task[:80]}]", code="JobNotFound", hint=nearest(query.task, names)
        )
    follower = _Follower(platform, job, query)
    start = await follower.start(query.offset) if query.task else 0
    headers = {"x-pf-log-offset": str(start), "cache-control": "no-store"}
    return StreamingResponse(follower.lines(), media_type="text/plain; charset=utf-8", headers=headers)


class _Follower:
    """Reads the logs of a job's members, to their present end or until they have ended."""

    def __init__(self, platform: Platform, job: str, query: TaskLogQuery) -> None:
        self._platform = platform
        self._job = job
        self._task = query.task
        self._follow = query.follow
        self._offsets: dict[str, int] = {}
        self._partial: dict[str, bytes] = {}

    async def start(self, offset: int) -> int:
        """Where the one log that is asked for begins; a negative offset counts from its end."""
        role, _, index = self._task.rpartition("-")
        path = log_file(self._platform.jobs_run_here.data, self._job, role, int(index) if index.isdecimal() else 0)
        chunk = await _part(self._platform.jobs_run_here.runtime, str(path), offset, 0)
        self._offsets[self._task] = chunk.offset
        return chunk.offset

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            tasks, ended = await self._platform.database.read(_tasks_and_end, self._job)
            if self._task:
                tasks = [task for task in tasks if _name(task) == self._task]
            prefixed = not self._task and len(tasks) > 1
            async for part in self._new(tasks, prefixed):
                yield part
            if ended or not self._follow or self._platform.closing.is_set():
                for part in self._rest():
                    yield part
                return
            await asyncio.sleep(LOOK_AGAIN)

    async def _new(self, tasks: Sequence[Row], prefixed: bool) -> AsyncIterator[bytes]:
        """What has been written since the last look."""
        for task in tasks:
            name = _name(task)
            path = log_file(self._platform.jobs_run_here.data, self._job, task["role"], task["idx"])
            while True:
                offset = self._offsets.get(name, 0)
                chunk = await _part(self._platform.jobs_run_here.runtime, str(path), offset, CHUNK)
                if chunk.next_offset == offset:
                    break
                self._offsets[name] = chunk.next_offset
                part = self._prefixed(name, chunk.data) if prefixed else chunk.data
                if part:
                    yield part

    def _prefixed(self, name: str, data: bytes) -> bytes:
        """Whole lines, each with its task; the last one waits until it is whole."""
        text = self._partial.pop(name, b"") + data
        *lines, rest = text.split(b"\n")
        if rest:
            self._partial[name] = rest
        return b"".join(b"[%s] %s\n" % (name.encode(), line) for line in lines)

    def _rest(self) -> list[bytes]:
        return [b"[%s] %s\n" % (name.encode(), line) for name, line in self._partial.items()]


def _name(task: Row) -> str:
    return f"{task['role']}-{task['idx']}"


def _tasks_and_end(tx: Tx, job: str) -> tuple[list[Row], bool]:
    row = tx.one(SQL["job_by_id"], id=job)
    return get_tasks(tx, job), row is None or JobStatus(row["status"]).final


ROUTES = (
    Route(
        "GET", "/log/job", job_log, "The first or last lines of every member's log, and the job's history.",
        query=JobLogQuery, answer=wire.JobLog, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "GET", "/job/{id}/log", stream_log, "A log as plain text from any byte on, following it if asked to.",
        query=TaskLogQuery, media_type="text/plain", errors=("404 JobNotFound", "403 AccessDenied"),
    ),
)  # fmt: skip
