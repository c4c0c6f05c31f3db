"""An operator beside the tests: the real command, as the service account of the chart and with exactly its rights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from scripts.lib import chart
from tests.cluster_fixture import LiveCluster

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "paddleflow" / "charts" / "paddleflow-operator"
SPACE = "paddle-system"


def install(cluster: LiveCluster, values: Mapping[str, Any] | None = None, *, deployment: bool = False) -> None:
    """The definition and the chart's objects; the Deployment only if it is asked for."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crds"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    found = [each for each in chart.render(CHART, SPACE, values) if deployment or each["kind"] != "Deployment"]
    cluster.apply(yaml.safe_dump_all([space, *found]))
    cluster.wait("crd/paddlejobs.batch.paddlepaddle.org", "condition=Established")


def uninstall(cluster: LiveCluster, values: Mapping[str, Any] | None = None) -> None:
    """Everything goes again, and nothing of it is left."""
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "deploy" / "crds"))
    found = chart.render(CHART, SPACE, values)
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(found))
    cluster.kubectl("delete", "namespace", SPACE)
    left = cluster.kubectl("get", "crd,clusterroles,clusterrolebindings", "-o", "name")
    assert "paddle" not in left, left


def account(cluster: LiveCluster, folder: Path) -> Path:
    """A kubeconfig of the operator's service account."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "paddleflow-operator", "-n", SPACE).strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    file = folder / "operator.kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


@contextmanager
def running(cluster: LiveCluster, folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The operator, until the block ends."""
    program = "from paddleflow.cli.main import main; main()"
    command = [sys.executable, "-c", program, "operator", "--kubeconfig", str(account(cluster, folder))]
    command += ["--metrics-bind-address", "0", "--health-probe-bind-address", "0", *options]
    with (folder / "operator.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def job(cluster: LiveCluster, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "pdj", name, "-n", namespace, "-o", "json"))
    return found


def submit(cluster: LiveCluster, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=paddle_job(name, spec))


def blocked(cluster: LiveCluster, namespace: str, name: str) -> str:
    """Why a job does not go on, when it says so."""
    cluster.wait(f"pdj/{name}", "condition=Blocked", namespace)
    (found,) = [each for each in job(cluster, namespace, name)["status"]["conditions"] if each["type"] == "Blocked"]
    return f"{found['reason']}: {found['message']}"


def paddle_job(name: str, spec: Mapping[str, Any]) -> str:
    document = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": spec,
    }
    return json.dumps(document)
