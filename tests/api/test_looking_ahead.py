"""GET /job/{id}/eta, POST /queue/whatif and GET /scheduler/replay over the real engine, time moved by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.engine.decision_log import folder_of, read
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.scheduling.codec import encode
from paddleflow.scheduling.model import Start
from paddleflow.scheduling.record import Decided, Released
from tests.api.client import Api
from tests.api.workshop import Workshop, eventually_answers, until
from tests.patience import soon

pytestmark = pytest.mark.usefixtures("ready")  # a machine of 8 cores and 16Gi


async def submit(api: Api, cpu: str, **fields: object) -> str:
    body = {"command": "x", "name": "train", "flavour": {"cpu": cpu, "mem": "1Gi"}, **fields}
    made: str = (await api.post("/job/single", body)).ok()["id"]
    return made


async def ran(api: Api, workshop: Workshop, clock: ManualClock, seconds: float, name: str = "train") -> None:
    """A job of the name that ran for so long."""
    job = await submit(api, "8", name=name)
    await until(api, job, "running")
    clock.advance(seconds)
    workshop.finish(f"{job}.worker-0.1")
    await until(api, job, "succeeded")


async def test_the_start_of_a_job_is_forecast_from_jobs_of_its_kind(
    alice: Api, bob: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        for seconds in (100, 100, 100, 100, 102, 98, 100, 100, 100):
            await ran(alice, workshop, clock, float(seconds))
        first, second, third = [await submit(alice, "8") for _ in range(3)]
        await until(alice, first, "running")
        await until(alice, third, "pending")
        told = (await alice.get(f"/job/{second}/eta")).ok()
        assert told["learntFrom"] == 9
        assert 98 <= told["seconds"] <= 102
        assert 50 <= told["early"] <= 60
        assert 180 <= told["late"] <= 190, "no forecast has come true yet: half to double"
        later = (await alice.get(f"/job/{third}/eta")).ok()
        assert 196 <= later["seconds"] <= 204
        assert later["text"].startswith("starts about ")
        running = (await alice.get(f"/job/{first}/eta")).ok()
        assert "seconds" not in running
        assert running["text"].startswith("running since")
        (await bob.get(f"/job/{second}/eta")).refused(403, "AccessDenied")
        (await alice.get("/job/nothing/eta")).refused(404, "JobNotFound")
        clock.advance(100.0)
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, second, "running")
        assert (await alice.get(f"/job/{third}/eta")).ok()["learntFrom"] == 10, "what ended since is learnt as well"


async def test_without_knowledge_there_is_no_number(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        for _ in range(9):
            await ran(alice, workshop, clock, 1.0, "quick")
        first, second = [await submit(alice, "8", name=f"new-{n}", command="sleep 60") for n in range(2)]
        third = await submit(alice, "8", name="quick")
        await until(alice, first, "running")
        await until(alice, third, "pending")
        for job in (second, third):
            found = (await alice.get(f"/job/{job}/eta")).ok()
            assert found["text"].startswith(f"not known: {first} must end first, and no job like it has ended here yet")
            assert not {"seconds", "early", "late", "expectedStart"} & found.keys()


async def test_the_shortest_first_by_how_long_jobs_of_their_name_ran(
    root: Api, alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform):
        for _ in range(8):
            await ran(alice, workshop, clock, 100.0, "long")
            await ran(alice, workshop, clock, 5.0, "short")
        running = await submit(alice, "8")
        await until(alice, running, "running")
        long, short = await submit(alice, "8", name="long"), await submit(alice, "8", name="short")
        (await root.put("/queue/default-queue", {"order": "shortest"})).ok()
        later = await submit(alice, "8", name="short")
        await until(alice, later, "pending")
        workshop.finish(f"{running}.worker-0.1")
        await until(alice, short, "running")
    async with workshop.open(platform):  # what was expected of those that wait is found out again
        for ends, starts in ((short, later), (later, long)):
            workshop.finish(f"{ends}.worker-0.1")
            await until(alice, starts, "running")


async def _recorded(platform: Platform, workshop: Workshop, least: int) -> None:
    """Until so many ends are in the record."""

    def look() -> bool:
        found = list(read(folder_of(workshop.place.data, DEFAULT_CLUSTER)))
        return sum(isinstance(entry, Released) for entry in found) >= least

    await soon(look, "the record is written")


async def test_a_past_is_played_again_with_and_without_a_change(
    root: Api, alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    async with workshop.open(platform) as engine, asyncio.TaskGroup() as group:
        keeping = group.create_task(engine.keep_decisions())
        await soon(lambda: (engine.scheduler is not None) and engine.scheduler.recording, "it is recorded")
        for seconds in (10.0, 5.0, 8.0):
            await ran(alice, workshop, clock, seconds)
        waiting = [await submit(alice, "5") for _ in range(3)]
        await until(alice, waiting[0], "running")
        await until(alice, waiting[2], "pending")
        await _recorded(platform, workshop, 3)
        again = await eventually_answers(root, "/scheduler/replay", lambda found: found["starts"] >= 4)
        assert again["difference"] is None
        (await alice.get("/scheduler/replay")).refused(403, "OnlyRootAllowed")

        same: dict[str, Any] = (await root.post("/queue/whatif", {})).ok()
        assert same["reproduced"]
        assert same["before"] == same["after"]
        assert same["firstChange"] == ""
        (row,) = same["before"]["queues"]
        assert (row["name"], row["finished"]) == ("default-queue", row["jobs"])
        more = (await root.post("/queue/whatif", {"nodesAdded": [{"each": {"cpu": "8", "mem": "8Gi"}}]})).ok()
        assert more["after"]["queues"][0]["meanWait"] <= more["before"]["queues"][0]["meanWait"]
        less = (await root.post("/queue/whatif", {"queues": [{"name": "default-queue", "status": "closed"}]})).ok()
        assert less["after"]["queues"][0]["started"] < less["before"]["queues"][0]["started"]
        team = {"queue": "nlp", "jobs": 5, "every": 1.0, "seconds": 20.0, "each": {"cpu": "4", "mem": "1Gi"}}
        nlp = {"name": "nlp", "maxResources": {"cpu": "8", "mem": "8Gi"}, "minResources": {"cpu": "8", "mem": "8Gi"}}
        crowd = (await root.post("/queue/whatif", {"queues": [nlp], "team": team})).ok()
        (row,) = [row for row in crowd["after"]["queues"] if row["name"] == "nlp"]
        assert row["finished"] == 5
        assert row["meanWait"] <= 60, "they come with the beginning of the record, which is younger than an hour"
        assert (await root.get("/queue/nlp")).status != 200, "nothing was applied"
        recent = (await root.post("/queue/whatif", {"past": 1.0})).ok()
        assert recent["cycles"] < same["cycles"], "only the stretch that was asked for is played"
        last = max(folder_of(workshop.place.data, DEFAULT_CLUSTER).glob("*.jsonl"))
        wrong = Decided(clock.now(), 256, (Start("job-ghost", ()),))
        with last.open("a") as file:
            file.write(json.dumps(encode(wrong)) + "\n")
        refused = str((await root.post("/queue/whatif", {})).refused(409, "NotReproducible"))
        assert "decided start job-ghost" in refused
        assert "the simulation nothing more" in refused
        keeping.cancel()


async def test_a_change_that_makes_no_sense_is_refused_with_every_fault(
    root: Api, alice: Api, platform: Platform, workshop: Workshop
) -> None:
    async with workshop.open(platform):
        wrong = {"nodesLost": ["n9"], "team": {"queue": "nobody", "each": {"cpu": "1", "mem": "1Gi"}}}
        answer = str((await root.post("/queue/whatif", wrong)).refused(400, "QueueInvalidField"))
        assert "node[n9] is not there" in answer
        assert "queue[nobody] does not exist" in answer
        new = {"queues": [{"name": "default-queeu", "weight": 2}]}
        answer = str((await root.post("/queue/whatif", new)).refused(400, "QueueInvalidField"))
        assert "queue[default-queeu] does not exist" in answer
        assert "default-queue" in answer
        bad = {"queues": [{"name": "default-queue", "minResources": {"cpu": "99"}}]}
        assert "minResources" in str((await root.post("/queue/whatif", bad)).refused(400, "QueueInvalidField"))
        (await alice.post("/queue/whatif", {})).refused(403, "OnlyRootAllowed")
