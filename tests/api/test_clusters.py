"""Routes of clusters and of what they have, on each engine."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddleflow.api.cluster_view import NodeUse, PodUse
from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock
from paddleflow.base.quantity import Resources
from paddleflow.queues.clusters import create_cluster
from paddleflow.queues.defaults import ensure_defaults
from paddleflow.settings import Settings
from paddleflow.spec.cluster import NewCluster
from paddleflow.spec.document import parse
from paddleflow.store import counters
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database, Tx
from tests.api.client import Api

KUBECONFIG = base64.b64encode(b"clusters: []\ncontexts: []\nusers:\n- token: hush\n").decode()
GI = 2**30


@dataclass(slots=True)
class Machine:
    """The nodes that a runtime would tell of."""

    found: list[NodeUse] = field(default_factory=list)

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        assert cluster == "default-cluster"
        return self.found


@pytest.fixture
def machine() -> Machine:
    pod = PodUse("job-1.worker-0", "running", {"team": "a"}, Resources.of(1500, GI, {"nvidia.com/gpu": 1000}))
    return Machine(
        [
            NodeUse(
                name="here",
                address="127.0.0.1",
                schedulable=True,
                labels={"zone": "a"},
                capacity=Resources.of(8000, 16 * GI, {"nvidia.com/gpu": 2000}),
                used=pod.resources,
                pods=[pod],
            ),
            NodeUse("idle", "127.0.0.2", True, {"zone": "b"}, Resources.of(4000, 8 * GI), Resources()),
            NodeUse("down", "127.0.0.3", False, {"zone": "a"}, Resources.of(4000, 8 * GI), Resources()),
        ]
    )


@pytest.fixture
def platform(settings: Settings, database: Database, clock: ManualClock, machine: Machine) -> Platform:
    return Platform(settings=settings, database=database, clock=clock, bus=LocalBus(), clusters=machine)


@pytest.fixture(autouse=True)
async def defaults(database: Database, clock: ManualClock) -> None:
    await database.write(ensure_defaults, clock.now(), Resources.of(16_000, 32 * GI))


def body(name: str = "far", **fields: object) -> dict[str, Any]:
    return {"clusterName": name, "clusterType": "Kubernetes", "version": "1.29", "endpoint": "10.0.0.1", **fields}


async def test_this_machine_is_there_from_the_start(root: Api) -> None:
    shown = (await root.get("/cluster/default-cluster")).ok()
    assert (shown["clusterType"], shown["status"], shown["credential"]) == ("Local", "online", "")


async def test_a_cluster_s_life(root: Api, database: Database, clock: ManualClock) -> None:
    before = await database.read(counters.value, "queues")
    given = body(
        description="d", credential=KUBECONFIG, setting='{"a": 1}', namespaceList=["a", "b", "a"], status="offline"
    )
    made = (await root.post("/cluster", given)).ok()
    assert made["id"].startswith("cluster-")
    assert made["createTime"] == made["updateTime"]
    assert {key: made[key] for key in made if key not in ("id", "createTime", "updateTime")} == {
        "clusterName": "far",
        "description": "d",
        "endpoint": "10.0.0.1",
        "source": "OnPremise",
        "clusterType": "Kubernetes",
        "version": "1.29",
        "status": "offline",
        "credential": "",
        "setting": '{"a": 1}',
        "namespaceList": ["a", "b"],
    }
    clock.advance(60)
    changed = (await root.put("/cluster/far", {"status": "online", "namespaceList": [], "version": None})).ok()
    assert (changed["status"], changed["namespaceList"], changed["version"]) == ("online", [], "1.29")
    assert (await root.get("/cluster/far")).ok() == changed
    assert (await root.delete("/cluster/far")).body == b""
    assert await database.read(counters.value, "queues") > before
    for call in (root.get("/cluster/far"), root.put("/cluster/far", {}), root.delete("/cluster/far")):
        (await call).refused(404, "ClusterNotFound")


async def test_a_credential_never_comes_out(root: Api) -> None:
    secret = b"hush"
    answers = [
        await root.post("/cluster", body(credential=KUBECONFIG)),
        await root.get("/cluster/far"),
        await root.get("/cluster"),
        await root.put("/cluster/far", {"credential": KUBECONFIG}),
        await root.put("/cluster/far", {"credential": KUBECONFIG + "!"}),
        await root.put("/cluster/far", {"credential": base64.b64encode(b"users: hush").decode()}),
    ]
    for answer in answers:
        assert secret not in answer.body
        assert KUBECONFIG.encode() not in answer.body
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 400, 400]
    answers[-1].refused(400, "InvalidClusterCredential")


async def test_bad_clusters(root: Api) -> None:
    (await root.post("/cluster", body("default-cluster"))).refused(400, "InvalidClusterProperties")
    (await root.post("/cluster", body())).ok()
    (await root.post("/cluster", body())).refused(409, "DuplicatedName")
    (await root.post("/cluster", body("c2", version=""))).refused(400, "InvalidClusterProperties")
    (await root.post("/cluster", body("c2", clusterType="Local"))).refused(400, "InvalidClusterProperties")
    (await root.post("/cluster", body("resource"))).refused(400, "InvalidNamePattern")
    wrong = body("-c", clusterType="Slurm", status="up", namespaceList=["B"], verison="1")
    refused = (await root.post("/cluster", wrong)).refused(400, "InvalidClusterProperties")
    assert {fault["where"] for fault in refused["details"]} == {
        *("clusterName", "clusterType", "status", "namespaceList[0]", "verison")
    }
    (await root.put("/cluster/default-cluster", {"clusterType": "K3S"})).refused(400, "InvalidClusterProperties")
    (await root.put("/cluster/far", {"clusterName": "near"})).refused(400, "InvalidClusterProperties")
    assert len((await root.get("/cluster")).ok()["clusterList"]) == 2


async def test_a_cluster_in_use_stays(root: Api) -> None:
    (await root.delete("/cluster/default-cluster")).refused(409, "ActionNotAllowed")
    (await root.post("/cluster", body())).ok()
    queue = {"name": "q", "namespace": "n", "clusterName": "far", "maxResources": {"cpu": 1, "mem": 1}}
    (await root.post("/queue", queue)).ok()
    (await root.post("/flavour", {"name": "f", "cpu": 1, "mem": 1, "clusterName": "far"})).ok()
    refused = (await root.delete("/cluster/far")).refused(409, "ActionNotAllowed")
    assert "1 queues, 1 flavours" in refused["message"]
    (await root.put("/cluster/far", {"clusterType": "K3S"})).refused(400, "InvalidClusterProperties")
    (await root.delete("/queue/q")).ok()
    (await root.delete("/flavour/f")).ok()
    (await root.delete("/cluster/far")).ok()


async def test_they_are_for_root(alice: Api) -> None:
    calls = [
        ("POST", "/cluster"),
        ("GET", "/cluster"),
        ("GET", "/cluster/default-cluster"),
        ("PUT", "/cluster/default-cluster"),
        ("DELETE", "/cluster/default-cluster"),
        ("GET", "/cluster/resource"),
        ("POST", "/cluster/resource"),
        ("GET", "/cluster/default-cluster/nodeInfos"),
        ("POST", "/cluster/default-cluster/k8s/object"),
        ("GET", "/cluster/default-cluster/k8s/object"),
        ("PUT", "/cluster/default-cluster/k8s/object"),
    ]
    for method, path in calls:
        (await alice.call(method, path, {})).refused(403, "OnlyRootAllowed")


async def test_lists(root: Api, database: Database, clock: ManualClock) -> None:
    def fill(tx: Tx) -> None:
        for number in range(120):
            status = "online" if number % 2 else "offline"
            document = {"clusterName": f"c_{number}", "clusterType": "K3S", "status": status}
            create_cluster(tx, parse(NewCluster, document), clock.now())

    await database.write(fill)
    everything = ["default-cluster", *(f"c_{number}" for number in range(120))]
    assert await walk(root) == everything
    assert await walk(root, clusterStatus="offline") == everything[1::2]
    assert await walk(root, clusterNames="c_7,c_1,cx1") == ["c_1", "c_7"]
    (await root.get("/cluster", clusterStatus="up")).refused(400, "InvalidURI")
    (await root.get("/cluster", marker="x")).refused(400, "InvalidMarker")


async def walk(api: Api, **query: object) -> list[str]:
    names: list[str] = []
    query["maxKeys"] = 9
    while True:
        page = (await api.get("/cluster", **query)).ok()
        names += [cluster["clusterName"] for cluster in page["clusterList"]]
        if not page["isTruncated"]:
            return names
        query["marker"] = page["nextMarker"]


async def test_totals_are_what_is_really_used(root: Api) -> None:
    (await root.post("/cluster", body())).ok()
    answer = (await root.get("/cluster/resource")).ok()
    assert list(answer) == ["default-cluster", "far"]
    assert answer["default-cluster"] == {
        "summary": {
            "total": {"cpu": "12", "memory": "24Gi", "scalarResources": {"nvidia.com/gpu": "2"}},
            "idle": {"cpu": "10500m", "memory": "23Gi", "scalarResources": {"nvidia.com/gpu": "1"}},
        },
        "nodeList": [
            {
                "nodeName": "here",
                "schedulable": True,
                "total": {"cpu": "8", "memory": "16Gi", "scalarResources": {"nvidia.com/gpu": "2"}},
                "idle": {"cpu": "6500m", "memory": "15Gi", "scalarResources": {"nvidia.com/gpu": "1"}},
            },
            {
                "nodeName": "idle",
                "schedulable": True,
                "total": {"cpu": "4", "memory": "8Gi"},
                "idle": {"cpu": "4", "memory": "8Gi"},
            },
        ],
        "errMsg": "",
    }
    assert answer["far"]["nodeList"] == []
    assert "does not connect to Kubernetes clusters" in answer["far"]["errMsg"]
    assert list((await root.get("/cluster/resource", clusterNames="far")).ok()) == ["far"]
    (await root.get("/cluster/resource", clusterNames="no")).refused(404, "ClusterNotFound")


async def test_selected_nodes(root: Api) -> None:
    (await root.post("/cluster", body())).ok()

    async def chosen(**wanted: object) -> dict[str, list[str]]:
        answer = (await root.post("/cluster/resource", wanted)).ok()
        return {name: list(cluster["capacity"]) for name, cluster in answer.items()}

    assert await chosen() == {"default-cluster": ["here", "idle", "down"], "far": []}
    assert await chosen(clusterNames=["default-cluster"], labels="zone=a") == {"default-cluster": ["here", "down"]}
    assert await chosen(clusterNames=["default-cluster"], pageNo=2, pageSize=2) == {"default-cluster": ["down"]}
    assert await chosen(clusterNames=["default-cluster"], pageNo=9) == {"default-cluster": []}
    assert await chosen(clusterNames=["default-cluster"], nodeStatus="Unschedulable") == {"default-cluster": ["down"]}
    queue = {"name": "q", "namespace": "n", "maxResources": {"cpu": 1, "mem": 1}, "nodeSelector": {"zone": "b"}}
    (await root.post("/queue", queue)).ok()
    assert await chosen(queueName="q") == {"default-cluster": ["idle"]}
    assert await chosen(queueName="q", clusterNames=["far"]) == {}
    answer = (await root.post("/cluster/resource", {"queueName": "q"})).ok()["default-cluster"]
    assert answer == {
        "allocatable": {"idle": {"cpu": "4", "memory": "8Gi"}},
        "capacity": {"idle": {"cpu": "4", "memory": "8Gi"}},
        "labels": {"idle": {"zone": "b"}},
        "clusterName": "default-cluster",
        "clusterSource": "OnPremise",
        "queueName": "q",
        "errMsg": "",
    }
    (await root.post("/cluster/resource", {"queueName": "no"})).refused(404, "QueueNameNotFound")
    (await root.post("/cluster/resource", {"nodeStatus": "odd"})).refused(400, "InvalidArguments")
    (await root.post("/cluster/resource", {"labels": "odd"})).refused(400, "InvalidURI")
    (await root.post("/cluster/resource", {"pageNo": 0, "pageSize": 1001})).refused(400, "InvalidArguments")


async def test_nodes_with_what_runs_on_them(root: Api) -> None:
    (await root.post("/cluster", body())).ok()
    answer = (await root.get("/cluster/default-cluster/nodeInfos")).ok()
    assert answer["totalCount"] == 3
    gpu = {"scalarResources": {"nvidia.com/gpu": "1"}}
    assert answer["nodeList"][0] == {
        "nodeName": "here",
        "nodeIP": "127.0.0.1",
        "podsCount": 1,
        "labels": {"zone": "a"},
        "schedulable": True,
        "version": "",
        "usedByOthers": {"cpu": "0", "memory": "0"},
        "used": {"cpu": "1500m", "memory": "1Gi", **gpu},
        "capacity": {"cpu": "8", "memory": "16Gi", "scalarResources": {"nvidia.com/gpu": "2"}},
        "pods": [
            {
                "podName": "job-1.worker-0",
                "status": "running",
                "labels": {"team": "a"},
                "resources": {"cpu": "1500m", "memory": "1Gi", **gpu},
            }
        ],
    }
    page = (await root.get("/cluster/default-cluster/nodeInfos", pageNo=2, pageSize=2)).ok()
    assert (page["totalCount"], [node["nodeName"] for node in page["nodeList"]]) == (3, ["down"])
    far = (await root.get("/cluster/far/nodeInfos")).ok()
    assert (far["totalCount"], far["nodeList"]) == (0, [])
    assert "does not connect" in far["errMsg"]
    (await root.get("/cluster/no/nodeInfos")).refused(404, "ClusterNotFound")
    (await root.get("/cluster/far/nodeInfos", pageNo=0)).refused(400, "InvalidURI")


async def test_kubernetes_objects_are_refused_with_the_reason(root: Api) -> None:
    (await root.post("/cluster", body())).ok()
    for method in ("POST", "GET", "PUT"):
        local = await root.call(method, "/cluster/default-cluster/k8s/object", {"kind": "Pod"})
        assert "has no Kubernetes objects" in local.refused(400, "InvalidClusterProperties")["message"]
        far = await root.call(method, "/cluster/far/k8s/object", {"kind": "Pod"})
        assert "does not connect" in far.refused(409, "ActionNotAllowed")["message"]
        (await root.call(method, "/cluster/no/k8s/object")).refused(404, "ClusterNotFound")
