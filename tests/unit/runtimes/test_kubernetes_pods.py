"""Attempts as pods: names, manifests, and what the statuses of pods and nodes mean."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.ids import AttemptId
from paddleflow.base.names import LABEL_VALUE
from paddleflow.base.quantity import Resources
from paddleflow.runtimes.kubernetes import custom_objects, handover, pods, status
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.runtime import Launch, Mount
from paddleflow.spec import operator_kinds

ATTEMPT = AttemptId("job-a.worker-0.1")
NOW = 1_800_000_000.0
TAKEN = Resources.of(250, 1 << 20)
SETTINGS = PodSettings("c", "team", default_image="image:1")


def launch(**fields: Any) -> Launch:
    return Launch(ATTEMPT, ("true",), {"A": "1"}, **fields)


def seen(found: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    made = pods.pod(launch(node="n1"), SETTINGS)
    made["metadata"] |= {"uid": "u", **metadata}
    return status.trimmed({**made, "status": found})


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


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,80}[A-Za-z0-9_]", fullmatch=True))
def test_every_name_of_a_cluster_makes_a_label(name: str) -> None:
    label = pods.cluster_label(name)
    assert not LABEL_VALUE.fault(label)
    assert label == name or LABEL_VALUE.fault(name)


@pytest.mark.parametrize("job", ["job-1a2b3c4d5e6f", "7" * 63, "a" * 63])
def test_an_operator_s_object_leaves_room_for_the_names_of_its_pods(job: str) -> None:
    """Their names are host names and label values: Kubeflow adds `-worker-1000`, Ray `-raycluster-abcde`."""
    name = pods.object_name(AttemptId(f"{job}.worker-0.1"))
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", name)
    assert name != pods.object_name(AttemptId(f"{job}.worker-0.2"))


def test_a_launch_becomes_a_pod() -> None:
    asked = Resources.of(500, 1 << 30, {"nvidia.com/gpu": 2000})
    storage = Mount("fs-1", "/data", "/srv/data", sub_path="sub", read_only=True)
    made = pods.pod(launch(request=asked, mounts=(storage,), ready_port=80, ports=(80,), labels={"a": "b"}), SETTINGS)
    (main,) = made["spec"]["containers"]
    assert main["resources"] == {
        "requests": {"cpu": "500m", "memory": str(1 << 30), "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert main["volumeMounts"][-1] == {"name": "storage-0", "mountPath": "/data", "readOnly": True, "subPath": "sub"}
    assert main["readinessProbe"]["tcpSocket"] == {"port": 80}
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["metadata"]["finalizers"] == [pods.ATTEMPT]
    assert made["metadata"]["labels"] == {"a": "b", "paddleflow-job-id": "job-a", pods.CLUSTER_LABEL: "c"}


def test_kubernetes_fills_nothing_into_commands_and_variables() -> None:
    main = pods.pod(Launch(ATTEMPT, ("echo", "$$ $(A)"), {"A": "$(B)"}), SETTINGS)["spec"]["containers"][0]
    assert main["command"] == ["echo", "$$$$ $$(A)"]
    assert main["env"][0] == {"name": "A", "value": "$$(B)"}


def test_what_cannot_be_a_pod_is_refused_in_words() -> None:
    assert "no image" in pods.refusal(launch(), PodSettings("c"))
    assert "fs-1" in pods.refusal(launch(mounts=(Mount("fs-1", "/data", "s3://bucket"),)), SETTINGS)
    assert "requirements" in pods.refusal(launch(requirements="numpy"), SETTINGS)
    assert pods.refusal(launch(), SETTINGS) == ""


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (seen(container(terminated={"exitCode": 3, "reason": "Error"})), 3, ""),
        (seen(container(terminated={"exitCode": 137, "reason": "OOMKilled"})), 137, "memory limit"),
        (seen({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}), None, "Evicted: low on memory"),
        (seen(container(terminated={"exitCode": 137, "reason": "Error"})), 137, "ended by SIGKILL"),
        (seen(container(terminated={"exitCode": 143}), annotations={status.STOPPED: "stopped"}), 143, "stopped"),
        (
            seen(
                container(terminated={"exitCode": 137, "reason": "ContainerStatusUnknown"}),
                annotations={status.STOPPED: "its container cannot start: ErrImagePull"},
            ),
            None,
            "its container cannot start: ErrImagePull",
        ),
        (seen(container(running={}), deletionTimestamp="2020-01-01T00:00:00Z"), None, "node n1 does not answer"),
    ],
)
def test_ends_are_told_from_statuses(found: dict[str, Any], code: int | None, words: str) -> None:
    end = status.ended(found, NOW)
    assert end is not None
    assert end.exit_code == code
    assert words in end.message
    assert bool(words) == bool(end.message)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('unable to start container process: exec: "nope": executable file not found in $PATH: unknown', "command not found: nope"),
        ('exec: "/a/b": stat /a/b: no such file or directory: unknown', "command not found: /a/b"),
        ('exec: "/etc/hostname": permission denied: unknown', "cannot execute /etc/hostname: permission denied"),
        ("no space left on device", "its container cannot start: no space left on device"),
    ],
)  # fmt: skip
def test_a_program_that_cannot_be_started_is_named(said: str, words: str) -> None:
    state = {"exitCode": 128, "reason": "StartError", "message": said, "startedAt": "1970-01-01T00:00:00Z"}
    found = seen(container(terminated=state))
    end = status.ended(found, NOW)
    assert end is not None
    assert (end.exit_code, end.message, end.started_at) == (None, words, None)
    assert status.started_at(found) is None


@pytest.mark.parametrize(
    ("reason", "said", "disrupted"),
    [
        ("EvictionByEvictionAPI", "Eviction API: evicting", True),
        ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", True),
        ("TerminationByKubelet", "The node was low on resource: memory", True),
        ("TerminationByKubelet", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi", False),
    ],
)
def test_what_the_cluster_takes_away_is_no_fault_of_the_program(reason: str, said: str, disrupted: bool) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": said}
    found = seen({**container(terminated={"exitCode": 143}), "conditions": [condition]})
    end = status.ended(found, NOW)
    assert end is not None
    assert end.disrupted == disrupted
    found["metadata"]["annotations"][status.STOPPED] = "stopped"
    end = status.ended(found, NOW)
    assert end is not None
    assert not end.disrupted, "we did it ourselves"
    found = seen({**container(terminated={"exitCode": 0}), "conditions": [condition]})
    end = status.ended(found, NOW)
    assert end is not None
    assert not end.disrupted, "it was done before"


def test_what_runs_has_not_ended() -> None:
    assert status.ended(seen(container(running={"startedAt": "2026-01-01T00:00:00Z"})), NOW) is None
    assert status.ended(seen({"phase": "Pending"}), NOW) is None


def test_a_pod_that_was_deleted_before_it_had_a_node_has_ended() -> None:
    found = seen({"phase": "Pending"}, deletionTimestamp="2100-01-01T00:00:00Z")
    assert status.ended(found, NOW) is None, "its kubelet will say"
    found["spec"]["nodeName"] = ""
    end = status.ended(found, NOW)
    assert end is not None
    assert "before it started" in end.message


def test_a_probe_decides_about_readiness() -> None:
    found = seen(container(running={"startedAt": "2026-01-01T00:00:00Z"}))
    assert status.is_ready(found, probed=False)
    assert not status.is_ready(found, probed=True)
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert status.is_ready(found, probed=True)


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
    info = status.node_info(status.trimmed_node(node), TAKEN)
    assert (info.name, info.address, info.schedulable, dict(info.labels)) == ("n1", "10.0.0.1", True, {"zone": "a"})
    assert info.capacity == Resources.of(1500, 2 << 30, {"nvidia.com/gpu": 2000})
    node["spec"] = {"unschedulable": True}
    assert not status.node_info(status.trimmed_node(node), TAKEN).schedulable
    assert info.taken == TAKEN


def test_taints_keep_away_unless_the_cluster_tolerates_them() -> None:
    node = {
        "metadata": {"name": "n1"},
        "spec": {
            "taints": [
                {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "slow", "effect": "PreferNoSchedule"},
            ]
        },
        "status": {},
    }
    kept = status.trimmed_node(node)
    assert status.node_info(kept, TAKEN).taints == ("gpu=a100:NoSchedule",)
    assert status.node_info(kept, TAKEN, [{"key": "gpu", "operator": "Exists"}]).taints == ()
    assert status.node_info(kept, TAKEN, [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]).taints == ()
    assert status.node_info(kept, TAKEN, [{"key": "gpu", "value": "v100"}]).taints == ("gpu=a100:NoSchedule",)


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        (
            {"containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "500m"}}}]},
            1500,
        ),
        ({"containers": [{}], "initContainers": [{"resources": {"requests": {"cpu": "3"}}}]}, 3000),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
            },
            3000,
        ),
        ({"containers": [{}], "overhead": {"cpu": "250m"}}, 250),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "resources": {"requests": {"cpu": "4"}}}, 4000),
        ({"containers": [{"resources": {"requests": {"cpu": "what"}}}]}, 0),
    ],
)
def test_what_a_pod_of_others_holds(spec: dict[str, Any], cpu: int) -> None:
    assert status.requested(spec).cpu == cpu


def test_pods_of_others_count_while_they_hold_something() -> None:
    keep = status.kept("c")
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    other = {"metadata": {"name": "x", "namespace": "y"}, "spec": spec, "status": {"phase": "Running"}}
    assert keep(other) == status.OtherPod("n1", Resources.of(1000))
    assert keep({**other, "status": {"phase": "Succeeded"}}) == status.OtherPod("", Resources())
    assert keep({**other, "spec": {**spec, "nodeName": ""}}) == status.OtherPod("", Resources())
    mine = pods.pod(launch(node="n1"), SETTINGS)
    assert not isinstance(keep(mine), status.OtherPod)


def test_the_memory_limit_is_named() -> None:
    limit = Resources.of(1000, 64 << 20)
    made = pods.pod(launch(node="n1", request=limit, limit=limit), SETTINGS)
    made["metadata"]["uid"] = "u"
    found = status.trimmed({**made, "status": container(terminated={"exitCode": 137, "reason": "OOMKilled"})})
    end = status.ended(found, NOW)
    assert end is not None
    assert end.message == "memory limit of 64Mi exceeded"


def test_code_is_cut_into_config_maps_and_put_together_in_the_pod() -> None:
    code = bytes(range(256)) * 8000
    asked = launch(code="snap", working_dir="src")
    maps = pods.config_maps(asked, SETTINGS, code)
    assert len(maps) == 3
    assert b"".join(base64.b64decode(each["binaryData"]["part"]) for each in maps) == code
    made = pods.pod(asked, SETTINGS, len(code))
    (parts,) = [each["projected"]["sources"] for each in made["spec"]["volumes"] if each["name"] == "parts"]
    assert [each["configMap"]["name"] for each in parts] == [each["metadata"]["name"] for each in maps]
    assert made["spec"]["containers"][0]["workingDir"] == "/paddleflow/code/src"
    assert made["spec"]["initContainers"][0]["image"] == "image:1"


def test_members_that_talk_have_names_below_a_service() -> None:
    asked = launch(ports=(8000,), namespace="other")
    made, found = pods.service(asked, SETTINGS), pods.pod(asked, SETTINGS)
    assert made is not None
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("job-a", "other")
    assert pods.member_address("job-a", "worker", 0) == f"{found['spec']['hostname']}.{found['spec']['subdomain']}"
    assert pods.service(launch(), SETTINGS) is None


def test_secrets_come_beside_the_pod_and_never_stand_in_it() -> None:
    asked = launch(secret_env={"TOKEN": "s3cret"}, secret_files={"key.pem": "pem of it"})
    made, beside = pods.pod(asked, SETTINGS), pods.secret(asked, SETTINGS)
    assert beside is not None
    assert "s3cret" not in str(made)
    assert "pem of it" not in str(made)
    assert sorted(base64.b64decode(text).decode() for text in beside["data"].values()) == ["pem of it", "s3cret"]
    env = {each["name"]: each for each in made["spec"]["containers"][0]["env"]}
    reference = env["TOKEN"]["valueFrom"]["secretKeyRef"]
    assert base64.b64decode(beside["data"][reference["key"]]) == b"s3cret"
    assert reference["name"] == beside["metadata"]["name"]
    assert env["PF_SECRETS_DIR"]["value"] == pods.SECRETS_FOLDER
    assert pods.secret(launch(), SETTINGS) is None


def test_a_cluster_says_what_its_pods_have_in_common() -> None:
    settings = PodSettings(
        "c", "team", "image:1", run_as_user=1000, root_queues=["admin"], priority_classes={"HIGH": "urgent"}, ephemeral_storage="1Gi"
    )  # fmt: skip
    spec = pods.pod(launch(queue="q", priority="HIGH"), settings)["spec"]
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["priorityClassName"] == "urgent"
    assert spec["containers"][0]["resources"]["limits"] == {"ephemeral-storage": "1Gi"}
    other = pods.pod(launch(queue="admin", priority="LOW"), settings)["spec"]
    assert "runAsUser" not in other["securityContext"]
    assert "priorityClassName" not in other


def test_a_template_gives_what_only_pods_have() -> None:
    probe = {"exec": {"command": ["true"]}}
    first = {
        "name": "x",
        "livenessProbe": probe,
        "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
        "resources": {"requests": {"ephemeral-storage": "2Gi", "cpu": "9"}},
    }
    template = {
        "spec": {
            "nodeSelector": {"a": "b"},
            "containers": [first, {"name": "sidecar", "image": "s:1"}],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}],
        }
    }
    asked = launch(template=template, request=Resources.of(1000))
    assert pods.refusal(asked, SETTINGS) == ""
    spec = pods.pod(asked, SETTINGS)["spec"]
    main, sidecar = spec["containers"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert main["livenessProbe"] == probe
    assert main["volumeMounts"][-1]["mountPath"] == "/claim"
    assert main["resources"]["requests"] == {"cpu": "1000m", "ephemeral-storage": "2Gi"}
    assert (main["name"], sidecar["name"]) == ("main", "sidecar")
    assert spec["volumes"][-1]["name"] == "claim"


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"serviceAccountName": "admin"}, "spec.serviceAccountName"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, "spec.volumes[0].hostPath"),
        ({"volumes": [{"name": "x", "secret": {"secretName": "y"}}]}, "spec.volumes[0].secret"),
        ({"containers": [{"securityContext": {"privileged": True}}]}, "spec.containers[0].securityContext.privileged"),
        ({"containers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}, "capabilities.add"),
        ({"securityContext": {"runAsUser": 0}}, "spec.securityContext.runAsUser"),
    ],
)
def test_a_template_gives_no_rights(spec: dict[str, Any], where: str) -> None:
    assert where in pods.refusal(launch(template={"spec": spec}), SETTINGS)


def custom(api: str, kind: str, **found: Any) -> dict[str, Any]:
    metadata = {
        "name": "x",
        "namespace": "y",
        "uid": "u",
        "annotations": {pods.ATTEMPT: ATTEMPT},
        "finalizers": [pods.ATTEMPT],
    }
    metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", **found.pop("metadata", {})}
    return custom_objects.as_pod({"apiVersion": api, "kind": kind, "metadata": metadata, "status": found})


def condition(kind: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "message": message}


@pytest.mark.parametrize(
    ("found", "started", "code", "words"),
    [
        (custom("argoproj.io/v1alpha1", "Workflow"), False, ..., ""),
        (custom("argoproj.io/v1alpha1", "Workflow", phase="Running"), True, ..., ""),
        (custom("argoproj.io/v1alpha1", "Workflow", phase="Succeeded"), True, 0, ""),
        (custom("argoproj.io/v1alpha1", "Workflow", phase="Error", message="no room"), True, None, "Workflow failed: no room"),
        (custom("kubeflow.org/v1", "PyTorchJob", conditions=[condition("Created")]), False, ..., ""),
        (custom("kubeflow.org/v1", "PyTorchJob", conditions=[condition("Created"), condition("Running")]), True, ..., ""),
        (custom("kubeflow.org/v1", "TFJob", conditions=[condition("Succeeded", "done")]), True, 0, ""),
        (custom("kubeflow.org/v1", "MPIJob", conditions=[condition("Failed", "worker died")]), True, None, "worker died"),
        (custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", applicationState={"state": "RUNNING"}), True, ..., ""),
        (
            custom(
                "sparkoperator.k8s.io/v1beta2", "SparkApplication", applicationState={"state": "FAILED", "errorMessage": "no jar"}
            ),
            True, None, "no jar",
        ),
        (custom("ray.io/v1", "RayJob", jobStatus="RUNNING", jobDeploymentStatus="Running"), True, ..., ""),
        (custom("ray.io/v1alpha1", "RayJob", jobStatus="SUCCEEDED"), True, 0, ""),
        (custom("ray.io/v1", "RayJob", jobDeploymentStatus="Failed", message="no head"), True, None, "no head"),
        (custom("batch.paddlepaddle.org/v1", "PaddleJob", phase="Completed"), True, 0, ""),
        (custom("batch.paddlepaddle.org/v1", "PaddleJob", phase="Failed", message="code 3"), True, None, "code 3"),
        (custom("kubeflow.org/v1", "TFJob", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False, None, "was deleted"),
    ],
)  # fmt: skip
def test_objects_of_operators_are_followed_like_pods(
    found: dict[str, Any], started: bool, code: Any, words: str
) -> None:
    assert (status.started_at(found) is not None) == started
    end = status.ended(found, NOW)
    assert (... if end is None else end.exit_code) == code
    assert words in ("" if end is None else end.message)


def test_an_object_that_is_stopped_ends_after_what_it_owns() -> None:
    finalizers = [pods.ATTEMPT, custom_objects.FOREGROUND]
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}
    found = custom("kubeflow.org/v1", "TFJob", metadata=metadata, conditions=[condition("Running")])
    assert status.ended(found, NOW) is None


def test_an_object_keeps_what_its_user_wrote() -> None:
    template = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mine", "namespace": "elsewhere", "labels": {"a": "b"}},
        "spec": {"pytorchReplicaSpecs": {}},
    }
    kind = operator_kinds.kind_of(template)
    assert kind is not None
    made = custom_objects.manifest(launch(template=template), SETTINGS, custom_objects.resource_of(kind, "v1"))
    assert made["spec"] == template["spec"]
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("job-a-worker-0-1", "team")
    assert made["metadata"]["labels"] == {"a": "b", "paddleflow-job-id": "job-a", pods.CLUSTER_LABEL: "c"}
    assert operator_kinds.kind_of({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}) is None


def test_containers_of_a_template_have_no_more_rights_than_the_job_s() -> None:
    hostile = {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}, "runAsUser": 5, "capabilities": {}}
    extra = {"name": "x", "image": "i", "securityContext": hostile}
    spec = {"containers": [{"name": "first"}, extra], "initContainers": [extra, {"name": "y", "image": "i"}]}
    made = pods.pod(launch(template={"kind": "Pod", "spec": spec}), SETTINGS)["spec"]
    for each in (made["containers"][1], *made["initContainers"]):
        rights = {**each["securityContext"]}
        assert rights.pop("runAsUser", 5) == 5
        assert rights == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    one_user = replace(SETTINGS, run_as_user=1000)
    made = pods.pod(launch(template={"kind": "Pod", "spec": spec}), one_user)["spec"]
    assert "runAsUser" not in made["containers"][1]["securityContext"]
    rooted = replace(SETTINGS, root_queues=["*"])
    made = pods.pod(launch(template={"kind": "Pod", "spec": spec}), rooted)["spec"]
    assert all("capabilities" not in each["securityContext"] for each in made["containers"])


def test_what_is_installed_may_stay_on_the_node_for_its_user() -> None:
    settings = replace(SETTINGS, platform_image="pf:1", environments_folder="/var/lib/envs")

    def made(user: str, **fields: Any) -> tuple[dict[str, Any], str]:
        spec = pods.pod(replace(launch(requirements="numpy"), user=user, **fields), settings)["spec"]
        (volume,) = [each["hostPath"]["path"] for each in spec["volumes"] if each["name"] == "environments"]
        assert volume.startswith("/var/lib/envs/")
        return spec, f"{volume} {spec['initContainers'][-1]['command'][-1]}"

    spec, place = made("ada")
    assert made("ada")[1] == place
    others = {made("bob")[1], made("ada", image="other:1")[1], made("ada", env={"UV_INDEX_URL": "http://x"})[1]}
    assert len(others - {place}) == 3
    assert made("ada", env={"SEED": "1"})[1] == place
    (seen,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "environments"]
    assert seen["readOnly"] is True
    alone = pods.pod(launch(requirements="numpy"), replace(settings, environments_folder=""))["spec"]
    assert not any("hostPath" in each for each in alone["volumes"])
    assert all("runAsUser" not in each["securityContext"] for each in alone["initContainers"])


def replicas(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    return {
        "replicas": 2,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], **spec}},
    }


@pytest.mark.parametrize(
    ("api", "spec", "charged"),
    [
        ("batch.paddlepaddle.org/v1", {"worker": replicas(), "ps": replicas()}, ["worker", "ps"]),
        ("batch.paddlepaddle.org/v1", {"worker": replicas(schedulerName="volcano")}, []),
        ("kubeflow.org/v1", {"worker": replicas(schedulerName="paddleflow"), "ps": replicas()}, ["worker"]),
    ],
)
def test_pods_of_an_object_that_the_engine_places_name_the_job_s_queue(
    api: str, spec: dict[str, Any], charged: list[str]
) -> None:
    template = {"apiVersion": api, "kind": "PaddleJob", "spec": spec}
    asked = Launch(AttemptId("job-a.worker-0.1"), (), {}, template=template, queue="vision")
    kind = operator_kinds.kind_of(template)
    assert kind is not None
    made = custom_objects.manifest(asked, SETTINGS, custom_objects.resource_of(kind, "v1"))
    queues = {role: made["spec"][role]["template"]["metadata"].get("annotations") for role in spec}
    assert queues == {role: {pods.QUEUE: "vision"} if role in charged else None for role in spec}
    assert all(made["spec"][role]["template"]["spec"] == spec[role]["template"]["spec"] for role in spec)


def test_the_engine_s_scheduler_may_be_named_by_objects_and_no_other() -> None:
    for name, refused in (("paddleflow", False), ("volcano", True)):
        template = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"x": replicas(schedulerName=name)}}
        kind = operator_kinds.kind_of(template)
        assert kind is not None
        asked = Launch(AttemptId("job-a.worker-0.1"), (), {}, template=template)
        said = custom_objects.refusal(asked, kind, custom_objects.resource_of(kind, "v1"))
        assert ("schedulerName is not allowed" in said) == refused


def test_a_pod_that_is_handed_over_has_no_node_and_its_gang_a_group() -> None:
    launch = Launch(
        AttemptId("job-1.worker-0.1"), ("true",), {}, image="i", node="n1", node_selector={"zone": "a"}, gang=3
    )
    volcano = PodSettings("c", scheduler="volcano")
    made = handover.handed_over(pods.pod(launch, volcano), launch, volcano)
    assert "nodeName" not in made["spec"]
    assert (made["spec"]["schedulerName"], made["spec"]["nodeSelector"]) == ("volcano", {"zone": "a"})
    group = handover.pod_group(launch, volcano)
    assert group is not None
    assert group["spec"]["minMember"] == 3
    assert made["metadata"]["annotations"][handover.GROUP] == group["metadata"]["name"]
    alone = PodSettings("c", scheduler="default-scheduler")
    assert handover.pod_group(launch, alone) is None
    assert handover.GROUP not in handover.handed_over(pods.pod(launch, alone), launch, alone)["metadata"]["annotations"]


def test_a_claim_of_the_cluster_is_a_volume() -> None:
    claim = Mount("fs-1", "/data", "pvc://team/sets", sub_path="sub", read_only=True)
    settings = pods.PodSettings("c", "team", "image:1")
    job = launch(mounts=(claim,))
    assert pods.refusal(job, settings) == ""
    spec = pods.pod(job, settings)["spec"]
    wanted = {"name": "storage-0", "persistentVolumeClaim": {"claimName": "sets", "readOnly": True}}
    assert wanted in spec["volumes"]
    seen = {"name": "storage-0", "mountPath": "/data", "readOnly": True, "subPath": "sub"}
    assert seen in spec["containers"][0]["volumeMounts"]
    assert not spec.get("initContainers")
    refused = pods.refusal(launch(mounts=(claim,), namespace="other"), settings)
    assert "claim of namespace team, and the job's queue has namespace other" in refused
