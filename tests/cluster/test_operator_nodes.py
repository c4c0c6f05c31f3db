"""Members on real nodes that connect to each other: on the nodes' network, in three roles, and after a node is lost.

They are small shell programs and no trainers: each serves its own name at its endpoint and asks all others for theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster_fixture import LiveCluster
from tests.operator_process import job, submit
from tests.patience import eventually

#: Serve, ask until everybody answers, say what was heard, and stay as long as the test wants it.
TALK = """
mkdir -p /web && echo "$TRAINING_ROLE-$PADDLE_TRAINER_ID of formation $PADDLE_FORMATION" > /web/who
httpd -p $PADDLE_PORT -h /web
for peer in $(echo $PADDLE_PSERVERS_IP_PORT_LIST,$PADDLE_TRAINER_ENDPOINTS,$PADDLE_HETER_ENDPOINTS | tr , ' '); do
  until wget -qO- http://$peer/who; do usleep 200000; done
done
echo met everybody; sleep 1000
"""


@pytest.fixture
def space(deployed: LiveCluster) -> Iterator[str]:
    with deployed.namespace() as name:
        yield name


def talker(**body: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "docker.io/local/busybox:1", "command": ["sh", "-c", TALK]}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **body}}


def heard(cluster: LiveCluster, space: str, pod: str) -> list[str]:
    """Whom a member met, in the order of ranks, with the formation that they said."""
    eventually(
        lambda: "met everybody" in cluster.run("kubectl", "logs", pod, "-n", space).stdout, f"{pod} meets everybody"
    )
    return _met(cluster.kubectl("logs", pod, "-n", space))


def _met(log: str) -> list[str]:
    return re.findall(r"^\S+-\d+ of formation \d+$", log, re.MULTILINE)


def everybody(formation: int = 1, **roles: int) -> list[str]:
    return [f"{role}-{rank} of formation {formation}" for role, count in roles.items() for rank in range(count)]


def test_members_meet_on_the_nodes_network(deployed: LiveCluster, space: str) -> None:
    """Four on three nodes: at least two share an address, and each has ports of its own."""
    submit(deployed, space, "host", {"worker": {"replicas": 4, "template": talker()}, "intranet": "Host"})
    assert heard(deployed, space, "host-worker-3") == everybody(TRAINER=4)
    pods = json.loads(deployed.kubectl("get", "pods", "-n", space, "-o", "json"))["items"]
    assert all(pod["spec"]["hostNetwork"] and pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in pods)
    ports = [port["hostPort"] for pod in pods for port in pod["spec"]["containers"][0]["ports"]]
    assert len(set(ports)) == len(ports) == 4 * 20
    assert min(ports) == job(deployed, space, "host")["status"]["hostPort"]


def test_three_roles_meet(deployed: LiveCluster, space: str) -> None:
    one = {"replicas": 1, "template": talker()}
    submit(deployed, space, "heter", {"ps": {**one, "replicas": 2}, "worker": one, "heter": one})
    for pod in ("heter-ps-1", "heter-worker-0", "heter-heter-0"):
        assert heard(deployed, space, pod) == everybody(PSERVER=2, TRAINER=1, HETER_TRAINER=1)
    assert job(deployed, space, "heter")["status"]["mode"] == "PS"


def test_a_worker_of_a_lost_node_comes_back_elsewhere_with_its_rank(deployed: LiveCluster, space: str) -> None:
    leave = [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
        for taint in ("unreachable", "not-ready")
    ]
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"paddle-job-name": "lost"}}}
    prefer = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]}
    template = talker(tolerations=leave, affinity={"podAntiAffinity": prefer}, schedulerName="default-scheduler")
    submit(deployed, space, "lost", {"worker": {"replicas": 3, "template": template}})
    deployed.wait("pdj/lost", "condition=Running", space)
    before = _nodes(deployed, space)
    (victim,) = [pod for pod, node in before.items() if node == "node3"]
    deployed.kill("node3")
    try:
        deployed.wait("pdj/lost", "jsonpath={.status.formation}=2", space)
        for pod in before:
            eventually(partial(_met_again, deployed, space, pod), f"{pod} meets everybody again")
        assert _nodes(deployed, space)[victim] in ("node1", "node2")
        ready = deployed.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.conditions[-1].status}")
        assert ready == "True True Unknown"
        status = job(deployed, space, "lost")["status"]
        assert (status["failures"], status["disruptions"]) == (0, 1), "a lost node is nobody's failure"
        assert "NodeLost" in deployed.kubectl("get", "events", "-n", space)
    finally:
        deployed.restart("node3")
    deployed.wait("node/node3", "condition=Ready")


def _met_again(cluster: LiveCluster, space: str, pod: str) -> bool:
    log = cluster.run("kubectl", "logs", pod, "-n", space).stdout  # the pod may be on its way out and in again
    return "met everybody" in log and _met(log) == everybody(formation=2, TRAINER=3)


def _nodes(cluster: LiveCluster, space: str) -> dict[str, str]:
    """Where each pod is."""
    pods = json.loads(cluster.kubectl("get", "pods", "-n", space, "-o", "json"))["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}
