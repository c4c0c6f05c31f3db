"""Logs: limited parts with the job's history, and streams that go on where one was and follow to the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Message

from paddleflow.api import logs
from paddleflow.api.platform import Platform, Streaming
from paddleflow.base.clock import ManualClock
from paddleflow.errors import Unavailable
from paddleflow.runtimes.log_store import LogChunk, Sample, TaskAddress
from paddleflow.store.database import Database, Tx
from tests.api.client import Answer, Api
from tests.api.workshop import TINY, Workshop, until
from tests.patience import PATIENCE, soon

pytestmark = pytest.mark.usefixtures("ready")

JOB = {"id": "one", "name": "first", "command": "x", "flavour": TINY}
MEMBERS = [
    {"role": "pserver", "command": "serve", "flavour": TINY},
    {"role": "worker", "replicas": 2, "command": "train", "flavour": TINY},
]
GANG = {"id": "gang", "framework": "paddle", "members": MEMBERS}
MPI = {
    "id": "mpi",
    "framework": "mpi",
    "members": [{"role": "master", "command": "mpirun x", "flavour": TINY}, {"role": "worker", "flavour": TINY}],
}
TEN = b"".join(b"%d\n" % n for n in range(1, 11))


@pytest.fixture
def database_url() -> str:
    """Nothing here depends on the engine."""
    return ""


IMPATIENT = Streaming(poll_log=0.005)


@pytest.fixture
def streaming() -> Streaming:
    return IMPATIENT


async def part(client: Api, job: str = "one", **query: object) -> dict[str, Any]:
    answer = (await client.get("/log/job", jobID=job, **query)).ok()
    info: dict[str, Any] = answer["taskList"][0]["logInfo"]
    return info


async def finished(client: Api, platform: Platform, workshop: Workshop, text: bytes) -> None:
    (await client.post("/job/single", JOB)).ok()
    async with workshop.open(platform):
        await until(client, "one", "running")
        workshop.say("one.worker-0.1", text)
        workshop.finish("one.worker-0.1")
        await until(client, "one", "succeeded")


def text_of(sent: list[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


# ---- GET /log/job --------------------------------------------------------------------------------------------------


async def test_lines_from_either_end(alice: Api, platform: Platform, workshop: Workshop) -> None:
    await finished(alice, platform, workshop, TEN)
    whole = (await alice.get("/log/job", jobID="one", framework="standalone")).ok()
    assert (whole["jobID"], whole["name"], whole["type"]) == ("one", "first", "single")
    (task,) = whole["taskList"]
    assert task == {
        "taskID": "one.worker-0",
        "logInfo": {"logContent": TEN.decode(), "hasNextPage": False, "truncated": False},
    }
    assert [line.split(" ", 2)[2] for line in whole["eventList"]] == [
        "status init", "status pending", "status running", "status succeeded",
    ]  # fmt: skip
    assert await part(alice, lineLimit=2) == {"logContent": "1\n2\n", "hasNextPage": True, "truncated": False}
    assert await part(alice, sizeLimit=10) == {"logContent": "1\n2\n3\n4\n", "hasNextPage": True, "truncated": True}
    assert (await part(alice, lineLimit=1, readFromTail="true"))["logContent"] == "10\n"


@pytest.mark.parametrize("streaming", [Streaming(log_chunk=7)])
async def test_a_log_of_many_pieces_is_read_to_its_end(alice: Api, platform: Platform, workshop: Workshop) -> None:
    await finished(alice, platform, workshop, b"".join(b"%05d\n" % n for n in range(300)))
    assert (await part(alice, readFromTail="true", lineLimit=2))["logContent"] == "00298\n00299\n"
    assert (await part(alice, lineLimit=1))["logContent"] == "00000\n"


@pytest.mark.parametrize(
    "query",
    [{"lineLimit": 0}, {"lineLimit": 1_000_001}, {"lineLimit": "x"}, {"sizeLimit": "2G"}, {"sizeLimit": "0"},
     {"sizeLimit": "much"}, {"readFromTail": "perhaps"}],
)  # fmt: skip
async def test_limits_of_limits(alice: Api, query: dict[str, object]) -> None:
    (await alice.post("/job/single", JOB)).ok()
    answer = (await alice.get("/log/job", jobID="one", **query)).refused(400, "InvalidURI")
    assert answer["details"][0]["where"] == next(iter(query))


async def test_pods_and_deployments_are_not_here(alice: Api) -> None:
    query = {"name": "pod", "namespace": "default", "clusterName": "default-cluster", "type": "pod"}
    answer = (await alice.get("/log/job", **query)).refused(400, "InvalidURI")
    assert "jobID is empty" in answer["message"]


async def test_a_job_that_has_not_begun_and_members_without_a_process_have_empty_logs(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    (await alice.post("/job/distributed", MPI)).ok()
    assert (await alice.get("/log/job", jobID="mpi")).ok()["taskList"] == []
    async with workshop.open(platform):
        await until(alice, "mpi", "running")
        workshop.say("mpi.master-0.1", b"hello\n")
    found = (await alice.get("/log/job", jobID="mpi")).ok()["taskList"]
    assert {task["taskID"]: task["logInfo"]["logContent"] for task in found} == {
        "mpi.master-0": "hello\n",
        "mpi.worker-0": "",
    }
    assert (await alice.get("/job/mpi/log", task="worker-0")).body == b""


# ---- GET /job/{id}/log ---------------------------------------------------------------------------------------------


async def test_from_any_byte_on(alice: Api, platform: Platform, workshop: Workshop) -> None:
    await finished(alice, platform, workshop, b"0123456789")

    async def read(**query: object) -> tuple[bytes, str]:
        answer = await alice.get("/job/one/log", **query)
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        return answer.body, answer.headers["x-pf-log-offset"]

    for task in ({}, {"task": "worker-0"}):
        assert await read(**task) == (b"0123456789", "0")
        assert await read(offset=4, **task) == (b"456789", "4")
        assert await read(offset=-3, **task) == (b"789", "7")
        assert await read(offset=-30, **task) == (b"0123456789", "0")
        assert await read(offset=99, **task) == (b"", "10")
        assert await read(offset=4, follow="true", **task) == (b"456789", "4")
    head = await alice.call("HEAD", "/job/one/log", query={"offset": -3})
    assert (head.body, head.headers["x-pf-log-offset"]) == (b"", "7")


async def test_following_goes_on_until_the_job_has_ended(alice: Api, platform: Platform, workshop: Workshop) -> None:
    (await alice.post("/job/single", JOB)).ok()
    sent: list[Message] = []
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(alice.call("GET", "/job/one/log", query={"follow": "true"}, sent=sent))
        async with workshop.open(platform):
            await until(alice, "one", "running")
            workshop.say("one.worker-0.1", b"half a ")
            await soon(lambda: text_of(sent) == b"half a ")
            workshop.say("one.worker-0.1", b"line\nthe end")
            await soon(lambda: text_of(sent) == b"half a line\nthe end")
            assert not follower.done()
            workshop.say("one.worker-0.1", b"\nreally\n")
            workshop.finish("one.worker-0.1")
            await until(alice, "one", "succeeded")
    assert follower.result().body == b"half a line\nthe end\nreally\n"


@pytest.mark.parametrize("streaming", [replace(IMPATIENT, ask_job=PATIENCE)])
async def test_a_follower_asks_the_database_only_when_something_happened(
    alice: Api, platform: Platform, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(tx: Tx, job: str) -> tuple[int, bool]:
        asked.append(job)
        return ask(tx, job)

    ask = logs._started_and_ended
    monkeypatch.setattr(logs, "_started_and_ended", counted)
    (await alice.post("/job/single", JOB)).ok()
    sent: list[Message] = []
    async with workshop.open(platform), asyncio.TaskGroup() as group:
        group.create_task(alice.call("GET", "/job/one/log", query={"follow": "true"}, sent=sent))
        await until(alice, "one", "running")
        workshop.say("one.worker-0.1", b".")
        await soon(lambda: text_of(sent) == b".")
        before = len(asked)
        for number in range(2, 12):
            workshop.say("one.worker-0.1", b".")
            await soon(lambda wanted=b"." * number: bool(text_of(sent) == wanted))  # type: ignore[misc]  # a default is no argument
        assert len(asked) - before <= 2  # a late event of its start
        workshop.finish("one.worker-0.1")


async def test_all_members_each_line_with_its_task(alice: Api, platform: Platform, workshop: Workshop) -> None:
    (await alice.post("/job/distributed", GANG)).ok()
    sent: list[Message] = []
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(alice.call("GET", "/job/gang/log", query={"follow": "true"}, sent=sent))
        async with workshop.open(platform):
            await until(alice, "gang", "running")
            workshop.say("gang.worker-0.1", b"a\nb")
            workshop.say("gang.worker-1.1", b"x\n")
            await soon(lambda: b"[worker-1] x\n" in text_of(sent))
            workshop.say("gang.worker-0.1", b"b\nno newline")
            workshop.say("gang.pserver-0.1", b"served\n")
            for n in range(2):
                workshop.finish(f"gang.worker-{n}.1")
            await until(alice, "gang", "succeeded")
    answer: Answer = follower.result()
    lines = answer.body.decode().splitlines()
    assert [line for line in lines if "worker-0" in line] == [
        "[worker-0] a",
        "[worker-0] bb",
        "[worker-0] no newline",
    ]
    assert {"[worker-1] x", "[pserver-0] served"} <= set(lines)
    assert (await alice.get("/job/gang/log", task="worker-1")).body == b"x\n"


async def test_a_line_without_end_is_told_in_pieces(alice: Api, platform: Platform, workshop: Workshop) -> None:
    """Not kept until its end comes: a log of 64 MiB may be one line."""
    (await alice.post("/job/distributed", GANG)).ok()
    sent: list[Message] = []
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(alice.call("GET", "/job/gang/log", query={"follow": "true"}, sent=sent))
        async with workshop.open(platform):
            await until(alice, "gang", "running")
            workshop.say("gang.worker-0.1", b"a" * 300_000)
            await soon(lambda: text_of(sent).count(b"a") >= 200_000, "it is told before it ends")
            for n in range(2):
                workshop.finish(f"gang.worker-{n}.1")
            await until(alice, "gang", "succeeded")
    assert follower.result().body.count(b"a") == 300_000


@pytest.fixture
def replaced(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Roles whose logs cannot be read, as if their jobs had put FIFOs in their places."""
    store, roles = workshop.runtime.logs, set[str]()
    read = store.read

    async def refuse(task: TaskAddress, offset: int, limit: int) -> LogChunk:
        if task.role in roles:
            raise Unavailable(f"log {task.role} cannot be read: not a regular file")
        return await read(task, offset, limit)

    monkeypatch.setattr(store, "read", refuse)
    return roles


