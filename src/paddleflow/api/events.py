"""Routes of events: a job's events as a stream from any position, and the websocket of existing clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet

from pydantic import Field
from pydantic_core import to_json
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddleflow.access.callers import Caller
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route, Socket
from paddleflow.api.sse import EventsQuery, EventStream, ServerEvent, resume_after
from paddleflow.base.clock import rfc3339
from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.model import FINAL
from paddleflow.jobs.queries import JobFilter, find_jobs
from paddleflow.jobs.rows import SQL
from paddleflow.jobs.views import job_view
from paddleflow.spec.wire_jobs import Job
from paddleflow.store import events
from paddleflow.store.bus import EVENTS, Subscription
from paddleflow.store.database import Tx
from paddleflow.store.events import Event
from paddleflow.store.statements import Statement

BURST = 10  #: queries of a stream without a pause; who follows a thousand steps gets what happened in some milliseconds in one go
QUERY_EVERY = 0.02  #: seconds between two further ones
STREAM_SHARE = (
    0.001  #: the same, for each stream that is open: all of them together make at most 1,000 queries a second
)
FEW_STREAMS = 20  #: streams that do not slow each other down


class Pace:
    """Says how long to wait before something is done once more."""

    def __init__(self, burst: int, every: float) -> None:
        """`burst` times are free, further ones are `every` seconds apart; who pauses earns free ones again."""
        self._credit = burst * every
        self._every = every
        self._next = float("-inf")

    def pause(self, now: float) -> float:
        """Seconds to wait from `now` until the next time, which is counted; 0 while some are free."""
        self._next = max(self._next, now - self._credit) + self._every
        return max(0.0, self._next - now)


class JobEventsQuery(EventsQuery):
    """GET /job/{id}/events"""

    follow: bool = Field(default=True, description="false: end with what there is now")


async def job_events(platform: Platform, call: Call[NoBody, JobEventsQuery]) -> EventStream:
    await platform.database.read(owned_job, call.caller, call.path["id"])
    return history(platform, call, FollowedKind("job", SQL["job_status"], FINAL))


@dataclass(frozen=True, slots=True)
class FollowedKind:
    """A kind of thing whose events are streamed up to its end."""

    kind: str
    status: Statement  #: gives the status of one by its id
    final: AbstractSet[str]


def history(platform: Platform, call: Call[NoBody, JobEventsQuery], what: FollowedKind) -> EventStream:
    """The events of one thing, from where the client was; who may see it has been asked before."""
    after = resume_after(call.request, call.query)
    return EventStream(_history(platform, what, call.path["id"], after, call.query.follow), platform.closing)


async def _history(
    platform: Platform, what: FollowedKind, subject: str, after: int, follow: bool
) -> AsyncGenerator[list[ServerEvent], None]:
    """Every event, those of one query together; ends behind the one that made it final."""
    pace, most = Pace(BURST, QUERY_EVERY), platform.streaming.events_at_once
    with platform.streams, platform.bus.subscribe(EVENTS) as subscription:
        while True:
            found, last = await platform.database.peek(_events_after, what, subject, after, most)
            if found:
                after = found[-1].seq
                ends = [
                    n
                    for n, each in enumerate(found, 1)
                    if each.type == "status" and each.data.get("status") in what.final
                ]
                yield [(each.seq, each.type, _data(each)) for each in (found[: ends[0]] if ends else found)]
                if ends:
                    return
            if len(found) == most:
                continue
            if not follow or last:
                return
            await _wait_for_events(platform, subscription, pace)


def share_of_streams(streams: int) -> float:
    """Seconds between two queries of one stream when there are so many."""
    return streams * STREAM_SHARE if streams > FEW_STREAMS else 0.0


def push_interval(seconds: float, streams: int) -> float:
    """Seconds between two pushes of one stream when there are so many."""
    return seconds * max(1.0, streams / FEW_STREAMS)


async def _wait_for_events(platform: Platform, subscription: Subscription, pace: Pace) -> None:
    """Until there is reason to query again, and not too soon: the more streams there are, the later."""
    await subscription.wait(platform.streaming.poll_events)
    pause = max(pace.pause(asyncio.get_running_loop().time()), share_of_streams(platform.streams.open))
    if pause:
        await asyncio.sleep(pause)


def _events_after(tx: Tx, what: FollowedKind, subject: str, after: int, most: int) -> tuple[list[Event], bool]:
    """(events, whether none can follow because the thing is gone or its last event was before `after`)."""
    found = events.after(tx, what.kind, subject, after, most)
    if found:
        return found, False
    status = tx.value(what.status, id=subject)
    return [], status is None or status in what.final


def _data(event: Event) -> bytes:
    return to_json({"at": rfc3339(event.at), **event.data})


async def all_events(platform: Platform, call: Call[NoBody, JobEventsQuery]) -> EventStream:
    after = resume_after(call.request, call.query)
    return EventStream(_everything(platform, after, call.query.follow), platform.closing)


async def _everything(platform: Platform, after: int, follow: bool) -> AsyncGenerator[list[ServerEvent], None]:
    pace, most = Pace(BURST, QUERY_EVERY), platform.streaming.events_at_once
    with platform.streams, platform.bus.subscribe(EVENTS) as subscription:
        while True:
            found = await platform.database.read(events.after, "job", None, after, most)
            if found:
                after = found[-1].seq
                yield [
                    (each.seq, each.type, to_json({"job": each.subject, "at": rfc3339(each.at), **each.data}))
                    for each in found
                ]
            if len(found) == most:
                continue
            if not follow:
                return
            await _wait_for_events(platform, subscription, pace)


async def push_jobs(platform: Platform, caller: Caller, websocket: WebSocket) -> None:
    """Every three seconds each job that changed since; what the client sends is echoed as a heartbeat."""
    begin = await platform.database.read(events.last_seq)  # before the client is let in: it misses nothing from then on
    await websocket.accept()

    async def echo() -> None:
        while (message := await websocket.receive())["type"] != "websocket.disconnect":
            await websocket.send_text(message.get("text") or "")
        raise WebSocketDisconnect

    async def push() -> None:
        after, timing = begin, platform.streaming
        while not platform.closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(push_interval(timing.push_jobs, platform.streams.open)):
                    await platform.closing.wait()
            more = True
            while more:
                jobs, after, more = await platform.database.read(_changed, caller, after, timing.events_at_once)
                for job in jobs:
                    await websocket.send_text(to_json(job).decode())
        await websocket.close(1001)
        echoing.cancel()

    try:
        with platform.streams:
            async with asyncio.TaskGroup() as group:
                echoing = group.create_task(echo())
                group.create_task(push())
    except* (WebSocketDisconnect, RuntimeError):
        pass  # the client has gone
    except* PaddleFlowError as failed:
        with contextlib.suppress(RuntimeError):
            await websocket.close(1011, str(failed.exceptions[0])[:100])


def _changed(tx: Tx, caller: Caller, after: int, most: int) -> tuple[list[Job], int, bool]:
    """(the caller's jobs that something happened to behind a position, the new position, whether there is more).

    Positions of events are seen in order, so nothing is missed; moments of rows would not do, as a row is written later
    than the moment that it carries.
    """
    found = events.after(tx, "job", None, after, most)
    ids = list(dict.fromkeys(event.subject for event in found))
    if not ids:
        return [], after, False
    wanted = JobFilter(user=None if caller.root else caller.name, ids=ids)
    rows, members = find_jobs(tx, wanted, 0, len(ids))
    return [job_view(row, members[row.id]) for row in reversed(rows)], found[-1].seq, len(found) == most


ROUTES = (
    Route(
        "GET", "/job/{id}/events", job_events, "A job's history as server-sent events, from any position, live to its end.",
        query=JobEventsQuery, media_type="text/event-stream", errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "GET", "/events", all_events, "Every job's events as server-sent events, from any position.",
        query=JobEventsQuery, media_type="text/event-stream", root=True,
    ),
)  # fmt: skip
SOCKETS = (Socket("/wsjob", push_jobs, "Pushes jobs that changed."),)
