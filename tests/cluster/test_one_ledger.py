"""One ledger on real nodes: a server's engine places its jobs and pods of others, and a scheduler that runs alone stands back."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddleflow.base.quantity import parse_milli
from paddleflow.runtimes.kubernetes.pods import JOB_LABEL
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.jobs import Job
from tests.cluster_fixture import LiveCluster
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.patience import eventually

IMAGE = "docker.io/local/busybox:1"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; while true; do usleep 100000; done"]
SETTING = json.dumps({"defaultImage": IMAGE, "runAsUser": 65534})
LEASE = ("get", "lease", "paddleflow-scheduler", "-n", "kube-system", "-o", "json")


class Scene:
    def __init__(self, server: ServerProcess, cluster: LiveCluster, namespace: str, free: dict[str, float]) -> None:
        self.server, self.cluster, self.namespace = server, cluster, namespace
        self.node, self.cores = max(free.items(), key=lambda pair: pair[1])  #: the node that everything here goes to

    @property
    def client(self) -> PaddleFlow:
        return self.server.connect()

    def pod(self, name: str, cpu: float, **more: Any) -> None:
        container = {"name": "main", "image": IMAGE, "command": SLEEP, "resources": {"requests": {"cpu": f"{cpu:g}"}}}
        spec = {
            "schedulerName": "paddleflow",
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        metadata = {"name": name, "namespace": self.namespace, **more}
        self.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))

    def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", "pod", name, "-n", self.namespace, "-o", "json"))
        return found

    def waits_because(self, name: str) -> str:
        conditions = self.shown(name)["status"].get("conditions") or []
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    def submit(self, cpu: float) -> Job:
        """A job on the node that everything here goes to."""
        flavour = {"cpu": f"{cpu:g}", "mem": "32Mi"}
        command = "trap 'exit 0' TERM; while true; do usleep 100000; done"
        return self.client.jobs.submit(
            {"command": command, "flavour": flavour, "schedulingPolicy": {"queue": "pinned"}}
        )

    def status(self, job: Job) -> str:
        return self.client.jobs.get(job.id).status


@pytest.fixture(scope="module")
def scene(cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("ledger")
    config = base64.b64encode(Path(cluster.kubeconfig).read_bytes()).decode()
    with cluster.namespace() as namespace:
        server = ServerProcess(folder / "data").start()
        try:
            client = server.connect()
            client.clusters.create("ledger", type="Kubernetes", credential=config, setting=SETTING)
            eventually(lambda: bool(client.clusters.nodes("ledger")), "the nodes are known")
            free = {
                node.name: (parse_milli(node.capacity["cpu"]) - parse_milli(node.used_by_others["cpu"])) / 1000
                for node in client.clusters.nodes("ledger")
            }
            made = Scene(server, cluster, namespace, free)
            client.queues.create(
                "pinned", namespace, {"cpu": "64", "mem": "64Gi"}, cluster="ledger",
                node_selector={"kubernetes.io/hostname": made.node},
            )  # fmt: skip
            yield made
        finally:
            server.end()


def test_jobs_and_pods_of_others_share_the_room_of_a_node(scene: Scene) -> None:
    most = scene.cores * 0.7
    scene.pod("guest", most)
    scene.cluster.wait("pod/guest", "jsonpath={.status.phase}=Running", scene.namespace)
    job = scene.submit(most)
    eventually(lambda: scene.status(job) == "pending", "the job waits for the pod")
    scene.pod("second", most)
    eventually(lambda: "Insufficient cpu" in scene.waits_because("second"), "and so does another pod")
    scene.cluster.kubectl("delete", "pod", "guest", "-n", scene.namespace)
    eventually(
        lambda: (scene.status(job) == "running") != bool(scene.shown("second")["spec"].get("nodeName")),
        "one of the two has the room, and only one",
    )
    scene.cluster.kubectl("delete", "pod", "second", "-n", scene.namespace)
    eventually(lambda: scene.status(job) == "running", "the job runs")
    scene.pod("third", most)
    eventually(lambda: "Insufficient cpu" in scene.waits_because("third"), "a pod waits for the job")
    scene.client.jobs.get(job.id).stop()
    scene.cluster.wait("pod/third", "jsonpath={.status.phase}=Running", scene.namespace)
    scene.cluster.kubectl("delete", "pod", "third", "-n", scene.namespace)


def test_a_gang_of_another_controller_starts_whole_within_a_queue_of_the_platform(scene: Scene) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": scene.namespace},
        "spec": {"minMember": 2},
    }
    scene.cluster.apply(json.dumps(group))
    annotations = {"scheduling.k8s.io/group-name": "gang", "scheduling.volcano.sh/queue-name": "pinned"}
    scene.pod("gang-0", 0.1, annotations=annotations)
    eventually(lambda: "starts with 2 pods" in scene.waits_because("gang-0"), "one alone waits")
    scene.pod("gang-1", 0.1, annotations=annotations)
    for name in ("gang-0", "gang-1"):
        scene.cluster.wait(f"pod/{name}", "jsonpath={.status.phase}=Running", scene.namespace)
    scene.cluster.kubectl("delete", "pod", "gang-0", "gang-1", "-n", scene.namespace)


def test_pods_of_a_paddlejob_of_the_platform_count_in_its_queue(scene: Scene, deployed: LiveCluster) -> None:
    scene.client.queues.create(
        "narrow", scene.namespace, {"cpu": "0.1", "mem": "1Gi"}, cluster="ledger",
        node_selector={"kubernetes.io/hostname": scene.node},
    )  # fmt: skip
    resources = {"requests": {"cpu": "0.05", "memory": "16Mi"}}
    container = {"name": "main", "image": IMAGE, "command": SLEEP, "resources": resources}
    spec = {"schedulerName": "paddleflow", "terminationGracePeriodSeconds": 1, "containers": [container]}
    template = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "spec": {"worker": {"replicas": 2, "template": {"spec": spec}}},
    }
    asked = {"framework": "paddle", "extensionTemplate": template, "schedulingPolicy": {"queue": "narrow"}}
    first = scene.client.jobs.submit(asked)
    eventually(lambda: scene.status(first) == "running", "the first has the queue's room")
    second = scene.client.jobs.submit(asked)

    def waits() -> str:
        of_second = (
            "-n",
            scene.namespace,
            "-l",
            f"{JOB_LABEL}={second.id}",
            "-o",
            "jsonpath={.items[*].metadata.name}",
        )
        its_object = scene.cluster.kubectl("get", "paddlejobs", *of_second)
        names = scene.cluster.kubectl(
            "get", "pods", "-n", scene.namespace, "-o", "jsonpath={.items[*].metadata.name}"
        ).split()
        found = [name for name in names if its_object and name.startswith(f"{its_object}-")]
        return scene.waits_because(found[0]) if found else ""

    eventually(lambda: "queue narrow has cpu 0 of 100m free" in waits(), "the second waits for the queue")
    first.stop()
    eventually(lambda: scene.status(second) == "running", "the second has its room")
    second.stop()
    eventually(lambda: scene.status(second) == "terminated", "the second has ended")


def test_pods_of_jobs_pass_the_restricted_standard(scene: Scene) -> None:
    with scene.cluster.namespace() as space:
        scene.cluster.kubectl("label", "namespace", space, "pod-security.kubernetes.io/enforce=restricted")
        scene.client.queues.create("strict", space, {"cpu": "1", "mem": "1Gi"}, cluster="ledger")
        flavour, policy = {"cpu": "50m", "mem": "32Mi"}, {"schedulingPolicy": {"queue": "strict"}}
        extra = {"name": "extra", "image": IMAGE, "command": ["true"]}
        spec = {"containers": [{"name": "main"}], "initContainers": [extra]}
        template = {"kind": "Pod", "spec": spec}
        job = scene.client.jobs.submit(
            {"command": "id -u", "flavour": flavour, "extensionTemplate": template, **policy}
        ).wait(200)
        assert (job.status, "".join(job.logs())) == ("succeeded", "65534\n"), job.record.message


@pytest.mark.parametrize("scheduler", ["volcano", "kube-scheduler", "paddleflow"])
def test_a_cluster_may_hand_its_pods_to_another_scheduler(scene: Scene, scheduler: str) -> None:
    setting = json.dumps({"defaultImage": IMAGE, "runAsUser": 65534, "scheduler": scheduler})
    scene.client.clusters.update("ledger", setting=setting)
    command = "trap 'exit 0' TERM; while true; do usleep 100000; done"
    member = {"role": "worker", "replicas": 2, "command": command, "flavour": {"cpu": "50m", "mem": "32Mi"}}
    policy = {"schedulingPolicy": {"queue": "pinned"}}
    job = scene.client.jobs.submit({"framework": "pytorch", "members": [member], **policy})
    eventually(lambda: scene.status(job) == "running", "both members run")
    chosen = ("-n", scene.namespace, "-l", f"paddleflow-job-id={job.id}", "-o", "json")
    pods = json.loads(scene.cluster.kubectl("get", "pods", *chosen))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {scene.node}, "the queue's nodes"
    groups = scene.cluster.kubectl("get", "podgroups.scheduling.volcano.sh", "-n", scene.namespace, "-o", "json")
    made = [each["spec"]["minMember"] for each in json.loads(groups)["items"] if job.id in each["metadata"]["name"]]
    names = {"volcano": "volcano", "kube-scheduler": "default-scheduler", "paddleflow": "default-scheduler"}
    bound = [c for pod in pods for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert ({pod["spec"]["schedulerName"] for pod in pods}, made, len(bound)) == (
        {names[scheduler]},
        [2] if scheduler == "volcano" else [],
        2,
    )
    scene.client.jobs.get(job.id).stop()
    eventually(lambda: scene.status(job) == "terminated", "the job has ended")

    def left() -> str:
        found = ("get", "pods,podgroups.scheduling.volcano.sh", "-n", scene.namespace, "-o", "name")
        return scene.cluster.kubectl(*found)

    eventually(lambda: job.id not in left(), "nothing of it is left")
    scene.client.clusters.update("ledger", setting=SETTING)


def test_a_scheduler_that_runs_alone_stands_back_and_takes_over_when_the_server_is_gone(
    scene: Scene, tmp_path: Path
) -> None:
    def holder() -> str:
        return str(json.loads(scene.cluster.kubectl(*LEASE))["spec"]["holderIdentity"])

    def alone() -> subprocess.Popen[bytes]:
        command = [PADDLEFLOW, "scheduler", "--kubeconfig", str(scene.cluster.kubeconfig)]
        ports = ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
        with (tmp_path / "scheduler.log").open("ab") as log:
            return subprocess.Popen([*command, *ports], stderr=log, stdout=log)

    eventually(lambda: holder().startswith("server of cluster"), "the server leads")
    process = alone()
    try:
        scene.server.stop()
        eventually(lambda: holder() and not holder().startswith("server"), "the scheduler leads")
        scene.pod("meanwhile", 0.1)
        scene.cluster.wait("pod/meanwhile", "jsonpath={.status.phase}=Running", scene.namespace)
        scene.server.start()
        eventually(lambda: holder().startswith("server of cluster"), "the server is first again")
        eventually(lambda: "goes first" in (tmp_path / "scheduler.log").read_text(), "the scheduler says so")
        assert process.poll() is None
        scene.pod("after", 0.1)
        scene.cluster.wait("pod/after", "jsonpath={.status.phase}=Running", scene.namespace)
    finally:
        process.terminate()
        process.wait()
    scene.cluster.kubectl("delete", "pod", "meanwhile", "after", "-n", scene.namespace)