async def test_a_log_that_cannot_be_read_is_refused_before_the_status(
    alice: Api, platform: Platform, workshop: Workshop, replaced: set[str]
) -> None:
    await finished(alice, platform, workshop, TEN)
    replaced.add("worker")
    for query in ({}, {"offset": 2}, {"tailLines": 1}, {"follow": "true"}):
        answer = (await alice.get("/job/one/log", **query)).refused(503, "InternalError")
        assert "not a regular file" in answer["message"]
    (await alice.get("/log/job", jobID="one")).refused(503, "InternalError")


async def test_a_log_that_is_replaced_while_it_is_followed_ends_with_a_line_that_says_so(
    alice: Api, platform: Platform, workshop: Workshop, replaced: set[str]
) -> None:
    (await alice.post("/job/single", JOB)).ok()
    sent: list[Message] = []
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        follower = group.create_task(alice.call("GET", "/job/one/log", query={"follow": "true"}, sent=sent))
        async with workshop.open(platform):
            await until(alice, "one", "running")
            workshop.say("one.worker-0.1", b"before")
            await soon(lambda: text_of(sent) == b"before")
            replaced.add("worker")
            answer = await follower
            workshop.finish("one.worker-0.1")
    assert answer.body == b"before\npaddleflow: log worker cannot be read: not a regular file\n"
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_of_several_logs_the_others_are_followed_to_their_end(
    alice: Api, platform: Platform, workshop: Workshop, replaced: set[str]
) -> None:
    (await alice.post("/job/distributed", GANG)).ok()
    sent: list[Message] = []
    replaced.add("pserver")
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        follower = group.create_task(alice.call("GET", "/job/gang/log", query={"follow": "true"}, sent=sent))
        async with workshop.open(platform):
            await until(alice, "gang", "running")
            await soon(lambda: b"[pserver-0] paddleflow: log pserver cannot be read" in text_of(sent))
            workshop.say("gang.worker-0.1", b"goes on\n")
            for n in range(2):
                workshop.finish(f"gang.worker-{n}.1")
            await until(alice, "gang", "succeeded")
    body = follower.result().body
    assert body.count(b"pserver") == 2
    assert b"[worker-0] goes on\n" in body
    parts = (await alice.get("/log/job", jobID="gang")).ok()["taskList"]
    contents = {each["taskID"]: each["logInfo"]["logContent"] for each in parts}
    assert contents == {
        "gang.pserver-0": "paddleflow: log pserver cannot be read: not a regular file\n",
        "gang.worker-0": "goes on\n",
        "gang.worker-1": "",
    }


