"""Routes of schedules, on each engine."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.base.clock import ManualClock, local_text
from paddleflow.engine.schedule_engine import ScheduleEngine
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.test_pipelines import body as pipeline_body


def asked(name: str = "nightly", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "pipelineID": "ppl-000001", "pipelineVersionID": "1", "crontab": "* * * * *", "timezone": "UTC", **more,
    }  # fmt: skip


@pytest.fixture(autouse=True)
async def registered(alice: Api) -> None:
    """A pipeline of alice's with two versions."""
    (await alice.post("/pipeline", pipeline_body())).ok(201)
    (await alice.post("/pipeline/ppl-000001", pipeline_body())).ok(201)


@pytest.fixture
def engine(database: Database, clock: ManualClock) -> ScheduleEngine:
    return ScheduleEngine(database, clock, LocalBus(), "server-1")


async def test_a_schedule_s_life(alice: Api, clock: ManualClock, engine: ScheduleEngine) -> None:
    end = local_text(clock.now() + 86400)
    made = await alice.post(
        "/schedule", asked(desc="each minute", concurrency="2", concurrencyPolicy="skip", timezone="", endTime=end)
    )
    assert made.ok(201) == {"scheduleID": "schedule-000001"}
    clock.advance(120)
    await engine.turn()
    shown = (await alice.get("/schedule/schedule-000001")).ok()
    runs = shown.pop("runs")
    assert [(run["runID"], run["name"], run["status"], run["scheduleID"]) for run in runs["runList"]] == [
        ("run-000002", "nightly", "initiating", "schedule-000001"),
        ("run-000001", "nightly", "initiating", "schedule-000001"),
    ]
    assert runs["runList"][1]["scheduledTime"] < runs["runList"][0]["scheduledTime"]
    assert (runs["isTruncated"], runs["maxKeys"]) == (False, 50)
    assert shown["options"] == {"catchup": True, "expireInterval": 0, "concurrency": 2, "concurrencyPolicy": "skip"}
    assert shown["fsConfig"] == {"username": "alice"}
    assert (shown["pipelineID"], shown["pipelineVersionID"], shown["username"]) == ("ppl-000001", "1", "alice")
    assert (shown["status"], shown["scheduleMsg"], shown["startTime"], shown["endTime"]) == ("running", "", "", end)
    assert shown["nextRunTime"] > local_text(clock.now())
    (await alice.delete("/schedule/schedule-000001")).refused(409, "ActionNotAllowed")
    stopped = await alice.put("/schedule/schedule-000001")
    assert (stopped.status, stopped.body) == (200, b"")
    shown = (await alice.get("/schedule/schedule-000001")).ok()
    assert (shown["status"], shown["scheduleMsg"], shown["nextRunTime"]) == ("terminated", "stopped by alice", "")
    (await alice.put("/schedule/schedule-000001")).refused(409, "ActionNotAllowed")
    (await alice.put("/schedule/schedule-000001", action="resume")).refused(409, "ActionNotAllowed")
    assert (await alice.delete("/schedule/schedule-000001")).ok() is None
    (await alice.get("/schedule/schedule-000001")).refused(404, "ScheduleNotFound")
    assert len((await alice.get("/run")).ok()["runList"]) == 2, "its runs stay"


async def test_pausing_and_resuming(alice: Api, clock: ManualClock, engine: ScheduleEngine) -> None:
    (await alice.post("/schedule", asked(catchup=False))).ok(201)
    (await alice.put("/schedule/schedule-000001", action="pause")).ok()
    (await alice.put("/schedule/schedule-000001", action="pause")).ok()
    clock.advance(180)
    await engine.turn()
    shown = (await alice.get("/schedule/schedule-000001")).ok()
    assert (shown["status"], shown["runs"]["runList"]) == ("paused", [])
    (await alice.put("/schedule/schedule-000001", action="resume")).ok()
    await engine.turn()
    skipped = (await alice.get("/schedule/schedule-000001", statusFilter="skipped")).ok()["runs"]["runList"]
    assert len(skipped) == 2
    assert skipped[0]["runMsg"] == "a newer slot is due, and catchup is off"
    active = (await alice.get("/schedule/schedule-000001", statusFilter="initiating")).ok()["runs"]["runList"]
    assert len(active) == 1
    one = (await alice.get("/schedule/schedule-000001", runFilter=active[0]["runID"])).ok()["runs"]["runList"]
    assert one == active
    refused = (await alice.put("/schedule/schedule-000001", action="stopp")).refused(400, "InvalidArguments")
    assert refused["hint"] == "did you mean stop?"


async def test_the_runs_of_a_schedule_are_paged(alice: Api, clock: ManualClock, engine: ScheduleEngine) -> None:
    (await alice.post("/schedule", asked())).ok(201)
    clock.advance(300)
    await engine.turn()
    first = (await alice.get("/schedule/schedule-000001", maxKeys=3)).ok()["runs"]
    rest = (await alice.get("/schedule/schedule-000001", maxKeys=3, marker=first["nextMarker"])).ok()["runs"]
    assert [run["runID"] for run in first["runList"] + rest["runList"]] == [f"run-{n:06}" for n in range(5, 0, -1)]
    assert rest["isTruncated"] is False


