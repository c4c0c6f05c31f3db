"""Routes of queues, on each engine."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.access import grants
from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock, local_text
from paddleflow.base.quantity import Resources
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.queues import create_queue, may_use_queue, scheduled_queues
from paddleflow.spec.document import parse
from paddleflow.spec.queue import NewQueue
from paddleflow.store import counters
from paddleflow.store.bus import JOBS
from paddleflow.store.database import Database, Tx
from tests.api.access_rows import granted
from tests.api.client import Api
from tests.api.job_rows import add_job, end_jobs
from tests.patience import PATIENCE

CAPACITY = Resources.of(16_000, 64 * 2**30, {"nvidia.com/gpu": 4000})


@pytest.fixture(autouse=True)
async def defaults(database: Database, clock: ManualClock) -> None:
    await database.write(ensure_defaults, clock.now(), CAPACITY)


def body(name: str = "team-a", **fields: object) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "maxResources": {"cpu": "4", "mem": "8Gi"}, **fields}


async def version(database: Database) -> int:
    return await database.read(counters.value, "queues")


async def test_a_queue_s_life(root: Api, clock: ManualClock) -> None:
    made = await root.post("/queue", body(minResources={"cpu": "500m", "mem": "1Gi"}, schedulingPolicy=["priority"]))
    assert made.ok() == {"name": "team-a"}
    shown = (await root.get("/queue/team-a")).ok()
    assert shown.pop("id").startswith("queue-")
    when = local_text(clock.now())
    assert shown == {
        "name": "team-a",
        "namespace": "default",
        "clusterName": "default-cluster",
        "otherClusters": [],
        "quotaType": "elasticQuota",
        "minResources": {"cpu": "500m", "memory": "1Gi"},
        "maxResources": {"cpu": "4", "memory": "8Gi"},
        "usedResources": {"cpu": "0", "memory": "0"},
        "usedTogether": {"cpu": "0", "memory": "0"},
        "idleResources": {"cpu": "4", "memory": "8Gi"},
        "location": {},
        "nodeSelector": {},
        "schedulingPolicy": ["priority"],
        "parent": "root",
        "weight": 1,
        "order": "fifo",
        "status": "open",
        "createTime": when,
        "updateTime": when,
    }
    clock.advance(60)
    change = {
        "maxResources": {"cpu": 8, "scalarResources": {"nvidia.com/gpu": 2}},
        "location": {"zone": "a"},
        "schedulingPolicy": ["priority-"],
        "status": "closed",
    }
    changed = (await root.put("/queue/team-a", change)).ok()
    assert changed["maxResources"] == {"cpu": "8", "memory": "8Gi", "scalarResources": {"nvidia.com/gpu": "2"}}
    assert (changed["location"], changed["schedulingPolicy"], changed["status"]) == ({"zone": "a"}, [], "closed")
    assert (changed["createTime"], changed["updateTime"]) == (when, local_text(clock.now()))
    deleted = await root.delete("/queue/team-a")
    assert (deleted.status, deleted.body) == (200, b"")
    (await root.get("/queue/team-a")).refused(404, "QueueNameNotFound")


async def test_every_change_is_noticed(root: Api, database: Database, platform: Platform) -> None:
    before = await version(database)
    with platform.bus.subscribe(JOBS) as woken:
        for call in (
            root.post("/queue", body()),
            root.put("/queue/team-a", {"status": "closed"}),
            root.delete("/queue/team-a"),
        ):
            (await call).ok()
            after = await version(database)
            assert after > before
            before = after
            assert await woken.wait(PATIENCE)


async def test_a_refused_change_leaves_nothing(root: Api, database: Database) -> None:
    (await root.post("/queue", body())).ok()
    before, shown = await version(database), (await root.get("/queue/team-a")).ok()
    (await root.post("/queue", body())).refused(409, "QueueNameDuplicated")
    answer = (await root.put("/queue/team-a", {"location": {"a": "b"}, "minResources": {"cpu": 5}})).refused(
        400, "QueueInvalidField"
    )
    assert answer["details"] == [{"where": "minResources.cpu", "message": "5 is more than the 4 of maxResources"}]
    assert (await root.get("/queue/team-a")).ok() == shown
    assert await version(database) == before


async def test_what_a_new_queue_must_be(root: Api) -> None:
    (await root.post("/queue", body("default"))).refused(409, "QueueNameDuplicated")
    (await root.post("/queue", body("default-queue"))).refused(409, "QueueNameDuplicated")
    unknown = (await root.post("/queue", body(clusterName="default-clustr"))).refused(400, "ClusterNotFound")
    assert unknown["hint"] == "did you mean default-cluster?"
    wrong = body("Bad_Name", maxResources={"cpu": "1.5.2Gi", "mem": "-1"}, quotaTyp="elasticQuota")
    refused = (await root.post("/queue", wrong)).refused(400, "QueueInvalidField")
    assert {fault["where"] for fault in refused["details"]} == {
        *("name", "maxResources.cpu", "maxResources.mem", "quotaTyp")
    }
    (await root.post("/queue")).refused(400, "MalformedJSON")
    (await root.post("/queue", b"{")).refused(400, "MalformedJSON")
    (await root.post("/queue", [])).refused(400, "InappropriateJSON")
    (await root.post("/queue", body(maxResources={"cpu": "1" * 60, "mem": 1}))).refused(400, "QueueInvalidField")
    (await root.put("/queue/nowhere", {})).refused(404, "QueueNameNotFound")
    (await root.delete("/queue/nowhere")).refused(404, "QueueNameNotFound")


async def test_namespaces_of_the_cluster(root: Api) -> None:
    (await root.put("/cluster/default-cluster", {"namespaceList": ["ns-a", "ns-b"]})).ok()
    refused = (await root.post("/queue", body(namespace="ns-c"))).refused(400, "NamespaceNotFound")
    assert "ns-" in refused["hint"]
    (await root.post("/queue", body(namespace="ns-a"))).ok()
    (await root.put("/cluster/default-cluster", {"status": "offline"})).ok()
    (await root.post("/queue", body("team-b", namespace="ns-a"))).refused(400, "InvalidClusterStatus")


async def test_used_and_idle_are_true(root: Api, database: Database) -> None:
    (
        await root.post("/queue", body(maxResources={"cpu": 4, "mem": "4Gi", "scalarResources": {"nvidia.com/gpu": 2}}))
    ).ok()

    def fill(tx: Tx) -> None:
        gpu = {"nvidia.com/gpu": 1000}
        add_job(tx, "job-1", "team-a", "running", placed=True, scalars=gpu)
        add_job(tx, "job-2", "team-a", "running", placed=True, scalars=gpu)
        add_job(tx, "job-3", "team-a", "terminating", placed=True, cpu=500, memory=2**29)
        add_job(tx, "job-4", "team-a", "pending", placed=True, cpu=250, memory=0)
        add_job(tx, "job-5", "team-a", "pending")
        add_job(tx, "job-6", "team-a", "init")
        add_job(tx, "job-7", "team-a", "succeeded")
        add_job(tx, "job-8", "default-queue", "running", placed=True)

    await database.write(fill)
    shown = (await root.get("/queue/team-a")).ok()
    used = {"cpu": "2750m", "memory": "2560Mi", "scalarResources": {"nvidia.com/gpu": "2"}}
    assert shown["usedResources"] == used
    assert shown["idleResources"] == {"cpu": "1250m", "memory": "1536Mi"}
    (await root.put("/queue/team-a", {"maxResources": {"cpu": 1, "scalarResources": {}}})).ok()
    shown = (await root.get("/queue/team-a")).ok()
    assert (shown["usedResources"], shown["idleResources"]) == (used, {"cpu": "0", "memory": "1536Mi"})


@pytest.mark.parametrize("status", ["init", "pending", "running", "terminating", "preempting"])
async def test_a_queue_with_active_jobs_stays(root: Api, database: Database, status: str) -> None:
    (await root.post("/queue", body())).ok()
    await database.write(add_job, "job-1", "team-a", status)
    assert "1 jobs" in (await root.delete("/queue/team-a")).refused(409, "QueueIsInUse")["message"]
    await database.write(end_jobs)
    (await root.delete("/queue/team-a")).ok()


async def test_the_default_queue_stays(root: Api) -> None:
    (await root.delete("/queue/default-queue")).refused(409, "ActionNotAllowed")
    assert (await root.put("/queue/default-queue", {"status": "closed"})).ok()["status"] == "closed"


async def test_others_see_the_default_queue_and_what_was_granted(root: Api, alice: Api, database: Database) -> None:
    for name in ("team-a", "team-b"):
        (await root.post("/queue", body(name))).ok()
    names = [queue["name"] for queue in (await alice.get("/queue")).ok()["queueList"]]
    assert names == ["default-queue"]
    (await alice.get("/queue/default-queue")).ok()
    refused = (await alice.get("/queue/team-a")).refused(403, "AccessDenied")
    assert "paddleflow queue grant alice team-a" in refused["hint"]
    assert (await alice.get("/queue/team-c")).refused(404, "QueueNameNotFound")["hint"] == "known: default-queue"
    (await root.post("/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "team-a"})).ok()
    names = [queue["name"] for queue in (await alice.get("/queue")).ok()["queueList"]]
    assert names == ["default-queue", "team-a"]
    (await alice.get("/queue/team-a")).ok()
    assert await database.read(may_use_queue, "alice", False, "team-a")
    assert not await database.read(may_use_queue, "alice", False, "team-b")
    assert await database.read(may_use_queue, "root", True, "team-b")


async def test_a_grant_ends_with_its_queue(root: Api, alice: Api, database: Database) -> None:
    (await root.post("/queue", body())).ok()
    (await root.post("/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "team-a"})).ok()
    (await root.delete("/queue/team-a")).ok()
    (await root.post("/queue", body())).ok()
    (await alice.get("/queue/team-a")).refused(403, "AccessDenied")
    assert await granted(database, "alice", "queue") == []


async def test_only_root_writes(alice: Api, nobody: Api) -> None:
    for call in (
        alice.post("/queue", body()),
        alice.put("/queue/default-queue", {"status": "closed"}),
        alice.delete("/queue/default-queue"),
    ):
        (await call).refused(403, "OnlyRootAllowed")
    (await nobody.get("/queue")).refused(401, "AuthWithoutToken")


async def test_pages_show_each_queue_once(root: Api, alice: Api, database: Database, clock: ManualClock) -> None:
    def fill(tx: Tx) -> None:
        for number in range(120):
            create_queue(tx, parse(NewQueue, body(f"q-{number:03}")), clock.now())
            if number % 2:
                grants.add(tx, "alice", "queue", f"q-{number:03}", clock.now())

    await database.write(fill)
    everything = ["default-queue", *(f"q-{number:03}" for number in range(120))]
    assert await walk(root, 7) == everything
    assert await walk(root, 121) == everything
    assert await walk(alice, 10) == ["default-queue", *everything[2::2]]
    first = (await root.get("/queue")).ok()
    assert (first["maxKeys"], first["isTruncated"], len(first["queueList"])) == (50, True, 50)
    all_at_once = (await root.get("/queue", maxKeys=121)).ok()
    assert all_at_once["isTruncated"] is False
    assert "nextMarker" not in all_at_once
    some = (await root.get("/queue", name="q-007, q-003,nothing")).ok()
    assert [queue["name"] for queue in some["queueList"]] == ["q-003", "q-007"]


async def walk(api: Api, size: int) -> list[str]:
    names: list[str] = []
    marker = ""
    for _ in range(200):
        page = (await api.get("/queue", maxKeys=size, marker=marker)).ok()
        names += [queue["name"] for queue in page["queueList"]]
        assert page["isTruncated"] == ("nextMarker" in page)
        marker = page.get("nextMarker", "")
        if not marker:
            return names
    raise AssertionError("the pages never end")


async def test_bad_pages(root: Api) -> None:
    for marker in ("zz", "0", "5f3759df01", "f" * 40, "-1"):
        (await root.get("/queue", marker=marker)).refused(400, "InvalidMarker")
    for size in (0, 1001, -1, "x"):
        (await root.get("/queue", maxKeys=size)).refused(400, "InvalidURI")


async def test_the_scheduler_s_queues(root: Api, database: Database) -> None:
    (await root.post("/queue", body(location={"room": "b"}, nodeSelector={"zone": "a"}))).ok()
    (await root.put("/queue/default-queue", {"status": "closed"})).ok()
    default, team = await database.read(scheduled_queues, "default-cluster")
    assert (default.name, default.ceiling, default.open) == ("default-queue", CAPACITY, False)
    assert (team.name, team.open, team.node_labels) == ("team-a", True, (("zone", "a"),))
    (await root.put("/cluster/default-cluster", {"status": "offline"})).ok()
    assert not any(queue.open for queue in await database.read(scheduled_queues, "default-cluster"))
    assert await database.read(scheduled_queues, "other") == ()