async def test_tasks_and_offsets_that_make_no_sense(alice: Api) -> None:
    (await alice.post("/job/distributed", GANG)).ok()
    for task in ("worker-2", "worker", "boss-0", "../worker-0", "worker-00"):
        answer = (await alice.get("/job/gang/log", task=task)).refused(404, "JobNotFound")
        assert f"has no task[{task}]" in answer["message"]
    answer = (await alice.get("/job/gang/log", offset=5)).refused(400, "InvalidURI")
    assert answer["hint"] == "task=pserver-0"
    (await alice.get("/job/gang/log", offset="x")).refused(400, "InvalidURI")
    assert (await alice.get("/job/gang/log")).body == b""


async def test_a_follower_ends_when_the_server_stops_and_when_the_job_is_deleted(
    alice: Api, platform: Platform, database: Database
) -> None:
    (await alice.post("/job/single", JOB)).ok()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(alice.get("/job/one/log", follow="true"))
        (await alice.put("/job/one", action="stop")).ok()
        (await alice.delete("/job/one")).ok()
    (await alice.post("/job/single", JOB)).ok()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(alice.get("/job/one/log", follow="true"))
        platform.closing.set()


async def test_a_part_of_a_log(alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> None:
    """Tries, last lines, and what was written lately."""
    (await alice.post("/job/single", {**JOB, "env": {"PF_JOB_RETRIES": "1"}})).ok()

    async def text(**query: object) -> bytes:
        return (await alice.call("GET", "/job/one/log", query=query)).body

    async with workshop.open(platform):
        await until(alice, "one", "running")
        workshop.say("one.worker-0.1", b"one\ntwo\nthree\n")
        task = TaskAddress("one", "worker", 0)
        await workshop.runtime.samples.append({task: Sample(clock.now(), 0.0, 0)})
        clock.advance(100)
        workshop.say("one.worker-0.1", b"four\n")
        workshop.finish("one.worker-0.1", 1)
        await until(alice, "one", "pending")
        clock.advance(100)
        shown = await until(alice, "one", "running")
        assert shown["attempt"] == 2
        workshop.say("one.worker-0.2", b"five\nsix")
        sent: list[Message] = []
        async with asyncio.TaskGroup() as group:  # a try that is over ends by itself
            group.create_task(alice.call("GET", "/job/one/log", query={"follow": "true", "try": 1}, sent=sent))
        assert text_of(sent) == b"one\ntwo\nthree\nfour\n"
        assert await text(**{"try": 2}) == b"five\nsix"
        assert await text(tailLines=2) == b"five\nsix"
        assert await text(tailLines=3) == b"four\nfive\nsix"
        assert await text(tailLines=0) == b""
        assert await text(tailLines=99) == b"one\ntwo\nthree\nfour\nfive\nsix"
        assert await text(tailLines=1, **{"try": 1}) == b"four\n"
        assert await text(sinceSeconds=150) == b"four\nfive\nsix"
        assert await text(sinceSeconds=250) == b"one\ntwo\nthree\nfour\nfive\nsix"
        answer = (await alice.get("/job/one/log", **{"try": 3})).refused(404, "JobNotFound")
        assert "has been started 2 times" in answer["message"]
        workshop.finish("one.worker-0.2")
        await until(alice, "one", "succeeded")
    assert await text(**{"try": 1}) == b"one\ntwo\nthree\nfour\n"
    clock.advance(10)
    assert await text(sinceSeconds=5) == b""


async def test_the_last_lines_of_each_member_and_where_they_began(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    (await alice.post("/job/distributed", GANG)).ok()
    async with workshop.open(platform):
        await until(alice, "gang", "running")
        for number in range(2):
            workshop.say(f"gang.worker-{number}.1", b"a\nb\nc%d\n" % number)
        sent: list[Message] = []
        await alice.call("GET", "/job/gang/log", query={"tailLines": 1}, sent=sent)
        assert sorted(text_of(sent).splitlines()) == [b"[worker-0] c0", b"[worker-1] c1"]
        begins = dict(sent[0]["headers"])[b"x-pf-log-offsets"].decode()
        again = await alice.call("GET", "/job/gang/log", query={"offsets": begins})
        assert again.body == text_of(sent)
        for number in range(2):
            workshop.finish(f"gang.worker-{number}.1")
