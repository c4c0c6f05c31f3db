"""A queue of two real clusters: a job starts where there is room first, and says why not in the other."""

from __future__ import annotations

import pytest

from paddleflow.sdk.jobs import Job
from tests.cluster.test_server_jobs import GATED, SETTING, SMALL, Scene, sent
from tests.cluster.test_server_jobs import scene as scene
from tests.cluster_fixture import brought_up
from tests.patience import eventually


@pytest.mark.timeout(600)
def test_a_job_goes_to_the_cluster_that_starts_it_first(scene: Scene) -> None:
    client = scene.client
    with brought_up("second", "--nodes", "1") as second:
        second.kubectl("create", "namespace", scene.namespace)
        account = ("get", "serviceaccount", "default", "-n", scene.namespace)
        eventually(lambda: not second.refusal(*account), "an account for pods")
        client.clusters.create("cloud", type="Kubernetes", credential=sent(second), setting=SETTING)
        client.queues.create(
            "both", scene.namespace, {"cpu": SMALL["cpu"], "mem": "1Gi"}, cluster="lab", other_clusters=["cloud"]
        )

        def begin(name: str) -> Job:
            command, fs = GATED.format(gate=f"/gates/{name}", code=0), {"name": "gates", "mountPath": "/gates"}
            policy = {"schedulingPolicy": {"queue": "both"}}
            return client.jobs.submit({"command": command, "flavour": SMALL, "fs": fs, **policy})

        def nodes(job: Job) -> set[str]:
            return {task.node for task in client.jobs.get(job.id).record.tasks}

        first = begin("first")
        scene.wait_for(first, "running")
        moved = begin("moved")
        scene.wait_for(moved, "running")
        pods = ("get", "pods", "-n", scene.namespace, "-o", "name")
        assert moved.id in second.kubectl(*pods), "the queue is full in the first cluster"
        assert moved.id not in scene.cluster.kubectl(*pods)
        waits = begin("waits")
        eventually(lambda: "queue both has cpu" in client.jobs.get(waits.id).record.message, "it waits in the first")
        why = scene.server.cli("job", "why", waits.id).stdout
        assert "cloud" in why, why
        second.kill("apiserver")  # what runs there is neither lost nor started again
        scene.open("first")
        scene.wait_for(first, "succeeded")
        scene.wait_for(waits, "running")
        assert nodes(waits) <= set(scene.cluster.nodes)
        second.restart("apiserver")
        scene.open("moved")
        scene.open("waits")
        for job in (moved, waits):
            scene.wait_for(job, "succeeded")
        assert client.jobs.get(moved.id).record.raw["attempt"] == 1
        assert "".join(client.jobs.get(moved.id).logs()) == "waiting\ndone\n"
        eventually(lambda: second.kubectl(*pods) == "", "no pod is left in the second cluster")
        client.queues.delete("both")
        client.clusters.delete("cloud")
