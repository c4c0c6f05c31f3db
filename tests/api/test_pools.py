"""Routes of resource pools, on each engine."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.base.quantity import Resources
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.pools import create_pool
from paddleflow.spec.document import parse
from paddleflow.spec.pool import NewPool
from paddleflow.store.database import Database, Tx
from tests.api.client import Api


@pytest.fixture(autouse=True)
async def defaults(database: Database, clock: ManualClock) -> None:
    await database.write(ensure_defaults, clock.now(), Resources.of(4000, 2**30))


def body(name: str = "pool-a", **fields: object) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "totalResources": {"cpu": "4", "mem": "8Gi"}, **fields}


async def test_a_pool_s_life(root: Api, clock: ManualClock) -> None:
    given = body(
        type="team",
        provider="us",
        orgID="o-1",
        description="d",
        labels={"zone": "a"},
        isHybrid=1,
        minResources={"cpu": 1},
    )
    assert (await root.post("/resourcepool", given)).ok() == {"name": "pool-a"}
    shown = (await root.get("/resourcepool/pool-a")).ok()
    assert shown.pop("id").startswith("pool-")
    assert shown.pop("createTime") == shown.pop("updateTime")
    assert shown == {
        "name": "pool-a",
        "namespace": "default",
        "type": "team",
        "provider": "us",
        "orgID": "o-1",
        "creator": "root",
        "description": "d",
        "clusterName": "default-cluster",
        "quotaType": "elasticQuota",
        "minResources": {"cpu": "1", "memory": "0"},
        "totalResources": {"cpu": "4", "memory": "8Gi"},
        "labels": {"zone": "a"},
        "annotations": {},
        "status": "open",
        "isHybrid": 1,
    }
    clock.advance(60)
    change = {"totalResources": {"cpu": 6}, "annotations": {"a": "1", "b": "2"}, "status": "closed"}
    changed = (await root.put("/resourcepool/pool-a", change)).ok()
    assert changed["totalResources"] == {"cpu": "6", "memory": "8Gi"}
    assert (changed["annotations"], changed["status"]) == ({"a": "1", "b": "2"}, "closed")
    changed = (await root.put("/resourcepool/pool-a", {"annotations": {"a": ""}})).ok()
    assert (changed["annotations"], changed["status"]) == ({"b": "2"}, "closed")
    assert (await root.get("/resourcepool/pool-a")).ok() == changed
    assert (await root.delete("/resourcepool/pool-a")).body == b""
    for call in (
        root.get("/resourcepool/pool-a"),
        root.put("/resourcepool/pool-a", {}),
        root.delete("/resourcepool/x"),
    ):
        (await call).refused(404, "ResourceNotFound")


async def test_bad_pools(root: Api) -> None:
    (await root.post("/resourcepool", body())).ok()
    (await root.post("/resourcepool", body())).refused(409, "DuplicatedName")
    wrong = body("Pool", quotaType="x", totalResources={"cpu": "1.5.2Gi"}, type="x" * 33, isHybrid=2, nam=1)
    refused = (await root.post("/resourcepool", wrong)).refused(400, "InvalidArguments")
    assert {fault["where"] for fault in refused["details"]} == {
        *("name", "quotaType", "totalResources.cpu", "type", "isHybrid", "nam")
    }
    (await root.post("/resourcepool", body("p2", clusterName="no"))).refused(400, "ClusterNotFound")
    (await root.post("/resourcepool", body("p2", minResources={"cpu": 5}))).refused(400, "InvalidArguments")
    (await root.put("/resourcepool/pool-a", {"status": "gone"})).refused(400, "InvalidArguments")
    (await root.put("/cluster/default-cluster", {"status": "offline"})).ok()
    (await root.post("/resourcepool", body("p2"))).refused(400, "InvalidClusterStatus")


async def test_they_are_for_root(alice: Api) -> None:
    for call in (
        alice.post("/resourcepool", body()),
        alice.get("/resourcepool"),
        alice.get("/resourcepool/pool-a"),
        alice.put("/resourcepool/pool-a", {}),
        alice.delete("/resourcepool/pool-a"),
    ):
        (await call).refused(403, "OnlyRootAllowed")


async def test_lists(root: Api, database: Database, clock: ManualClock) -> None:
    def fill(tx: Tx) -> None:
        for number in range(120):
            labels = {"zone": "a" if number % 3 else "b", "n": str(number % 2)}
            create_pool(tx, parse(NewPool, body(f"p-{number:03}", labels=labels)), "root", clock.now())

    await database.write(fill)
    everything = [f"p-{number:03}" for number in range(120)]
    assert await walk(root) == everything
    assert await walk(root, labels="zone=b") == everything[::3]
    assert await walk(root, labels='{"zone": "b", "n": "0"}') == everything[::6]
    assert await walk(root, labels="zone=c") == []
    assert await walk(root, name="p-007") == ["p-007"]
    (await root.put("/resourcepool/p-009", {"status": "closed"})).ok()
    assert await walk(root, status="closed") == ["p-009"]
    assert len(await walk(root, status="open,closed")) == 120
    for bad in ("zone", "{"):
        (await root.get("/resourcepool", labels=bad)).refused(400, "InvalidURI")
    (await root.get("/resourcepool", marker="x")).refused(400, "InvalidMarker")


async def walk(api: Api, **query: object) -> list[str]:
    names: list[str] = []
    query["maxKeys"] = 7
    while True:
        page = (await api.get("/resourcepool", **query)).ok()
        names += [pool["name"] for pool in page["resourcePoolList"]]
        if not page["isTruncated"]:
            return names
        query["marker"] = page["nextMarker"]