async def test_the_coming_times(alice: Api) -> None:
    before = "2026-03-28 12:00:00"  # in the night after this day the clocks change in Berlin
    (await alice.post("/schedule", asked(crontab="30 2 * * *", timezone="Europe/Berlin", startTime=before))).ok(201)
    coming = (await alice.get("/schedule/schedule-000001/next", count=3)).ok()
    assert coming["times"] == ["2026-03-29 03:00:00", "2026-03-30 02:30:00", "2026-03-31 02:30:00"]
    assert coming["moments"][0] == "2026-03-29T01:00:00.000Z"
    assert coming["timezone"] == "Europe/Berlin"
    assert len((await alice.get("/schedule/schedule-000001/next")).ok()["times"]) == 5
    (await alice.get("/schedule/schedule-000001/next", count=0)).refused(400, "InvalidURI")
    (await alice.put("/schedule/schedule-000001")).ok()
    assert (await alice.get("/schedule/schedule-000001/next")).ok()["times"] == []


async def test_refusals(alice: Api, bob: Api, root: Api) -> None:
    refused = (
        await alice.post("/schedule", asked(concurrency=-1, expireInterval=-1, crontab="x", startTime="y"))
    ).refused(400, "InvalidArguments")
    assert {fault["where"] for fault in refused["details"]} == {"concurrency", "expireInterval", "crontab", "startTime"}
    assert "create schedule failed, err:[concurrency should not be negative]" in refused["message"]
    (await alice.post("/schedule", asked("bad name"))).refused(400, "InvalidNamePattern")
    denied = (await bob.post("/schedule", asked())).refused(403, "AccessDenied")
    assert "user[bobby] has no access to resource[pipeline] with ID[ppl-000001]" in denied["message"]
    (await alice.post("/schedule", asked(pipelineID="ppl-000009"))).refused(404, "PipelineNotFound")
    (await alice.post("/schedule", asked(pipelineVersionID="9"))).refused(404, "PipelineNotFound")
    (await alice.post("/schedule", asked(username="bobby"))).refused(403, "AuthIllegalUser")
    (await root.post("/schedule", asked(username="nobody1"))).refused(404, "UserNotExist")
    (await alice.post("/schedule", {"name": "a_b"})).refused(400, "InvalidArguments")
    (await alice.post("/schedule", asked())).ok(201)
    twice = (await alice.post("/schedule", asked())).refused(409, "DuplicatedName")
    assert "user[alice] already has schedule with name[nightly]" in twice["message"]
    for call in (
        bob.get("/schedule/schedule-000001"),
        bob.get("/schedule/schedule-000001/next"),
        bob.put("/schedule/schedule-000001"),
        bob.delete("/schedule/schedule-000001"),
    ):
        (await call).refused(403, "AccessDenied")
    for id in ("schedule-1", "schedule-000009", "x"):
        (await alice.get(f"/schedule/{id}")).refused(404, "ScheduleNotFound")


async def test_an_empty_version_is_the_newest_of_that_moment(alice: Api) -> None:
    (await alice.post("/schedule", asked(pipelineVersionID=""))).ok(201)
    assert (await alice.get("/schedule/schedule-000001")).ok()["pipelineVersionID"] == "2"


async def test_lists_are_filtered_and_paged(root: Api, alice: Api, bob: Api) -> None:
    (await bob.post("/pipeline", pipeline_body())).ok(201)
    for n in range(3):
        (await alice.post("/schedule", asked(f"a{n}", pipelineVersionID=str(n % 2 + 1)))).ok(201)
        (await bob.post("/schedule", asked(f"b{n}", pipelineID="ppl-000002"))).ok(201)
    (await alice.put("/schedule/schedule-000001")).ok()

    async def names(api: Api, **query: object) -> list[str]:
        return [item["name"] for item in (await api.get("/schedule", **query)).ok()["scheduleList"]]

    assert await names(alice) == ["a0", "a1", "a2"]
    assert await names(root) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert await names(root, userFilter="bobby") == ["b0", "b1", "b2"]
    assert await names(root, pplFilter="ppl-000001") == ["a0", "a1", "a2"]
    assert await names(alice, pplVersionFilter="2") == ["a1"]
    assert await names(root, nameFilter="a1,b2") == ["a1", "b2"]
    assert await names(alice, statusFilter="terminated") == ["a0"]
    (await alice.get("/schedule", statusFilter="stopped")).refused(400, "InvalidURI")
    assert await names(alice, statusFilter="running,terminated") == ["a0", "a1", "a2"]
    assert await names(root, scheduleFilter="schedule-000002,nothing") == ["b0"]
    (await alice.get("/schedule", userFilter="bobby")).refused(403, "OnlyRootAllowed")
    page = (await root.get("/schedule", maxKeys=4)).ok()
    rest = (await root.get("/schedule", maxKeys=4, marker=page["nextMarker"])).ok()
    assert [item["name"] for item in rest["scheduleList"]] == ["a2", "b2"]
    assert rest["isTruncated"] is False


async def test_what_a_schedule_uses_cannot_be_deleted(alice: Api) -> None:
    (await alice.post("/schedule", asked())).ok(201)
    refused = (await alice.delete("/pipeline/ppl-000001")).refused(409, "ActionNotAllowed")
    assert "schedule-000001" in refused["message"]
    (await alice.delete("/pipeline/ppl-000001/1")).refused(409, "ActionNotAllowed")
    (await alice.put("/schedule/schedule-000001", action="pause")).ok()
    (await alice.delete("/pipeline/ppl-000001/1")).refused(409, "ActionNotAllowed")
    assert (await alice.delete("/pipeline/ppl-000001/2")).ok() is None
    (await alice.put("/schedule/schedule-000001")).ok()
    assert (await alice.delete("/pipeline/ppl-000001")).ok() is None
