"""Routes of logs: a limited part as the reference has it, and a stream that follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial

from starlette.responses import StreamingResponse

from paddleflow.access.callers import Caller
from paddleflow.api.jobs import owned_job
from paddleflow.api.masked_logs import MaskedLogs, unreadable
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.base.clock import local_text
from paddleflow.base.ids import task_id
from paddleflow.base.names import nearest
from paddleflow.base.quantity import parse_quantity
from paddleflow.errors import Invalid, NotFound, Unavailable
from paddleflow.jobs.facts import Key
from paddleflow.jobs.log_pages import LogPage, Window
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.queries import get_tasks, job_progress
from paddleflow.jobs.rows import JobRow, TaskRow, member_sets_of
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.job_query import MOST_OFFSETS, JobLogQuery, TaskLogQuery
from paddleflow.store import events
from paddleflow.store.bus import EVENTS
from paddleflow.store.database import Tx

SLOWEST_POLL = 1.0  #: seconds between two reads of a followed log that nothing is written to
SETTLE = 0.05  #: seconds after a wake-up in which further ones join it
LONGEST_LINE = 2**16  #: bytes; of logs of several members, a longer line is sent in pieces
TAIL_PIECE = 64 * 2**10  #: bytes that are read at a time to find the last lines
EVENT_LINES = 200  #: of a job's history shown beside its log

Between = Callable[[int, int], Awaitable[bytes]]  #: what a log has between two positions


async def job_log(platform: Platform, call: Call[NoBody, JobLogQuery]) -> wire.JobLog:
    query = call.query
    if not query.job_id:
        raise Invalid(
            "jobID is empty: only logs of jobs are kept here, not those of other pods and deployments of a cluster",
            code="InvalidURI",
            hint="paddleflow job logs JOBID; for other pods: kubectl logs",
        )
    row, tasks, history = await platform.database.read(_job_with_history, call.caller, query.job_id)
    logs = MaskedLogs(platform, row)
    parts: list[wire.TaskLog] = []
    for task in tasks:
        try:
            page = await _page(platform, logs, (task.role, task.idx), query, JobStatus(row.status).final)
        except Unavailable as error:
            if len(tasks) == 1:
                raise
            page = LogPage(unreadable(error), False, False)
        info: wire.LogInfo = {
            "logContent": page.content,
            "hasNextPage": page.has_next_page,
            "truncated": page.truncated,
        }
        parts.append({"taskID": task_id(row.id, task.role, task.idx), "logInfo": info})
    return {"jobID": row.id, "name": row.name, "type": row.kind, "taskList": parts, "eventList": history}


async def _page(platform: Platform, logs: MaskedLogs, key: Key, query: JobLogQuery, ended: bool) -> LogPage:
    """The log is read piece by piece up to the end that it has now, and never held as a whole."""
    window = Window(query.line_limit, parse_quantity(query.size_limit), query.read_from_tail)
    most = platform.streaming.log_chunk
    chunk = await logs.part(key, 0, most, ended=ended)
    end = chunk.size
    while chunk.data:
        await platform.computing.run(logs.user, window.feed, chunk.data)
        if chunk.next_offset >= end:
            break
        chunk = await logs.part(key, chunk.next_offset, most, ended=ended)
    return window.page()


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
    keys = {f"{need.role}-{n}": (need.role, n) for need in member_sets_of(row.member_sets) for n in range(need.count)}
    task = query.task or (next(iter(keys)) if len(keys) == 1 else "")
    if task and task not in keys:
        raise NotFound(f"job[{job}] has no task[{task[:80]}]", code="JobNotFound", hint=nearest(task[:80], keys))
    if not task and query.offset:
        raise Invalid("an offset counts in one log: say in which", code="InvalidURI", hint=f"task={next(iter(keys))}")
    if query.attempt > row.attempt:
        tries = f"has been started {row.attempt} times" if row.attempt != 1 else "has been started once"
        raise NotFound(f"job[{job}] {tries}: there is no try {query.attempt}", code="JobNotFound")
    logs = MaskedLogs(platform, row)
    wanted = {task: keys[task]} if task else keys
    if task:
        await logs.part(keys[task], 0, 0)  # what cannot be read is refused before the status is sent
    begins = await log_begins(logs, wanted, query, platform.clock.now())
    text = ",".join(f"{name}:{begin}" for name, begin in begins.items())
    if len(text) > MOST_OFFSETS and query.follow and (query.tail_lines is not None or query.since_seconds is not None):
        raise Invalid(
            f"job[{job}] has too many members to follow the end of all logs",
            code="InvalidURI",
            hint="choose one member with task=",
        )
    follower = _Follower(platform, logs, job, wanted, query.follow, begins, query.attempt)
    headers = {"cache-control": "no-store", **({"x-pf-log-offsets": text} if len(text) <= MOST_OFFSETS else {})}
    if task:
        headers["x-pf-log-offset"] = str(begins[task])
    return StreamingResponse(follower.lines(), media_type="text/plain; charset=utf-8", headers=headers)


class _Follower:
    """Reads the logs of a job's members, to their present end or until the job has ended."""

    def __init__(
        self,
        platform: Platform,
        logs: MaskedLogs,
        job: str,
        keys: Mapping[str, Key],
        follow: bool,
        begins: Mapping[str, int],
        attempt: int,
    ) -> None:
        self._platform = platform
        self._logs = logs
        self._job = job
        self._keys = keys  #: by task
        self._follow = follow
        self._offsets = dict(begins)
        self._attempt = attempt  #: only this one; 0: all
        self._ends: dict[str, int] = {}  #: where the attempt after it begins
        self._partial: dict[str, bytes] = {}
        self._unreadable: set[str] = set()

    async def lines(self) -> AsyncIterator[bytes]:
        """A process that writes wakes nobody, so its file is polled; whether the job still runs is asked of the database
        when the bus says that something happened, and now and then because wake-ups may be lost."""
        loop = asyncio.get_running_loop()
        begun = ended = False
        timing = self._platform.streaming
        pause = timing.poll_log
        with self._platform.bus.subscribe(EVENTS) as subscription:
            ask_at = loop.time()
            while True:
                if not ended and loop.time() >= ask_at:
                    started, ended = await self._platform.database.read(_started_and_ended, self._job)
                    begun = started > 0
                    if self._attempt and started > self._attempt:
                        ended = True
                        await self._find_ends()
                    ask_at = loop.time() + timing.ask_job
                news = False
                for name in self._keys if begun else ():
                    async for part in self._new(name, ended):
                        news = True
                        yield part
                pause = next_pause(pause, timing.poll_log, news=news)
                over = ended or len(self._unreadable) == len(self._keys)
                if over or not self._follow or self._platform.closing.is_set():
                    for part in self._rest():
                        yield part
                    return
                if await subscription.wait(pause):
                    ask_at = loop.time()
                    await asyncio.sleep(min(timing.poll_log, SETTLE))  # many events in a row are one question

    async def _find_ends(self) -> None:
        """The try is over and another one has begun, or is about to, where the log ends now."""
        for name, key in self._keys.items():
            found = await self._logs.begin(key, self._attempt + 1)
            self._ends[name] = await self._logs.size(key) if found is None else found

    async def _new(self, name: str, ended: bool) -> AsyncIterator[bytes]:
        """What has been written since the last read; a line instead, once, when the log cannot be read any more."""
        while name not in self._unreadable:
            offset = self._offsets[name]
            most = self._platform.streaming.log_chunk
            if name in self._ends:
                most = min(most, self._ends[name] - offset)
                if most <= 0:
                    return
            try:
                chunk = await self._logs.part(self._keys[name], offset, most, ended=ended)
            except Unavailable as error:
                self._unreadable.add(name)
                alone = len(self._keys) == 1 or name in self._partial
                yield self._shown(name, b"\n" * alone + unreadable(error).encode())
                return
            if chunk.next_offset <= offset:
                return
            self._offsets[name] = chunk.next_offset
            part = self._shown(name, chunk.data)
            if part:
                yield part

    def _shown(self, name: str, data: bytes) -> bytes:
        return self._prefixed(name, data) if len(self._keys) > 1 else data

    def _prefixed(self, name: str, data: bytes) -> bytes:
        """Whole lines, each with its task; the last one waits until it is whole, or longer than anybody reads."""
        text = self._partial.pop(name, b"") + data
        *lines, rest = text.split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
        elif rest:
            self._partial[name] = rest
        return b"".join(b"[%s] %s\n" % (name.encode(), line) for line in lines)

    def _rest(self) -> list[bytes]:
        return [b"[%s] %s\n" % (name.encode(), line) for name, line in self._partial.items()]


