"""What others refuse the operator on a real API server: the job says it with a condition and an event, it is tried ever more
seldom, and goes on by itself when the trouble is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from scripts.lib import chart
from tests.cluster.admission_webhooks import PODS, in_force, webhook_away, webhook_denies
from tests.cluster_fixture import LiveCluster
from tests.operator_process import CHART, SPACE, blocked, install, job, running, submit
from tests.patience import eventually
from tests.simulated_paddlejob import role

ACCOUNT = f"system:serviceaccount:{SPACE}:paddleflow-operator"
COUNTED = "operator-under-test"
#: The API server counts requests by flow, so it is the one who says how often it was asked.
FLOW = {
    "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
    "kind": "FlowSchema",
    "metadata": {"name": COUNTED},
    "spec": {
        "matchingPrecedence": 100,
        "priorityLevelConfiguration": {"name": "workload-low"},
        "rules": [
            {
                "subjects": [
                    {
                        "kind": "ServiceAccount",
                        "serviceAccount": {"name": "paddleflow-operator", "namespace": SPACE},
                    }
                ],
                "resourceRules": [
                    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
                ],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def installed(control_plane: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    control_plane.apply(json.dumps(FLOW))
    install(control_plane)
    with running(control_plane, tmp_path_factory.mktemp("operator")):
        yield control_plane


@pytest.fixture
def space(installed: LiveCluster) -> Iterator[str]:
    with installed.namespace() as name:
        yield name


def requests(cluster: LiveCluster) -> int:
    """How many the operator has made so far."""
    page = cluster.kubectl("get", "--raw", "/metrics")
    pattern = rf'^apiserver_flowcontrol_dispatched_requests_total{{flow_schema="{COUNTED}".*}} (\d+)$'
    return sum(int(found) for found in re.findall(pattern, page, re.MULTILINE))


def tries(cluster: LiveCluster, space: str) -> int:
    """How often a refusal was recorded; equal messages are one event with a count."""
    warnings = ("get", "events", "-n", space, "--field-selector=type=Warning")
    return sum(int(count) for count in cluster.kubectl(*warnings, "-o", "jsonpath={.items[*].count}").split())


# ---- troubles: each until its block ends ---------------------------------------------------------------------------


@contextmanager
def quota(cluster: LiveCluster, space: str) -> Iterator[None]:
    cluster.kubectl("create", "quota", "few", "--hard=pods=0", "-n", space)
    in_force(cluster, space, "exceeded quota")
    yield
    cluster.kubectl("delete", "quota", "few", "-n", space)


@contextmanager
def pod_security(cluster: LiveCluster, space: str) -> Iterator[None]:
    label = "pod-security.kubernetes.io/enforce"
    cluster.kubectl("label", "namespace", space, f"{label}=restricted")
    in_force(cluster, space, "violates PodSecurity")
    yield
    cluster.kubectl("label", "namespace", space, f"{label}-")


@contextmanager
def policy(cluster: LiveCluster, space: str) -> Iterator[None]:
    admission = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": space}}
    says = {"expression": "object.spec.containers.all(c, has(c.resources.limits))", "message": "limits are wanted here"}
    rule = {
        "kind": "ValidatingAdmissionPolicy",
        "spec": {"matchConstraints": {"resourceRules": [PODS]}, "validations": [says]},
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
    binding = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": space, "validationActions": ["Deny"], "matchResources": here},
    }
    manifest = yaml.safe_dump_all([admission | rule, admission | binding])
    cluster.apply(manifest)
    in_force(cluster, space, "limits are wanted here")
    yield
    cluster.kubectl("delete", "-f", "-", stdin=manifest)


def _may(cluster: LiveCluster, space: str, verb: str) -> bool:
    return not cluster.refusal("auth", "can-i", *verb.split(), f"--as={ACCOUNT}", "-n", space)


@contextmanager
def lacking(cluster: LiveCluster, space: str, resource: str, verb: str) -> Iterator[None]:
    """The operator's role without one verb."""
    (found,) = [each for each in chart.render(CHART, SPACE) if each["kind"] == "ClusterRole"]
    for rule in found["rules"]:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    found["rules"] = [rule for rule in found["rules"] if rule["verbs"]]
    cluster.apply(json.dumps(found))
    group = ".batch.paddlepaddle.org" if resource.startswith("paddlejobs") else ""
    plain, _, sub = resource.partition("/")
    question = f"{verb} {plain}{group}" + (f" --subresource={sub}" if sub else "")
    eventually(lambda: not _may(cluster, space, question), f"the operator may not {question}")
    try:
        yield
    finally:
        install(cluster)
        eventually(lambda: _may(cluster, space, question), f"the operator may {question} again")


Trouble = Callable[[LiveCluster, str], AbstractContextManager[None]]
TROUBLES: list[tuple[Trouble, str, str]] = [
    (quota, "QuotaExceeded", "exceeded quota: few"),
    (pod_security, "RefusedByPolicy", "allowPrivilegeEscalation"),
    (policy, "RefusedByPolicy", "limits are wanted here"),
    (webhook_denies, "RefusedByWebhook", "no pods on Sundays"),
    (webhook_away, "RefusedByWebhook", "failed calling webhook"),
]
MEMBERS = 2


