"""PaddleJobController that grow, shrink and wait for their gang."""

from __future__ import annotations

from tests.simulated_paddlejob import Obj, SimulatedCluster, role

COLLECTIVE = {"worker": role(2)}


def test_growing_brings_new_members_up_before_the_others_stop() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    cluster.scale(3)
    cluster.settle()
    assert cluster.phase == "Running"
    assert cluster.names() == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    assert cluster.status["elastic"] == "DOING"
    cluster.place(cluster.pod("demo-worker-2"))
    cluster.step()
    assert cluster.phase == "Scaling"
    assert cluster.names() == ["demo-worker-2"]
    cluster.go()
    assert cluster.phase == "Running"
    assert cluster.status["elastic"] == "DONE"
    assert cluster.messages("Scaled") == ["scaled worker 2 → 3"]
    assert {environment["PADDLE_TRAINERS_NUM"] for _, formation, environment in cluster.starts if formation == 2} == {
        "3"
    }


def test_shrinking_takes_the_highest_ranks() -> None:
    cluster = SimulatedCluster({"worker": role(3)})
    cluster.go()
    cluster.scale(2)
    cluster.go()
    assert cluster.names() == ["demo-worker-0", "demo-worker-1"]
    assert cluster.phase == "Running"
    assert cluster.messages("Scaled") == ["scaled worker 3 → 2"]


def test_a_growth_that_is_taken_back_leaves_the_others_alone() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    starts = len(cluster.starts)
    cluster.scale(3)
    cluster.settle()
    cluster.scale(2)
    cluster.go()
    assert cluster.names() == ["demo-worker-0", "demo-worker-1"]
    assert len(cluster.starts) == starts


def test_scaling_with_etcd_leaves_those_who_run_alone() -> None:
    cluster = SimulatedCluster({"worker": role(2), "elastic": 1}, etcd="etcd:2379")
    cluster.go()
    uids = [pod["metadata"]["uid"] for pod in cluster.living()]
    cluster.scale(3)
    cluster.go()
    cluster.scale(1)
    cluster.go()
    assert cluster.np == [2, 3, 1]
    assert cluster.names() == ["demo-worker-0"]
    assert cluster.living()[0]["metadata"]["uid"] == uids[0]
    assert cluster.messages("Scaled") == ["scaled worker 2 → 3", "scaled worker 3 → 1"]


def gang(spec: Obj) -> SimulatedCluster:
    return SimulatedCluster(spec, volcano=True)


def test_pods_wait_for_the_gang() -> None:
    spec = {"worker": role(2)}
    spec["worker"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    cluster = gang({**spec, "schedulingPolicy": {"queue": "research", "priorityClass": "high"}})
    cluster.settle()
    assert cluster.names() == []
    assert "waits for the gang" in cluster.status["message"]
    group = cluster.objects["PodGroup", "demo"]["spec"]
    assert group == {
        "minMember": 2,
        "minResources": {"cpu": "1", "memory": str(2 * 2**30)},
        "queue": "research",
        "priorityClassName": "high",
    }
    cluster.go()
    assert cluster.phase == "Running"
    pod = cluster.pod("demo-worker-0")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo"


def test_the_gang_may_be_scheduled_by_ours() -> None:
    cluster = SimulatedCluster({"worker": role(2)}, volcano=True, gang_scheduler="paddleflow")
    cluster.go()
    assert cluster.pod("demo-worker-0")["spec"]["schedulerName"] == "paddleflow"
    assert cluster.pod("demo-worker-0")["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo"


def test_the_gang_is_kept_true_and_goes_with_the_end() -> None:
    cluster = gang({"worker": role(2)})
    cluster.go()
    cluster.scale(3)
    cluster.go()
    assert cluster.objects["PodGroup", "demo"]["spec"]["minMember"] == 3
    cluster.finish()
    cluster.go()
    assert ("PodGroup", "demo") not in cluster.objects


def test_volcanos_own_spelling_of_amounts_is_no_difference() -> None:
    spec = {"worker": role(2), "schedulingPolicy": {"minResources": {"cpu": "1000m", "memory": "1024Mi"}}}
    cluster = gang(spec)
    cluster.go()
    cluster.objects["PodGroup", "demo"]["spec"]["minResources"] = {"cpu": "1", "memory": "1Gi"}
    assert cluster.step().quiet


def test_another_scheduler_is_left_in_peace() -> None:
    cluster = gang({"worker": role(2, schedulerName="mine")})
    cluster.go()
    assert ("PodGroup", "demo") not in cluster.objects
    assert cluster.pod("demo-worker-0")["spec"]["schedulerName"] == "mine"


def test_scaling_is_done_when_the_new_members_run() -> None:
    cluster = SimulatedCluster({"worker": role(2)})
    cluster.go()
    cluster.scale(1)
    seen = []
    for _ in range(10):
        cluster.step()
        seen.append((cluster.phase, cluster.status.get("elastic")))
        cluster.gone()
        for pod in cluster.living():
            cluster.place(pod)
            cluster.run(pod)
    assert seen[-1] == ("Running", "DONE")
    assert ("Scaling", "DONE") not in seen
    assert ("Scaling", "DOING") in seen
