"""The operator on a real API server without nodes: what is refused and how it is said, and that it needs only its role."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddleflow.spec.paddlejob.crd import TEMPLATE
from tests.cluster_fixture import LiveCluster
from tests.operator_process import blocked, install, job, paddle_job, running, submit
from tests.simulated_paddlejob import role


@pytest.fixture(scope="module")
def installed(control_plane: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    install(control_plane)
    with running(control_plane, tmp_path_factory.mktemp("operator")):
        yield control_plane


@pytest.fixture
def space(installed: LiveCluster) -> Iterator[str]:
    with installed.namespace() as name:
        yield name


def misspelt(**fields: Any) -> dict[str, Any]:
    """A role whose container has these fields as well."""
    made = role(1)
    made["template"]["spec"]["containers"][0] |= fields
    return made


@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("bad", {}, "name at least one role"),
        ("bad", {"worker": role(0)}, "spec.worker.replicas in body should be greater than or equal to 1"),
        ("bad", {"worker": role(-1)}, "spec.worker.replicas"),
        ("bad", {"worker": role(1), "cleanPodPolicy": "OnFailed"}, 'supported values: "Always", "Never", "OnFailure"'),
        ("bad", {"worker": role(1), "cleanPolicy": "Always"}, 'unknown field "spec.cleanPolicy"'),
        ("bad", {"worker": role(1, nodeselector={})}, 'unknown field "spec.worker.template.spec.nodeselector"'),
        ("bad", {"ps": misspelt(comand=["true"])}, 'unknown field "spec.ps.template.spec.containers[0].comand"'),
        ("bad", {"heter": misspelt(env=[{"nam": "A"}])}, 'containers[0].env[0].nam"'),
        ("bad", {"worker": role(1), "intranet": "Nowhere"}, 'supported values: "PodIP", "Service", "Host"'),
        ("bad", {"ps": role(1), "elastic": 1}, "elastic needs worker"),
        ("bad", {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}, "at least 1 items"),
        ("bad", {"worker": role(1, restartPolicy="Always")}, 'supported values: "Never", "OnFailure"'),
        ("bad", {"worker": role(2) | {"limits": 1}}, "above limits"),
        ("bad", {"worker": role(1), "schedulingPolicy": {"minAvailable": 2}}, "could never start"),
        ("a" * 52, {"worker": role(1)}, "longer than 51 characters"),
        ("a.b", {"worker": role(1)}, "it becomes part of DNS names"),
    ],
)
def test_wrong_manifests_are_refused(installed: LiveCluster, name: str, spec: dict[str, Any], words: str) -> None:
    assert words in installed.refusal("create", "--dry-run=server", "-f", "-", stdin=paddle_job(name, spec))


def test_what_kubernetes_lets_into_a_pod_is_let_into_a_template(installed: LiveCluster) -> None:
    """Every name of the API server's own description is known here, and no other."""
    served = json.loads(installed.kubectl("get", "--raw", "/openapi/v3/api/v1"))["components"]["schemas"]

    def names(kind: str) -> set[str]:
        return set(served[f"io.k8s.api.core.v1.{kind}"]["properties"])

    pod = TEMPLATE["properties"]["spec"]["properties"]
    container = pod["initContainers"]["items"]["properties"]
    assert set(pod) == names("PodSpec") - {"ephemeralContainers"}
    assert set(container) == names("Container")
    assert set(container["resources"]["properties"]) == names("ResourceRequirements")
    lists = {"env": "EnvVar", "envFrom": "EnvFromSource", "ports": "ContainerPort", "volumeMounts": "VolumeMount"}
    for field, kind in lists.items():
        assert set(container[field]["items"]["properties"]) == names(kind)


def test_a_template_may_say_nothing_in_a_field(installed: LiveCluster) -> None:
    """As programs write them that print every field."""
    nothing = misspelt(env=None, resources=None, securityContext=None, ports=None, args=None)
    nothing["template"]["spec"] |= {"volumes": None, "initContainers": None, "affinity": None}
    nothing["template"]["metadata"] = {"creationTimestamp": None, "labels": {"a": "b"}}
    said = installed.refusal("create", "--dry-run=server", "-f", "-", stdin=paddle_job("empty", {"worker": nothing}))
    assert said == ""


