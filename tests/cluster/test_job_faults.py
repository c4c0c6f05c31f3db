"""What happens to jobs of a server when nodes are drained, die, or the cluster refuses: nothing is lost, nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from paddleflow.runtimes.kubernetes.pods import JOB_LABEL
from paddleflow.sdk.jobs import Job
from tests.cluster.admission_webhooks import VERDICT, webhook_away, webhook_denies
from tests.cluster.test_server_jobs import GATED, SMALL, Scene
from tests.cluster.test_server_jobs import scene as scene
from tests.patience import eventually

LEDGER = "echo $PF_JOB_ATTEMPT $PF_ROLE_INDEX >> /gates/{name}.ledger; "


def begin(scene: Scene, name: str, workers: int = 1, saves: bool = False) -> Job:
    """A gang that writes into a ledger what it starts, and waits for its gate; it may save something when it is to end."""
    command = LEDGER.format(name=name) + GATED.format(gate=f"/gates/{name}", code=0)
    if saves:
        command = command.replace("'exit 143'", f"'echo saved $PF_ROLE_INDEX >> /gates/{name}.ledger; exit 143'")
    fs = {"name": "gates", "mountPath": "/gates"}
    member = {"role": "worker", "replicas": workers, "command": command, "flavour": SMALL, "fs": fs}
    policy = {"schedulingPolicy": {"queue": "q"}}
    if workers == 1:
        return scene.submit(command, fs=fs)
    return scene.client.jobs.submit({"framework": "pytorch", "members": [member], **policy})


def nodes(scene: Scene, job: Job) -> list[str]:
    return [task.node for task in scene.client.jobs.get(job.id).record.tasks]


def attempt(scene: Scene, job: Job) -> int:
    return int(scene.client.jobs.get(job.id).record.raw["attempt"])


def ledger(scene: Scene, name: str) -> list[str]:
    return sorted((scene.folder / f"{name}.ledger").read_text().splitlines())


def has_lines(scene: Scene, name: str, count: int) -> bool:
    return len(ledger(scene, name)) >= count


@contextmanager
def only(scene: Scene, node: str) -> Iterator[None]:
    """All other nodes take no pods."""
    others = [each for each in scene.cluster.nodes if each != node]
    for each in others:
        scene.cluster.kubectl("cordon", each)
    try:
        eventually(lambda: schedulable(scene) == {node}, "the server knows it")
        yield
    finally:
        for each in others:
            scene.cluster.kubectl("uncordon", each)


def schedulable(scene: Scene) -> set[str]:
    return {each.name for each in scene.client.clusters.nodes("lab") if each.schedulable}


def test_a_drained_node_gives_its_members_back_to_the_queue(scene: Scene) -> None:
    """`kubectl drain` itself; programs are told first, and save what they have."""
    job = begin(scene, "drained", workers=2, saves=True)
    scene.wait_for(job, "running")
    node = nodes(scene, job)[0]
    try:
        which = f"--pod-selector={JOB_LABEL}={job.id}"
        scene.cluster.kubectl("drain", node, "--force", "--delete-emptydir-data", which, "--timeout=90s")
        eventually(lambda: attempt(scene, job) == 2 and scene.status(job) == "running", "it runs again")
        assert node not in nodes(scene, job)
        assert f"it lost its place on node {node} at" in scene.server.cli("job", "why", job.id).stdout
    finally:
        scene.cluster.kubectl("uncordon", node)
    scene.open("drained")
    scene.wait_for(job, "succeeded")
    assert ledger(scene, "drained") == ["1 0", "1 1", "2 0", "2 1", "saved 0", "saved 1"]
    assert scene.client.jobs.get(job.id).record.raw["preemptions"] == 1


@pytest.mark.timeout(400)
def test_a_lost_node_s_job_starts_elsewhere(scene: Scene) -> None:
    node = scene.cluster.nodes[-1]
    with only(scene, node):
        job = begin(scene, "lost")
        scene.wait_for(job, "running")
    assert nodes(scene, job) == [node]
    scene.cluster.kill(node)
    try:
        eventually(lambda: attempt(scene, job) == 2 and scene.status(job) == "running", "it runs again", 240)
        assert nodes(scene, job) != [node]
        scene.open("lost")
        scene.wait_for(job, "succeeded")
    finally:
        scene.cluster.restart(node)
    assert ledger(scene, "lost") == ["1 0", "2 0"]
    said = [event.message for event in job.events(follow=False)]
    assert any("node" in message and "waits for a place" in message for message in said), said


def test_what_the_cluster_refuses_is_said(scene: Scene) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    scene.cluster.kubectl("apply", "-n", scene.namespace, "-f", "-", stdin=json.dumps(quota))
    eventually(
        lambda: (
            "pods"
            in scene.cluster.kubectl("get", "quota", "none", "-n", scene.namespace, "-o", "jsonpath={.status.hard}")
        ),
        "the quota counts",
    )
    try:
        job = scene.submit("true")
        scene.wait_for(job, "failed")
        assert "exceeded quota" in scene.client.jobs.get(job.id).record.message
    finally:
        scene.cluster.kubectl("delete", "quota", "none", "-n", scene.namespace)
    assert "no jobs on Sundays" in refused_by_policy(scene)
    assert 'namespaces "no-such-namespace" not found' in message_in(scene, "no-such-namespace")


POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sundays}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "false", message: no jobs on Sundays}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sundays}
spec:
  policyName: sundays
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: SPACE}}}
"""


