"""What happens, as it happens: server-sent events from any position, and the websocket of existing clients."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from paddleflow.api.platform import Platform, Streaming
from paddleflow.api.routing import PREFIX
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until
from tests.patience import PATIENCE, soon

pytestmark = pytest.mark.usefixtures("ready")

JOB = {"id": "one", "command": "x", "flavour": TINY}


IMPATIENT = Streaming(poll_events=0.02, push_jobs=0.01)


@pytest.fixture
def streaming() -> Streaming:
    return IMPATIENT


def parsed(body: bytes) -> list[tuple[int, str, dict[str, Any]]]:
    """(id, event, data) of a stream; comments are skipped."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


async def stream(client: Api, path: str = "/job/one/events", last: str = "", **query: object) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        answer = await client.call("GET", path, query=query, headers={"last-event-id": last} if last else None)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parsed(answer.body)


async def run_to_the_end(client: Api, platform: Platform, workshop: Workshop, code: int = 0) -> None:
    (await client.post("/job/single", JOB)).ok()
    async with workshop.open(platform):
        await until(client, "one", "running")
        workshop.finish("one.worker-0.1", code)
        await until(client, "one", "succeeded", "failed")


# ---- server-sent events --------------------------------------------------------------------------------------------


async def test_a_history_from_any_position(alice: Api, platform: Platform, workshop: Workshop) -> None:
    await run_to_the_end(alice, platform, workshop, 3)
    whole = await stream(alice)
    assert [(kind, data["status"]) for _, kind, data in whole] == [
        ("status", "init"), ("status", "pending"), ("status", "running"), ("status", "failed"),
    ]  # fmt: skip
    assert whole[-1][2]["message"] == "the process exited with code 3"
    assert whole[0][2]["at"].endswith("Z")
    ids = [number for number, _, _ in whole]
    assert ids == sorted(set(ids))
    for position in range(4):
        assert await stream(alice, after=ids[position]) == whole[position + 1 :]
        assert await stream(alice, last=str(ids[position])) == whole[position + 1 :]
    assert await stream(alice, last=str(ids[2]), after=0) == whole[3:], "the header wins"
    assert await stream(alice, after=10**15) == []
    (await alice.call("GET", "/job/one/events", headers={"last-event-id": "x"})).refused(400, "InvalidURI")
    (await alice.get("/job/one/events", after=-1)).refused(400, "InvalidURI")


async def test_live_to_the_end(alice: Api, platform: Platform, workshop: Workshop) -> None:
    (await alice.post("/job/single", JOB)).ok()
    sent: list[Message] = []
    async with asyncio.TaskGroup() as group:
        call = group.create_task(alice.call("GET", "/job/one/events", sent=sent))
        await soon(lambda: any(b'"init"' in message.get("body", b"") for message in sent))
        async with workshop.open(platform):
            await until(alice, "one", "running")
            await soon(lambda: any(b'"running"' in message.get("body", b"") for message in sent))
            (await alice.put("/job/one", {"labels": {"a": "1"}}, action="modify")).ok()
            await soon(lambda: any(b"event: modified" in message.get("body", b"") for message in sent))
            assert not call.done()
            (await alice.put("/job/one", action="stop")).ok()
            await until(alice, "one", "terminated")
    statuses = [data.get("status", kind) for _, kind, data in parsed(call.result().body)]
    assert statuses == ["init", "pending", "running", "modified", "terminating", "terminated"]


async def test_what_there_is_now_without_following(alice: Api) -> None:
    (await alice.post("/job/single", JOB)).ok()
    assert [data["status"] for _, _, data in await stream(alice, follow="false")] == ["init"]


async def test_members_of_a_gang_are_told_of(alice: Api, platform: Platform, workshop: Workshop) -> None:
    members = [{"role": "worker", "replicas": 2, "command": "x", "flavour": TINY}]
    (await alice.post("/job/distributed", {"id": "one", "framework": "paddle", "members": members})).ok()
    async with workshop.open(platform):
        await until(alice, "one", "running")
        workshop.finish("one.worker-1.1", 7)
        await until(alice, "one", "failed")
    told = [data for _, kind, data in await stream(alice) if kind == "task"]
    ends = {data["task"]: (data["status"], data["exitCode"]) for data in told if "exitCode" in data}
    assert ends == {"worker-1": ("failed", 7), "worker-0": ("stopped", 143)}


async def test_streams_end_when_the_job_is_deleted_and_when_the_server_stops(alice: Api, platform: Platform) -> None:
    (await alice.post("/job/single", JOB)).ok()
    sent: list[Message] = []
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(alice.call("GET", "/job/one/events", sent=sent))
        await soon(lambda: any(b'"init"' in message.get("body", b"") for message in sent))
        (await alice.put("/job/one", action="stop")).ok()
        (await alice.delete("/job/one")).ok()
    (await alice.post("/job/single", JOB)).ok()
    async with asyncio.TaskGroup() as group:
        group.create_task(stream(alice))
        platform.closing.set()


