"""Passes over a PaddleJob, from its creation to its end: what is made, kept, counted and tidied up."""

from __future__ import annotations

import pytest

from paddleflow.operator.paddlejob.writes import Event
from tests.paddlejob_world import World, role

COLLECTIVE = {"worker": role(2)}
SERVERS = {"ps": role(2), "worker": role(2)}


def test_one_pass_makes_everything_that_is_missing() -> None:
    world = World({**SERVERS, "intranet": "Service"})
    writes = world.step()
    made = sorted((obj["kind"], obj["metadata"]["name"]) for obj in writes.creates)
    assert made == [
        ("ConfigMap", "demo-servers-1"),
        ("Pod", "demo-ps-0"),
        ("Pod", "demo-ps-1"),
        ("Pod", "demo-worker-0"),
        ("Pod", "demo-worker-1"),
        ("Service", "demo"),
    ]
    assert all(obj["metadata"]["ownerReferences"][0]["uid"] == "job-uid" for obj in writes.creates)


def test_a_whole_life_takes_three_status_writes_of_consequence() -> None:
    world = World({"worker": role(10)})
    urgent = 0
    for _ in range(12):
        urgent += world.look().urgent
        world.step()
        for pod in world.living():
            world.place(pod)
            world.run(pod)
        if world.phase == "Running":
            world.finish()
    assert world.phase == "Completed"
    assert urgent == 3


def test_servers_start_before_workers() -> None:
    world = World(SERVERS)
    world.go()
    assert [name for name, _, _ in world.starts] == ["demo-ps-0", "demo-ps-1", "demo-worker-0", "demo-worker-1"]


def test_pods_held_for_their_endpoints_are_nudged_once() -> None:
    world = World(COLLECTIVE)
    world.settle()
    for pod in world.pods():
        world.place(pod)
        world.run(pod)
    world.step()
    nudges = world.step().patches
    assert [patch.obj["metadata"]["name"] for patch in nudges] == ["demo-worker-0", "demo-worker-1"]
    assert world.step().patches == []


def test_a_job_completes_when_its_workers_did_and_servers_get_time_to_end() -> None:
    world = World(SERVERS)
    world.go()
    world.finish()
    world.settle()
    assert world.phase == "Completing"
    assert len(world.living()) == 4
    world.now += 31
    world.settle()
    assert world.phase == "Completed"
    assert world.names() == []


@pytest.mark.parametrize(
    ("policy", "code", "left"),
    [
        ("Always", 0, 0),
        ("Never", 0, 2),
        ("OnCompletion", 0, 0),
        ("OnFailure", 0, 2),
        ("Always", 1, 0),
        ("Never", 1, 1),
        ("OnCompletion", 1, 1),
        ("OnFailure", 1, 0),
    ],
)
def test_clean_pod_policies(policy: str, code: int, left: int) -> None:
    """After a failure the other worker still runs: it is deleted whatever the policy says."""
    world = World({**COLLECTIVE, "cleanPodPolicy": policy, "backoffLimit": 0})
    world.go()
    for pod in world.pods()[: 1 if code else 2]:
        world.end(pod, code)
    world.settle()
    world.gone()
    assert world.phase == ("Failed" if code else "Completed")
    assert len(world.pods()) == left


def test_nothing_that_ended_runs_again() -> None:
    world = World({**COLLECTIVE, "cleanPodPolicy": "Never"})
    world.go()
    world.finish()
    world.go()
    del world.objects["Pod", "demo-worker-0"]
    assert world.step().quiet