def test_a_job_gets_its_pods_and_its_status(installed: LiveCluster, space: str) -> None:
    submit(installed, space, "plain", {"worker": role(3), "intranet": "Service"})
    installed.wait("pdj/plain", "jsonpath={.status.phase}=Pending", space)
    found = json.loads(installed.kubectl("get", "pods,services,configmaps", "-n", space, "-o", "json"))["items"]
    names = sorted(each["metadata"]["name"] for each in found if each["metadata"]["name"] != "kube-root-ca.crt")
    assert names == ["plain", "plain-trainers-1", "plain-worker-0", "plain-worker-1", "plain-worker-2"]
    assert job(installed, space, "plain")["status"]["observedGeneration"] == 1


def test_kubectl_scale_changes_the_pods(installed: LiveCluster, space: str) -> None:
    submit(installed, space, "sized", {"worker": role(1)})
    installed.kubectl("wait", "--for=create", "pod/sized-worker-0", "-n", space, "--timeout=60s")
    installed.kubectl("scale", "pdj/sized", "--replicas=2", "-n", space)
    installed.kubectl("wait", "--for=create", "pod/sized-worker-1", "-n", space, "--timeout=60s")
    installed.kubectl("scale", "pdj/sized", "--replicas=1", "-n", space)
    installed.kubectl("wait", "--for=delete", "pod/sized-worker-1", "-n", space, "--timeout=60s")


FOREIGN: list[tuple[str, Callable[[LiveCluster, str], object], str]] = [
    ("pod", lambda c, s: c.kubectl("run", "x-worker-0", "--image=a:1", "-n", s), "PodIP"),
    ("configmap", lambda c, s: c.kubectl("create", "configmap", "x-trainers-1", "-n", s), "Service"),
    ("service", lambda c, s: c.kubectl("create", "service", "clusterip", "x", "--tcp=80", "-n", s), "Service"),
]


@pytest.mark.parametrize(("kind", "make", "intranet"), FOREIGN, ids=[kind for kind, _, _ in FOREIGN])
def test_what_is_somebody_elses_is_named_and_left_alone(
    installed: LiveCluster, space: str, kind: str, make: Callable[[LiveCluster, str], object], intranet: str
) -> None:
    make(installed, space)
    submit(installed, space, "x", {"worker": role(2), "intranet": intranet})
    said = blocked(installed, space, "x")
    assert said.startswith("NameTaken")
    assert "is not this job's" in said
    assert "NameTaken" in installed.kubectl("get", "events", "-n", space)
    target = {"pod": "x-worker-0", "configmap": "x-trainers-1", "service": "x"}[kind]
    installed.kubectl("delete", kind, target, "-n", space, "--grace-period=0", "--force")
    installed.wait("pdj/x", "condition=Blocked=false", space)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dnsPolicy": "Sometimes"}, "spec.dnsPolicy"),
        ({"dnsConfig": {"server": ["10.0.0.1"]}}, "spec.dnsConfig.server"),
    ],
    ids=["a value that no pod takes", "a field deep inside that no pod has"],
)
def test_a_pod_that_is_not_valid_is_named(
    installed: LiveCluster, space: str, wrong: dict[str, Any], words: str
) -> None:
    submit(installed, space, "odd", {"worker": role(1, **wrong)})
    assert words in blocked(installed, space, "odd")


def test_deleting_a_job_deletes_what_it_had(installed: LiveCluster, space: str) -> None:
    submit(installed, space, "gone", {"worker": role(2), "intranet": "Service"})
    installed.kubectl("wait", "--for=create", "pod/gone-worker-1", "-n", space, "--timeout=60s")
    installed.kubectl("delete", "pdj", "gone", "-n", space)
    for kind in ("pod/gone-worker-0", "pod/gone-worker-1", "service/gone", "configmap/gone-trainers-1"):
        installed.kubectl("wait", "--for=delete", kind, "-n", space, "--timeout=60s")


def test_another_operator_takes_over(installed: LiveCluster, tmp_path: Path) -> None:
    """Two in line for the lease, in a namespace of their own; the first one dies without giving it back."""
    with installed.namespace() as space:
        own = ("--namespace", space, "--leader-elect", "--leader-elect-namespace", "paddle-system")
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        lease = ("lease/paddleflow-operator", "-n", "paddle-system")
        with running(installed, tmp_path / "a", *own) as first:
            installed.kubectl("wait", "--for=create", *lease, "--timeout=60s")
            holder = installed.kubectl("get", *lease, "-o", "jsonpath={.spec.holderIdentity}")
            with running(installed, tmp_path / "b", *own):
                first.kill()
                installed.kubectl("wait", *lease, "--for=jsonpath={.spec.leaseTransitions}=1", "--timeout=60s")
                after = installed.kubectl("get", *lease, "-o", "jsonpath={.spec.holderIdentity}")
                assert after not in ("", holder)
