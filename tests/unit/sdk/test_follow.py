"""Following events and logs: nothing lost, nothing twice, whatever happens to the connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Internal, NotFound, Unavailable
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.follow import Event, parse_events
from paddleflow.sdk.jobs import Job
from paddleflow.sdk.transport import Patience, Transport
from tests.client_stub import Answer, Stub

EVENTS, LOG = "GET /job/job-1/events", "GET /job/job-1/log"


def frame(seq: int, status: str, message: str = "", kind: str = "status") -> bytes:
    data = json.dumps({"at": "2026-11-16T10:00:00.500Z", "status": status, "message": message})
    return f"id: {seq}\nevent: {kind}\ndata: {data}\n\n".encode()


def record(status: str, **more: object) -> dict[str, object]:
    return {"id": "job-1", "status": status, **more}


@pytest.fixture
def patience() -> Patience:
    return Patience()


@pytest.fixture
def job(stub: Stub, patience: Patience) -> Job:
    """Its pauses take no time."""
    transport = Transport(stub.url, token="t", sleep=lambda seconds: None, patience=patience)
    return PaddleFlow(transport).jobs.handle("job-1")


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


@given(st.lists(st.text(), max_size=5), st.lists(st.integers(0, 40), max_size=20))
def test_events_are_the_same_however_they_are_cut(messages: list[str], sizes: list[int]) -> None:
    frames = [f"id: {n}\nevent: task\ndata: {json.dumps({'message': text})}\n\n" for n, text in enumerate(messages)]
    data = (": keep-alive\n\n" + "".join(frames)).encode()
    found = list(parse_events(part for part in cut(data, sizes) if part))
    assert [(event.seq, event.type, event.message) for event in found] == [
        (n, "task", text) for n, text in enumerate(messages)
    ]


def test_an_event_is_read_as_the_standard_says() -> None:
    data = b'id:7\r\ndata:{\r\ndata:"status": "running", "at": 5}\r\n\r\ndata: words\n\nid: 8\n\nevent: x\ndata: 1'
    found = list(parse_events(iter([data])))
    assert [(event.seq, event.type, event.status, event.at, event.message) for event in found] == [
        (7, "status", "running", 5.0, ""),
        (0, "status", "", None, "words"),
    ], "no event for an id alone, nor for one that is not whole"


def test_events_go_on_behind_the_last_one_seen(stub: Stub, job: Job) -> None:
    stub.on(
        EVENTS,
        Answer(chunks=[frame(1, "init"), frame(2, "pending", "waits for 2 cpu")[:-3]], cut=True),
        Answer(drop=True),
        Answer({"message": "busy"}, 503),
        Answer(chunks=[b": stream\n\n", frame(2, "pending", "waits for 2 cpu")]),
        Answer(chunks=[frame(3, "running"), frame(4, "succeeded"), frame(5, "never")]),
    )
    stub.on("GET /job/job-1", record("pending"))
    found = list(job.events())
    assert [(event.seq, event.status) for event in found] == [
        (1, "init"), (2, "pending"), (3, "running"), (4, "succeeded"),
    ]  # fmt: skip
    assert found[1] == Event(seq=2, at=1794823200.5, status="pending", message="waits for 2 cpu")
    asked = [seen.query for seen in stub.requests if seen.path.endswith("/events")]
    assert [(query["after"], query["follow"]) for query in asked] == [
        ("0", "true"), ("1", "true"), ("1", "true"), ("1", "true"), ("2", "true"),
    ]  # fmt: skip


def test_history_only(stub: Stub, job: Job) -> None:
    stub.on(EVENTS, Answer(chunks=[frame(8, "running")]))
    assert [event.seq for event in job.events(7, follow=False)] == [8]
    assert stub.lines() == [("GET", "/job/job-1/events", {"after": "7", "follow": "false"}, None)]


def test_a_stream_behind_the_last_event_ends(stub: Stub, job: Job) -> None:
    stub.on(EVENTS, Answer(chunks=[]))
    stub.on("GET /job/job-1", record("failed"))
    assert list(job.events(99)) == []


def test_an_error_in_the_stream_is_raised(stub: Stub, job: Job) -> None:
    stub.on(EVENTS, Answer(chunks=[b'event: error\ndata: {"code": "InternalError", "message": "broke"}\n\n']))
    with pytest.raises(Internal, match="broke"):
        list(job.events())


def test_a_job_that_is_not_there(stub: Stub, job: Job) -> None:
    stub.refuse(EVENTS, 404, "JobNotFound", "none")
    with pytest.raises(NotFound):
        list(job.events())


@pytest.mark.parametrize("patience", [Patience(unreachable=0.05)])
def test_following_gives_up_when_nobody_answers(stub: Stub, job: Job) -> None:
    stub.on(EVENTS, Answer(drop=True))
    with pytest.raises(Unavailable):
        list(job.events())


@pytest.mark.parametrize("patience", [Patience(silence=0.05)])
def test_silence_is_answered_by_asking_again(stub: Stub, job: Job) -> None:
    never = threading.Event()
    stub.on(EVENTS, Answer(chunks=[frame(1, "init"), never]), Answer(chunks=[frame(2, "succeeded")]))
    try:
        assert [event.seq for event in job.events()] == [1, 2]
    finally:
        never.set()


def test_waiting_tells_and_returns_the_result(stub: Stub, job: Job) -> None:
    stub.on(EVENTS, Answer(chunks=[frame(1, "pending", "why"), frame(2, "failed", "exit code 3")]))
    stub.on("GET /job/job-1", record("failed", message="exit code 3"))
    told: list[str] = []
    assert job.wait(on_event=lambda event: told.append(event.status)) is job
    assert (told, job.status, job.finished, job.succeeded) == (["pending", "failed"], "failed", True, False)
    assert repr(job) == "Job('job-1', status='failed')"


def test_waiting_has_an_end(stub: Stub, job: Job) -> None:
    never = threading.Event()
    stub.on(EVENTS, Answer(chunks=[frame(1, "running"), never]))
    stub.on("GET /job/job-1", record("running"))
    try:
        with pytest.raises(TimeoutError, match=r"job\[job-1\] is still running after 0\.1 s"):
            job.wait(0.1)
    finally:
        never.set()


def test_a_log_to_its_present_end(stub: Stub, job: Job) -> None:
    stub.on(LOG, Answer(b"a\nb" + "é\nlast".encode()))
    assert list(job.logs()) == ["a\n", "bé\n", "last"]
    assert stub.lines() == [("GET", "/job/job-1/log", {"follow": "false"}, None)]


def test_the_log_of_a_task_goes_on_behind_its_last_whole_line(stub: Stub, job: Job) -> None:
    at = {"x-pf-log-offset": "100"}
    stub.on(
        LOG,
        Answer(chunks=[b"one\ntw"], cut=True, headers=at),
        Answer(chunks=[b"two\nthr"], headers={"x-pf-log-offset": "104"}),
        Answer(chunks=[b"three\n", b"four"], headers={"x-pf-log-offset": "108"}),
    )
    running = {"distributedRuntime": {"runtimes": [{"role": "worker", "index": 1, "status": "running"}]}}
    over = {"distributedRuntime": {"runtimes": [{"role": "worker", "index": 1, "status": "succeeded"}]}}
    stub.on("GET /job/job-1", record("running", **running), record("running", **over))
    assert list(job.logs(True, task="worker-1", offset=-12)) == ["one\n", "two\n", "three\n", "four"]
    asked = [seen.query for seen in stub.requests if seen.path.endswith("/log")]
    assert [query["offset"] for query in asked] == ["-12", "104", "108"]
    assert all(query["task"] == "worker-1" for query in asked)


def test_a_joined_log_is_read_again_without_repeating(stub: Stub, job: Job) -> None:
    stub.on(
        LOG,
        Answer(chunks=[b"[worker-0] a\n[worker-1] a\n", b"[worker-1] b\n[worker-0] hal"], cut=True),
        Answer(chunks=[b"[worker-1] a\n[worker-1] b\n[worker-0] a\n[worker-0] half\n[worker-1] c\n"]),
    )
    stub.on("GET /job/job-1", record("succeeded"))
    assert list(job.logs(follow=True)) == [
        "[worker-0] a\n", "[worker-1] a\n", "[worker-1] b\n", "[worker-0] half\n", "[worker-1] c\n",
    ]  # fmt: skip
    assert "offset" not in stub.requests[-2].query


def test_a_line_that_the_server_cut_is_given_again_whole(stub: Stub, job: Job) -> None:
    stub.on(
        LOG,
        Answer(chunks=[b"[worker-0] a\n[worker-0] b\n[worker-0] cu\n"]),
        Answer(chunks=[b"[worker-0] a\n[worker-0] b\n[worker-0] cut\n[worker-0] d\n"]),
    )
    stub.on("GET /job/job-1", record("running"), record("succeeded"))
    assert "".join(job.logs(follow=True)).replace("[worker-0] ", "").split() == ["a", "b", "cu", "cut", "d"]
