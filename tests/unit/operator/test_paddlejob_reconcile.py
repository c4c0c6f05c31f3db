"""Passes over a PaddleJob, from its creation to its end: what is made, kept, counted and tidied up."""

from __future__ import annotations

import pytest

from paddleflow.operator.paddlejob.writes import Event
from tests.simulated_paddlejob import SimulatedCluster, role

COLLECTIVE = {"worker": role(2)}
SERVERS = {"ps": role(2), "worker": role(2)}


def test_one_pass_makes_everything_that_is_missing() -> None:
    cluster = SimulatedCluster({**SERVERS, "intranet": "Service"})
    writes = cluster.step()
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
    cluster = SimulatedCluster({"worker": role(10)})
    urgent = 0
    for _ in range(12):
        urgent += cluster.plan().urgent
        cluster.step()
        for pod in cluster.living():
            cluster.place(pod)
            cluster.run(pod)
        if cluster.phase == "Running":
            cluster.finish()
    assert cluster.phase == "Completed"
    assert urgent == 3


def test_servers_start_before_workers() -> None:
    cluster = SimulatedCluster(SERVERS)
    cluster.go()
    assert [name for name, _, _ in cluster.starts] == ["demo-ps-0", "demo-ps-1", "demo-worker-0", "demo-worker-1"]


def test_pods_held_for_their_endpoints_are_nudged_once() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.settle()
    for pod in cluster.pods():
        cluster.place(pod)
        cluster.run(pod)
    cluster.step()
    nudges = cluster.step().patches
    assert [patch.obj["metadata"]["name"] for patch in nudges] == ["demo-worker-0", "demo-worker-1"]
    assert cluster.step().patches == []


def test_a_job_completes_when_its_workers_did_and_servers_get_time_to_end() -> None:
    cluster = SimulatedCluster(SERVERS)
    cluster.go()
    cluster.finish()
    cluster.settle()
    assert cluster.phase == "Completing"
    assert len(cluster.living()) == 4
    cluster.now += 31
    cluster.settle()
    assert cluster.phase == "Completed"
    assert cluster.names() == []


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
    cluster = SimulatedCluster({**COLLECTIVE, "cleanPodPolicy": policy, "backoffLimit": 0})
    cluster.go()
    for pod in cluster.pods()[: 1 if code else 2]:
        cluster.end(pod, code)
    cluster.settle()
    cluster.gone()
    assert cluster.phase == ("Failed" if code else "Completed")
    assert len(cluster.pods()) == left


def test_nothing_that_ended_runs_again() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "cleanPodPolicy": "Never"})
    cluster.go()
    cluster.finish()
    cluster.go()
    del cluster.objects["Pod", "demo-worker-0"]
    assert cluster.step().quiet


def test_a_failed_worker_brings_all_together_again_with_new_endpoints() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    cluster.end(cluster.pod("demo-worker-1"), 139, message="step 3\nsegmentation fault")
    cluster.settle()
    assert cluster.phase == "Restarting"
    assert cluster.status["failures"] == 1
    cluster.gone()
    assert cluster.step().creates == []  # not before the back-off is over
    cluster.go()
    assert cluster.phase == "Running"
    last = [environment["PADDLE_TRAINER_ENDPOINTS"] for _, formation, environment in cluster.starts if formation == 2]
    addresses = [pod["status"]["podIP"] for pod in cluster.living()]
    assert last == [",".join(f"{address}:36000" for address in addresses)] * 2
    assert cluster.status["lastFailure"]["exitCode"] == 139
    assert cluster.messages("MemberFailed") == [
        "demo-worker-1 container main ended with exit code 139 (Error): segmentation fault"
    ]


def test_after_the_limit_the_job_says_who_failed_first() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "backoffLimit": 1})
    for _ in range(2):
        cluster.go()
        cluster.end(cluster.pod("demo-worker-1"), 3, message="no such file: data.csv")
        cluster.now += 1
        cluster.end(cluster.pod("demo-worker-0"), 1, message="connection reset by peer")
    cluster.settle()
    assert cluster.phase == "Failed"
    assert "exit code 3" in cluster.status["message"]
    assert "no such file: data.csv" in cluster.status["message"]
    assert "backoffLimit is 1" in cluster.status["message"]
    assert cluster.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert cluster.status["lastFailure"]["pod"] == "demo-worker-1"


def test_back_off_doubles() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    waits = []
    for _ in range(3):
        cluster.go()
        cluster.end(cluster.pod("demo-worker-0"), 1)
        cluster.step()
        cluster.gone()
        waits.append(cluster.step().again)
    assert waits == [10, 20, 40]


def test_an_eviction_is_not_counted() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "backoffLimit": 0})
    cluster.go()
    cluster.evict(cluster.pod("demo-worker-0"))
    cluster.go()
    assert cluster.phase == "Running"
    assert (cluster.status["failures"], cluster.status["disruptions"]) == (0, 1)


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_a_deleted_worker_comes_back_with_its_rank(intranet: str) -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "intranet": intranet, "backoffLimit": 0})
    cluster.go()
    pod = cluster.pod("demo-worker-1")
    pod["metadata"]["deletionTimestamp"] = cluster.text()
    cluster.end(pod, 137)  # on its way out it passes through Failed: that counts for nothing
    cluster.go()
    assert cluster.phase == "Running"
    assert cluster.status["failures"] == 0
    assert cluster.names() == ["demo-worker-0", "demo-worker-1"]
    assert {formation for _, formation, _ in cluster.starts[-2:]} == {2}


