"""What every route has in common: paths, headers, bodies, queries, refusals, health, metrics. Over routes made for it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from pydantic import Field
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message

from paddleflow.api import users
from paddleflow.api.application import build
from paddleflow.api.paging import PageQuery, Query, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Caller, NoBody, NoQuery, Route, Socket
from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import encode_marker
from paddleflow.errors import Conflict, Unavailable
from paddleflow.settings import ServerSettings, Settings
from paddleflow.spec import wire
from paddleflow.spec.document import Document
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database
from tests.api.client import Api


@pytest.fixture
def database_url() -> str:
    """Nothing here depends on the engine."""
    return ""


class Thing(Document):
    name: str = Field(max_length=1000)
    count: int = 0
    user_name: str = ""
    more: dict[str, object] = Field(default_factory=dict)


class ThingQuery(Query):
    name: str = ""
    count: int = 0
    username: str = ""


async def echo(platform: Platform, call: Call[Thing, NoQuery]) -> dict[str, object]:
    return {"name": call.body.name, "count": call.body.count, "caller": call.caller.name}


async def maybe(platform: Platform, call: Call[Thing | None, NoQuery]) -> wire.Name:
    return {"name": call.body.name if call.body else "(none)"}


async def asked(platform: Platform, call: Call[NoBody, ThingQuery]) -> dict[str, object]:
    return {"name": call.query.name, "count": call.query.count}


async def shown(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Name:
    return {"name": call.path["name"]}


async def fixed(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Name:
    return {"name": "(fixed)"}


async def nothing(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    return None


async def raw(platform: Platform, call: Call[NoBody, NoQuery]) -> bytes:
    return b'{"name": "raw"}'


async def response(platform: Platform, call: Call[NoBody, NoQuery]) -> Response:
    return PlainTextResponse("hello", 202)


async def broken(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    raise RuntimeError("secret detail")


async def broken_off(platform: Platform, call: Call[NoBody, NoQuery]) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise Unavailable("the store has gone")

    return StreamingResponse(pieces(), media_type="text/plain")


async def conflict(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    raise Conflict("it is so", code="QueueIsInUse", hint="wait")


class Row(NamedTuple):
    seq: int


async def listed(platform: Platform, call: Call[NoBody, PageQuery]) -> dict[str, object]:
    rows = [Row(number) for number in range(1, 6) if number > call.query.after][: call.query.limit]
    found, truncated, marker = page(rows, call.query)
    return {**page_fields(call.query, truncated, marker), "rows": [row.seq for row in found]}


@pytest.fixture
def routes() -> list[Route]:
    return [
        *users.ROUTES,
        Route("POST", "/thing", echo, "x", body=Thing, answer=wire.Name, status=201),
        Route("PUT", "/thing", maybe, "x", body=Thing, answer=wire.Name, body_optional=True),
        Route("GET", "/thing", asked, "x", query=ThingQuery, answer=wire.Name),
        Route("GET", "/thing/{name}", shown, "x", answer=wire.Name),
        Route("GET", "/thing/fixed", fixed, "x", answer=wire.Name),
        Route("DELETE", "/thing/{name}", nothing, "x"),
        Route("GET", "/thing/{kind}/part/{name}", shown, "x", answer=wire.Name),
        Route("GET", "/raw", raw, "x", answer=wire.Name),
        Route("GET", "/response", response, "x", answer=str, media_type="text/plain", status=202),
        Route("GET", "/broken", broken, "x"),
        Route("GET", "/broken-off", broken_off, "x", answer=str, media_type="text/plain"),
        Route("GET", "/conflict", conflict, "x", errors=("QueueIsInUse",)),
        Route("GET", "/listed", listed, "x", query=PageQuery),
    ]


# ---- paths and answers --------------------------------------------------------------------------------------------


async def test_unknown_paths_and_methods(nobody: Api) -> None:
    (await nobody.get("/nothing")).refused(404, "PathNotFound")
    (await nobody.call("GET", "/thing", absolute=True)).refused(404, "PathNotFound")
    (await nobody.get("/thing/")).refused(404, "PathNotFound")
    (await nobody.get("/thing/a/b")).refused(404, "PathNotFound")
    answer = await nobody.call("PATCH", "/thing")
    answer.refused(405, "MethodNotAllowed")
    assert answer.headers["allow"] == "GET, HEAD, POST, PUT"
    assert (await nobody.call("POST", "/thing/fixed")).headers["allow"] == "DELETE, GET, HEAD"


async def test_head_is_get_without_the_body(alice: Api, nobody: Api) -> None:
    for path in ("/thing/fixed", "/raw", "/thing/nothing/here"):
        got, head = await alice.get(path), await alice.call("HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
        assert head.headers["content-type"] == got.headers["content-type"]
    assert (await nobody.call("HEAD", "/thing/fixed")).status == 401
    assert (await nobody.call("HEAD", "/metrics", absolute=True)).headers["content-type"].startswith("text/plain")


async def test_segments_of_the_path(alice: Api) -> None:
    assert (await alice.get("/thing/fixed")).ok() == {"name": "(fixed)"}
    assert (await alice.delete("/thing/fixed")).ok() is None  # the static one has no DELETE
    assert (await alice.get("/thing/other")).ok() == {"name": "other"}
    assert (await alice.get("/thing/a%2Fb%20c%C3%A4")).ok() == {"name": "a/b cä"}
    assert (await alice.get("/thing/..")).ok() == {"name": ".."}
    assert (await alice.get("/thing/a/part/b%25")).ok() == {"name": "b%"}
    assert (await alice.get("/thing/%66ixed")).ok() == {"name": "(fixed)"}
    for bad in ("/thing/%00", "/thing/%ff", "/thing/a%0ab", "/thing/%ed%a0%80"):
        (await alice.get(bad)).refused(400, "InvalidURI")


async def test_kinds_of_answers(alice: Api) -> None:
    made = await alice.post("/thing", {"name": "x"})
    assert made.ok(201) == {"name": "x", "count": 0, "caller": "alice"}
    assert made.headers["content-type"] == "application/json"
    empty = await alice.delete("/thing/x")
    assert (empty.status, empty.body, empty.headers["content-length"]) == (200, b"", "0")
    assert (await alice.get("/raw")).ok() == {"name": "raw"}
    own = await alice.get("/response")
    assert (own.status, own.body, own.headers["x-pf-request-id"] != "") == (202, b"hello", True)


async def test_the_request_id_is_echoed_or_made(alice: Api) -> None:
    given = await alice.call("GET", "/conflict", headers={"x-pf-request-id": "mine-1"})
    body = given.refused(409, "QueueIsInUse")
    assert body == {"requestID": "mine-1", "code": "QueueIsInUse", "message": "it is so (hint: wait)", "hint": "wait"}
    for bad in ("a b", "x" * 129, "\xe4", ""):
        answer = await alice.call("GET", "/raw", headers={"x-pf-request-id": bad})
        assert len(answer.headers["x-pf-request-id"]) == 36
    assert len({(await alice.get("/raw")).headers["x-pf-request-id"] for _ in range(20)}) == 20


async def test_an_answer_that_breaks_off_after_its_status_is_left_unfinished_and_logged_as_one_line(
    alice: Api, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []
    await alice.call("GET", "/broken-off", sent=sent)
    assert sent[-1] == {"type": "http.response.body", "body": b"one", "more_body": True}
    (line,) = [record for record in caplog.records if record.name == "paddleflow.api"]
    assert line.message.endswith("/broken-off broke off: the store has gone")
    assert line.exc_info is None


async def test_a_fault_of_ours_names_the_request_and_hides_the_rest(
    alice: Api, caplog: pytest.LogCaptureFixture
) -> None:
    answer = (await alice.get("/broken")).refused(500, "InternalError")
    assert "secret detail" not in str(answer)
    assert "secret detail" in caplog.text
    assert "Traceback" in caplog.text


async def test_access_lines_only_at_debug(alice: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "paddleflow.api"):
        await alice.get("/raw")
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "paddleflow.api"):
        await alice.get("/raw")
    (line,) = [getattr(record, "fields", {}) for record in caplog.records]
    assert line.pop("ms") >= 0
    assert line == {"method": "GET", "path": "/api/paddleflow/v1/raw", "status": 200}


# ---- bodies -------------------------------------------------------------------------------------------------------


async def test_bodies_that_are_not_what_is_wanted(alice: Api) -> None:
    for body, code in (
        (None, "MalformedJSON"),
        (b"  ", "MalformedJSON"),
        (b"{", "MalformedJSON"),
        (b"\xff\xfe", "MalformedJSON"),
        ('{"name": "x"}'.encode("utf-16"), "MalformedJSON"),
        (b"[" * 100_000, "MalformedJSON"),
        (b"[]", "InappropriateJSON"),
        (b"null", "InappropriateJSON"),
        (b'"x"', "InappropriateJSON"),
        (b'{"name": "a\\u0000b"}', "InappropriateJSON"),
        (b'{"name": "a", "more": {"k": ["\\ud800"]}}', "InappropriateJSON"),
        (b'{"name": "a", "more": {"k\\u0000": 1}}', "InappropriateJSON"),
    ):
        (await alice.post("/thing", body)).refused(400, code)
    assert (await alice.post("/thing", b'{"name": "\\ud83d\\ude00 \\\\u0000"}')).ok(201)["name"] == "😀 \\u0000"


async def test_keys_in_any_capitals_and_all_faults_at_once(alice: Api) -> None:
    assert (await alice.post("/thing", {"NAME": "x", "cOUNT": 3})).ok(201)["count"] == 3
    answer = (await alice.post("/thing", {"nam": "x", "count": "many"})).refused(400, "InvalidArguments")
    assert {fault["where"] for fault in answer["details"]} == {"nam", "count", "name"}
    assert "did you mean name?" in str(answer["details"])
    twice = (await alice.post("/thing", {"name": "x", "Name": "y"})).refused(400, "InvalidArguments")
    assert "twice" in twice["message"]


async def test_unknown_fields_are_ignored_when_the_setting_says_so(
    alice: Api, database: Database, clock: ManualClock, routes: list[Route]
) -> None:
    settings = Settings(server=ServerSettings(unknown_fields="ignore"))
    loose = Platform(settings=settings, database=database, clock=clock, bus=LocalBus())
    client = Api(build(loose, [routes]), routes, alice.token)
    assert (await client.post("/thing", {"name": "x", "other": 1})).ok(201)["name"] == "x"
    (await alice.post("/thing", {"name": "x", "other": 1})).refused(400, "InvalidArguments")


async def test_a_body_that_may_be_left_out(alice: Api) -> None:
    for body in (None, b" ", b"null"):
        assert (await alice.put("/thing", body)).ok() == {"name": "(none)"}
    assert (await alice.put("/thing", {"name": "x"})).ok() == {"name": "x"}
    (await alice.put("/thing", b"{")).refused(400, "MalformedJSON")


async def test_a_body_over_the_limit_is_not_read(alice: Api) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""  # type: ignore[unreachable]  # makes it a generator

    answer = await alice.call("POST", "/thing", headers={"content-length": "1000001"}, chunks=never())
    answer.refused(413, "InvalidHTTPRequest")
    huge = await alice.call("POST", "/thing", headers={"content-length": "9" * 40}, chunks=never())
    huge.refused(413, "InvalidHTTPRequest")


async def test_a_body_in_pieces_is_read_up_to_the_limit(alice: Api) -> None:
    read = 0

    async def pieces(count: int) -> AsyncIterator[bytes]:
        nonlocal read
        yield b'{"name": "x", "more": {"k": "'
        for _ in range(count):
            read += 1
            yield b"y" * 100_000
        yield b'"}}'

    (await alice.call("POST", "/thing", chunks=pieces(9))).ok(201)
    read = 0
    (await alice.call("POST", "/thing", chunks=pieces(10**6))).refused(413, "InvalidHTTPRequest")
    assert read <= 11


async def test_a_client_that_goes_in_the_middle_of_its_body_gets_nothing(alice: Api, app: ASGIApp) -> None:
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    path = "/api/paddleflow/v1/thing"
    headers = [(b"x-pf-authorization", alice.token.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    assert sent == []


# ---- queries ------------------------------------------------------------------------------------------------------


async def test_queries(alice: Api) -> None:
    assert (await alice.get("/thing?NAME=a%20b&count=7&unknown=1&unknown=2")).ok() == {"name": "a b", "count": 7}
    assert (await alice.get("/thing?name=&count=")).ok() == {"name": "", "count": 0}
    for bad in ("name=a&name=b", "name=a&Name=b", "count=x", "name=%00", "name=%ff", "&".join(["a=1"] * 101)):
        (await alice.get(f"/thing?{bad}")).refused(400, "InvalidURI")


async def test_pages(alice: Api) -> None:
    first = (await alice.get("/listed", maxKeys=2)).ok()
    assert first == {"maxKeys": 2, "isTruncated": True, "nextMarker": encode_marker(2), "rows": [1, 2]}
    last = (await alice.get("/listed", MAXKEYS=3, marker=first["nextMarker"])).ok()
    assert last == {"maxKeys": 3, "isTruncated": False, "rows": [3, 4, 5]}
    assert (await alice.get("/listed")).ok()["maxKeys"] == 50
    for bad in (0, 1001, -1, "x", "1.5"):
        (await alice.get("/listed", maxKeys=bad)).refused(400, "InvalidURI")
    for marker in ("x", "zz", encode_marker(5)[:-1] + "x", encode_marker(2**80)):
        (await alice.get("/listed", marker=marker)).refused(400, "InvalidMarker")


async def test_only_root_names_another_user(root: Api, alice: Api) -> None:
    (await alice.post("/thing", {"name": "x", "userName": "bobby"})).refused(403, "AuthIllegalUser")
    (await alice.post("/thing", {"name": "x", "USERNAME": "Alice"})).refused(403, "AuthIllegalUser")
    (await alice.post("/thing", {"name": "x", "userName": "alice"})).ok(201)
    (await alice.post("/thing", {"name": "x", "userName": ""})).ok(201)
    (await root.post("/thing", {"name": "x", "userName": "bobby"})).ok(201)
    (await alice.get("/thing", userName="bobby")).refused(403, "AuthIllegalUser")
    (await alice.get("/thing/fixed", username="bobby")).refused(403, "AuthIllegalUser")
    (await alice.get("/thing", username="alice")).ok()
    (await root.get("/thing", username="bobby")).ok()


# ---- metrics ---------------------------------------------------------------------------------------------------------


async def test_metrics_count_requests_by_route_and_status(alice: Api, nobody: Api) -> None:
    for name in ("a", "b", "c"):
        await alice.get(f"/thing/{name}")
    await alice.get("/nothing/at/all")
    await nobody.get("/thing/x")
    answer = await nobody.call("GET", "/metrics", absolute=True)
    text = answer.body.decode()
    path = "/api/paddleflow/v1/thing/{name}"
    name = "pf_metric_api_duration_millisecond"
    assert f'{name}_count{{method="GET",path="{path}",status="200"}} 3.0' in text
    assert f'{name}_count{{method="GET",path="{path}",status="401"}} 1.0' in text
    assert f'{name}_bucket{{le="+Inf",method="GET",path="{path}",status="200"}} 3.0' in text
    assert f'{name}_count{{method="any",path="unknown",status="404"}} 1.0' in text
    assert answer.headers["content-type"].startswith("text/plain")


# ---- websockets and lifespan --------------------------------------------------------------------------------------


async def test_websockets_are_authenticated_first(
    alice: Api, settings: Settings, database: Database, clock: ManualClock
) -> None:
    async def hello(platform: Platform, caller: Caller, websocket: object) -> None:
        seen.append(caller.name)

    seen: list[str] = []
    platform = Platform(settings=settings, database=database, clock=clock, bus=LocalBus())
    app = build(platform, [], [Socket("/ws", hello, "x")])
    prefix = "/api/paddleflow/v1"
    assert await _opened(app, f"{prefix}/ws", alice.token) == []
    assert seen == ["alice"]
    assert (await _opened(app, f"{prefix}/ws", ""))[0]["status"] == 401
    assert (await _opened(app, f"{prefix}/other", alice.token))[0]["status"] == 404
    assert (await _opened(app, f"{prefix}/ws", "", extensions={}))[0]["type"] == "websocket.close"
    assert seen == ["alice"]


async def _opened(app: ASGIApp, path: str, token: str, extensions: dict[str, object] | None = None) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"x-pf-authorization", token.encode())]
    known: dict[str, object] = {"websocket.http.response": {}} if extensions is None else extensions
    scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "extensions": known}
    await app(scope, receive, send)
    return sent


async def test_lifespan(app: ASGIApp) -> None:
    messages: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


# ---- tables that lie ----------------------------------------------------------------------------------------------


def test_tables_that_lie_are_refused(platform: Platform) -> None:
    route = Route("GET", "/a", nothing, "x")
    with pytest.raises(ValueError, match="twice"):
        build(platform, [[route, route]])
    with pytest.raises(ValueError, match="409 NobodyKnows"):
        build(platform, [[Route("GET", "/a", nothing, "x", errors=("NobodyKnows",))]])
