"""An exported pipeline under Argo's own controller, on a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.exporters import argo
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.run_request import bind
from tests.cluster.test_server_jobs import sent
from tests.cluster_fixture import LiveCluster, brought_up, require
from tests.e2e.conftest import ServerProcess
from tests.patience import eventually

IMAGE = "docker.io/local/busybox:1"
FLOW = f"""\
name: exported
docker_env: {IMAGE}
fs_options: {{main_fs: {{name: data, sub_path: team}}}}
entry_points:
  make:
    command: 'echo "{{{{word}}}} {{{{PF_LOOP_ARGUMENT}}}} $PF_STEP_NAME" > {{{{out}}}}'
    parameters: {{word: hello, items: [a, b]}}
    loop_argument: "{{{{items}}}}"
    artifacts: {{output: [out]}}
  never: {{deps: make, condition: "{{{{n}}}} > 10", parameters: {{n: 3}}, command: exit 1}}
  judge:
    artifacts: {{output: [verdict, score]}}
    command: |
      echo "it's \\"good\\" - so far" > {{{{verdict}}}}; echo 0.93 > {{{{score}}}}
  agree:
    deps: judge
    artifacts: {{input: {{verdict: "{{{{judge.verdict}}}}", score: "{{{{judge.score}}}}"}}}}
    condition: "{{{{score}}}} > 0.9 && {{{{verdict}}}} =~ '^it' && '{{{{score}}}}' != bad"
    command: cp {{{{verdict}}}} agreed
  object:
    deps: judge
    artifacts: {{input: {{score: "{{{{judge.score}}}}"}}}}
    condition: "{{{{score}}}} < 0.9"
    command: exit 1
  group:
    deps: make,never
    artifacts: {{input: {{all: "{{{{make.out}}}}"}}}}
    entry_points:
      join:
        artifacts: {{input: {{all: "{{{{PF_PARENT.all}}}}"}}}}
        command: 'cat $(echo {{{{all}}}} | tr , " ") > result; test -n "{{{{PF_RUN_ID}}}}"'
        timeout: 60
post_process:
  after: {{command: echo after > after}}
"""


@pytest.fixture(scope="module")
def argo_cluster() -> Iterator[LiveCluster]:
    require(["kube", "node-images", "coredns", "argo"], root=True)
    with brought_up("argo", "--nodes", "1", "--with", "coredns,argo") as up:
        yield up


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_argo_s_controller_runs_an_exported_pipeline(argo_cluster: LiveCluster, tmp_path: Path) -> None:
    manifest, _ = argo.export(bind(read(FLOW)))
    with argo_cluster.namespace() as space:
        argo_cluster.apply(json.dumps(volume(space, tmp_path)))
        argo_cluster.apply(json.dumps(claim(space)))
        manifest["metadata"] = {"name": "exported", "namespace": space}
        argo_cluster.apply(json.dumps(manifest))
        argo_cluster.wait("workflow/exported", "condition=Completed", space, 300)
        status = json.loads(argo_cluster.kubectl("get", "workflow/exported", "-n", space, "-o", "json"))["status"]
        phases = {node["displayName"]: node["phase"] for node in status["nodes"].values()}
        assert status["phase"] == "Succeeded", phases
        assert phases["never"] == phases["object"] == "Skipped"
        assert (tmp_path / "team" / "agreed").read_text() == 'it\'s "good" - so far\n'
        assert (tmp_path / "team" / "result").read_text() == "hello a make\nhello b make\n"
        assert (tmp_path / "team" / "after").read_text() == "after\n"


def volume(space: str, folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"data-{space}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": space, "name": "data"},
        },
    }


def claim(space: str) -> dict[str, object]:
    """Of the name that the exported workflow has for the storage."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": space},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"data-{space}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_a_workflow_job_runs_under_argo(argo_cluster: LiveCluster, tmp_path: Path) -> None:
    step = {
        "name": "main",
        "container": {"image": IMAGE, "command": ["sh", "-c", "echo from argo; exit {{workflow.parameters.code}}"]},
    }
    spec = {"entrypoint": "main", "templates": [step], "arguments": {"parameters": [{"name": "code", "value": "0"}]}}
    template = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": spec}
    server = ServerProcess(tmp_path / "server").start()
    with argo_cluster.namespace() as space:
        try:
            client = server.connect()
            client.clusters.create("lab", type="Kubernetes", credential=sent(argo_cluster))
            client.queues.create("q", space, {"cpu": "1", "mem": "1Gi"}, cluster="lab")
            policy = {"schedulingPolicy": {"queue": "q"}}
            good = client.jobs.submit({"extensionTemplate": template, **policy}, kind="workflow")
            spec["arguments"] = {"parameters": [{"name": "code", "value": "3"}]}
            bad = client.jobs.submit({"extensionTemplate": template, **policy}, kind="workflow")
            assert good.wait(300).status == "succeeded", good.record.message
            assert "from argo" in "".join(good.logs())
            assert bad.wait(300).status == "failed"
            assert "exit code 3" in bad.record.message
            shown = ("get", "workflows", "-n", space, "-o", "name")
            eventually(lambda: argo_cluster.kubectl(*shown) == "", "the workflows are gone")
        finally:
            server.end()
