"""Jobs that an operator of the cluster runs: their objects are made, followed, stopped and taken away.

The definition is Kubeflow's by name only and has no controller: the test writes the status that one would write. Argo's own
controller runs a Workflow in `test_argo.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from paddleflow.errors import PaddleFlowError
from paddleflow.sdk.jobs import Job
from tests.cluster.test_operator_missing import ANYTHING, definition
from tests.cluster.test_server_jobs import Scene
from tests.cluster.test_server_jobs import scene as scene
from tests.patience import eventually

KIND = definition("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", ANYTHING, subresources={"status": {}})
OBJECTS = "pytorchjobs.kubeflow.org"


@pytest.fixture
def kind(scene: Scene) -> Iterator[None]:
    scene.cluster.apply(KIND)
    scene.cluster.wait(f"crd/{OBJECTS}", "condition=Established")
    eventually(lambda: not scene.cluster.refusal("get", OBJECTS, "-n", scene.namespace), "kubectl knows the kind")
    yield
    scene.cluster.kubectl("delete", "-f", "-", stdin=KIND)


def template(**spec: Any) -> dict[str, Any]:
    amounts = {"requests": {"cpu": "100m", "memory": "32Mi"}}
    pod = {"containers": [{"name": "pytorch", "image": "x", "command": ["true"], "resources": amounts}], **spec}
    worker = {"replicas": 2, "template": {"spec": pod}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}


def submit(scene: Scene, document: dict[str, Any]) -> Job:
    return scene.client.jobs.submit(
        {"framework": "pytorch", "members": [], "extensionTemplate": document, "schedulingPolicy": {"queue": "q"}}
    )


def objects(scene: Scene, job: Job) -> list[dict[str, Any]]:
    found = scene.cluster.kubectl(
        "get", OBJECTS, "-n", scene.namespace, "-l", f"paddleflow-job-id={job.id}", "-o", "json"
    )
    items: list[dict[str, Any]] = json.loads(found)["items"]
    return items


def made(scene: Scene, job: Job) -> dict[str, Any]:
    eventually(lambda: len(objects(scene, job)) == 1, "the object is there")
    return objects(scene, job)[0]


def say(scene: Scene, job: Job, kind: str, message: str = "") -> None:
    """Write the status of a job's object, as its operator would."""
    (found,) = objects(scene, job)
    status = {"status": {"conditions": [{"type": kind, "status": "True", "message": message}]}}
    words = ("-n", scene.namespace, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    scene.cluster.kubectl("patch", OBJECTS, found["metadata"]["name"], *words)


def test_an_object_is_made_followed_and_taken_away(scene: Scene, kind: None) -> None:
    job = submit(scene, template())
    found = made(scene, job)
    assert found["spec"] == template()["spec"]
    assert found["metadata"]["labels"]["owner"] == "paddleflow"
    assert scene.client.jobs.get(job.id).record.framework == "pytorch"
    say(scene, job, "Running")
    scene.wait_for(job, "running")
    scene.server.kill()
    say(scene, job, "Failed", "worker 1 died")
    scene.server.start()
    scene.wait_for(job, "failed")
    assert "worker 1 died" in scene.client.jobs.get(job.id).record.message
    eventually(lambda: not objects(scene, job), "the object is gone")


def test_objects_are_stopped_and_end_well(scene: Scene, kind: None) -> None:
    good, stopped, deleted = (submit(scene, template()) for _ in range(3))
    for job in (good, stopped, deleted):
        made(scene, job)
        say(scene, job, "Running")
        scene.wait_for(job, "running")
    say(scene, good, "Succeeded")
    scene.client.jobs.get(stopped.id).stop()
    name = objects(scene, deleted)[0]["metadata"]["name"]
    scene.cluster.kubectl("delete", OBJECTS, name, "-n", scene.namespace, "--wait=false")
    scene.wait_for(good, "succeeded")
    scene.wait_for(deleted, "failed")
    assert "was deleted" in scene.client.jobs.get(deleted.id).record.message
    scene.wait_for(stopped, "terminated")
    eventually(lambda: not (objects(scene, good) + objects(scene, stopped) + objects(scene, deleted)), "all are gone")


def test_what_cannot_be_an_object_is_named(scene: Scene, kind: None) -> None:
    def refusal(document: dict[str, Any], framework: str = "pytorch") -> str:
        fields = {
            "framework": framework,
            "members": [],
            "extensionTemplate": document,
            "schedulingPolicy": {"queue": "q"},
        }
        with pytest.raises(PaddleFlowError) as caught:
            scene.client.jobs.submit(fields)
        return caught.value.message

    assert "cannot run a job of framework paddle" in refusal(template(), "paddle")
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "x"}}
    assert "kind[ClusterRoleBinding]" in refusal(binding)
    large = template()
    large["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1000
    assert "larger than queue's" in refusal(large)
    strong = submit(scene, template(hostNetwork=True))
    scene.wait_for(strong, "failed")
    assert "hostNetwork is not allowed" in scene.client.jobs.get(strong.id).record.message
    missing = scene.client.jobs.submit(
        {
            "framework": "ray",
            "members": [],
            "extensionTemplate": {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"entrypoint": "true"}},
            "schedulingPolicy": {"queue": "q"},
        }
    )
    scene.wait_for(missing, "failed")
    assert "is KubeRay installed?" in scene.client.jobs.get(missing.id).record.message