@pytest.mark.parametrize("streaming", [replace(IMPATIENT, events_at_once=2)])
async def test_everything_for_root(alice: Api, bob: Api, root: Api) -> None:
    for n, client in enumerate((alice, bob, alice)):
        (await client.post("/job/single", {**JOB, "id": f"job-{n}"})).ok()
    found = await stream(root, "/events", follow="false")
    assert [data["job"] for _, _, data in found] == ["job-0", "job-1", "job-2"]
    assert await stream(root, "/events", follow="false", after=found[0][0]) == found[1:]
    (await alice.get("/events")).refused(403, "OnlyRootAllowed")


# ---- the websocket -------------------------------------------------------------------------------------------------


class Socket:
    """A client of ``/wsjob``, in process."""

    def __init__(self, app: ASGIApp, token: str, path: str = "/wsjob") -> None:
        self._app = app
        self._scope = {
            "type": "websocket",
            "path": PREFIX + path,
            "query_string": b"",
            "headers": [(b"x-pf-authorization", token.encode()), (b"x-pf-client-id", b"c-1")],
            "extensions": {"websocket.http.response": {}},
        }
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})
        self.sent: list[Message] = []

    async def serve(self) -> None:
        async def send(message: Message) -> None:
            self.sent.append(message)

        async with asyncio.timeout(PATIENCE):
            await self._app(self._scope, self._inbox.get, send)

    def say(self, text: str) -> None:
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    def leave(self) -> None:
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})

    @property
    def texts(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]

    @property
    def pushed(self) -> list[tuple[str, str]]:
        jobs = [json.loads(text) for text in self.texts if text.startswith("{")]
        return [(job["id"], job["status"]) for job in jobs]


async def test_changes_are_pushed_and_heartbeats_echoed(
    app: ASGIApp, alice: Api, bob: Api, platform: Platform, workshop: Workshop
) -> None:
    (await alice.post("/job/single", {**JOB, "id": "before"})).ok()
    socket = Socket(app, alice.token)
    async with asyncio.TaskGroup() as group:
        group.create_task(socket.serve())
        await soon(lambda: socket.sent)
        assert socket.sent[0]["type"] == "websocket.accept"
        socket.say("ping")
        await soon(lambda: "ping" in socket.texts)
        (await alice.post("/job/single", JOB)).ok()
        await soon(lambda: ("one", "init") in socket.pushed)
        (await bob.post("/job/single", {**JOB, "id": "other"})).ok()
        async with workshop.open(platform):
            await soon(lambda: ("one", "running") in socket.pushed)
            workshop.finish("one.worker-0.1")
            await soon(lambda: ("one", "succeeded") in socket.pushed)
        socket.leave()
    assert "other" not in {job for job, _ in socket.pushed}, "jobs of others are not pushed"
    assert socket.pushed.count(("one", "succeeded")) == 1


@pytest.mark.parametrize("streaming", [replace(IMPATIENT, events_at_once=7)])
async def test_more_changes_than_fit_one_look_are_all_pushed(app: ASGIApp, alice: Api, root: Api) -> None:
    socket = Socket(app, root.token)
    async with asyncio.TaskGroup() as group:
        group.create_task(socket.serve())
        await soon(lambda: socket.sent)
        socket.say("x")
        await soon(lambda: socket.texts)
        made = (await alice.post("/job/batch", {"jobs": [{"command": "x", "flavour": TINY}] * 40})).ok()["ids"]
        await soon(lambda: len(socket.pushed) >= 40)
        socket.leave()
    assert [job for job, _ in socket.pushed] == made


async def test_the_socket_is_closed_when_the_server_stops(app: ASGIApp, alice: Api, platform: Platform) -> None:
    socket = Socket(app, alice.token)
    async with asyncio.TaskGroup() as group:
        group.create_task(socket.serve())
        await soon(lambda: socket.sent)
        platform.closing.set()
    assert socket.sent[-1]["type"] == "websocket.close"
    assert socket.sent[-1]["code"] == 1001


@pytest.mark.parametrize(("token", "path", "status"), [("", "/wsjob", 401), ("bad", "/wsjob", 401), ("", "/ws", 404)])
async def test_refusals(app: ASGIApp, token: str, path: str, status: int) -> None:
    socket = Socket(app, token, path)
    await socket.serve()
    assert socket.sent[0]["type"] == "websocket.http.response.start"
    assert socket.sent[0]["status"] == status
