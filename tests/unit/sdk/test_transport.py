"""The client's HTTP: what it sends, what it sends again, and what it raises."""

from __future__ import annotations

import select
import socket
import threading
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow import errors
from paddleflow.errors import Conflict, Fault, Invalid, NotFound, PaddleFlowError, Unauthenticated, Unavailable
from paddleflow.sdk.address import Address, Proxy, parse, proxy_of
from paddleflow.sdk.transport import Transport, refusal, segment
from tests.client_stub import Answer, Stub
from tests.patience import eventually
from tests.ports import closed_port


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def transport(stub: Stub, pauses: list[float]) -> Transport:
    return Transport(stub.url, token="secret", sleep=pauses.append)


def test_a_request_carries_token_query_and_body(stub: Stub, transport: Transport) -> None:
    stub.on("POST /queue", {"name": "q"})
    found = transport.call("POST", "/queue", query={"a": "b c&d", "e": None, "f": "", "g": True}, body={"名": "列"})
    assert found == {"name": "q"}
    seen = stub.requests[0]
    assert seen.line == ("POST", "/queue", {"a": "b c&d", "g": "true"}, {"名": "列"})
    assert seen.headers["x-pf-authorization"] == "secret"
    assert seen.headers["content-type"] == "application/json"


def test_an_empty_answer_is_none(stub: Stub, transport: Transport) -> None:
    stub.on("DELETE /queue/q", None)
    assert transport.call("DELETE", "/queue/q") is None


def test_connections_are_used_again(stub: Stub, transport: Transport) -> None:
    stub.on("GET /version", {})
    for _ in range(3):
        transport.call("GET", "/version")
    assert len({seen.port for seen in stub.requests}) == 1
    transport.close()
    transport.call("GET", "/version")
    assert len({seen.port for seen in stub.requests}) == 2


@pytest.mark.parametrize("status", sorted(errors.BY_STATUS))
def test_a_refusal_is_raised_as_the_class_it_was(stub: Stub, status: int) -> None:
    details = [{"where": "members[0].role", "message": "is unknown", "hint": "worker"}, {"where": "", "message": "b"}]
    stub.refuse("GET /x", status, "SomeCode", "what", hint="do this", details=details)
    with pytest.raises(PaddleFlowError) as caught:
        Transport(stub.url, retries=0).call("GET", "/x")
    error = caught.value
    assert type(error) is errors.BY_STATUS[status]
    assert (error.code, error.message, error.hint, error.request_id) == ("SomeCode", "what", "do this", "r-1")
    assert error.details == (Fault("members[0].role", "is unknown", "worker"), Fault("", "b"))


@pytest.mark.parametrize(
    ("status", "kind"), [(418, Invalid), (301, Invalid), (502, Unavailable), (504, Unavailable), (599, errors.Internal)]
)
def test_answers_of_others_become_errors_too(status: int, kind: type[PaddleFlowError]) -> None:
    error = refusal(status, "Reason", b"<html>proxy</html>", "http://s")
    assert type(error) is kind
    assert error.message == f"http://s answered {status} Reason: <html>proxy</html>"


@given(st.integers(300, 599), st.binary(max_size=200))
def test_no_answer_breaks_the_reading_of_refusals(status: int, content: bytes) -> None:
    assert isinstance(refusal(status, "", content, "s"), PaddleFlowError)


def test_a_missing_token_tells_how_to_log_in() -> None:
    error = refusal(401, "", b'{"code": "AuthWithoutToken", "message": "no token", "hint": "send a header"}', "s")
    assert isinstance(error, Unauthenticated)
    assert error.hint == "log in with: paddleflow login"
    wrong = refusal(401, "", b'{"code": "AuthFailed", "message": "wrong", "hint": "3 tries left"}', "s")
    assert wrong.hint == "3 tries left"


def test_something_else_than_json_is_said(stub: Stub, transport: Transport) -> None:
    stub.on("GET /version", b"<html>hello</html>")
    with pytest.raises(Unavailable, match="is it a PaddleFlow server"):
        transport.call("GET", "/version")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_lost_answer_is_asked_for_again(stub: Stub, transport: Transport, pauses: list[float], method: str) -> None:
    stub.on(f"{method} /x", Answer(drop=True), Answer(drop=True), {"ok": 1})
    assert transport.call(method, "/x") == {"ok": 1}
    assert pauses == pytest.approx([0.1, 0.3])


