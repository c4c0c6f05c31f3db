"""PaddleJobs that grow, shrink and wait for their gang."""

from __future__ import annotations

from tests.paddlejob_world import Obj, World, role

COLLECTIVE = {"worker": role(2)}


def test_growing_brings_new_members_up_before_the_others_stop() -> None:
    world = World(COLLECTIVE)
    world.go()
    world.scale(3)
    world.settle()
    assert world.phase == "Running"
    assert world.names() == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    assert world.status["elastic"] == "DOING"
    world.place(world.pod("demo-worker-2"))
    world.step()
    assert world.phase == "Scaling"
    assert world.names() == ["demo-worker-2"]
    world.go()
    assert world.phase == "Running"
    assert world.status["elastic"] == "DONE"
    assert world.said("Scaled") == ["scaled worker 2 → 3"]
    assert {told["PADDLE_TRAINERS_NUM"] for _, formation, told in world.starts if formation == 2} == {"3"}


def test_shrinking_takes_the_highest_ranks() -> None:
    world = World({"worker": role(3)})
    world.go()
    world.scale(2)
    world.go()
    assert world.names() == ["demo-worker-0", "demo-worker-1"]
    assert world.phase == "Running"
    assert world.said("Scaled") == ["scaled worker 3 → 2"]


def test_a_growth_that_is_taken_back_leaves_the_others_alone() -> None:
    world = World(COLLECTIVE)
    world.go()
    starts = len(world.starts)
    world.scale(3)
    world.settle()
    world.scale(2)
    world.go()
    assert world.names() == ["demo-worker-0", "demo-worker-1"]
    assert len(world.starts) == starts


def test_scaling_with_etcd_leaves_those_who_run_alone() -> None:
    world = World({"worker": role(2), "elastic": 1}, etcd="etcd:2379")
    world.go()
    uids = [pod["metadata"]["uid"] for pod in world.living()]
    world.scale(3)
    world.go()
    world.scale(1)
    world.go()
    assert world.np == [2, 3, 1]
    assert world.names() == ["demo-worker-0"]
    assert world.living()[0]["metadata"]["uid"] == uids[0]
    assert world.said("Scaled") == ["scaled worker 2 → 3", "scaled worker 3 → 1"]


def gang(spec: Obj) -> World:
    return World(spec, volcano=True)


def test_pods_wait_for_the_gang() -> None:
    spec = {"worker": role(2)}
    spec["worker"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    world = gang({**spec, "schedulingPolicy": {"queue": "research", "priorityClass": "high"}})
    world.settle()
    assert world.names() == []
    assert "waits for the gang" in world.status["message"]
    group = world.objects["PodGroup", "demo"]["spec"]
    assert group == {
        "minMember": 2,
        "minResources": {"cpu": "1", "memory": str(2 * 2**30)},
        "queue": "research",
        "priorityClassName": "high",
    }
    world.go()
    assert world.phase == "Running"
    pod = world.pod("demo-worker-0")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo"


def test_the_gang_is_kept_true_and_goes_with_the_end() -> None:
    world = gang({"worker": role(2)})
    world.go()
    world.scale(3)
    world.go()
    assert world.objects["PodGroup", "demo"]["spec"]["minMember"] == 3
    world.finish()
    world.go()
    assert ("PodGroup", "demo") not in world.objects


def test_volcanos_own_spelling_of_amounts_is_no_difference() -> None:
    spec = {"worker": role(2), "schedulingPolicy": {"minResources": {"cpu": "1000m", "memory": "1024Mi"}}}
    world = gang(spec)
    world.go()
    world.objects["PodGroup", "demo"]["spec"]["minResources"] = {"cpu": "1", "memory": "1Gi"}
    assert world.step().quiet


def test_another_scheduler_is_left_in_peace() -> None:
    world = gang({"worker": role(2, schedulerName="mine")})
    world.go()
    assert ("PodGroup", "demo") not in world.objects
    assert world.pod("demo-worker-0")["spec"]["schedulerName"] == "mine"
