"""Routes of events: a job's events as a stream from any position, and the websocket of existing clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pydantic import Field
from pydantic_core import to_json
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddleflow.access.callers import Caller
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route, Socket
from paddleflow.api.sse import EventsQuery, EventStream, ServerEvent, resume_after
from paddleflow.base.clock import rfc3339
from paddleflow.base.pace import Pace
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

AT_ONCE = 500
POLL_EVERY = 2.0  #: seconds between two queries of a stream when no wake-up comes; they may be lost
BURST = 10  #: queries of a stream without a pause; who follows a thousand steps gets what happened in some milliseconds in one go
QUERY_EVERY = 0.02  #: seconds between two further ones
STREAM_SHARE = (
    0.001  #: the same, for each stream that is open: all of them together make at most 1,000 queries a second
)
FEW_STREAMS = 20  #: streams that do not slow each other down
PUSH_EVERY = 3.0  #: seconds between two pushes of the websocket


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
) -> AsyncGenerator[ServerEvent, None]:
    """Every event; ends behind the one that made it final."""
    pace = Pace(BURST, QUERY_EVERY)
    with platform.streams, platform.bus.subscribe(EVENTS) as subscription:
        while True:
            found, last = await platform.database.peek(_events_after, what, subject, after)
            for event in found:
                after = event.seq
                yield event.seq, event.type, _data(event)
                if event.type == "status" and event.data.get("status") in what.final:
                    return
            if len(found) == AT_ONCE:
                continue
            if not follow or last:
                return
            await _wait_for_events(platform, subscription, pace)


async def _wait_for_events(platform: Platform, subscription: Subscription, pace: Pace) -> None:
    """Until there is reason to query again, and not too soon: the more streams there are, the later."""
    await subscription.wait(POLL_EVERY)
    streams = platform.streams.open
    pause = max(pace.pause(asyncio.get_running_loop().time()), streams * STREAM_SHARE if streams > FEW_STREAMS else 0.0)
    if pause:
        await asyncio.sleep(pause)


def _events_after(tx: Tx, what: FollowedKind, subject: str, after: int) -> tuple[list[Event], bool]:
    """(events, whether none can follow because the thing is gone or its last event was before `after`)."""
    found = events.after(tx, what.kind, subject, after, AT_ONCE)
    if found:
        return found, False
    status = tx.value(what.status, id=subject)
    return [], status is None or status in what.final


def _data(event: Event) -> bytes:
    return to_json({"at": rfc3339(event.at), **event.data})


async def all_events(platform: Platform, call: Call[NoBody, JobEventsQuery]) -> EventStream:
    after = resume_after(call.request, call.query)
    return EventStream(_everything(platform, after, call.query.follow), platform.closing)


async def _everything(platform: Platform, after: int, follow: bool) -> AsyncGenerator[ServerEvent, None]:
    pace = Pace(BURST, QUERY_EVERY)
    with platform.streams, platform.bus.subscribe(EVENTS) as subscription:
        while True:
            found = await platform.database.read(events.after, "job", None, after, AT_ONCE)
            for event in found:
                after = event.seq
                yield event.seq, event.type, to_json({"job": event.subject, "at": rfc3339(event.at), **event.data})
            if len(found) == AT_ONCE:
                continue
            if not follow:
                return
            await _wait_for_events(platform, subscription, pace)


async def push_jobs(platform: Platform, caller: Caller, websocket: WebSocket) -> None:
    """Every three seconds each job that changed since; what the client sends is echoed as a heartbeat."""
    begin = await platform.database.read(events.last_seq)  # before the client is let in: it misses nothing from then on
    await websocket.accept()

    async def echo() -> None:
        while True:
            await websocket.send_text(await websocket.receive_text())

    async def push() -> None:
        after = begin
        while not platform.closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUSH_EVERY):
                    await platform.closing.wait()
            more = True
            while more:
                jobs, after, more = await platform.database.read(_changed, caller, after)
                for job in jobs:
                    await websocket.send_text(to_json(job).decode())
        await websocket.close(1001)
        echoing.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            echoing = group.create_task(echo())
            group.create_task(push())
    except* (WebSocketDisconnect, RuntimeError):
        pass  # the client has gone
    except* PaddleFlowError as failed:
        with contextlib.suppress(RuntimeError):
            await websocket.close(1011, str(failed.exceptions[0])[:100])


def _changed(tx: Tx, caller: Caller, after: int) -> tuple[list[Job], int, bool]:
    """(the caller's jobs that something happened to behind a position, the new position, whether there is more).

    Positions of events are seen in order, so nothing is missed; moments of rows would not do, as a row is written later
    than the moment that it carries.
    """
    found = events.after(tx, "job", None, after, AT_ONCE)
    ids = list(dict.fromkeys(event.subject for event in found))
    if not ids:
        return [], after, False
    wanted = JobFilter(user=None if caller.root else caller.name, ids=ids)
    rows, members = find_jobs(tx, wanted, 0, len(ids))
    return [job_view(row, members[row.id]) for row in reversed(rows)], found[-1].seq, len(found) == AT_ONCE


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