def next_pause(pause: float, shortest: float, *, news: bool) -> float:
    """Seconds until a followed log is read again: longer each time that nothing was written. Pure."""
    return shortest if news else min(pause * 1.5, max(shortest, SLOWEST_POLL))


def _started_and_ended(tx: Tx, job: str) -> tuple[int, bool]:
    """(how often it was started, whether no member will write any more)."""
    row = job_progress(tx, job)
    return 0 if row is None else row.attempt, row is None or JobStatus(row.status).final


async def log_begins(logs: MaskedLogs, keys: Mapping[str, Key], query: TaskLogQuery, now: float) -> dict[str, int]:
    """The first byte of each task's log that is wanted."""
    given = dict(part.rpartition(":")[::2] for part in query.offsets.split(",") if part)
    begins = {}
    for name, key in keys.items():
        if query.offset or name in given:
            offset = query.offset or (int(given[name]) if given[name].isdecimal() else 0)
            begins[name] = (await logs.part(key, offset, 0)).offset
            continue
        begin = await logs.begin(key, query.attempt) if query.attempt else 0
        size = await logs.size(key)
        if begin is None:
            begin = size
        end = size if query.attempt == 0 else await logs.begin(key, query.attempt + 1)
        read = partial(_between, logs, key)
        if query.since_seconds is not None:
            before = await logs.size_at(key, now - query.since_seconds)
            begin = max(begin, before if before >= size else await line_begin(read, before))
        if query.tail_lines is not None:
            begin = await tail_begin(read, begin, size if end is None else end, query.tail_lines)
        begins[name] = begin
    return begins


async def _between(logs: MaskedLogs, key: Key, begin: int, end: int) -> bytes:
    return (await logs.part(key, begin, end - begin, ended=True)).data[: end - begin]


async def line_begin(read: Between, position: int, piece: int = TAIL_PIECE) -> int:
    """Where the line that holds this position begins, if that is not further away than a piece."""
    first = max(0, position - piece)
    data = await read(first, position)
    return first + data.rfind(b"\n") + 1 if b"\n" in data or not first else position


async def tail_begin(read: Between, begin: int, end: int, lines: int, piece: int = TAIL_PIECE) -> int:
    """Where the last lines before `end` begin, not before `begin`; read backwards, piece by piece."""
    position, missing = end, lines
    last = True
    while position > begin:
        first = max(begin, position - piece)
        data = await read(first, position)
        if last:  # the newline that ends the last line begins no other
            data, last = (data[:-1] if data.endswith(b"\n") else data), False
            if not missing:
                return end
        found = data.count(b"\n")
        if found >= missing:
            for _ in range(missing):
                data = data[: data.rfind(b"\n")]
            return first + len(data) + 1
        missing -= found
        position = first
    return begin


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
