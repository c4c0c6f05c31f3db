"""Bounds that hold for every request (``docs/internals/limits.md``): bodies, faults, streams and their tokens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddleflow.api import bodies, events, jobs, users
from paddleflow.api.application import PIECE
from paddleflow.api.fair_use import READS
from paddleflow.api.platform import Platform
from paddleflow.api.routing import PREFIX, Call, NoBody, NoQuery, Route
from paddleflow.errors import MOST_FAULTS, Fault, Invalid
from paddleflow.spec import wire
from paddleflow.spec.document import Document, decode
from tests.api.client import Api
from tests.api.workshop import TINY
from tests.patience import soon

NAMES: list[str] = []
LARGE = 300_000  #: bytes of a large answer
SLOW: list[asyncio.Event] = []  #: until when a slow handler waits


class Things(Document):
    """A list of things."""

    things: list[int]


def read_things(kind: type[Things], body: bytes, *, ignore_unknown: bool) -> Things:
    NAMES.append(threading.current_thread().name)
    return decode(kind, body, ignore_unknown=ignore_unknown)


async def count(platform: Platform, call: Call[Things, NoQuery]) -> dict[str, object]:
    return {"count": len(call.body.things)}


async def wait(platform: Platform, call: Call[Any, NoQuery]) -> dict[str, object]:
    NAMES.append(call.caller.name)
    await SLOW[0].wait()
    return {"name": "slow"}


async def large(platform: Platform, call: Call[NoBody, NoQuery]) -> bytes:
    NAMES.append(call.caller.name)
    return b" " * LARGE


@pytest.fixture
def database_url() -> str:
    """Nothing here depends on the engine."""
    return ""


@pytest.fixture
def routes() -> list[Route]:
    return [
        *users.ROUTES,
        *jobs.ROUTES,
        *events.ROUTES,
        Route("GET", "/large", large, "x", answer=wire.Name),
        Route("GET", "/slow", wait, "x", answer=wire.Name),
        Route("POST", "/slow", wait, "x", body=Things, answer=wire.Name),
        Route("POST", "/things", count, "x", body=Things, reader=read_things, answer=wire.Name),
        Route("POST", "/many", count, "x", body=Things, bulk=True, reader=read_things, answer=wire.Name),
    ]


async def test_who_is_not_known_sends_little(nobody: Api) -> None:
    body = json.dumps({"username": "alice", "password": "x" * 70_000}).encode()
    answer = (await nobody.post("/login", body)).refused(413, "InvalidHTTPRequest")
    assert "65536 bytes" in answer["message"]


async def test_a_million_faults_are_a_short_answer(alice: Api) -> None:
    body = {f"unknown{number}": number for number in range(40_000)}
    answer = (await alice.post("/things", body)).refused(400, "InvalidArguments")
    assert len(answer["details"]) == MOST_FAULTS + 1
    assert answer["details"][-1]["message"] == "… and 39,901 more"  # one of them: things is missing
    assert len(json.dumps(answer)) < 50_000
    wrong = (await alice.post("/things", {"things": ["x"] * 50_000})).refused(400, "InvalidArguments")
    assert wrong["details"][-1]["message"].startswith("… and 49,9")
    assert len(json.dumps(wrong)) < 50_000


def test_each_fault_is_short() -> None:
    told = Invalid.of([Fault("x" * 5000, "y" * 5000), Fault("a", "b")])
    assert [len(fault.where) for fault in told.details] == [200, 1]
    assert [len(fault.message) for fault in told.details] == [1000, 1]


async def test_a_large_body_is_decoded_off_the_loop_and_a_small_one_on_it(alice: Api) -> None:
    NAMES.clear()
    assert (await alice.post("/things", {"things": [1]})).ok() == {"count": 1}
    assert (await alice.post("/things", {"things": [1] * 20_000})).ok() == {"count": 20_000}
    assert NAMES[0] == threading.current_thread().name
    assert NAMES[1].startswith("computing")


async def test_the_number_of_values_is_bounded(alice: Api) -> None:
    answer = (await alice.post("/many", {"things": [1] * (bodies.MOST_VALUES + 1)})).refused(413, "InvalidHTTPRequest")
    assert f"at most {bodies.MOST_VALUES}" in answer["message"]


async def test_bulk_routes_take_more(alice: Api) -> None:
    body = json.dumps({"things": [1]}).encode() + b" " * 1_500_000
    (await alice.post("/things", body)).refused(413, "InvalidHTTPRequest")
    assert (await alice.post("/many", body)).ok() == {"count": 1}


async def test_a_user_has_few_requests_in_work_and_others_do_not_wait_for_them(alice: Api, root: Api) -> None:
    NAMES.clear()
    SLOW[:] = [asyncio.Event()]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(alice.get("/slow")) for _ in range(READS + 3)]
        await soon(lambda: len(NAMES) >= READS)
        (await root.get("/user")).ok()
        assert NAMES == ["alice"] * READS
        SLOW[0].set()
    assert [call.result().status for call in calls] == [200] * len(calls)


async def test_an_answer_that_is_not_taken_keeps_its_place(alice: Api) -> None:
    """What a client does not read stays in memory: of one user, no more than a few answers."""
    taken = asyncio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)
        await taken.wait()

    scope = {
        "type": "http", "method": "GET", "path": f"{PREFIX}/large", "query_string": b"",
        "headers": [(b"x-pf-authorization", alice.token.encode())],
    }  # fmt: skip
    NAMES.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(READS + 3):
            group.create_task(_run(alice.app, dict(scope), receive, send))
        await soon(lambda: len(sent) == READS)
        assert len(NAMES) == READS
        taken.set()
    pieces = [len(message["body"]) for message in sent if message["type"] == "http.response.body"]
    assert max(pieces) == PIECE
    assert sum(pieces) == (READS + 3) * LARGE


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def test_a_user_has_few_large_bodies_at_once(alice: Api, root: Api) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"things": ['
        await gate.wait()
        yield b"1]}"

    async with asyncio.TaskGroup() as group:
        sent: list[list[Message]] = [[] for _ in range(bodies.LARGE_PER_USER)]
        held = [group.create_task(alice.call("POST", "/things", chunks=slow(), sent=each)) for each in sent]
        await soon(lambda: alice_is_held(alice) == bodies.LARGE_PER_USER)
        refused = await alice.call("POST", "/things", chunks=slow())
        assert "of user[alice]" in refused.refused(429, "TooManyRequests")["message"]
        (await alice.post("/things", {"things": []})).ok()
        (await root.post("/things", {"things": [1] * 20_000})).ok()
        gate.set()
    assert all(task.result().ok() == {"count": 1} for task in held)
    (await alice.post("/things", {"things": [1] * 20_000})).ok()


async def test_a_body_of_unknown_size_is_in_memory_until_it_is_answered(alice: Api, root: Api) -> None:
    """What one user's slow handlers hold is bounded: further bodies are not read before an earlier one is answered."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"things": ['
        yield b"1]}"

    NAMES.clear()
    SLOW[:] = [asyncio.Event()]
    async with asyncio.TaskGroup() as group:
        posts = [group.create_task(alice.call("POST", "/slow", chunks=body())) for _ in range(bodies.HELD_PER_USER + 3)]
        await soon(lambda: len(NAMES) >= bodies.HELD_PER_USER)
        (await root.call("POST", "/things", chunks=body())).ok()
        assert NAMES.count("alice") == bodies.HELD_PER_USER
        SLOW[0].set()
    assert [post.result().status for post in posts] == [200] * len(posts)