@dataclass
class Scene:
    """Jobs in all troubles at once, each in a namespace of its own, and what was seen."""

    spaces: dict[str, str]  #: by the name of the trouble
    said: dict[str, str]
    events: dict[str, str]  #: events, as kubectl shows them
    tries: int
    requests: int


@pytest.fixture(scope="module")
def scene(installed: LiveCluster) -> Iterator[Scene]:
    """All of them until each was tried three times: at first, and 1 and 3 s later. Then the troubles end."""
    with ExitStack() as namespaces:
        spaces = {each.__name__: namespaces.enter_context(installed.namespace()) for each, _, _ in TROUBLES}
        with ExitStack() as troubles:
            for trouble, _, _ in TROUBLES:
                troubles.enter_context(trouble(installed, spaces[trouble.__name__]))
            before = requests(installed)
            for space in spaces.values():
                submit(installed, space, "x", {"worker": role(MEMBERS)})
            said = {name: blocked(installed, space, "x") for name, space in spaces.items()}
            eventually(lambda: all(tries(installed, space) >= 3 for space in spaces.values()), "three tries of each")
            made = requests(installed) - before
            counted = sum(tries(installed, space) for space in spaces.values())
            events = {name: installed.kubectl("get", "events", "-n", space) for name, space in spaces.items()}
        yield Scene(spaces, said, events, counted, made)


@pytest.mark.parametrize(("trouble", "reason", "words"), TROUBLES, ids=[each[0].__name__ for each in TROUBLES])
def test_trouble_is_said_and_waited_out(
    installed: LiveCluster, scene: Scene, trouble: Trouble, reason: str, words: str
) -> None:
    said, space = scene.said[trouble.__name__], scene.spaces[trouble.__name__]
    assert said.startswith(f"{reason}: Pod {space}/x-worker-")
    assert words in said
    assert re.search(f"Warning +{reason} +paddlejob/x .*{words}", scene.events[trouble.__name__])
    installed.wait("pdj/x", "condition=Blocked=false", space)
    installed.kubectl("get", "pod", "x-worker-0", "x-worker-1", "-n", space)


def test_trouble_is_tried_ever_more_seldom(scene: Scene) -> None:
    """A try is a request for each pod and three for an event that is counted up; a job's words are two statuses at most."""
    assert scene.tries * MEMBERS < scene.requests, "the operator's requests are not counted"
    assert scene.requests <= scene.tries * (MEMBERS + 3) + len(scene.spaces) * 2


def test_a_role_that_may_not_create_pods_is_named(installed: LiveCluster, space: str) -> None:
    with lacking(installed, space, "pods", "create"):
        submit(installed, space, "x", {"worker": role(1)})
        said = blocked(installed, space, "x")
    assert said.startswith("Forbidden: ")
    assert 'cannot create resource "pods"' in said
    installed.wait("pdj/x", "condition=Blocked=false", space)


def test_a_role_that_may_not_write_the_status_is_said_by_an_event(installed: LiveCluster, space: str) -> None:
    with lacking(installed, space, "paddlejobs/status", "patch"):
        submit(installed, space, "x", {"worker": role(1)})
        installed.kubectl("wait", "--for=create", "pod/x-worker-0", "-n", space, "--timeout=60s")
        eventually(lambda: tries(installed, space), "an event")
    installed.wait("pdj/x", "jsonpath={.status.phase}=Pending", space)


def address(cluster: LiveCluster, space: str, pod: str, *addresses: str) -> None:
    """What a kubelet says of a pod that has its addresses."""
    status: dict[str, Any] = {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}
    cluster.kubectl("wait", "--for=create", f"pod/{pod}", "-n", space, "--timeout=60s")
    patch = ("patch", "pod", pod, "-n", space, "--subresource=status", "--type=merge", "-p")
    cluster.kubectl(*patch, json.dumps({"status": status}))


def test_addresses_of_ipv6_are_told_with_brackets(installed: LiveCluster, space: str) -> None:
    """Pods without a node whose addresses a test makes up: the API server keeps and checks them as it does real ones."""
    submit(installed, space, "six", {"worker": role(2)})
    address(installed, space, "six-worker-0", "fd00::a", "10.0.0.1")
    address(installed, space, "six-worker-1", "fd00::b")
    installed.kubectl("wait", "--for=create", "configmap/six-trainers-1", "-n", space, "--timeout=60s")
    data = json.loads(installed.kubectl("get", "configmap", "six-trainers-1", "-n", space, "-o", "json"))["data"]
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "[fd00::a]:36000,[fd00::b]:36000"
    assert data["PADDLE_MASTER"] == "[fd00::a]:36001"
    assert data["PADDLE_HOST_OPEN"] + data["PADDLE_HOST_CLOSE"] == "[]"
    assert job(installed, space, "six")["status"]["formation"] == 1
