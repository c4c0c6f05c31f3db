"""Stop, modify and delete a job in every state that it can be in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import AttemptId
from paddleflow.engine.cluster_engine import Parts
from paddleflow.engine.housekeeping import DELETIONS_AT_ONCE, delete_some
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.log_store import TaskAddress
from paddleflow.settings import JobSettings
from paddleflow.store import events
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until
from tests.patience import soon

pytestmark = pytest.mark.usefixtures("ready")

JOB = {"command": "x", "flavour": TINY}
WHOLE = {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi"}}
TTL = "paddleflow/job-ttl-seconds"


async def submit(client: Api, **fields: Any) -> str:
    job: str = (await client.post("/job/single", {**JOB, **fields})).ok()["id"]
    return job


async def history(platform: Platform, job: str) -> list[str]:
    found = await platform.database.read(events.after, "job", job, 0, 100)
    return [str(event.data.get("status", event.type)) for event in found]


async def refuse(client: Api, job: str, method: str, words: str, body: object = None, **query: object) -> None:
    answer = (await client.call(method, f"/job/{job}", body, query=query)).refused(409, "ActionNotAllowed")
    assert words in f"{answer['message']} {answer['hint']}"


@pytest.fixture
def stubborn(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> list[AttemptId]:
    """What runs does not end when it is told to; the attempts that were told."""
    told: list[AttemptId] = []

    async def stop(attempts: Sequence[AttemptId], grace: float) -> None:
        told.extend(attempts)

    monkeypatch.setattr(workshop.runtime, "stop", stop)
    return told


# ---- stop ----------------------------------------------------------------------------------------------------------


async def test_a_job_that_nobody_looked_at_ends_at_once(alice: Api, platform: Platform) -> None:
    job = await submit(alice)
    assert (await alice.put(f"/job/{job}", action="stop")).ok() is None
    shown = (await alice.get(f"/job/{job}")).ok()
    assert (shown["status"], shown["message"]) == ("terminated", "stopped by alice")
    assert shown["finishTime"]
    assert await history(platform, job) == ["init", "terminated"]
    await refuse(alice, job, "PUT", "has already ended: terminated", action="stop")


async def test_a_restart_does_not_say_again_why_a_job_waits(alice: Api, platform: Platform, workshop: Workshop) -> None:
    first, second, third = [(await alice.post("/job/single", WHOLE)).ok()["id"] for _ in range(3)]
    async with workshop.open(platform):
        for job in (second, third):
            await until(alice, job, "pending")
        told = [await history(platform, job) for job in (second, third)]
    async with workshop.open(platform):
        assert [await history(platform, job) for job in (second, third)] == told
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, second, "running")
        await soon(lambda: workshop.engine is not None and second in str(workshop.engine.why(third)), "a new reason")


async def test_a_waiting_job_ends_at_once_and_never_runs(alice: Api, platform: Platform, workshop: Workshop) -> None:
    first = (await alice.post("/job/single", WHOLE)).ok()["id"]
    async with workshop.open(platform) as engine:
        await until(alice, first, "running")
        second = (await alice.post("/job/single", WHOLE)).ok()["id"]
        await until(alice, second, "pending")
        (await alice.put(f"/job/{second}", action="stop")).ok()
        assert (await alice.get(f"/job/{second}")).ok()["status"] == "terminated"
        await soon(lambda: engine.why(second) is None, "the engine forgets it")
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, first, "succeeded")
    assert len(workshop.runtime.cluster.launched) == 1


async def test_a_running_job_is_ended_by_the_engine(
    alice: Api, root: Api, platform: Platform, workshop: Workshop, stubborn: list[AttemptId]
) -> None:
    job = await submit(alice)
    async with workshop.open(platform):
        await until(alice, job, "running")
        (await root.put(f"/job/{job}", action="stop")).ok()
        assert (await alice.get(f"/job/{job}")).ok()["status"] == "terminating"
        await soon(lambda: stubborn, "the runtime is told")
        (await alice.put(f"/job/{job}", action="stop")).ok()  # stopping twice is stopping once
        await refuse(alice, job, "DELETE", "it is terminating")
        await refuse(alice, job, "PUT", "it is terminating", {"priority": "HIGH"}, action="modify")
        workshop.finish(f"{job}.worker-0.1", 143)
        shown = await until(alice, job, "terminated")
    assert shown["message"] == "stopped by root"
    assert shown["runtime"]["status"] == "stopped"
    assert await history(platform, job) == ["init", "pending", "running", "terminating", "terminated"]


@pytest.mark.parametrize("job_settings", [JobSettings(restart_delay=300.0)])
async def test_a_job_that_waits_for_its_restart_is_stopped(alice: Api, platform: Platform, workshop: Workshop) -> None:
    job = await submit(alice, env={"PF_JOB_RESTART_POLICY": "OnFailure"})
    async with workshop.open(platform):
        await until(alice, job, "running")
        workshop.finish(f"{job}.worker-0.1", 1)
        shown = await until(alice, job, "pending")
        assert shown["message"] == (
            "attempt 1 failed (the process exited with code 1); it is started again after 300 s"
        )
        (await alice.put(f"/job/{job}", action="stop")).ok()
        shown = await until(alice, job, "terminated")
    assert shown["message"] == "stopped by alice"
    assert shown["startTime"], "that it ran is not forgotten"


@pytest.mark.parametrize("action", ["", "start", "STOP"])
async def test_other_actions_are_refused(alice: Api, action: str) -> None:
    job = await submit(alice)
    (await alice.put(f"/job/{job}", action=action)).refused(400, "InvalidURI")
    (await alice.put(f"/job/{job}")).refused(400, "InvalidURI")


# ---- modify --------------------------------------------------------------------------------------------------------


async def test_priority_while_it_waits(alice: Api, platform: Platform, workshop: Workshop) -> None:
    first, low, high = [(await alice.post("/job/single", WHOLE)).ok()["id"] for _ in range(3)]
    async with workshop.open(platform):
        await until(alice, first, "running")
        await until(alice, high, "pending")
        (await alice.put(f"/job/{high}", {"priority": "very_high"}, action="modify")).ok()
        assert (await alice.get(f"/job/{high}")).ok()["schedulingPolicy"]["priority"] == "VERY_HIGH"
        await refuse(alice, first, "PUT", "cannot change, it is running", {"priority": "LOW"}, action="modify")
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, high, "running")
        assert (await alice.get(f"/job/{low}")).ok()["status"] == "pending"


async def test_labels_and_annotations_in_any_state(alice: Api, platform: Platform, workshop: Workshop) -> None:
    job = await submit(alice, labels={"a": "1", "b": "2"}, annotations={"x": "1"})
    (await alice.put(f"/job/{job}", {"labels": {"b": "3", "c": "4"}}, action="modify")).ok()
    async with workshop.open(platform):
        await until(alice, job, "running")
        (await alice.put(f"/job/{job}", {"annotations": {"y": "2"}}, action="modify")).ok()
        workshop.finish(f"{job}.worker-0.1")
        await until(alice, job, "succeeded")
        (await alice.put(f"/job/{job}", {"labels": {"late": "yes"}}, action="modify")).ok()
    shown = (await alice.get(f"/job/{job}")).ok()
    assert shown["labels"] == {"a": "1", "b": "3", "c": "4", "late": "yes"}
    assert shown["annotations"] == {"x": "1", "y": "2"}
    for label, found in (('{"b": "3"}', 1), ('{"b": "2"}', 0), ('{"late": "yes"}', 1)):
        assert len((await alice.get("/job", labels=label)).ok()["jobList"]) == found
    assert (await history(platform, job)).count("modified") == 3


async def test_all_of_a_change_is_made_or_none(alice: Api, platform: Platform, workshop: Workshop) -> None:
    job = await submit(alice)
    async with workshop.open(platform):
        await until(alice, job, "running")
        change = {"priority": "HIGH", "labels": {"team": "red"}}
        await refuse(alice, job, "PUT", "cannot change", change, action="modify")
    assert (await alice.get(f"/job/{job}")).ok()["labels"] == {}
    for body in ({"priority": "urgent"}, {"labels": {"bad key": "x"}}, {"annotations": {TTL: "soon"}}, {"nmae": "x"}):
        (await alice.put(f"/job/{job}", body, action="modify")).refused(400, "JobInvalidField")


@pytest.mark.parametrize("body", [None, {}, {"labels": {}, "priority": None}])
async def test_a_change_of_nothing_is_nothing(alice: Api, platform: Platform, body: object) -> None:
    job = await submit(alice)
    (await alice.put(f"/job/{job}", body, action="modify")).ok()
    assert await history(platform, job) == ["init"]


# ---- delete --------------------------------------------------------------------------------------------------------


async def test_delete_takes_everything_away(alice: Api, platform: Platform, workshop: Workshop) -> None:
    job = await submit(alice, id="again", labels={"a": "1"})
    await refuse(alice, job, "DELETE", "it is init")
    async with workshop.open(platform):
        await until(alice, job, "running")
        await refuse(alice, job, "DELETE", "stop it first: paddleflow job stop again")
        workshop.finish(f"{job}.worker-0.1")
        await until(alice, job, "succeeded")
        log = TaskAddress(job, "worker", 0)
        assert log in workshop.runtime.cluster.logs
        assert (await alice.delete(f"/job/{job}")).ok() is None
        assert log not in workshop.runtime.cluster.logs
        (await alice.get(f"/job/{job}")).refused(404, "JobNotFound")
        (await alice.delete(f"/job/{job}")).refused(404, "JobNotFound")
        assert (await alice.get("/job", labels='{"a": "1"}')).ok()["jobList"] == []
        assert await history(platform, job) == []
        await submit(alice, id="again")  # the id is free again
        await until(alice, job, "running")
    assert [launch.attempt for launch in workshop.runtime.cluster.launched] == ["again.worker-0.1"] * 2


async def test_a_job_deleted_before_the_engine_saw_its_end_leaves_no_ghost(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    """A ghost would stand in line for ever, and hold up those behind it."""
    first, second = [(await alice.post("/job/single", WHOLE)).ok()["id"] for _ in range(2)]
    async with workshop.open(platform) as engine:
        await until(alice, first, "running")
        await until(alice, second, "pending")
        assert engine.why(second) is not None

        def stop_and_delete(job: str) -> Any:
            return [alice.put(f"/job/{job}", action="stop"), alice.delete(f"/job/{job}")]

        for act in stop_and_delete(second):
            (await act).ok()
        await soon(lambda: engine.why(second) is None, "the engine forgets it")
        again = (await alice.post("/job/single", {**WHOLE, "id": second})).ok()["id"]
        await soon(lambda: engine.why(again) is not None, "a new job of this id waits")
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, again, "running")


# ---- time to live --------------------------------------------------------------------------------------------------


def parts(platform: Platform, workshop: Workshop) -> Parts:
    return Parts(
        platform.database, platform.clock, platform.bus, platform.settings, workshop.place.data, "test",
    )  # fmt: skip


async def test_jobs_are_deleted_when_their_time_is_over(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock, tmp_path: Path
) -> None:
    kept = await submit(alice)
    short = await submit(alice, annotations={TTL: "60"})
    changed = await submit(alice, annotations={TTL: "60"})
    late = await submit(alice)
    async with workshop.open(platform):
        for job in (kept, short, changed, late):
            await until(alice, job, "running")
        (await alice.put(f"/job/{changed}", {"annotations": {TTL: "600"}}, action="modify")).ok()
        for job in (kept, short, changed, late):
            workshop.finish(f"{job}.worker-0.1")
            await until(alice, job, "succeeded")
        (await alice.put(f"/job/{late}", {"annotations": {TTL: "60"}}, action="modify")).ok()
    house = parts(platform, workshop)
    clock.advance(59)
    assert await delete_some(workshop.runtime, DEFAULT_CLUSTER, house) == 0
    clock.advance(2)
    assert await delete_some(workshop.runtime, DEFAULT_CLUSTER, house) == 2
    assert TaskAddress(short, "worker", 0) not in workshop.runtime.cluster.logs
    assert TaskAddress(kept, "worker", 0) in workshop.runtime.cluster.logs
    assert [job["id"] for job in (await alice.get("/job")).ok()["jobList"]] == [changed, kept]
    clock.advance(600)
    assert await delete_some(workshop.runtime, DEFAULT_CLUSTER, house) == 1
    assert [job["id"] for job in (await alice.get("/job")).ok()["jobList"]] == [kept]


async def test_many_are_deleted_at_once(alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> None:
    jobs = [{**JOB, "annotations": {TTL: "0"}}] * (DELETIONS_AT_ONCE + 20)
    for job in (await alice.post("/job/batch", {"jobs": jobs})).ok()["ids"]:
        (await alice.put(f"/job/{job}", action="stop")).ok()
    house = parts(platform, workshop)
    assert [await delete_some(workshop.runtime, DEFAULT_CLUSTER, house) for _ in range(3)] == [DELETIONS_AT_ONCE, 20, 0]
