"""Routes of flavours, on each engine."""

from __future__ import annotations

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.base.quantity import Resources
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.queues.flavours import create_flavour
from paddleflow.spec.document import parse
from paddleflow.spec.flavour import NewFlavour
from paddleflow.store.database import Database, Tx
from tests.api.client import Api


@pytest.fixture(autouse=True)
async def defaults(database: Database, clock: ManualClock) -> None:
    await database.write(ensure_defaults, clock.now(), Resources.of(4000, 2**30))


async def test_three_are_there_from_the_start(alice: Api) -> None:
    listed = (await alice.get("/flavour")).ok()
    assert [(f["name"], f["cpu"], f["mem"], f["scalarResources"]) for f in listed["flavourList"]] == [
        ("flavour1", "1", "1Gi", {}),
        ("flavour2", "4", "8Gi", {"nvidia.com/gpu": "1"}),
        ("flavour3", "4", "8Gi", {"nvidia.com/gpu": "2"}),
    ]
    assert listed["isTruncated"] is False


async def test_a_flavour_s_life(root: Api, alice: Api, clock: ManualClock) -> None:
    made = await root.post("/flavour", {"name": "big", "cpu": 7.5, "mem": "30Gi", "scalarResources": {"a.b/c": 1}})
    assert made.ok() == {"name": "big"}
    shown = (await alice.get("/flavour/big")).ok()
    assert (shown["cpu"], shown["mem"], shown["scalarResources"]) == ("7500m", "30Gi", {"a.b/c": "1"})
    assert (shown["clusterName"], shown["createTime"]) == ("", shown["updateTime"])
    clock.advance(100)
    changed = (await root.put("/flavour/big", {"memory": "31Gi", "scalarResources": {"a.b/c": "", "d": 2}})).ok()
    assert (changed["cpu"], changed["mem"], changed["scalarResources"]) == ("7500m", "31Gi", {"d": "2"})
    assert changed["name"] == "big"
    assert changed["updateTime"] > changed["createTime"]
    deleted = await root.delete("/flavour/big")
    assert (deleted.status, deleted.body) == (200, b"")
    for call in (alice.get("/flavour/big"), root.put("/flavour/big", {}), root.delete("/flavour/big")):
        (await call).refused(404, "FlavourNotFound")


async def test_bad_flavours(root: Api) -> None:
    (await root.post("/flavour", {"name": "flavour1", "cpu": 1, "mem": 1})).refused(409, "DuplicatedName")
    refused = (await root.post("/flavour", {"name": "a b", "cpu": "1.5.2", "mem": "-1Gi", "memm": 1})).refused(
        400, "FlavourInvalidField"
    )
    assert {fault["where"] for fault in refused["details"]} == {"name", "cpu", "mem", "memm"}
    for amounts in ({"cpu": 0, "mem": "1Gi"}, {"cpu": 1}, {"mem": "1Gi"}, {"cpu": 1, "mem": "0"}):
        (await root.post("/flavour", {"name": "f", **amounts})).refused(400, "FlavourInvalidField")
    (await root.post("/flavour", {"name": "f", "cpu": 1, "mem": 1, "clusterName": "no"})).refused(
        400, "ClusterNotFound"
    )
    (await root.put("/flavour/flavour1", {"cpu": "0"})).refused(400, "FlavourInvalidField")
    (await root.put("/flavour/flavour1", {"name": "other"})).refused(400, "FlavourInvalidField")
    assert (await root.get("/flavour/flavour1")).ok()["cpu"] == "1"
    (await root.get("/flavour/f")).refused(404, "FlavourNotFound")
    assert (await root.get("/flavour/flavor1")).refused(404, "FlavourNotFound")["hint"] == "did you mean flavour1?"


async def test_everybody_reads_and_only_root_writes(alice: Api, nobody: Api) -> None:
    (await alice.get("/flavour/flavour1")).ok()
    for call in (
        alice.post("/flavour", {"name": "f", "cpu": 1, "mem": 1}),
        alice.put("/flavour/flavour1", {"cpu": 2}),
        alice.delete("/flavour/flavour1"),
    ):
        (await call).refused(403, "OnlyRootAllowed")
    (await nobody.get("/flavour")).refused(401, "AuthWithoutToken")


async def test_filters(root: Api) -> None:
    (await root.post("/cluster", {"clusterName": "c2", "clusterType": "K3S"})).ok()
    (await root.post("/flavour", {"name": "only_c2", "cpu": 1, "mem": 1, "clusterName": "c2"})).ok()

    async def names(**query: object) -> list[str]:
        return [flavour["name"] for flavour in (await root.get("/flavour", **query)).ok()["flavourList"]]

    default = ["flavour1", "flavour2", "flavour3"]
    assert await names() == [*default, "only_c2"]
    assert await names(clusterName="c2") == [*default, "only_c2"]
    assert await names(clusterName="default-cluster") == default
    assert await names(name="2") == ["flavour2", "only_c2"]
    assert await names(name="y_c") == ["only_c2"]
    assert await names(name="%") == []
    assert (await root.put("/flavour/only_c2", {"clusterName": ""})).ok()["clusterName"] == ""


async def test_pages_show_each_flavour_once(root: Api, database: Database, clock: ManualClock) -> None:
    def fill(tx: Tx) -> None:
        for number in range(120):
            create_flavour(tx, parse(NewFlavour, {"name": f"f{number}", "cpu": 1, "mem": 1}), clock.now())

    await database.write(fill)
    names: list[str] = []
    query: dict[str, object] = {"maxKeys": 11}
    while True:
        page = (await root.get("/flavour", **query)).ok()
        names += [flavour["name"] for flavour in page["flavourList"]]
        if not page["isTruncated"]:
            break
        query["marker"] = page["nextMarker"]
    assert names == ["flavour1", "flavour2", "flavour3", *(f"f{number}" for number in range(120))]
    (await root.get("/flavour", marker="nonsense")).refused(400, "InvalidMarker")