def refused_by_policy(scene: Scene) -> str:
    """The message of a job in a namespace whose policy refuses all pods."""
    with scene.cluster.namespace() as space:
        scene.cluster.apply(POLICY.replace("SPACE", space))
        probe = ("run", "probe", "--image=a:1", "--dry-run=server", "-n", space)
        try:
            eventually(lambda: "Sundays" in scene.cluster.refusal(*probe), "the policy counts")
            return message_in(scene, space)
        finally:
            scene.cluster.kubectl("delete", "-f", "-", stdin=POLICY)


def message_in(scene: Scene, space: str) -> str:
    """The message of a job that fails in a namespace."""
    scene.client.queues.create(f"in-{space}", space, {"cpu": "1", "mem": "1Gi"}, cluster="lab")
    policy = {"schedulingPolicy": {"queue": f"in-{space}"}}
    job = scene.client.jobs.submit({"command": "true", "flavour": SMALL, **policy})
    scene.wait_for(job, "failed")
    return scene.client.jobs.get(job.id).record.message


def test_a_webhook_refuses_a_job_and_one_that_is_away_delays_it(scene: Scene) -> None:
    with scene.cluster.namespace() as space:
        with webhook_denies(scene.cluster, space):
            assert VERDICT in message_in(scene, space)
        policy = {"schedulingPolicy": {"queue": f"in-{space}"}}
        with webhook_away(scene.cluster, space):
            job = scene.client.jobs.submit({"command": "true", "flavour": SMALL, **policy})
            eventually(lambda: "failed calling webhook" in scene.client.jobs.get(job.id).record.message, "it says so")
            other = scene.submit("true")
            scene.wait_for(other, "succeeded")
        scene.wait_for(job, "succeeded")


def test_a_job_that_has_lived_as_long_as_it_may_is_gone_with_all_that_was_its(scene: Scene) -> None:
    job = scene.submit("echo done", annotations={"paddleflow/job-ttl-seconds": "1"})
    eventually(lambda: job.id not in {each.id for each in scene.client.jobs.list(queue="q")}, "its row is gone")
    eventually(lambda: job.id not in scene.pods(), "nothing of it is left in the cluster")


def test_a_namespace_that_is_being_deleted_is_named(scene: Scene) -> None:
    """It stays so, because an object in it is held."""
    with scene.cluster.namespace() as space:
        held = {"name": "held", "namespace": space, "finalizers": ["example.com/held"]}
        scene.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held}))
        scene.cluster.kubectl("delete", "namespace", space, "--wait=false")
        try:
            assert "being terminated" in message_in(scene, space)
        finally:
            release = '{"metadata": {"finalizers": null}}'
            scene.cluster.kubectl("patch", "configmap", "held", "-n", space, "--type=merge", "-p", release)
            eventually(lambda: scene.cluster.refusal("get", "namespace", space), "the namespace is gone")
            scene.cluster.kubectl("create", "namespace", space)  # what the fixture deletes


def test_an_elastic_job_gets_more_pods_when_there_is_room_and_makes_way_for_others(scene: Scene) -> None:
    scene.client.queues.create("small", scene.namespace, {"cpu": "200m", "mem": "1Gi"}, cluster="lab")
    policy = {"schedulingPolicy": {"queue": "small"}}
    fs = {"name": "gates", "mountPath": "/gates"}
    wait = GATED.format(gate="/gates/room", code=0)
    other = scene.client.jobs.submit({"command": wait, "flavour": {"cpu": "100m", "mem": "32Mi"}, "fs": fs, **policy})
    scene.wait_for(other, "running")
    worker = {"role": "worker", "command": GATED.format(gate="/gates/grown", code=0), "flavour": SMALL, "fs": fs}
    elastic = {**worker, "minReplicas": 1, "maxReplicas": 4, "resize": "inPlace"}
    job = scene.client.jobs.submit({"framework": "pytorch", "members": [elastic], **policy})

    def running() -> int:
        return sum(task.status == "running" for task in scene.client.jobs.get(job.id).record.tasks)

    eventually(lambda: running() == 2, "it has what is left of its queue")
    scene.open("room")
    scene.wait_for(other, "succeeded")
    eventually(lambda: running() == 4, "it has grown")
    assert attempt(scene, job) == 1, "the first members were never disturbed"
    late = scene.client.jobs.submit({"command": "true", "flavour": {"cpu": "100m", "mem": "32Mi"}, **policy})
    scene.wait_for(late, "succeeded")  # two members made way for it
    eventually(lambda: running() == 4, "and came back")
    assert attempt(scene, job) == 1, "those that stayed were not disturbed"
    scene.open("grown")
    scene.wait_for(job, "succeeded")


def test_killed_servers_lose_and_double_nothing(scene: Scene) -> None:
    """The server dies right after submission and at several moments of the work; each job has run once."""
    command = "echo $PF_JOB_ID >> /gates/kills.ledger"
    jobs = [scene.submit(command, fs={"name": "gates", "mountPath": "/gates"}) for _ in range(12)]
    (scene.folder / "kills.ledger").touch()
    (scene.folder / "kills.ledger").chmod(0o666)
    for done in (0, 1, 4, 8):
        eventually(partial(has_lines, scene, "kills", done), f"{done} jobs have run")
        scene.server.kill()
        scene.server.start()
    for job in jobs:
        scene.wait_for(job, "succeeded")
    assert ledger(scene, "kills") == sorted(job.id for job in jobs)