def alice_is_held(client: Api) -> int:
    app: Any = client.app
    return int(app._bodies._large["alice"])


async def test_a_body_that_does_not_come_is_refused(alice: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    app: Any = alice.app
    settings = app._bodies._settings
    monkeypatch.setattr(app._bodies, "_settings", type(settings)(max_body=settings.max_body, body_timeout=0.01))
    answer = (await alice.call("POST", "/things", chunks=never())).refused(408, "InvalidHTTPRequest")
    assert "0.01 s" in answer["message"]


@pytest.mark.usefixtures("ready")
async def test_a_stream_ends_with_its_token(alice: Api, root: Api) -> None:
    (await alice.post("/job/single", {"id": "one", "command": "x", "flavour": TINY})).ok()
    sent: list[Message] = []
    async with asyncio.TaskGroup() as group:
        stream = group.create_task(alice.call("GET", "/job/one/events", sent=sent))
        await soon(lambda: any(b"init" in message.get("body", b"") for message in sent))
        assert not stream.done()
        (await alice.post("/logout")).ok()
        await stream
    assert sent[-1] == {"type": "http.response.body", "body": b""}
    (await root.get("/job/one")).ok()


@pytest.mark.usefixtures("ready")
async def test_a_large_batch_of_faults_is_not_read_to_its_end(alice: Api) -> None:
    wrong = [{"command": "x", "flavour": {"cpu": "x"}, "nope": number} for number in range(5000)]
    answer = (await alice.post("/job/batch", {"jobs": wrong})).refused(400, "JobInvalidField")
    assert answer["details"][0]["where"].startswith("jobs[0].")
    assert answer["details"][-1]["message"].endswith("further jobs were not checked")
    assert len(answer["details"]) <= MOST_FAULTS