def test_a_failed_worker_brings_all_together_again_with_new_endpoints() -> None:
    world = World(COLLECTIVE)
    world.go()
    world.end(world.pod("demo-worker-1"), 139, message="step 3\nsegmentation fault")
    world.settle()
    assert world.phase == "Restarting"
    assert world.status["failures"] == 1
    world.gone()
    assert world.step().creates == []  # not before the back-off is over
    world.go()
    assert world.phase == "Running"
    last = [told["PADDLE_TRAINER_ENDPOINTS"] for _, formation, told in world.starts if formation == 2]
    addresses = [pod["status"]["podIP"] for pod in world.living()]
    assert last == [",".join(f"{address}:36000" for address in addresses)] * 2
    assert world.status["lastFailure"]["exitCode"] == 139
    assert world.said("MemberFailed") == [
        "demo-worker-1 container main ended with exit code 139 (Error): segmentation fault"
    ]


def test_after_the_limit_the_job_says_who_failed_first() -> None:
    world = World({**COLLECTIVE, "backoffLimit": 1})
    for _ in range(2):
        world.go()
        world.end(world.pod("demo-worker-1"), 3, message="no such file: data.csv")
        world.now += 1
        world.end(world.pod("demo-worker-0"), 1, message="connection reset by peer")
    world.settle()
    assert world.phase == "Failed"
    assert "exit code 3" in world.status["message"]
    assert "no such file: data.csv" in world.status["message"]
    assert "backoffLimit is 1" in world.status["message"]
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert world.status["lastFailure"]["pod"] == "demo-worker-1"


def test_back_off_doubles() -> None:
    world = World(COLLECTIVE)
    waits = []
    for _ in range(3):
        world.go()
        world.end(world.pod("demo-worker-0"), 1)
        world.step()
        world.gone()
        waits.append(world.step().again)
    assert waits == [10, 20, 40]


def test_an_eviction_is_not_counted() -> None:
    world = World({**COLLECTIVE, "backoffLimit": 0})
    world.go()
    world.evict(world.pod("demo-worker-0"))
    world.go()
    assert world.phase == "Running"
    assert (world.status["failures"], world.status["disruptions"]) == (0, 1)


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_a_deleted_worker_comes_back_with_its_rank(intranet: str) -> None:
    world = World({**COLLECTIVE, "intranet": intranet, "backoffLimit": 0})
    world.go()
    pod = world.pod("demo-worker-1")
    pod["metadata"]["deletionTimestamp"] = world.text()
    world.end(pod, 137)  # on its way out it passes through Failed: that counts for nothing
    world.go()
    assert world.phase == "Running"
    assert world.status["failures"] == 0
    assert world.names() == ["demo-worker-0", "demo-worker-1"]
    assert {formation for _, formation, _ in world.starts[-2:]} == {2}


def test_a_worker_of_servers_by_name_comes_back_alone() -> None:
    world = World({**SERVERS, "intranet": "Service"})
    world.go()
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
    world.pod("demo-worker-1")["metadata"]["deletionTimestamp"] = world.text()
    world.go()
    now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods()}
    assert world.phase == "Running"
    assert [name for name in uids if uids[name] != now[name]] == ["demo-worker-1"]


def test_a_worker_that_fails_alone_is_counted_once_and_replaced() -> None:
    world = World({"ps": role(1), "worker": role(2, restartPolicy="Never"), "intranet": "Service"})
    world.go()
    before = world.pod("demo-worker-0")["metadata"]["uid"]
    world.end(world.pod("demo-worker-1"), 1)
    counted = world.look().status
    assert counted
    world.job["status"] = counted  # written, and then the operator dies before it deletes anything
    world.go()
    assert world.phase == "Running"
    assert world.status["failures"] == 1
    assert world.status["formation"] == 1
    assert world.pod("demo-worker-0")["metadata"]["uid"] == before


def test_a_pod_with_another_address_is_told_to_the_others() -> None:
    world = World(COLLECTIVE)
    world.go()
    pod = world.pod("demo-worker-0")
    pod["status"]["podIP"] = "10.9.9.9"
    assert world.step().quiet  # its container runs where it ran
    pod["status"]["containerStatuses"][0]["restartCount"] = 1
    world.go()
    assert world.status["formation"] == 2
    assert world.said("Disrupted")


