"""Jobs that run after others, and jobs that are listed together."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.spec.job import MOST_AFTER
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until

pytestmark = pytest.mark.usefixtures("ready")
JOB = {"command": "x", "flavour": TINY}


async def made(client: Api, **fields: Any) -> str:
    id: str = (await client.post("/job/single", {**JOB, **fields})).ok()["id"]
    return id


async def test_a_job_starts_when_all_that_it_waits_for_has_succeeded(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    first, second = await made(alice), await made(alice)
    third = await made(alice, after=[first, second, first])
    shown = (await alice.get(f"/job/{third}")).ok()
    assert (shown["status"], shown["after"]) == ("pending", [first, second])
    assert shown["message"] == f"waits for 2 jobs to succeed: {first}, {second}"
    async with workshop.open(platform):
        await until(alice, first, "running")
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, first, "succeeded")
        shown = (await alice.get(f"/job/{third}")).ok()
        assert (shown["status"], shown["message"]) == ("pending", f"waits for {second} to succeed")
        why = (await alice.get(f"/job/{third}/why")).ok()
        assert (why["code"], why["text"]) == ("held_back", f"waits for {second} to succeed")
        await until(alice, second, "running")
        workshop.finish(f"{second}.worker-0.1")
        await until(alice, third, "running")
        after_that = await made(alice, after=first)  # one that has succeeded holds nobody back
        await until(alice, after_that, "running")


async def test_the_wait_is_taken_up_again_by_the_next_engine(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    first = await made(alice)
    second = await made(alice, after=[first])
    async with workshop.open(platform):
        await until(alice, first, "running")
    async with workshop.open(platform):
        assert (await alice.get(f"/job/{second}")).ok()["status"] == "pending"
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, second, "running")


async def test_a_chain_ends_with_the_job_that_failed(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    first = await made(alice)
    second = await made(alice, after=[first])
    third = await made(alice, after=[second])
    async with workshop.open(platform):
        await until(alice, first, "running")
        clock.advance(5)
        workshop.finish(f"{first}.worker-0.1", 3)
        shown = await until(alice, second, "cancelled")
        last = await until(alice, third, "cancelled")
    assert shown["message"] == f"it was to run after {first}, which has failed: the process exited with code 3"
    assert shown["finishTime"]
    assert not shown["startTime"]
    assert last["message"] == f"it was to run after {second}, which has been cancelled: it was to run after {first}"
    history = (await alice.get("/log/job", jobID=second)).ok()["eventList"]
    assert [line.split()[3] for line in history] == ["init", "pending", "cancelled"]
    (await alice.post("/job/single", {**JOB, "after": [second]})).refused(400, "JobInvalidField")
    (await alice.delete(f"/job/{second}")).ok()


async def test_a_job_may_run_whatever_became_of_another_or_only_if_it_failed(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    good, bad = await made(alice), await made(alice)
    clean_up = await made(alice, after=[f"any:{good}", f"any:{bad}"])
    mixed = await made(alice, after=[f"any:{bad}", good])
    report = await made(alice, after=f"failed:{bad}")
    never = await made(alice, after=f"failed:{good}")
    shown = (await alice.get(f"/job/{mixed}")).ok()
    assert (shown["after"], shown["message"]) == (
        [f"any:{bad}", good],
        f"waits for 2 jobs: {bad} to end, {good} to succeed",
    )
    assert (await alice.get(f"/job/{report}")).ok()["message"] == f"waits for {bad} to fail"
    async with workshop.open(platform):
        await until(alice, bad, "running")
        workshop.finish(f"{bad}.worker-0.1", 3)
        await until(alice, report, "running")
        assert (await alice.get(f"/job/{clean_up}")).ok()["message"] == f"waits for {good} to end"
        await until(alice, good, "running")
        workshop.finish(f"{good}.worker-0.1")
        await until(alice, clean_up, "running")
        await until(alice, mixed, "running")
        ended = await until(alice, never, "cancelled")
        await until(alice, await made(alice, after=[f"any:{bad}", f"failed:{never}"]), "running")
    assert ended["message"] == f"it was to run only if {good} failed, which has succeeded"
    answer = (await alice.post("/job/single", {**JOB, "after": [f"failed:{good}"]})).refused(400, "JobInvalidField")
    assert f"job[{good}] has succeeded" in answer["message"]
    for wrong in ([f"ok:{good}"], ["any:No Label"], [good, f"any:{good}"]):
        (await alice.post("/job/single", {**JOB, "after": wrong})).refused(400, "JobInvalidField")


async def test_stopping_a_waiting_job_cancels_those_after_it(alice: Api) -> None:
    first = await made(alice)
    second = await made(alice, after=[first])
    third = await made(alice, after=[second])
    (await alice.put(f"/job/{second}", action="stop")).ok()
    shown = (await alice.get(f"/job/{third}")).ok()
    assert (shown["status"], shown["message"]) == (
        "cancelled",
        f"it was to run after {second}, which has been terminated: stopped by alice",
    )
    (await alice.put(f"/job/{first}", action="stop")).ok()  # nobody waits for it any more


async def test_what_it_runs_after_must_be_there_and_its_own(alice: Api, bob: Api, root: Api) -> None:
    first = await made(alice)
    for client, after in ((alice, "job-nope"), (bob, first)):
        answer = (await client.post("/job/single", {**JOB, "after": [after]})).refused(404, "JobNotFound")
        assert answer["details"][0]["where"] == "after[0]"
    await made(root, after=[first])
    for wrong in (["No Label"], 3, [f"job-{n}" for n in range(MOST_AFTER + 1)]):
        (await alice.post("/job/single", {**JOB, "after": wrong})).refused(400, "JobInvalidField")


async def test_a_batch_has_no_more_dependencies_than_are_allowed(alice: Api) -> None:
    ids = (await alice.post("/job/batch", {"jobs": [JOB] * 400})).ok()["ids"]
    answer = await alice.post("/job/batch", {"jobs": [{**JOB, "after": ids}] * 251})
    assert "dependencies" in answer.refused(400, "JobInvalidField")["message"]
    both = (await alice.post("/job/batch", {"jobs": [{**JOB, "after": ids[:2]}] * 2})).ok()["ids"]
    assert (await alice.get(f"/job/{both[1]}")).ok()["message"] == f"waits for 2 jobs to succeed: {ids[0]}, {ids[1]}"


async def test_an_array_has_the_times_of_its_first_and_last_job(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async def group() -> dict[str, str]:
        found = (await alice.get("/job", fold=True)).ok()["jobList"][0]["group"]
        return {key: found[key] for key in ("acceptTime", "startTime", "finishTime")}

    first = await made(alice, array="array-1")
    clock.advance(60)
    second = await made(alice, array="array-1")
    async with workshop.open(platform):
        began = (await until(alice, first, "running"))["startTime"]
        await until(alice, second, "running")
        clock.advance(5)
        workshop.finish(f"{first}.worker-0.1")
        submitted = (await until(alice, first, "succeeded"))["acceptTime"]
        assert await group() == {"acceptTime": submitted, "startTime": began, "finishTime": ""}
        clock.advance(5)
        workshop.finish(f"{second}.worker-0.1")
        ended = (await until(alice, second, "succeeded"))["finishTime"]
        assert await group() == {"acceptTime": submitted, "startTime": began, "finishTime": ended}


async def test_an_array_is_one_line_of_a_folded_list(alice: Api, bob: Api, clock: ManualClock) -> None:
    before = await made(alice)
    batch = [{**JOB, "array": "array-1", "name": f"sweep-{n}"} for n in range(2)]
    ids = (await alice.post("/job/batch", {"jobs": batch})).ok()["ids"]
    clock.advance(60)
    ids.append(await made(alice, array="array-1", name="sweep-2"))
    await made(bob, array="array-1")  # of somebody else: another array
    after = await made(alice)
    (await alice.put(f"/job/{ids[0]}", action="stop")).ok()

    async def listed(**query: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await alice.get("/job", **query)).ok()["jobList"]
        return found

    folded = await listed(fold=True)
    assert [job["id"] for job in folded] == [after, ids[2], before]
    submitted = (await alice.get(f"/job/{ids[0]}")).ok()["acceptTime"]  # of the first one, not of the newest
    times = {"acceptTime": submitted, "startTime": "", "finishTime": ""}
    assert folded[1]["group"] == {"id": "array-1", "jobs": {"init": 2, "terminated": 1}, **times}
    assert "group" not in folded[0]
    stopped = await listed(fold=True, status="terminated")
    assert [job["id"] for job in stopped] == [ids[0]]
    assert [job["id"] for job in await listed(array="array-1")] == ids[::-1]
    assert len(await listed()) == 5
    first = (await alice.get("/job", fold=True, maxKeys=2)).ok()
    rest = (await alice.get("/job", fold=True, maxKeys=2, marker=first["nextMarker"])).ok()
    assert [job["id"] for job in first["jobList"] + rest["jobList"]] == [after, ids[2], before]
