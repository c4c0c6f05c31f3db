"""Storages that are no folders of the nodes, in pods: who may have them, what the pod looks like, what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Invalid
from paddleflow.runtimes.kubernetes import pods, status, storages
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.kubernetes.storages import StorageGrant, StorageSettings
from paddleflow.runtimes.runtime import RUN_VARIABLE, Launch, Mount
from paddleflow.spec.cluster import ClusterSetting
from paddleflow.spec.document import parse

ATTEMPT = AttemptId("job-a.worker-0.1")
DATA = Mount("fs-1", "/data", "s3://bucket/sets", sub_path="a/b", read_only=True)
NOW = 1_800_000_000.0
STEP = {RUN_VARIABLE: "run-1", "PF_INPUT_ARTIFACT_SET": "/data/in", "PF_OUTPUT_ARTIFACT_MODEL": "/data/out/model"}


def settings(way: str) -> PodSettings:
    return PodSettings(
        "lab", "team", "image:1", platform_image="pf:1", storages=StorageSettings(way, "https://pf.example/base")
    )


def launch(*mounts: Mount, env: dict[str, str] | None = None) -> Launch:
    return Launch(ATTEMPT, ("true",), env or {}, mounts=mounts)


def pod(way: str, *mounts: Mount, env: dict[str, str] | None = None) -> dict[str, Any]:
    return pods.pod(launch(*mounts, env=env), settings(way))


def test_what_cannot_be_in_a_pod_is_said_before_it_starts() -> None:
    assert "setting storages of cluster lab" in pods.refusal(launch(DATA), settings(""))
    assert "only artifacts of pipelines" in pods.refusal(launch(DATA), settings("copy"))
    second = Mount("fs-2", "/more", "sftp://host/x")
    assert "fs-2" in pods.refusal(launch(DATA, second, env=STEP), settings("copy"))
    assert pods.refusal(launch(DATA, env=STEP), settings("copy")) == ""
    assert pods.refusal(launch(DATA, second), settings("mount")) == ""


def test_a_mount_is_made_by_a_privileged_container_beside_the_job_s() -> None:
    spec = pod("mount", Mount("fs-0", "/here", "/srv/here"), DATA)["spec"]
    (beside,) = spec["initContainers"]
    assert (beside["restartPolicy"], beside["image"], beside["securityContext"]["privileged"]) == (
        "Always",
        "pf:1",
        True,
    )
    assert beside["resources"]["limits"] == {"memory": "1Gi"}
    assert {"name": "mounts", "mountPath": "/var/lib/paddleflow/mounts", "mountPropagation": "Bidirectional"} in beside[
        "volumeMounts"
    ]
    (main,) = spec["containers"]
    assert main["volumeMounts"][-1] == {
        "name": "storage-1",
        "mountPath": "/data",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
        "subPath": "a/b",
    }
    assert "privileged" not in main["securityContext"]
    assert "token" not in json.dumps([each for each in main["volumeMounts"] if each["name"] == "storage-tokens"])


def test_copies_need_no_rights() -> None:
    made = pod("copy", DATA, env=STEP)
    (beside,) = made["spec"]["initContainers"]
    assert beside["securityContext"]["allowPrivilegeEscalation"] is False
    assert not any("hostPath" in each for each in made["spec"]["volumes"])
    assert made["spec"]["terminationGracePeriodSeconds"] == storages.STORE_SECONDS
    assert pods.HAS_SECRET in made["metadata"]["annotations"]


def test_the_container_gets_a_token_and_no_key() -> None:
    grant = StorageGrant("mount-1", "pf-token")
    found = json.loads(storages.document(launch(DATA, env=STEP), settings("copy").storages, "pod", [grant]))
    (each,) = found["storages"]
    assert each["url"] == "pfs://pf.example:443/fs-1"
    assert each["properties"] == {
        "token": "pf-token", "mount": "mount-1", "tls": "true", "prefix": "/base", "keep": "true"
    }  # fmt: skip
    assert (each["inputs"], each["outputs"], each["subPath"]) == (["in"], ["out/model"], "a/b")
    assert "pf-token" not in repr(grant)
    assert "pf-token" not in json.dumps(pod("copy", DATA, env=STEP))
    secret = pods.secret(launch(DATA), settings("mount"), "tokens")
    assert secret is not None
    assert list(secret["data"]) == [storages.KEY]


def seen(
    main: dict[str, Any], beside: dict[str, Any], before: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    made = pod("copy", DATA, env=STEP)
    made["metadata"] |= {"uid": "u"}
    made["spec"]["nodeName"] = "n1"
    found = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "state": main}],
        "initContainerStatuses": [{"name": "storages", "state": beside, "lastState": before or {}}],
    }
    return status.trimmed({**made, "status": found | more})


def test_an_end_waits_until_what_was_written_is_stored() -> None:
    done = {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"}}
    assert status.ended(seen(done, {"running": {}}), NOW) is None
    end = status.ended(seen(done, {"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 137}}), NOW)
    assert end is not None
    assert (end.exit_code, end.message) == (0, "")
    end = status.ended(seen(done, {"terminated": {"exitCode": 1, "message": "its outputs cannot be stored"}}), NOW)
    assert end is not None
    assert (end.exit_code, end.message) == (None, "its outputs cannot be stored")


def test_storages_that_cannot_be_had_are_tried_again_or_not() -> None:
    passing = seen({}, {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1, "message": "away"}})
    assert (status.stuck(passing), status.permanent_failure(passing)) == ("away", "")
    final = seen({}, {"waiting": {}}, {"terminated": {"exitCode": storages.FINAL, "message": "no such folder"}})
    assert status.permanent_failure(final) == "no such folder"


def test_an_image_of_root_is_named_where_the_queue_does_not_allow_it() -> None:
    assert pod("")["spec"]["securityContext"]["runAsNonRoot"] is True
    allowed = pods.pod(launch(), PodSettings("lab", "team", "image:1", root_queues=["*"]))
    assert "runAsNonRoot" not in allowed["spec"]["securityContext"]
    said = {"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot and image will run as root"}
    assert "runs as root" in status.permanent_failure(seen({"waiting": said}, {}))
    assert status.permanent_failure(seen({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, {})) == ""


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"storages": "mount"}, "needs platformImage"),
        ({"storages": "copy", "platformImage": "pf:1"}, "needs serverUrl"),
        ({"serverUrl": "pf.example:8999"}, "must be a URL"),
        ({"runAsUser": 0}, "runAsUser"),
    ],
)
def test_settings_that_cannot_work_are_refused(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse(ClusterSetting, setting, ignore_unknown=True)
