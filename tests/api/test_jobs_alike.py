"""Jobs that are alike are admitted once, but never by a world that is gone: each change of it is seen by the next job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paddleflow.access import grants
from paddleflow.base.clock import ManualClock
from paddleflow.jobs.changes import MOST_REFUSED
from paddleflow.jobs.queries import waiting_classes, waiting_jobs
from paddleflow.jobs.rows import request_of, requests_of
from paddleflow.queues.model import COUNTER, DEFAULT_CLUSTER
from paddleflow.store import counters
from paddleflow.store.database import Database, Tx
from tests.api.client import Api
from tests.api.workshop import TINY

pytestmark = pytest.mark.usefixtures("ready")

JOB: dict[str, Any] = {"command": "true", "flavour": TINY}
QUEUE = {"name": "q1", "namespace": "n", "clusterName": "default-cluster", "maxResources": {"cpu": "4", "mem": "4Gi"}}


async def submit(client: Api, **more: object) -> dict[str, Any]:
    job = (await client.post("/job/single", {**JOB, **more})).ok()["id"]
    shown: dict[str, Any] = (await client.get(f"/job/{job}")).ok()
    return shown


async def test_jobs_that_are_alike_keep_their_own_id_and_name(alice: Api) -> None:
    first, second, third = [await submit(alice, **more) for more in ({"name": "a"}, {"id": "mine", "name": "b"}, {})]
    assert (first["name"], second["name"], third["name"]) == ("a", "b", "")
    assert second["id"] == "mine" != first["id"] != third["id"]
    assert [each["members"][0]["name"] for each in (first, second, third)] == ["a", "b", ""]
    assert first["command"] == second["command"] == third["command"] == "true"
    listed = (await alice.get("/job")).ok()["jobList"]
    assert [each["members"][0]["name"] for each in listed] == ["", "b", "a"]


async def test_labels_of_jobs_that_are_alike_are_found(alice: Api) -> None:
    made = [(await submit(alice, labels={"team": "blue"}))["id"] for _ in range(3)]
    found = (await alice.get("/job", labels='{"team": "blue"}')).ok()["jobList"]
    assert [job["id"] for job in found] == made[::-1]


async def test_jobs_that_are_alike_wait_as_a_crowd(alice: Api, database: Database, clock: ManualClock) -> None:
    for _ in range(3):
        clock.advance(0.1 + 2**-20)  # a moment that has more digits than people write
        (
            await alice.post(
                "/job/batch", {"jobs": [JOB, {**JOB, "name": "a"}, {**JOB, "flavour": {"cpu": "1", "mem": "1"}}]}
            )
        ).ok()
        await submit(alice, schedulingPolicy={"priority": "high"})
    classes = await database.read(waiting_classes, DEFAULT_CLUSTER)
    rows = await database.read(waiting_jobs, DEFAULT_CLUSTER)
    assert sorted(len(each.jobs) for each in classes) == [3, 3, 6]
    found = [request for each in classes for request in requests_of(each)]
    assert sorted(found, key=lambda request: request.seq) == [request_of(row) for row in rows]


async def test_what_one_user_may_is_not_what_another_may(root: Api, alice: Api) -> None:
    (await root.post("/queue", QUEUE)).ok()
    await submit(root, schedulingPolicy={"queue": "q1"})
    (await alice.post("/job/single", {**JOB, "schedulingPolicy": {"queue": "q1"}})).refused(403, "AccessDenied")


async def test_a_grant_that_is_given_and_taken(root: Api, alice: Api, database: Database) -> None:
    (await root.post("/queue", QUEUE)).ok()
    document = {**JOB, "schedulingPolicy": {"queue": "q1"}}
    await database.write(grants.add, "alice", "queue", "q1", 1.0)
    (await alice.post("/job/single", document)).ok()
    await database.write(grants.remove, "alice", "queue", "q1")
    (await alice.post("/job/single", document)).refused(403, "AccessDenied")


async def test_waiting_jobs_are_refused_when_the_grant_is_taken_back(root: Api, alice: Api) -> None:
    """Those of its user in that queue, more than one transaction ends, and no others."""
    (await root.post("/queue", QUEUE)).ok()
    grant = {"userName": "alice", "resourceType": "queue", "resourceID": "q1"}
    (await root.post("/grant", grant)).ok()
    document = {**JOB, "schedulingPolicy": {"queue": "q1"}}
    waiting = (await alice.post("/job/batch", {"jobs": [document] * (MOST_REFUSED + 1)})).ok()["ids"]
    other = (await alice.post("/job/single", JOB)).ok()["id"]
    roots = (await root.post("/job/single", document)).ok()["id"]
    (await root.delete("/grant", username="alice", resourceType="queue", resourceID="q1")).ok()
    shown = [(await root.get(f"/job/{job}")).ok() for job in (waiting[0], waiting[-1], other, roots)]
    assert [job["status"] for job in shown] == ["terminated"] * 2 + ["init"] * 2
    assert shown[0]["message"] == "user[alice] may no longer use queue[q1]: the grant was revoked"
    (await root.delete("/grant", username="alice", resourceType="queue", resourceID="q1")).refused(404, "GrantNotFound")


async def test_a_queue_that_is_closed(root: Api) -> None:
    (await root.post("/queue", QUEUE)).ok()
    await submit(root, schedulingPolicy={"queue": "q1"})
    (await root.put("/queue/q1", {"status": "closed"})).ok()
    (await root.post("/job/single", {**JOB, "schedulingPolicy": {"queue": "q1"}})).refused(400, "InvalidState")


async def test_a_flavour_that_is_changed_and_deleted(root: Api) -> None:
    choice = {"name": "flavour1"}
    assert (await submit(root, flavour=choice))["flavour"]["cpu"] == "1"
    (await root.put("/flavour/flavour1", {"cpu": "2", "mem": "1Gi"})).ok()
    assert (await submit(root, flavour=choice))["flavour"]["cpu"] == "2"
    (await root.delete("/flavour/flavour1")).ok()
    (await root.post("/job/single", {**JOB, "flavour": choice})).refused(404, "FlavourNotFound")


async def test_a_storage_that_is_made_and_deleted(root: Api, tmp_path: Path) -> None:
    mount = {"fs": {"name": "s1", "mountPath": "/data"}}
    document = {**JOB, **mount}
    (await root.post("/job/single", document)).refused(400, "JobInvalidField")
    (tmp_path / "files").mkdir()
    (await root.post("/fs", {"name": "s1", "url": f"local://{tmp_path}/files"})).ok(201)
    job = await submit(root, **mount)
    (await root.put(f"/job/{job['id']}", None, action="stop")).ok()
    (await root.delete("/fs/s1")).ok()
    (await root.post("/job/single", document)).refused(400, "JobInvalidField")


async def test_a_change_that_was_undone_and_another_one_do_not_look_alike(database: Database) -> None:
    seen: list[int] = []

    def undone(tx: Tx) -> None:
        counters.bump(tx, COUNTER)
        seen.append(counters.value(tx, COUNTER))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(undone)
    await database.write(counters.bump, COUNTER)
    assert await database.read(counters.value, COUNTER) not in seen


async def test_submissions_that_come_together_are_accepted_or_refused_each_alone(alice: Api) -> None:
    """Of two that choose the same id at the same time, one is refused."""
    bodies = [
        {**JOB, "name": "a"},
        {**JOB, "id": "mine"},
        {**JOB, "id": "mine"},
        {**JOB, "flavour": {"name": "none"}},
        JOB,
    ]
    answers = await asyncio.gather(*(alice.post("/job/single", body) for body in bodies))
    first, *twins, unknown, last = answers
    assert sorted(answer.status for answer in twins) == [200, 409]
    assert (first.status, unknown.status, last.status) == (200, 404, 200)
    listed = (await alice.get("/job")).ok()["jobList"]
    assert {job["id"] for job in listed} == {first.ok()["id"], "mine", last.ok()["id"]}
