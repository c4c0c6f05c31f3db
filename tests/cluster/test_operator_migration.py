"""A cluster that ran the original operator: what it left on a real API server is taken over, under exactly the chart's rights."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_operator_missing import GROUPS
from tests.cluster_fixture import LiveCluster
from tests.operator_process import install, job, running, submit
from tests.patience import eventually
from tests.ports import free_ports
from tests.simulated_paddlejob import role

FINALIZER = "finalizers.paddlepaddle.org"


@pytest.fixture(scope="module")
def installed(control_plane: LiveCluster) -> LiveCluster:
    install(control_plane)
    return control_plane


@pytest.fixture
def space(installed: LiveCluster) -> Iterator[str]:
    with installed.namespace() as name:
        eventually(lambda: not installed.refusal("get", "serviceaccount", "default", "-n", name), "an account for pods")
        yield name


def begun(cluster: LiveCluster, space: str, name: str, workers: int) -> None:
    """A job as the original operator leaves it while it runs: finalizer, status, ConfigMap, and pods without our label."""
    submit(cluster, space, name, {"worker": role(workers), "intranet": "PodIP"})
    patch(cluster, space, f"pdj/{name}", {"metadata": {"finalizers": [FINALIZER]}})
    patch(cluster, space, f"pdj/{name}", {"status": {"phase": "Running", "mode": "Collective"}}, "status")
    reference = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "name": name,
        "uid": job(cluster, space, name)["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"name": name, "namespace": space, "labels": {"paddle-res-name": name}, "ownerReferences": [reference]}
    make(cluster, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"PADDLE_PORT": "40123"}})
    for index in range(workers):
        own = f"{name}-worker-{index}"
        marks = {
            "labels": {"paddle-res-name": own, "paddle-res-type": "worker"},
            "annotations": {"paddle-resource": "worker"},
        }
        spec = {"containers": [{"name": "main", "image": "train:1"}], "hostname": own, "subdomain": own}
        make(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **marks, "name": own}, "spec": spec})
        container = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        state = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        status = {"phase": "Running", "podIP": f"10.1.0.{index}", "containerStatuses": [{**container, **state}]}
        patch(cluster, space, f"pod/{own}", {"status": status}, "status")


def make(cluster: LiveCluster, obj: dict[str, Any]) -> None:
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(obj))


def patch(cluster: LiveCluster, space: str, what: str, body: dict[str, Any], subresource: str = "") -> None:
    words = [f"--subresource={subresource}"] if subresource else []
    cluster.kubectl("patch", what, "-n", space, "--type=merge", "-p", json.dumps(body), *words)


def events(cluster: LiveCluster, space: str, reason: str) -> str:
    return cluster.kubectl("get", "events", "-n", space, f"--field-selector=reason={reason}")


def uids(cluster: LiveCluster, space: str) -> list[str]:
    return cluster.kubectl("get", "pods", "-n", space, "-o", "jsonpath={.items[*].metadata.uid}").split()


def test_running_jobs_are_taken_over_and_can_be_deleted(installed: LiveCluster, space: str, tmp_path: Path) -> None:
    begun(installed, space, "old", 2)
    before = uids(installed, space)
    with running(installed, tmp_path, "--namespace", space):
        installed.wait("pdj/old", "condition=Adopted", space)
        installed.wait("pdj/old", "condition=Running", space)
        assert "took over 2 pods" in events(installed, space, "Adopted")
        assert uids(installed, space) == before, "they run on"
        status = job(installed, space, "old")["status"]
        assert (status["phase"], status["worker"]["running"]) == ("Running", 2)
        assert "finalizers" not in job(installed, space, "old")["metadata"]
        patch(
            installed, space, "pdj/old", {"metadata": {"finalizers": [FINALIZER]}}
        )  # as the original would, where it runs on
        installed.kubectl("delete", "pdj", "old", "-n", space, "--timeout=60s")


def test_jobs_that_cannot_go_on_are_begun_anew(installed: LiveCluster, space: str, tmp_path: Path) -> None:
    begun(installed, space, "old", 2)
    installed.kubectl("delete", "pod", "old-worker-1", "-n", space, "--grace-period=0", "--force")
    before = uids(installed, space)
    with running(installed, tmp_path, "--namespace", space):
        eventually(
            lambda: len(uids(installed, space)) == 2 and not set(before) & set(uids(installed, space)), "new pods"
        )
        assert "missing: worker-1" in events(installed, space, "Replaced")


def test_a_foreign_service_keeps_the_pods_from_starting(installed: LiveCluster, space: str, tmp_path: Path) -> None:
    installed.kubectl("create", "service", "clusterip", "named", "--tcp=80", "-n", space)
    with running(installed, tmp_path, "--namespace", space):
        submit(installed, space, "named", {"worker": role(2), "intranet": "Service"})
        installed.wait("pdj/named", "condition=Blocked", space)
        status = job(installed, space, "named")["status"]
        assert status["phase"] == "Pending"
        assert "Service" in status["message"]
        assert uids(installed, space) == []
        installed.kubectl("delete", "service", "named", "-n", space)
        eventually(lambda: len(uids(installed, space)) == 2, "pods, when the name is free")
        installed.wait("pdj/named", "condition=Blocked=false", space)


@pytest.fixture
def groups(installed: LiveCluster) -> Iterator[None]:
    def known() -> bool:
        installed.apply(GROUPS)  # again and again: a definition that an earlier test deletes may be on its way out
        return not installed.refusal("get", "podgroups", "-A")

    eventually(known, "kubectl knows PodGroups")
    yield
    installed.kubectl("delete", "-f", "-", stdin=GROUPS)


def test_a_pod_group_made_by_hand_becomes_the_gang(
    installed: LiveCluster, space: str, tmp_path: Path, groups: None
) -> None:
    """As the original's guide has it: PaddleJob and PodGroup share their name. The plain chart's role is enough."""
    metadata = {"name": "gang", "namespace": space}
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata}
    make(installed, {**group, "spec": {"minMember": 2}})
    patch(installed, space, "podgroup/gang", {"status": {"phase": "Inqueue"}}, "status")
    with running(installed, tmp_path, "--namespace", space, "--scheduling", "volcano"):
        submit(installed, space, "gang", {"worker": role(2)})
        eventually(lambda: len(uids(installed, space)) == 2, "pods")
        found = json.loads(installed.kubectl("get", "podgroup", "gang", "-n", space, "-o", "json"))
        assert found["spec"] == {"minMember": 2}
        assert found["metadata"]["ownerReferences"][0]["uid"] == job(installed, space, "gang")["metadata"]["uid"]
        assert "Blocked" not in [each["type"] for each in job(installed, space, "gang")["status"].get("conditions", [])]


def test_readiness_names_what_may_not_be_watched(
    installed: LiveCluster, space: str, tmp_path: Path, groups: None
) -> None:
    rules = json.loads(installed.kubectl("get", "clusterrole", "paddleflow-operator", "-o", "json"))["rules"]
    without = [rule for rule in rules if "podgroups" not in rule["resources"]]
    patch_role(installed, without)
    (port,) = free_ports(1)
    try:
        with running(
            installed, tmp_path, "--scheduling", "volcano", "--health-probe-bind-address", f"127.0.0.1:{port}"
        ):
            found = eventually(lambda: not_ready(port), "not ready")
            eventually(lambda: "podgroups" in not_ready(port), "the kind's name")
            assert found
            patch_role(installed, rules)
            eventually(lambda: not_ready(port) == "", "ready, when it may be watched")
    finally:
        patch_role(installed, rules)


def patch_role(cluster: LiveCluster, rules: list[dict[str, Any]]) -> None:
    body = json.dumps({"rules": rules})
    cluster.kubectl("patch", "clusterrole", "paddleflow-operator", "--type=merge", "-p", body)


def not_ready(port: int) -> str:
    """What /readyz says when it is not ready; empty when it is."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10):
            return ""
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return "not listening yet"
