"""Jobs that make way for others, and jobs whose members come and go: through the real engine, time moved by hand."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.store import events
from tests.api.client import Api
from tests.api.workshop import Workshop, until
from tests.patience import soon

pytestmark = pytest.mark.usefixtures("ready")  # a machine of 8 cores and 16Gi
LONG = 61.0  # a job that has run for so long may be ended for another


def job(cpu: str, **fields: object) -> dict[str, Any]:
    return {"command": "x", "flavour": {"cpu": cpu, "mem": "1Gi"}, **fields}


def gang(low: int, high: int, **fields: object) -> dict[str, Any]:
    worker = {"role": "worker", "command": "x", "flavour": {"cpu": "1", "mem": "1Gi"}, "minReplicas": low}
    return {"framework": "pytorch", "members": [{**worker, "maxReplicas": high, **fields}]}


async def submit(api: Api, kind: str, document: dict[str, Any]) -> str:
    made: str = (await api.post(f"/job/{kind}", document)).ok()["id"]
    return made


async def queue(root: Api, name: str, cpu: int, least: int = 0) -> None:
    body = {"name": name, "namespace": "default", "maxResources": {"cpu": cpu, "mem": "16Gi"}}
    (await root.post("/queue", body | {"minResources": {"cpu": least, "mem": "1Gi"}})).ok()


async def history(platform: Platform, id: str) -> list[tuple[str, Any]]:
    return [(row.type, row.data) for row in await platform.database.read(events.after, "job", id, 0, 1000)]


def running(workshop: Workshop, id: str) -> set[str]:
    """The members of a job that have a process now."""
    live = set()
    for attempt, seen in workshop.runtime.cluster.known.items():
        if attempt.startswith(f"{id}.") and not any(type(item).__name__ == "Ended" for item in seen):
            live.add(attempt.removeprefix(f"{id}."))
    return live


async def test_a_guarantee_that_was_lent_comes_back(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    await queue(root, "gold", 8, least=6)
    async with workshop.open(platform):
        borrower = await submit(root, "single", job("8", name="borrower"))
        await until(root, borrower, "running")
        owner = await submit(root, "single", job("4", schedulingPolicy={"queue": "gold"}))
        await until(root, owner, "pending")
        clock.advance(LONG)
        platform.bus.wake("jobs")
        await until(root, owner, "running")
        evicted = await until(root, borrower, "pending")
        assert (evicted["preemptions"], evicted["evictedBy"], evicted["attempt"]) == (1, owner, 1)
        assert evicted["lostSeconds"] == pytest.approx(LONG, abs=1)
        told = [
            (data["status"], data["message"]) for kind, data in await history(platform, borrower) if kind == "status"
        ]
        statuses = [status for status, _ in told]
        assert statuses[-3:] == ["preempting", "pending", "pending"]
        message = dict(told)["preempting"]
        assert message.startswith(f"made way for {owner} after 61 s: {owner} needs what is guaranteed to queue gold")
        why = (await root.get(f"/job/{borrower}/why")).ok()
        assert f"it made way for {owner} at" in next(c["text"] for c in why["causes"] if c["code"] == "preempted")
        workshop.finish(f"{owner}.worker-0.1")
        again = await until(root, borrower, "running")
        assert again["attempt"] == 2
        workshop.finish(f"{borrower}.worker-0.2")
        await until(root, borrower, "succeeded")


async def test_a_higher_priority_of_the_queue_goes_first_and_a_job_may_ask_to_end_instead(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        low = await submit(
            root, "single", job("8", schedulingPolicy={"priority": "LOW"}, env={"PF_JOB_WHEN_PREEMPTED": "end"})
        )
        await until(root, low, "running")
        clock.advance(LONG)
        high = await submit(root, "single", job("8", schedulingPolicy={"priority": "HIGH"}))
        ended = await until(root, low, "preempted")
        assert f"made way for {high}" in ended["message"]
        await until(root, high, "running")


async def test_members_in_place_go_for_another_job_and_come_back(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        elastic = await submit(root, "distributed", gang(2, 8, resize="inPlace"))
        await until(root, elastic, "running")
        assert running(workshop, elastic) == {f"worker-{n}.1" for n in range(8)}, "it starts with all that is idle"
        clock.advance(31.0)
        other = await submit(root, "single", job("5"))
        await until(root, other, "running")
        assert running(workshop, elastic) == {f"worker-{n}.1" for n in range(3)}
        shown = await until(root, elastic, "running")
        stopped = [task["name"] for task in shown["distributedRuntime"]["runtimes"] if task["status"] == "stopped"]
        assert stopped == [f"worker-{n}" for n in range(3, 8)]
        used = (await root.get("/queue/default-queue")).ok()["usedResources"]
        assert used["cpu"] == "8"
        workshop.finish(f"{other}.worker-0.1")
        await until(root, other, "succeeded")
        clock.advance(31.0)
        platform.bus.wake("jobs")
        await soon(lambda: len(running(workshop, elastic)) == 8, "it grows again")
        changes = [data for kind, data in await history(platform, elastic) if kind == "members"]
        assert (changes[0]["removed"], changes[0]["by"]) == ([f"worker-{n}" for n in (7, 6, 5, 4, 3)], other)
        assert sorted(changes[-1]["added"]) == [f"worker-{n}" for n in range(3, 8)]
        assert changes[-1]["message"] == "has 8 instead of 3 members because there is room"
        for number in range(8):
            workshop.finish(f"{elastic}.worker-{number}.1")
        done = await until(root, elastic, "succeeded")
        assert "preemptions" not in done


async def test_a_job_that_cannot_change_in_place_starts_anew_at_the_new_size(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        elastic = await submit(root, "distributed", gang(2, 8))
        await until(root, elastic, "running")
        clock.advance(31.0)
        other = await submit(root, "single", job("5"))
        await until(root, other, "running")
        await soon(lambda: running(workshop, elastic) == {f"worker-{n}.2" for n in range(3)}, "three members")
        worlds = [item.env["WORLD_SIZE"] for item in workshop.runtime.cluster.launched if ".2" in item.attempt[-2:]]
        assert worlds == ["3"] * 3
        shown = await until(root, elastic, "running")
        assert (shown["attempt"], shown["lostSeconds"]) == (2, pytest.approx(31.0, abs=1))
        workshop.finish(f"{other}.worker-0.1")
        await until(root, other, "succeeded")
        clock.advance(31.0)
        platform.bus.wake("jobs")
        probe = await submit(root, "single", job("1"))  # the engine has looked, and found room for this
        await until(root, probe, "running")
        assert len(running(workshop, elastic)) == 3, "growing costs it its work: not so soon"
        workshop.finish(f"{probe}.worker-0.1")
        await until(root, probe, "succeeded")
        clock.advance(600.0)
        platform.bus.wake("jobs")
        await soon(lambda: running(workshop, elastic) == {f"worker-{n}.3" for n in range(8)}, "eight again")
        await until(root, elastic, "running")
        (await root.put(f"/job/{elastic}?action=stop", {})).ok()
        await until(root, elastic, "terminated")


async def test_an_engine_that_begins_anew_goes_on_with_what_was_under_way(
    root: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    await queue(root, "gold", 8, least=8)
    async with workshop.open(platform):
        elastic = await submit(root, "distributed", gang(1, 4, resize="inPlace"))
        low = await submit(root, "single", job("4"))
        for each in (elastic, low):
            await until(root, each, "running")
        clock.advance(LONG)
        owner = await submit(root, "single", job("8", schedulingPolicy={"queue": "gold"}))
        await until(root, owner, "running")
        for each in (elastic, low):
            await until(root, each, "pending")
    async with workshop.open(platform):
        workshop.finish(f"{owner}.worker-0.1")
        for each in (elastic, low):
            await until(root, each, "running")
        clock.advance(LONG)
        claim = await submit(root, "single", job("8", schedulingPolicy={"queue": "gold"}))
        waits = await until(root, claim, "pending")
        assert waits["message"], "both were evicted lately, which the new engine knows"
        probe = (await root.get(f"/job/{claim}/why")).ok()
        assert probe["code"] in {"busy", "fragmentation", "gang"}
        clock.advance(1800.0)
        platform.bus.wake("jobs")
        await until(root, claim, "running")


@pytest.mark.parametrize(
    ("framework", "member", "where", "says"),
    [
        ("pytorch", {"minReplicas": 4, "maxReplicas": 2}, "members[0].minReplicas", "4 <= 1 <= 2"),
        ("pytorch", {"replicas": 9, "maxReplicas": 2, "minReplicas": 1}, "members[0].minReplicas", "1 <= 9 <= 2"),
        ("pytorch", {"minReplicas": 0}, "members[0].minReplicas", "less than 1"),
        ("pytorch", {"resize": "inPlace"}, "members[0].resize", "always has 1"),
        ("pytorch", {"maxReplicas": 2, "resize": "magic"}, "members[0].resize", "resize[magic] is not restart or"),
        ("paddle", {"minReplicas": 1, "maxReplicas": 4}, "members", "at least 2 worker, found 1"),
    ],
)
async def test_sizes_that_make_no_sense_are_refused(
    root: Api, framework: str, member: dict[str, Any], where: str, says: str
) -> None:
    document = {"framework": framework, "members": [{"role": "worker", "command": "x", **member}]}
    answer = (await root.post("/job/distributed", document)).refused(400, "JobInvalidField")
    assert says in str(answer)
    assert where in str(answer)


async def test_slots_without_a_process_cannot_change_in_place(root: Api) -> None:
    members = [
        {"role": "master", "command": "mpirun x"},
        {"role": "worker", "minReplicas": 1, "maxReplicas": 2, "resize": "inPlace"},
    ]
    answer = (await root.post("/job/distributed", {"framework": "mpi", "members": members})).refused(
        400, "JobInvalidField"
    )
    assert "role worker of framework mpi cannot come and go while the others run" in str(answer)