def test_a_pod_on_a_node_that_does_not_answer_is_given_up() -> None:
    world = World(COLLECTIVE)
    world.go()
    world.pod("demo-worker-0")["metadata"]["deletionTimestamp"] = world.text()
    world.step()
    world.now += 31
    forced = [delete.obj["metadata"]["name"] for delete in world.step().deletes if delete.force]
    assert "demo-worker-0" in forced
    assert world.said("NodeLost")


def test_suspend_and_resume() -> None:
    world = World({**COLLECTIVE, "activeDeadlineSeconds": 100})
    world.go()
    world.edit(lambda spec: spec.update(suspend=True))
    world.go()
    assert (world.phase, world.names()) == ("Suspended", [])
    assert world.condition("Suspended")["status"] == "True"
    world.now += 1000
    world.edit(lambda spec: spec.update(suspend=False))
    world.go()
    assert world.phase == "Running"
    assert world.condition("Suspended")["status"] == "False"


def test_the_deadline_ends_a_job_that_still_waits() -> None:
    world = World({**COLLECTIVE, "activeDeadlineSeconds": 60})
    writes = world.step()
    assert writes.again == 60
    world.now += 61
    world.settle()
    assert world.phase == "Failed"
    assert world.condition("Failed")["reason"] == "DeadlineExceeded"
    assert world.names() == []


def test_ttl_deletes_the_job() -> None:
    world = World({**COLLECTIVE, "ttlSecondsAfterFinished": 30})
    world.go()
    world.finish()
    world.go()
    assert not world.deleted_job
    assert world.step().again == 30
    world.now += 31
    world.step()
    assert world.deleted_job


def test_a_wrong_job_says_so_once_and_makes_nothing() -> None:
    world = World({"worker": role(0)})
    world.step()
    assert world.objects == {}
    assert world.condition("Blocked")["reason"] == "InvalidSpec"
    assert "worker.replicas" in world.condition("Blocked")["message"]
    assert world.step().quiet
    assert len(world.said("InvalidSpec")) == 1


def test_what_was_refused_is_in_the_status_until_it_is_not() -> None:
    world = World(COLLECTIVE)
    world.go()
    refused = Event("NameTaken", "Pod team/demo-worker-0 exists and is not this job's", warning=True)
    world.job["status"] = world.look(refused).status
    assert world.condition("Blocked")["message"] == refused.message
    assert world.look(refused).quiet
    world.settle()
    assert world.condition("Blocked")["status"] == "False"


def test_restarts_in_place_count_too() -> None:
    world = World({"worker": role(2, restartPolicy="OnFailure"), "backoffLimit": 2})
    world.go()
    ended = {"exitCode": 9, "reason": "Error", "finishedAt": world.text(), "message": "out of ideas"}
    world.pod("demo-worker-0")["status"]["containerStatuses"] = [
        {"name": "main", "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": ended}}
    ]
    world.settle()
    assert world.phase == "Failed"
    assert "out of ideas" in world.status["message"]


def test_a_lost_status_is_made_up_for() -> None:
    world = World(COLLECTIVE)
    world.go()
    world.end(world.pod("demo-worker-0"), 1)
    world.go()
    uids = [pod["metadata"]["uid"] for pod in world.living()]
    world.job["status"] = {}
    world.go()
    assert world.status["formation"] == 2
    assert [pod["metadata"]["uid"] for pod in world.living()] == uids


def test_a_job_on_its_way_out_is_left_alone() -> None:
    world = World(COLLECTIVE)
    world.go()
    world.job["metadata"]["deletionTimestamp"] = world.text()
    del world.objects["Pod", "demo-worker-0"]
    assert world.step().quiet


def test_what_a_pod_waits_for_is_in_the_message() -> None:
    world = World(COLLECTIVE)
    world.settle()
    world.pod("demo-worker-0")["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have enough cpu"}
    ]
    world.settle()
    assert world.status["message"] == "demo-worker-0 waits: Unschedulable: 0/3 nodes have enough cpu"