def test_trying_again_has_an_end(stub: Stub, transport: Transport, pauses: list[float]) -> None:
    stub.on("GET /x", Answer(drop=True))
    with pytest.raises(Unavailable, match="closed the connection"):
        transport.call("GET", "/x")
    assert len(stub.requests) == 4
    assert pauses == pytest.approx([0.1, 0.3, 0.9])


def test_what_may_do_harm_is_sent_once(stub: Stub, transport: Transport, pauses: list[float]) -> None:
    stub.on("POST /user", Answer(drop=True), {"username": "x"})
    with pytest.raises(Unavailable) as caught:
        transport.call("POST", "/user", body={})
    assert "not known whether this was done" in caught.value.hint
    assert len(stub.requests) == 1
    assert pauses == []


def test_a_busy_server_is_asked_again_when_it_said(stub: Stub, transport: Transport, pauses: list[float]) -> None:
    busy = Answer({"code": "InternalError", "message": "busy"}, 503, {"Retry-After": "2"})
    stub.on("GET /x", busy, Answer({}, 502), {"ok": 1})
    assert transport.call("GET", "/x") == {"ok": 1}
    assert pauses == pytest.approx([2.0, 0.3])
    stub.on("POST /y", busy)
    with pytest.raises(Unavailable, match="busy"):
        transport.call("POST", "/y", body={})
    assert len(stub.requests) == 4


def test_a_submit_whose_answer_was_lost_counts_as_done(stub: Stub, transport: Transport) -> None:
    conflict = Answer({"code": "JobCreateFailed", "message": "id exists"}, 409)
    stub.on("POST /job/single", Answer(drop=True), conflict)
    assert transport.call("POST", "/job/single", body={"id": "job-1"}, settled=Conflict) is None
    assert [seen.path for seen in stub.requests] == ["/job/single"] * 2


@pytest.mark.parametrize("first", [None, Answer({"message": "busy"}, 503)])
def test_a_conflict_that_was_not_ours_is_raised(stub: Stub, transport: Transport, first: Answer | None) -> None:
    conflict = Answer({"code": "JobCreateFailed", "message": "id exists"}, 409)
    stub.on("POST /job/single", *([first] if first else []), conflict)
    with pytest.raises(Conflict):
        transport.call("POST", "/job/single", body={"id": "job-1"}, settled=Conflict)


def test_a_deletion_whose_answer_was_lost_counts_as_done(stub: Stub, transport: Transport) -> None:
    gone = Answer({"code": "QueueNameNotFound", "message": "none"}, 404)
    stub.on("DELETE /queue/q", Answer(drop=True), gone)
    transport.call("DELETE", "/queue/q", settled=NotFound)
    with pytest.raises(NotFound):
        transport.call("DELETE", "/queue/q", settled=NotFound)


def test_a_connection_that_the_server_closed_is_not_used(stub: Stub, transport: Transport) -> None:
    stub.on("GET /x", Answer({}, hang_up=True))
    stub.on("POST /x", {"ok": 1})
    for _ in range(20):
        transport.call("GET", "/x")
        eventually(lambda: _readable(transport))
        assert transport.call("POST", "/x", body={}) == {"ok": 1}
        transport.close()


def _readable(transport: Transport) -> bool:
    return bool(select.select([transport._idle[0].sock], [], [], 0)[0])


def test_nobody_there(pauses: list[float]) -> None:
    with closed_port() as port, pytest.raises(Unavailable) as caught:
        Transport(f"127.0.0.1:{port}", sleep=pauses.append).call("POST", "/job/single", body={})
    assert "cannot reach http://127.0.0.1:" in caught.value.message
    assert caught.value.hint == "is the server running? start it with: paddleflow server"
    assert len(pauses) == 3, "nothing had been sent, so trying again is safe"


def test_an_unknown_host_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match=r"host a\.\.b is not known"):
        Transport("a..b").call("GET", "/version")

    def unknown(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Unavailable, match="host nowhere is not known: Name or service not known"):
        Transport("nowhere").call("GET", "/version")


def test_https_to_a_plain_server_is_said(stub: Stub) -> None:
    with pytest.raises(Unavailable, match="no secure connection"):
        Transport(stub.url.replace("http:", "https:"), retries=0).call("GET", "/version")


def test_a_late_answer_is_given_up(stub: Stub) -> None:
    answer = threading.Event()
    stub.on("GET /x", Answer({}, wait=answer))
    try:
        with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
            Transport(stub.url, timeout=0.05).call("GET", "/x")
        eventually(lambda: stub.requests)
    finally:
        answer.set()
    assert len(stub.requests) == 1


