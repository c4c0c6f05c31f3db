"""Jobs that the original operator began: its pods, its ConfigMap, and PodGroups that people made for them."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.operator.paddlejob.gang import ADOPTED
from tests.simulated_paddlejob import Obj, SimulatedCluster, role


def original(cluster: SimulatedCluster, *indexes: int, phase: str = "Running", config_map: bool = True) -> None:
    """What the original operator left: pods without our label and number, one ConfigMap of the job's name."""
    for index in indexes:
        name = f"demo-worker-{index}"
        pod: Obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "uid": f"old-{index}", "labels": {"paddle-res-name": name}},
            "spec": {"nodeName": "node1", "containers": [{"name": "main"}]},
            "status": {"phase": phase, "podIP": f"10.1.0.{index}"},
        }
        if phase == "Running":
            pod["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
        cluster.objects["Pod", name] = pod
    if config_map:
        metadata = {"name": "demo", "uid": "old-map", "labels": {"paddle-res-name": "demo"}}
        cluster.objects["ConfigMap", "demo"] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {},
        }
    cluster.job["status"] = {"phase": "Running", "mode": "Collective"}


def uids(cluster: SimulatedCluster) -> list[str]:
    return [pod["metadata"]["uid"] for pod in cluster.living()]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster({"worker": role(2)})


def test_running_pods_are_taken_over_and_run_on(cluster: SimulatedCluster) -> None:
    original(cluster, 0, 1)
    cluster.go()
    assert uids(cluster) == ["old-0", "old-1"]
    assert cluster.phase == "Running"
    assert cluster.condition("Adopted")["status"] == "True"
    assert cluster.messages("Adopted") == ["took over 2 pods that the original operator made; they run on"]
    assert ("ConfigMap", "demo") in cluster.objects, "containers that restart need it"
    cluster.finish()
    cluster.go()
    assert cluster.phase == "Completed"


def test_pods_that_were_taken_over_are_members_like_others(cluster: SimulatedCluster) -> None:
    original(cluster, 0, 1)
    cluster.go()
    cluster.end(cluster.pod("demo-worker-1"), 1)
    cluster.go()
    assert cluster.phase == "Running"
    assert cluster.status["failures"] == 1
    assert not {"old-0", "old-1"} & set(uids(cluster)), "all members know the same endpoints"


def test_an_adoption_that_was_interrupted_goes_on(cluster: SimulatedCluster) -> None:
    original(cluster, 0, 1)
    cluster.step()
    second = cluster.pod("demo-worker-1")["metadata"]
    del second["labels"]["paddle-job-name"], second["annotations"]
    cluster.go()
    assert uids(cluster) == ["old-0", "old-1"]


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ({"indexes": (0,)}, "missing: worker-1"),
        ({"indexes": (0, 1), "phase": "Failed"}, "failed: demo-worker-0, demo-worker-1"),
        (
            {"indexes": (0, 1), "phase": "Pending", "config_map": False},
            "waiting for a ConfigMap that nobody makes: demo-wo",
        ),
    ],
)
def test_pods_that_cannot_go_on_are_replaced_and_it_is_said(
    cluster: SimulatedCluster, left: dict[str, Any], why: str
) -> None:
    original(cluster, *left.pop("indexes"), **left)
    cluster.go()
    assert cluster.phase == "Running"
    assert not {"old-0", "old-1"} & set(uids(cluster))
    assert cluster.condition("Adopted")["status"] == "False"
    (message,) = cluster.messages("Replaced")
    assert why in message


def test_pods_that_still_start_are_waited_for(cluster: SimulatedCluster) -> None:
    original(cluster, 0, 1, phase="Pending")
    cluster.settle()
    assert uids(cluster) == ["old-0", "old-1"]


# ---- PodGroups that people made


def hand_made(cluster: SimulatedCluster, **spec: Any) -> Obj:
    group: Obj = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "demo", "uid": "by-hand"},
        "spec": spec,
        "status": {"phase": "Inqueue"},
    }
    cluster.objects["PodGroup", "demo"] = group
    return group


def test_a_pod_group_of_the_jobs_name_is_the_jobs_gang() -> None:
    cluster = SimulatedCluster({"worker": role(3)}, volcano=True)
    group = hand_made(cluster, minMember=2, queue="research")
    cluster.go()
    assert cluster.phase == "Running"
    assert group["spec"] == {"minMember": 2, "queue": "research"}, "what its author wrote stays"
    assert group["metadata"]["annotations"] == {ADOPTED: "true"}
    assert [each["uid"] for each in group["metadata"]["ownerReferences"]] == ["job-uid"]
    assert len(cluster.messages("GangAdopted")) == 1
    cluster.scale(1)
    cluster.go()
    assert group["spec"]["minMember"] == 1, "more than there are members would never start"
    cluster.finish()
    cluster.go()
    assert ("PodGroup", "demo") not in cluster.objects


def test_what_the_job_itself_asks_of_its_gang_counts() -> None:
    policy = {"minAvailable": 3, "queue": "other"}
    cluster = SimulatedCluster({"worker": role(3), "schedulingPolicy": policy}, volcano=True)
    group = hand_made(cluster, minMember=2, queue="research")
    cluster.go()
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "other")


def test_a_gang_that_is_held_back_gives_volcanos_reason() -> None:
    cluster = SimulatedCluster({"worker": role(3)}, volcano=True)
    cluster.settle()
    cluster.objects["PodGroup", "demo"]["status"] = {"phase": "Pending"}
    cluster.step()
    assert "kubectl describe podgroup demo" in cluster.status["message"]
    cluster.gang_reason = "queue resource quota insufficient: insufficient cpu"
    cluster.step()
    assert cluster.status["message"] == "waits for the gang: queue resource quota insufficient: insufficient cpu"
