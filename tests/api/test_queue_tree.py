"""The quota tree over REST, on each engine: what it takes, what it refuses, and what the scheduler is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.base.quantity import Resources
from paddleflow.queues.queues import get_queue, scheduled_queues, write_queue
from paddleflow.store.database import Database, Tx
from tests.api.client import Api
from tests.api.job_rows import add_job
from tests.api.workshop import TINY, Workshop, until

pytestmark = pytest.mark.usefixtures("ready")  # a machine of 8 cores and 16Gi


def amount(cpu: float, memory: str = "4Gi") -> dict[str, Any]:
    return {"cpu": cpu, "mem": memory}


async def make(root: Api, name: str, **fields: object) -> dict[str, Any]:
    body = {"name": name, "namespace": "default", "maxResources": amount(8, "16Gi"), **fields}
    answer: dict[str, Any] = (await root.post("/queue", body)).ok()
    return answer


async def refused(root: Api, name: str, **fields: object) -> list[dict[str, str]]:
    """The faults of a queue that is to be made."""
    body = {"name": name, "namespace": "default", "maxResources": amount(8, "16Gi"), **fields}
    found: list[dict[str, str]] = (await root.post("/queue", body)).refused(400, "QueueInvalidField")["details"]
    return found


async def refused_change(root: Api, name: str, **fields: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = (await root.put(f"/queue/{name}", fields)).refused(400, "QueueInvalidField")[
        "details"
    ]
    return found


async def test_the_scheduler_is_told(root: Api, database: Database) -> None:
    await make(root, "lab", minResources=amount(4), weight=3)
    await make(root, "dev", parent="lab", order="fair", minResources=amount(1))
    default, lab, dev = await database.read(scheduled_queues, "default-cluster")
    assert (default.parent, default.weight, default.order) == ("root", 1, "fifo")
    assert (lab.parent, lab.weight, lab.order, lab.guarantee) == ("root", 3, "fifo", Resources.of(4000, 4 * 2**30))
    assert (dev.parent, dev.weight, dev.order) == ("lab", 1, "fair")
    changed = (await root.put("/queue/dev", {"parent": "root", "weight": 2, "order": "drf"})).ok()
    assert (changed["parent"], changed["weight"], changed["order"]) == ("root", 2, "drf")
    again = (await root.put("/queue/dev", {"status": "closed"})).ok()
    assert (again["parent"], again["weight"], again["order"]) == ("root", 2, "drf")
    *_, dev = await database.read(scheduled_queues, "default-cluster")
    assert (dev.parent, dev.weight, dev.order) == ("root", 2, "drf")


async def test_what_the_fields_must_be(root: Api) -> None:
    faults = await refused(root, "q", parent="Not A Queue", weight=0, order="fastest")
    assert {fault["where"] for fault in faults} == {"parent", "weight", "order"}
    (await root.post("/queue", {"name": "root", "namespace": "n", "maxResources": amount(1)})).refused(
        409, "QueueNameDuplicated"
    )


async def test_an_unknown_parent_is_named_with_the_nearest(root: Api) -> None:
    await make(root, "research")
    (fault,) = await refused(root, "q", parent="reserch")
    assert fault == {
        "where": "parent",
        "message": "queue[reserch] does not exist in cluster[default-cluster]",
        "hint": "did you mean research?",
    }
    (await root.post("/cluster", {"clusterName": "other", "clusterType": "K3S", "endpoint": "e"})).ok()
    (fault,) = await refused(root, "q", parent="research", clusterName="other")
    assert fault["message"] == "queue[research] does not exist in cluster[other]"


async def test_minima_below_stay_within_the_parent_s(root: Api) -> None:
    await make(root, "lab", minResources=amount(4))
    await make(root, "a", parent="lab", minResources=amount(3, "1Gi"))
    faults = await refused(root, "b", parent="lab", minResources=amount(2, "5Gi"))
    assert [fault["where"] for fault in faults] == ["minResources", "minResources"]
    assert faults[0]["message"] == "the queues under lab have min cpu 5 together, more than its min 4"
    assert "memory 6Gi together, more than its min 4Gi" in faults[1]["message"]
    await make(root, "b", parent="lab", minResources=amount(1, "1Gi"))
    (fault,) = await refused_change(root, "b", minResources=amount(2, "1Gi"))
    assert "more than its min 4" in fault["message"]
    (fault,) = await refused_change(root, "lab", minResources={"cpu": 3})
    assert "more than its min 3" in fault["message"]
    (await root.put("/queue/a", {"minResources": {"cpu": 1}})).ok()
    (await root.put("/queue/lab", {"minResources": {"cpu": 3}})).ok()


async def test_every_fault_at_once(root: Api) -> None:
    await make(root, "lab", minResources=amount(2), maxResources=amount(4))
    faults = await refused(
        root, "q", parent="lab", minResources=amount(9, "1Gi"), location={"volcano.sh/quota-type": "x"}
    )
    assert [fault["where"] for fault in faults] == [
        *("location.volcano.sh/quota-type", "minResources.cpu", "minResources"),
    ]


async def test_nobody_stands_under_itself(root: Api) -> None:
    for name, parent in (("a", "root"), ("b", "a"), ("c", "b")):
        await make(root, name, parent=parent)
    faults = await refused_change(root, "a", parent="c")
    assert {fault["where"] for fault in faults} == {"parent"}
    assert "queue a is under itself: a > c > b > a" in [fault["message"] for fault in faults]
    (fault,) = await refused_change(root, "a", parent="a")
    assert "a > a" in fault["message"]
    (fault,) = await refused(root, "d", parent="d")
    assert "d > d" in fault["message"]


async def test_the_default_queue_stays_at_the_top(root: Api) -> None:
    await make(root, "lab")
    (fault,) = await refused_change(root, "default-queue", parent="lab")
    assert fault["message"] == "queue[default-queue] stays under root"
    assert (await root.put("/queue/default-queue", {"weight": 2, "order": "fair"})).ok()["weight"] == 2


async def test_a_queue_with_queues_below_stays(root: Api) -> None:
    await make(root, "lab")
    await make(root, "dev", parent="lab")
    answer = (await root.delete("/queue/lab")).refused(409, "QueueIsInUse")
    assert answer["message"].startswith("queue[lab] has queues below it: dev (hint: ")
    (await root.put("/queue/dev", {"parent": "root"})).ok()
    (await root.delete("/queue/lab")).ok()


async def test_what_was_wrong_before_stands_in_nobody_s_way(root: Api, database: Database) -> None:
    await make(root, "lab", minResources=amount(4))
    await make(root, "dev", parent="lab", minResources=amount(3))

    def shrink(tx: Tx) -> None:
        write_queue(tx, replace(get_queue(tx, "lab"), least=Resources.of(1000), most=Resources.of(2000, 2**34)))

    await database.write(shrink)
    await make(root, "other")
    (await root.put("/queue/dev", {"weight": 2})).ok()
    (fault,) = await refused_change(root, "dev", minResources={"cpu": 2})
    assert "cpu 2 together, more than its min 1" in fault["message"]
    (await root.put("/queue/dev", {"minResources": amount(1, "0")})).ok()


async def test_guarantees_beyond_the_machine_are_accepted_with_a_warning(root: Api) -> None:
    assert await make(root, "a", minResources=amount(6)) == {"name": "a"}
    made = await make(root, "b", minResources=amount(6))
    wanted = "the queues under root have min cpu 12 together, the nodes have 8: not all guarantees can be kept at once"
    assert made == {"name": "b", "warnings": [wanted]}
    assert (await root.put("/queue/b", {"weight": 2})).ok()["warnings"] == [wanted]
    assert "warnings" not in (await root.put("/queue/b", {"minResources": {"cpu": 2}})).ok()


async def test_use_counts_for_the_queues_above(root: Api, alice: Api, database: Database) -> None:
    await make(root, "lab")
    await make(root, "dev", parent="lab")
    await make(root, "train", parent="lab", maxResources=amount(3))

    def fill(tx: Tx) -> None:
        for number, queue in enumerate(["lab", "dev", "dev", "train", "default-queue"]):
            add_job(tx, f"job-{number}", queue, "running", placed=True, cpu=1000, memory=2**30, scalars={"x": 500})
        add_job(tx, "job-9", "dev", "pending")

    await database.write(fill)
    rows = {queue["name"]: queue for queue in (await root.get("/queue", usage="true")).ok()["queueList"]}
    cpu = {name: (row["usedResources"]["cpu"], row["usedTogether"]["cpu"]) for name, row in rows.items()}
    assert cpu == {"default-queue": ("1", "1"), "lab": ("1", "4"), "dev": ("2", "2"), "train": ("1", "1")}
    assert rows["lab"]["usedTogether"]["scalarResources"] == {"x": "2"}
    assert (rows["lab"]["idleResources"]["cpu"], rows["train"]["idleResources"]["cpu"]) == ("4", "2")
    assert (await root.get("/queue/lab")).ok() == rows["lab"]
    assert "usedResources" not in (await root.get("/queue")).ok()["queueList"][0]
    (await root.post("/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "dev"})).ok()
    seen = (await alice.get("/queue", usage="true")).ok()["queueList"]
    assert [queue["name"] for queue in seen] == ["default-queue", "dev"]


async def test_submission_looks_up_the_tree(root: Api) -> None:
    await make(root, "lab", maxResources=amount(2))
    await make(root, "dev", parent="lab")
    await make(root, "deep", parent="dev")
    wide = {"command": "x", "flavour": amount(3, "1Gi"), "schedulingPolicy": {"queue": "deep"}}
    answer = (await root.post("/job/single", wide)).refused(400, "JobInvalidField")
    assert answer["hint"].startswith("queue lab never has that much")
    (await root.put("/queue/lab", {"maxResources": {"cpu": 3}})).ok()
    (await root.post("/job/single", wide)).ok()
    (await root.put("/queue/lab", {"status": "closed"})).ok()
    (await root.post("/job/single", wide)).refused(400, "InvalidState")


async def test_a_parent_s_ceiling_holds_for_all_below(root: Api, platform: Platform, workshop: Workshop) -> None:
    await make(root, "lab", maxResources={"cpu": "150m", "mem": "4Gi"})
    await make(root, "a", parent="lab")
    await make(root, "b", parent="lab")

    async def submit(queue: str) -> str:
        body = {"command": "x", "flavour": TINY, "schedulingPolicy": {"queue": queue}}
        job: str = (await root.post("/job/single", body)).ok()["id"]
        return job

    async with workshop.open(platform):
        first = await submit("a")
        await until(root, first, "running")
        second = await submit("b")
        shown = await until(root, second, "pending")
        assert "queue lab has cpu 50m of 150m free" in shown["message"]
        why = (await root.get(f"/job/{second}/why")).ok()
        assert (why["code"], why["status"], why["queue"]) == ("quota", "pending", "b")
        assert "queue lab has cpu 50m of 150m free, the job needs 100m" in why["text"]
        assert first in why["text"]
        (await root.put("/queue/b", {"parent": "root"})).ok()
        await until(root, second, "running")