def test_it_logs_in_by_itself_and_again_when_the_token_ended(stub: Stub) -> None:
    stub.on("POST /login", {"authorization": "one"}, {"authorization": "two"})
    ended = Answer({"code": "AuthInvalidToken", "message": "ended"}, 401)
    stub.on("GET /x", {"n": 1}, ended, {"n": 2})
    transport = Transport(stub.url, credentials=("alice", "pw"))
    assert [transport.call("GET", "/x"), transport.call("GET", "/x")] == [{"n": 1}, {"n": 2}]
    tokens = [(seen.path, seen.headers.get("x-pf-authorization")) for seen in stub.requests]
    assert tokens == [("/login", None), ("/x", "one"), ("/x", "one"), ("/login", None), ("/x", "two")]
    assert stub.requests[0].body == {"username": "alice", "password": "pw"}


def test_a_dead_token_without_password_is_raised(stub: Stub, transport: Transport) -> None:
    stub.refuse("GET /x", 401, "AuthInvalidToken", "ended")
    with pytest.raises(Unauthenticated):
        transport.call("GET", "/x")
    assert len(stub.requests) == 1


def test_a_wrong_password_is_not_tried_twice(stub: Stub) -> None:
    stub.refuse("POST /login", 401, "AuthFailed", "wrong")
    with pytest.raises(Unauthenticated):
        Transport(stub.url, credentials=("alice", "pw")).call("GET", "/x")
    assert len(stub.requests) == 1


def test_a_login_without_token_is_said(stub: Stub, transport: Transport) -> None:
    stub.on("POST /login", {"hello": 1})
    with pytest.raises(Unavailable, match="without a token"):
        transport.login("a", "b")


@given(st.text(min_size=1))
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    try:
        part = segment(name)
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    assert "/" not in part
    assert unquote(part) == name


def test_an_empty_name_does_not_address_the_collection() -> None:
    with pytest.raises(Invalid, match="empty"):
        segment("")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("train", Address(False, "train", 8999)),
        ("train:80", Address(False, "train", 80)),
        ("http://train", Address(False, "train", 80)),
        ("https://train/pf/", Address(True, "train", 443, "/pf")),
        (" http://[::1]:9 ", Address(False, "::1", 9)),
        ("httpd:1", Address(False, "httpd", 1)),
    ],
)
def test_addresses_as_people_write_them(text: str, address: Address) -> None:
    assert parse(text) == address
    assert parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "x:port", "x:99999", "http://u:p@x", "x?a=b"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not of the form"):
        parse(text)


# ---- proxies


def proxies(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_plain_request_goes_through_the_proxy(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    proxies(monkeypatch, http_proxy=stub.url.replace("//", "//me:se%40cret@"))
    stub.on("GET /version", {"gitVersion": "2"})
    assert Transport("http://train.example:8999").call("GET", "/version") == {"gitVersion": "2"}
    headers = stub.requests[0].headers
    assert (headers["host"], headers["proxy-authorization"]) == ("train.example:8999", "Basic bWU6c2VAY3JldA==")


@pytest.mark.parametrize(
    ("server", "bypassed", "wanted"),
    [
        ("http://a.example", "", Proxy("p", 3128)),
        ("https://a.example", "", Proxy("s", 8443)),
        ("http://127.0.0.1:8999", "", None),
        ("http://localhost", "", None),
        ("http://a.example", "b.example, .example", None),
        ("http://a.example:8999", "a.example:80", Proxy("p", 3128)),
        ("http://a.example:8999", "a.example:8999", None),
        ("http://notexample", "example", Proxy("p", 3128)),
        ("http://a.example", "*", None),
    ],
)
def test_which_proxy(monkeypatch: pytest.MonkeyPatch, server: str, bypassed: str, wanted: Proxy | None) -> None:
    proxies(monkeypatch, HTTP_PROXY="http://p:3128", https_proxy="s:8443", no_proxy=bypassed)
    assert proxy_of(parse(server)) == wanted


def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    proxies(monkeypatch, HTTP_PROXY="socks5://p:1080")
    with pytest.raises(Invalid, match="HTTP_PROXY is 'socks5://p:1080'"):
        proxy_of(parse("http://a.example"))


def test_a_hint_that_ends_the_message_is_given_once() -> None:
    body = b'{"code": "QueueIsInUse", "message": "it is so (hint: wait)", "hint": "wait", "requestID": "r"}'
    error = refusal(409, "Conflict", body, "here")
    assert (error.message, error.hint) == ("it is so", "wait")
    plain = refusal(409, "Conflict", b'{"code": "QueueIsInUse", "message": "it is so (hint: wait)"}', "here")
    assert plain.message == "it is so (hint: wait)"
