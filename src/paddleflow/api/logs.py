"""Routes of logs: a limited part as the reference has it, and a stream that follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

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
from paddleflow.jobs.facts import Key
from paddleflow.jobs.log_pages import LogPage, Window
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.queries import get_tasks, job_progress
from paddleflow.jobs.rows import JobRow, TaskRow, member_sets_of
from paddleflow.runtimes.log_store import LogChunk, TaskAddress
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.job_query import JobLogQuery, TaskLogQuery
from paddleflow.store import events
from paddleflow.store.bus import EVENTS
from paddleflow.store.database import Tx

CHUNK = 2**18
POLL_FILES = 0.2  #: seconds between two reads of a log that is followed
SLOWEST_POLL = 1.0  #: the same for a log that nothing is written to
ASK_EVERY = 5.0  #: seconds between two questions whether the job goes on, when no wake-up comes
SETTLE = 0.05  #: seconds after a wake-up in which further ones join it
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
    parts: list[wire.TaskLog] = []
    for task in tasks:
        page = await _page(platform, row.id, (task.role, task.idx), query)
        info: wire.LogInfo = {
            "logContent": page.content,
            "hasNextPage": page.has_next_page,
            "truncated": page.truncated,
        }
        parts.append({"taskID": task_id(row.id, task.role, task.idx), "logInfo": info})
    return {"jobID": row.id, "name": row.name, "type": row.kind, "taskList": parts, "eventList": history}


async def _page(platform: Platform, job: str, key: Key, query: JobLogQuery) -> LogPage:
    """The log is read piece by piece up to the end that it has now, and never held as a whole."""
    window = Window(query.line_limit, parse_quantity(query.size_limit), query.read_from_tail)
    chunk = await _part(platform, job, key, 0, CHUNK)
    end = chunk.size
    while chunk.data:
        await asyncio.to_thread(window.feed, chunk.data)
        if chunk.next_offset >= end:
            break
        chunk = await _part(platform, job, key, chunk.next_offset, CHUNK)
    return window.page()


async def _part(platform: Platform, job: str, key: Key, offset: int, limit: int) -> LogChunk:
    """Part of a log; one that was never written, as that of a member without a process, is empty."""
    try:
        return await platform.jobs_run_here.runtime.logs.read(TaskAddress(job, *key), offset, limit)
    except NotFound:
        return LogChunk(b"", 0, 0, 0)


def _job_with_history(tx: Tx, caller: Caller, job: str) -> tuple[JobRow, list[TaskRow], list[str]]:
    row = owned_job(tx, caller, job)
    lines = [
        f"{local_text(event.at)} {event.type} {event.data.get('task', '')} {event.data.get('status', '')} "
        f"{event.data.get('message', '')}".replace("  ", " ").rstrip()
        for event in events.after(tx, "job", job, 0, EVENT_LINES)
    ]
    return row, get_tasks(tx, job), lines


async def stream_log(platform: Platform, call: Call[NoBody, TaskLogQuery]) -> StreamingResponse:
    query, job = call.query, call.path["id"]
    row = await platform.database.read(owned_job, call.caller, job)
    keys = {f"{need.role}-{n}": (need.role, n) for need in member_sets_of(row.needs) for n in range(need.count)}
    task = query.task or (next(iter(keys)) if len(keys) == 1 else "")
    if task and task not in keys:
        raise NotFound(f"job[{job}] has no task[{task[:80]}]", code="JobNotFound", hint=nearest(task[:80], keys))
    if not task and query.offset:
        raise Invalid("an offset counts in one log: say in which", code="InvalidURI", hint=f"task={next(iter(keys))}")
    start = (await _part(platform, job, keys[task], query.offset, 0)).offset if task else 0
    follower = _Follower(platform, job, {task: keys[task]} if task else keys, query.follow, start)
    headers = {"x-pf-log-offset": str(start), "cache-control": "no-store"}
    return StreamingResponse(follower.lines(), media_type="text/plain; charset=utf-8", headers=headers)


class _Follower:
    """Reads the logs of a job's members, to their present end or until the job has ended."""

    def __init__(self, platform: Platform, job: str, keys: Mapping[str, Key], follow: bool, start: int) -> None:
        self._platform = platform
        self._job = job
        self._keys = keys  #: by task
        self._follow = follow
        self._offsets = dict.fromkeys(keys, start)
        self._partial: dict[str, bytes] = {}

    async def lines(self) -> AsyncIterator[bytes]:
        """A process that writes wakes nobody, so its file is polled; whether the job goes on is asked of the database
        when the bus says that something happened, and now and then because wake-ups may be lost."""
        loop = asyncio.get_running_loop()
        begun = ended = False
        pause = POLL_FILES
        with self._platform.bus.subscribe(EVENTS) as subscription:
            ask_at = loop.time()
            while True:
                if not ended and loop.time() >= ask_at:
                    begun, ended = await self._platform.database.read(_begun_and_ended, self._job)
                    ask_at = loop.time() + ASK_EVERY
                news = False
                for name in self._keys if begun else ():
                    async for part in self._new(name):
                        news = True
                        yield part
                pause = POLL_FILES if news else min(pause * 1.5, SLOWEST_POLL)
                if ended or not self._follow or self._platform.closing.is_set():
                    for part in self._rest():
                        yield part
                    return
                if await subscription.wait(pause):
                    ask_at = loop.time()
                    await asyncio.sleep(min(POLL_FILES, SETTLE))  # many events in a row are one question

    async def _new(self, name: str) -> AsyncIterator[bytes]:
        """What has been written since the last read."""
        while True:
            offset = self._offsets[name]
            chunk = await _part(self._platform, self._job, self._keys[name], offset, CHUNK)
            if chunk.next_offset <= offset:
                return
            self._offsets[name] = chunk.next_offset
            part = self._prefixed(name, chunk.data) if len(self._keys) > 1 else chunk.data
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


def _begun_and_ended(tx: Tx, job: str) -> tuple[bool, bool]:
    """(whether a member may have a log, whether none will write any more)."""
    row = job_progress(tx, job)
    return row is not None and row.attempt > 0, row is None or JobStatus(row.status).final


ROUTES = (
    Route(
        "GET", "/log/job", job_log, "The first or last lines of every member's log, and the job's history.",
        query=JobLogQuery, answer=wire.JobLog, leader="query", leader_only=True, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "GET", "/job/{id}/log", stream_log, "A log as plain text from any byte on, following it if asked to.",
        query=TaskLogQuery, media_type="text/plain", leader="job", leader_only=True, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
)  # fmt: skip
