"""GET /job/{id}/why, in every state that a job can be in."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock, local_text
from paddleflow.settings import JobSettings
from tests.api.client import Api
from tests.api.workshop import Workshop, until

pytestmark = pytest.mark.usefixtures("ready")  # a machine of 8 cores and 16Gi


def job(cpu: str, **fields: object) -> dict[str, Any]:
    return {"command": "x", "flavour": {"cpu": cpu, "mem": "1Gi"}, **fields}


async def submit(api: Api, cpu: str, **fields: object) -> str:
    made: str = (await api.post("/job/single", job(cpu, **fields))).ok()["id"]
    return made


async def why(api: Api, id: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await api.get(f"/job/{id}/why")).ok()
    assert answer["id"] == id
    return answer


async def test_a_waiting_job_is_told_what_would_start_it(
    alice: Api, root: Api, bob: Api, platform: Platform, workshop: Workshop
) -> None:
    (await root.post("/flavour", {"name": "small", "cpu": 2, "mem": "1Gi"})).ok()
    async with workshop.open(platform):
        first = await submit(alice, "6")
        await until(alice, first, "running")
        second = await submit(alice, "4")
        await until(alice, second, "pending")
        told = await why(alice, second)
        assert (told["status"], told["queue"], told["code"]) == ("pending", "default-queue", "quota")
        assert "cpu 2 of 8 free, the job needs 4" in told["text"]
        assert {cause["code"] for cause in told["causes"]} == {"quota", "busy"}
        found = {each["code"]: each for each in told["suggestions"]}
        assert found["victims"]["victims"] == [first]
        members = found["smaller"]["members"]
        assert members == [{"role": "worker", "replicas": 1, "each": {"cpu": "2", "memory": "1Gi"}}]
        assert await why(root, second) == told
        (await bob.get(f"/job/{second}/why")).refused(403, "AccessDenied")
        (await alice.get("/job/nothing/why")).refused(404, "JobNotFound")


async def test_another_queue_is_suggested_only_to_those_who_may_use_it(
    alice: Api, root: Api, platform: Platform, workshop: Workshop
) -> None:
    for name in ("open-one", "secret"):
        body = {"name": name, "namespace": "default", "maxResources": {"cpu": 8, "mem": "8Gi"}}
        (await root.post("/queue", body)).ok()
    (await root.put("/queue/default-queue", {"maxResources": {"cpu": 4}})).ok()
    async with workshop.open(platform):
        await until(alice, await submit(alice, "4"), "running")
        waiting = await submit(alice, "2")
        await until(alice, waiting, "pending")
        assert not [each for each in (await why(alice, waiting))["suggestions"] if each["code"] == "queue"]
        (await root.post("/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "open-one"})).ok()
        (other,) = [each for each in (await why(alice, waiting))["suggestions"] if each["code"] == "queue"]
        assert (other["queue"], other["text"]) == ("open-one", "in queue open-one it starts now")


@pytest.mark.parametrize("job_settings", [JobSettings(restart_delay=300.0)])
async def test_a_job_that_does_not_wait(
    alice: Api,
    platform: Platform,
    workshop: Workshop,
    clock: ManualClock,
) -> None:
    id = await submit(alice, "1", env={"PF_JOB_RESTART_POLICY": "OnFailure"})
    told = await why(alice, id)
    assert (told["code"], told["text"]) == ("not_seen", "the scheduler has not looked at it yet")
    started = local_text(clock.now())
    async with workshop.open(platform):
        await until(alice, id, "running")
        told = await why(alice, id)
        assert (told["code"], told["text"]) == ("running", f"running since {started}")
        assert (told["causes"], told["suggestions"]) == ([], [])
        workshop.finish(f"{id}.worker-0.1", 1)
        await until(alice, id, "pending")
        told = await why(alice, id)
        assert told["code"] == "back_off"
        assert told["text"].startswith("is tried again at ")
        (await alice.put(f"/job/{id}", action="stop")).ok()
        ended = await until(alice, id, "terminated")
        told = await why(alice, id)
        assert (told["code"], told["status"]) == ("ended", "terminated")
        assert told["text"] == f"ended at {ended['finishTime']}, terminated: stopped by alice"
