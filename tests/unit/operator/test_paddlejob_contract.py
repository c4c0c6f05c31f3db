"""The environment of members: one contract in all modes, with endpoints that are each member's own."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.operator.paddlejob.contract import expected, members_map, shared
from paddleflow.operator.paddlejob.job import OperatorOptions, read
from paddleflow.operator.paddlejob.manifests import pod
from paddleflow.operator.paddlejob.pods import read_pods
from tests.simulated_paddlejob import Obj, SimulatedCluster, job, role


def variables(manifest: Obj) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in manifest["spec"]["containers"][0]["env"]
    }


def made(spec: Obj, name: str = "worker", index: int = 0, **options: Any) -> Obj:
    found = read(job(spec))
    return pod(found, name, index, 1, OperatorOptions(**options), 40000, False)


def data(spec: Obj, **options: Any) -> dict[str, str]:
    """Data of the trainers' ConfigMap, once everybody has an address."""
    cluster = SimulatedCluster(spec, **options)
    cluster.go()
    role_name = "worker" if "worker" in spec else "ps"
    found: dict[str, str] = cluster.objects["ConfigMap", members_map(read(cluster.job), role_name, 1)]["data"]
    return found


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_each_server_finds_its_own_endpoint_in_the_list(intranet: str) -> None:
    """A server that is not in the list cannot start: the address in its pod and the one in the list are made alike."""
    spec = {"ps": role(2), "worker": role(2), "intranet": intranet}
    cluster = SimulatedCluster(spec)
    cluster.go()
    listed = cluster.objects["ConfigMap", "demo-servers-1"]["data"]["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    for index in range(2):
        manifest = cluster.pod(f"demo-ps-{index}")
        env = variables(manifest)
        host = env["POD_IP"] if intranet == "Service" else manifest["status"]["podIP"]
        assert f"{host}:{env['PADDLE_PORT']}" == listed[index]


def test_gloo_meets_beside_the_first_server() -> None:
    found = data({"ps": role(2), "worker": role(2), "withGloo": 1})
    host, _, port = found["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")[0].rpartition(":")
    assert found["PADDLE_GLOO_HTTP_ENDPOINT"] == f"{host}:{int(port) + 1}"
    assert found["PADDLE_WITH_GLOO"] == "1"


def test_no_gloo_without_servers() -> None:
    assert "PADDLE_WITH_GLOO" not in data({"worker": role(2), "withGloo": 1})


def test_on_the_nodes_network_every_member_has_its_own_ports() -> None:
    spec = {"ps": role(2), "worker": role(3), "heter": role(2), "intranet": "Host"}
    found = [
        {entry["hostPort"] for entry in made(spec, name, index)["spec"]["containers"][0]["ports"]}
        for name, count in (("ps", 2), ("worker", 3), ("heter", 2))
        for index in range(count)
    ]
    assert sum(len(ports) for ports in found) == len(set.union(*found))
    body = made(spec)["spec"]
    assert body["hostNetwork"] is True
    assert body["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_ports_of_a_member_stay_when_another_role_grows() -> None:
    before = made({"ps": role(1), "worker": role(2), "intranet": "Host"}, "worker", 1)
    after = made({"ps": role(3), "worker": role(5), "intranet": "Host"}, "worker", 1)
    assert variables(before)["PADDLE_PORT"] == variables(after)["PADDLE_PORT"]


def test_members_on_one_node_are_told_apart_for_the_launcher() -> None:
    spec = {"worker": role(2), "intranet": "Host"}
    cluster = SimulatedCluster(spec)
    cluster.settle()
    for each in cluster.pods():
        each["status"]["podIP"] = "10.0.0.9"
    cluster.go()
    found = cluster.objects["ConfigMap", "demo-trainers-1"]["data"]
    assert len(set(found["PADDLE_TRAINER_ENDPOINTS"].split(","))) == 2
    assert "DISTRIBUTED_TRAINER_ENDPOINTS" in found


def test_ipv6_addresses_are_written_in_brackets() -> None:
    cluster = SimulatedCluster({"worker": role(2)})
    cluster.settle()
    for number, each in enumerate(cluster.pods()):
        each["status"]["podIP"] = f"fd00::{number + 1}"
    cluster.go()
    found = cluster.objects["ConfigMap", "demo-trainers-1"]["data"]
    assert found["PADDLE_TRAINER_ENDPOINTS"] == "[fd00::1]:36000,[fd00::2]:36000"
    assert (found["PADDLE_HOST_OPEN"], found["PADDLE_HOST_CLOSE"]) == ("[", "]")
    assert variables(cluster.pod("demo-worker-0"))["PADDLE_CURRENT_ENDPOINT"] == (
        "$(PADDLE_HOST_OPEN)$(POD_IP)$(PADDLE_HOST_CLOSE):$(PADDLE_PORT)"
    )


def test_heter_workers_know_both_sides() -> None:
    spec = {"ps": role(1), "worker": role(2), "heter": role(2)}
    found = data(spec)
    assert found["PADDLE_STAGE_TRAINERS_NUM"] == "[2,2]"
    assert len(found["PADDLE_HETER_ENDPOINTS"].split(",")) == 2
    env = variables(made(spec, "heter"))
    assert env["TRAINING_ROLE"] == "HETER_TRAINER"
    assert env["PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"]["configMapKeyRef"]["key"] == "PADDLE_TRAINER_ENDPOINTS"


def test_identity_wins_over_the_user_and_the_user_over_tuning() -> None:
    spec = {"worker": role(2)}
    spec["worker"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "PADDLE_TRAINER_ID", "value": "7"},
        {"name": "PADDLE_TRAINERS_NUM", "value": "99"},
        {"name": "PYTHONUNBUFFERED", "value": "0"},
        {"name": "MINE", "value": "kept"},
    ]
    env = variables(made(spec, index=1))
    assert (env["PADDLE_TRAINER_ID"], env["PYTHONUNBUFFERED"], env["MINE"]) == ("1", "0", "kept")
    assert "PADDLE_TRAINERS_NUM" not in env


def test_elastic_trainers_get_their_etcd_and_nothing_fixed() -> None:
    spec = {"worker": role(2) | {"requests": 1, "limits": 4}, "elastic": 1}
    manifest = made(spec, etcd="https://etcd:2379/, http://other:2379")
    env = variables(manifest)
    assert env["PADDLE_ELASTIC_SERVER"] == "etcd:2379,other:2379"
    assert (env["PADDLE_MASTER"], env["PADDLE_NNODES"], env["PADDLE_RANK"]) == ("etcd://etcd:2379", "1:4", "-1")
    assert env["PADDLE_ELASTIC_NP"] == "1:4"
    assert env["PADDLE_ELASTIC_JOB_ID"] == "team-demo"
    assert "envFrom" not in manifest["spec"]["containers"][0]
    assert manifest["spec"]["restartPolicy"] == "OnFailure"
    without = made(spec)
    assert not variables(without).keys() & {"PADDLE_ELASTIC_SERVER", "PADDLE_MASTER"}
    assert without["spec"]["containers"][0]["envFrom"]


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({"worker": role(2)}, "Never"),
        ({"worker": role(2, restartPolicy="OnFailure")}, "OnFailure"),
        ({"ps": role(1), "worker": role(2), "intranet": "Service"}, "OnFailure"),
        ({"ps": role(1), "worker": role(2), "intranet": "Service", "withGloo": 1}, "Never"),
        ({"ps": role(1), "worker": role(2)}, "Never"),
    ],
)
def test_restart_policies(spec: Obj, policy: str) -> None:
    assert made(spec)["spec"]["restartPolicy"] == policy


def test_template_metadata_is_kept_and_ours_wins() -> None:
    spec = {"worker": role(1)}
    spec["worker"]["template"]["metadata"] = {
        "labels": {"team": "a", "paddle-job-name": "x"},
        "annotations": {"b": "c"},
    }
    meta = made(spec)["metadata"]
    assert meta["labels"]["team"] == "a"
    assert meta["labels"]["paddle-job-name"] == "demo"
    assert meta["annotations"]["b"] == "c"


def test_nothing_is_published_while_an_address_is_missing() -> None:
    cluster = SimulatedCluster({"worker": role(2)})
    cluster.settle()
    cluster.place(cluster.pod("demo-worker-0"))
    found = read(cluster.job)
    assert expected(found, read_pods(cluster.pods(), "demo"), cluster.options, 0) is None
    cluster.place(cluster.pod("demo-worker-1"))
    membership = expected(found, read_pods(cluster.pods(), "demo"), cluster.options, 0)
    assert membership
    assert shared(found, membership)["PADDLE_TRAINERS_NUM"] == "2"
