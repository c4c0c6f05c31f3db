"""Server-sent events: a stream that ends cleanly, whoever ends it.

A handler returns ``EventStream(events, platform.closing)``. It ends when the iterator does, when the client goes, or
when the server begins to stop; in each case the iterator is closed, so that its ``finally`` blocks run. A comment is
sent when nothing else was for a while, so that proxies keep the connection. An error inside the iterator becomes a
last event called ``error``, with the body that a refusal has.

A client that comes again names the last event it has seen: browsers by the header ``Last-Event-ID``, others by
``?after=``. `resume_after` reads both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddleflow.api import answers
from paddleflow.errors import Internal, Invalid, PaddleFlowError
from paddleflow.spec.query import Query

T = TypeVar("T")
MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE = 15.0  #: seconds of silence after which a comment is sent

#: (id, event, data): a position to resume behind, the kind of event, and JSON on one line.
ServerEvent = tuple[int | str, str, bytes]

_log = logging.getLogger("paddleflow.api")
_LARGEST = 2**62


class EventsQuery(Query):
    """Where a stream of events begins."""

    after: int = Field(default=0, ge=0, le=_LARGEST, description="only events behind this id; 0: from the beginning")


def resume_after(request: Request, query: EventsQuery) -> int:
    """The id of the last event that the client has seen. The header wins: it is set when the same URL is asked again."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return query.after
    if not given.isascii() or not given.isdigit() or int(given[:20]) > _LARGEST:
        raise Invalid(f"Last-Event-ID[{given[:80]}] is not the id of an event", code="InvalidURI")
    return int(given[:20])


def frame(event: ServerEvent) -> bytes:
    """One event as it goes over the wire."""
    identity, kind, data = event
    lines = b"".join(b"data: %s\n" % line for line in data.split(b"\n"))
    return b"id: %s\nevent: %s\n%s\n" % (str(identity).encode(), kind.encode(), lines)


class EventStream(Response):
    """Events of an async generator as a response; those that it gives together go out in one piece."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        events: AsyncGenerator[Sequence[ServerEvent], None],
        closing: asyncio.Event,
        *,
        keep_alive: float = KEEP_ALIVE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._closing = closing
        self._keep_alive = keep_alive
        self._sent = 0
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(body: bytes, *, more: bool = True) -> None:
            self._sent += 1
            await send({"type": "http.response.body", "body": body, "more_body": more})

        async def events() -> None:
            async with aclosing(self._events):
                try:
                    async for together in self._events:
                        await write(b"".join([frame(event) for event in together]))
                except PaddleFlowError as error:
                    await write(self._error(error))
                except OSError:
                    return  # the client has gone while we wrote
                except Exception as error:
                    _log.exception("a stream of events failed")
                    await write(self._error(Internal(f"the server failed: {type(error).__name__}")))

        async def comments() -> None:
            while True:
                before = self._sent
                await asyncio.sleep(self._keep_alive)
                if self._sent == before:
                    await write(b": keep-alive\n\n")

        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await write(b": stream of events\n\n")  # the head goes out now, not with the first event
            await until_first(events, lambda: disconnected(receive), comments, self._closing.wait)
            await write(b"", more=False)
        except OSError:
            return

    def _error(self, error: PaddleFlowError) -> bytes:
        return b"event: error\ndata: %s\n\n" % answers.refusal(error, self.headers.get("x-pf-request-id", ""))


async def until_first(*works: Callable[[], Awaitable[object]]) -> bool:
    """Run all until one of them ends, then end the others; whether it was the first of them that ended."""
    first: list[int] = []

    async def run(number: int, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        finally:
            first.append(number)
            for task in tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:
        tasks += [group.create_task(run(number, work)) for number, work in enumerate(works)]
    return first[0] == 0


async def disconnected(receive: Receive) -> None:
    """Return when the client has left. The body of the request has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """The result of what only this client wants: cancelled when the client leaves, which is `ClientDisconnect`."""
    results: list[T] = []
    failures: list[Exception] = []

    async def run() -> None:
        try:
            results.append(await work())
        except Exception as error:
            failures.append(error)

    await until_first(run, lambda: disconnected(request.receive))
    if failures:
        raise failures[0]
    if not results:
        raise ClientDisconnect
    return results[0]
