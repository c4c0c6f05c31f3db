"""Streams of server-sent events: they say what happened, go on where the client was, and end cleanly whoever ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.requests import Request
from starlette.types import Message

from paddleflow.api.sse import EventsQuery, EventStream, ServerEvent, frame, resume_after
from paddleflow.errors import Invalid, NotFound
from tests.patience import PATIENCE


class Follower:
    """A client of one stream, in process."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self.news = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.gone.is_set():
            raise OSError("the client has gone")
        self.sent.append(message)
        self.news.set()

    async def until(self, text: bytes) -> None:
        """Wait until this was received."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.text:
                self.news.clear()
                await self.news.wait()

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


class Source:
    """Events that a test feeds."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[ServerEvent | Exception | None] = asyncio.Queue()
        self.closed = False

    async def events(self) -> AsyncGenerator[list[ServerEvent], None]:
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield [item]
        finally:
            self.closed = True


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def closing() -> asyncio.Event:
    return asyncio.Event()


async def serve(follower: Follower, stream: EventStream) -> None:
    async with asyncio.timeout(PATIENCE):
        await stream({"type": "http"}, follower.receive, follower.send)


async def test_events_go_out_as_they_come_and_the_end_is_an_end(
    follower: Follower, source: Source, closing: asyncio.Event
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(follower, EventStream(source.events(), closing)))
        source.queue.put_nowait((1, "started", b'{"a":1}'))
        await follower.until(b'id: 1\nevent: started\ndata: {"a":1}\n\n')
        assert not follower.complete()
        source.queue.put_nowait((2, "ended", b"x\ny"))
        await follower.until(b"id: 2\nevent: ended\ndata: x\ndata: y\n\n")
        source.queue.put_nowait(None)
    assert follower.complete()
    assert source.closed
    start = follower.sent[0]
    headers = dict(start["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert b"content-length" not in headers


async def test_events_that_come_together_go_out_in_one_piece(follower: Follower, closing: asyncio.Event) -> None:
    async def together() -> AsyncGenerator[list[ServerEvent], None]:
        yield [(number, "step", b"{}") for number in range(100)]

    await serve(follower, EventStream(together(), closing))
    pieces = [message["body"] for message in follower.sent if b"event: step" in message.get("body", b"")]
    assert [piece.count(b"event: step") for piece in pieces] == [100]


async def test_the_stream_ends_when_the_client_goes(follower: Follower, source: Source, closing: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(follower, EventStream(source.events(), closing)))
        await follower.until(b":")
        follower.gone.set()
    assert source.closed


async def test_the_stream_ends_when_the_server_stops(
    follower: Follower, source: Source, closing: asyncio.Event
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(follower, EventStream(source.events(), closing)))
        await follower.until(b":")
        closing.set()
    assert follower.complete()
    assert source.closed


async def test_cancelling_closes_the_source(follower: Follower, source: Source, closing: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve(follower, EventStream(source.events(), closing)))
        await follower.until(b":")
        task.cancel()
    assert source.closed


async def test_silence_is_filled(follower: Follower, source: Source, closing: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(follower, EventStream(source.events(), closing, keep_alive=0.01)))
        await follower.until(b": keep-alive\n\n: keep-alive\n\n")
        source.queue.put_nowait((7, "late", b"{}"))
        await follower.until(b"id: 7\n")
        source.queue.put_nowait(None)
    assert follower.complete()


@pytest.mark.parametrize(
    ("error", "code"),
    [(NotFound("job[x] is gone", code="JobNotFound"), b"JobNotFound"), (KeyError("secret"), b"InternalError")],
)
async def test_an_error_is_the_last_event(
    follower: Follower, source: Source, closing: asyncio.Event, error: Exception, code: bytes
) -> None:
    stream = EventStream(source.events(), closing)
    stream.headers["x-pf-request-id"] = "r-1"
    source.queue.put_nowait(error)
    await serve(follower, stream)
    assert b'event: error\ndata: {"requestID":"r-1","code":"' + code in follower.text
    assert b"secret" not in follower.text
    assert follower.complete()


def test_frames_keep_lines_apart() -> None:
    assert frame(("a", "b", b"")) == b"id: a\nevent: b\ndata: \n\n"


def test_where_a_client_goes_on() -> None:
    def request(**headers: str) -> Request:
        raw = [(key.replace("_", "-").encode(), value.encode("latin-1")) for key, value in headers.items()]
        return Request({"type": "http", "headers": raw})

    assert resume_after(request(), EventsQuery()) == 0
    assert resume_after(request(), EventsQuery(after=5)) == 5
    assert resume_after(request(last_event_id="9"), EventsQuery(after=5)) == 9
    for bad in ("x", "-1", "1" * 30, "\xb2"):
        with pytest.raises(Invalid):
            resume_after(request(last_event_id=bad), EventsQuery())
