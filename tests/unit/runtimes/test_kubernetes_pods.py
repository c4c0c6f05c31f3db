"""Attempts as pods: names, manifests, and what the statuses of pods and nodes mean."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.runtimes.kubernetes import pods
from paddleflow.runtimes.runtime import Launch, Mount

ATTEMPT = AttemptId("job-a.worker-0.1")
NOW = 1_800_000_000.0


def launch(**fields: Any) -> Launch:
    return Launch(ATTEMPT, ("true",), {"A": "1"}, **fields)


def seen(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    made = pods.pod(launch(node="n1"), "team", "c", "image:1")
    made["metadata"] |= {"uid": "u", **metadata}
    return pods.trimmed({**made, "status": status})


def container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]}


@given(st.from_regex(r"[A-Za-z0-9][-_A-Za-z0-9]{0,80}\.[a-z]{1,20}-[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True))
def test_names_are_dns_labels(text: str) -> None:
    name = pods.pod_name(AttemptId(text))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert name == pods.pod_name(AttemptId(text))


def test_names_differ_where_attempts_do() -> None:
    names = {pods.pod_name(AttemptId(each)) for each in ("job-a.worker-0.1", "job-A.worker-0.1", "job_a.worker-0.1")}
    assert len(names) == 3
    assert pods.pod_name(ATTEMPT) == "job-a-worker-0-1"


def test_a_launch_becomes_a_pod() -> None:
    asked = Resources.of(500, 1 << 30, {"nvidia.com/gpu": 2000})
    storage = Mount("fs-1", "/data", "/srv/data", sub_path="sub", read_only=True)
    made = pods.pod(
        launch(request=asked, mounts=(storage,), ready_port=80, ports=(80,), labels={"a": "b"}), "team", "c", "i:1"
    )
    (main,) = made["spec"]["containers"]
    assert main["resources"] == {
        "requests": {"cpu": "500m", "memory": str(1 << 30), "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert main["volumeMounts"][-1] == {"name": "storage-0", "mountPath": "/data", "readOnly": True, "subPath": "sub"}
    assert main["readinessProbe"]["tcpSocket"] == {"port": 80}
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["metadata"]["finalizers"] == [pods.ATTEMPT]
    assert made["metadata"]["labels"] == {"a": "b", pods.CLUSTER_LABEL: "c"}


def test_what_cannot_be_a_pod_is_refused_in_words() -> None:
    assert "no image" in pods.refusal(launch(), "")
    assert "fs-1" in pods.refusal(launch(mounts=(Mount("fs-1", "/data", "s3://bucket"),)), "i:1")
    assert pods.refusal(launch(), "i:1") == ""


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (seen(container(terminated={"exitCode": 3, "reason": "Error"})), 3, ""),
        (seen(container(terminated={"exitCode": 137, "reason": "OOMKilled"})), 137, "memory limit"),
        (seen({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}), None, "Evicted: low on memory"),
        (seen(container(terminated={"exitCode": 143}), annotations={pods.STOPPED: "stopped"}), 143, "stopped"),
        (seen(container(running={}), deletionTimestamp="2020-01-01T00:00:00Z"), None, "node n1 does not answer"),
    ],
)
def test_ends_are_told_from_statuses(found: dict[str, Any], code: int | None, words: str) -> None:
    end = pods.ended(found, NOW)
    assert end is not None
    assert end.exit_code == code
    assert words in end.message
    assert bool(words) == bool(end.message)


def test_what_runs_has_not_ended() -> None:
    assert pods.ended(seen(container(running={"startedAt": "2026-01-01T00:00:00Z"})), NOW) is None
    assert pods.ended(seen({"phase": "Pending"}), NOW) is None


def test_a_pod_that_was_deleted_before_it_had_a_node_has_ended() -> None:
    found = seen({"phase": "Pending"}, deletionTimestamp="2100-01-01T00:00:00Z")
    assert pods.ended(found, NOW) is None, "its kubelet will say"
    found["spec"]["nodeName"] = ""
    end = pods.ended(found, NOW)
    assert end is not None
    assert "before it started" in end.message


def test_a_probe_decides_about_readiness() -> None:
    found = seen(container(running={"startedAt": "2026-01-01T00:00:00Z"}))
    assert pods.is_ready(found, probed=False)
    assert not pods.is_ready(found, probed=True)
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pods.is_ready(found, probed=True)


def test_a_node_has_what_pods_may_use() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "2", "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    info = pods.node_info(pods.trimmed_node(node))
    assert (info.name, info.address, info.schedulable, dict(info.labels)) == ("n1", "10.0.0.1", True, {"zone": "a"})
    assert info.capacity == Resources.of(1500, 2 << 30, {"nvidia.com/gpu": 2000})
    node["spec"] = {"unschedulable": True}
    assert not pods.node_info(pods.trimmed_node(node)).schedulable