def test_a_worker_of_servers_by_name_comes_back_alone() -> None:
    cluster = SimulatedCluster({**SERVERS, "intranet": "Service"})
    cluster.go()
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}
    cluster.pod("demo-worker-1")["metadata"]["deletionTimestamp"] = cluster.text()
    cluster.go()
    now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}
    assert cluster.phase == "Running"
    assert [name for name in uids if uids[name] != now[name]] == ["demo-worker-1"]


def test_a_worker_that_fails_alone_is_counted_once_and_replaced() -> None:
    cluster = SimulatedCluster({"ps": role(1), "worker": role(2, restartPolicy="Never"), "intranet": "Service"})
    cluster.go()
    before = cluster.pod("demo-worker-0")["metadata"]["uid"]
    cluster.end(cluster.pod("demo-worker-1"), 1)
    counted = cluster.plan().status
    assert counted
    cluster.job["status"] = counted  # written, and then the operator dies before it deletes anything
    cluster.go()
    assert cluster.phase == "Running"
    assert cluster.status["failures"] == 1
    assert cluster.status["formation"] == 1
    assert cluster.pod("demo-worker-0")["metadata"]["uid"] == before


def test_a_pod_with_another_address_is_told_to_the_others() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    pod = cluster.pod("demo-worker-0")
    pod["status"]["podIP"] = "10.9.9.9"
    assert cluster.step().quiet  # its container runs where it ran
    pod["status"]["containerStatuses"][0]["restartCount"] = 1
    cluster.go()
    assert cluster.status["formation"] == 2
    assert cluster.messages("Disrupted")


def test_a_pod_on_a_node_that_does_not_answer_is_given_up() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    cluster.pod("demo-worker-0")["metadata"]["deletionTimestamp"] = cluster.text()
    cluster.step()
    cluster.now += 31
    forced = [delete.obj["metadata"]["name"] for delete in cluster.step().deletes if delete.force]
    assert "demo-worker-0" in forced
    assert cluster.messages("NodeLost")


def test_suspend_and_resume() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "activeDeadlineSeconds": 100})
    cluster.go()
    cluster.edit(lambda spec: spec.update(suspend=True))
    cluster.go()
    assert (cluster.phase, cluster.names()) == ("Suspended", [])
    assert cluster.condition("Suspended")["status"] == "True"
    cluster.now += 1000
    cluster.edit(lambda spec: spec.update(suspend=False))
    cluster.go()
    assert cluster.phase == "Running"
    assert cluster.condition("Suspended")["status"] == "False"


def test_the_deadline_ends_a_job_that_still_waits() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "activeDeadlineSeconds": 60})
    writes = cluster.step()
    assert writes.again == 60
    cluster.now += 61
    cluster.settle()
    assert cluster.phase == "Failed"
    assert cluster.condition("Failed")["reason"] == "DeadlineExceeded"
    assert cluster.names() == []


def test_ttl_deletes_the_job() -> None:
    cluster = SimulatedCluster({**COLLECTIVE, "ttlSecondsAfterFinished": 30})
    cluster.go()
    cluster.finish()
    cluster.go()
    assert not cluster.deleted_job
    assert cluster.step().again == 30
    cluster.now += 31
    cluster.step()
    assert cluster.deleted_job


def test_a_wrong_job_says_so_once_and_makes_nothing() -> None:
    cluster = SimulatedCluster({"worker": role(0)})
    cluster.step()
    assert cluster.objects == {}
    assert cluster.condition("Blocked")["reason"] == "InvalidSpec"
    assert "worker.replicas" in cluster.condition("Blocked")["message"]
    assert cluster.step().quiet
    assert len(cluster.messages("InvalidSpec")) == 1


def test_what_was_refused_is_in_the_status_until_it_is_not() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    refused = Event("NameTaken", "Pod team/demo-worker-0 exists and is not this job's", warning=True)
    cluster.job["status"] = cluster.plan(refused).status
    assert cluster.condition("Blocked")["message"] == refused.message
    assert cluster.plan(refused).quiet
    cluster.settle()
    assert cluster.condition("Blocked")["status"] == "False"


def test_restarts_in_place_count_too() -> None:
    cluster = SimulatedCluster({"worker": role(2, restartPolicy="OnFailure"), "backoffLimit": 2})
    cluster.go()
    ended = {"exitCode": 9, "reason": "Error", "finishedAt": cluster.text(), "message": "out of ideas"}
    cluster.pod("demo-worker-0")["status"]["containerStatuses"] = [
        {"name": "main", "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": ended}}
    ]
    cluster.settle()
    assert cluster.phase == "Failed"
    assert "out of ideas" in cluster.status["message"]


def test_a_lost_status_is_made_up_for() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    cluster.end(cluster.pod("demo-worker-0"), 1)
    cluster.go()
    uids = [pod["metadata"]["uid"] for pod in cluster.living()]
    cluster.job["status"] = {}
    cluster.go()
    assert cluster.status["formation"] == 2
    assert [pod["metadata"]["uid"] for pod in cluster.living()] == uids


def test_a_job_on_its_way_out_is_left_alone() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.go()
    cluster.job["metadata"]["deletionTimestamp"] = cluster.text()
    del cluster.objects["Pod", "demo-worker-0"]
    assert cluster.step().quiet


def test_what_a_pod_waits_for_is_in_the_message() -> None:
    cluster = SimulatedCluster(COLLECTIVE)
    cluster.settle()
    cluster.pod("demo-worker-0")["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have enough cpu"}
    ]
    cluster.settle()
    assert cluster.status["message"] == "demo-worker-0 waits: Unschedulable: 0/3 nodes have enough cpu"
