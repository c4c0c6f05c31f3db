"""The proof: the operator as a Deployment on real nodes, gangs by a real Volcano, and real training that survives what happens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster_fixture import LiveCluster
from tests.operator_process import ROOT, job, paddle_job

EXAMPLES = ROOT / "examples"
FRAMEWORKS = Path("~/.cache/paddleflow/frameworks").expanduser()

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def installed(deployed: LiveCluster) -> LiveCluster:
    if not all((FRAMEWORKS / name / "lib").exists() for name in ("paddle", "paddle-ps")):
        pytest.skip("the framework environments are not there: scripts/frameworks makes them")
    deployed.load("python")
    return deployed


@pytest.fixture
def space(installed: LiveCluster) -> Iterator[str]:
    with installed.namespace() as name:
        yield name


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """A folder of the machine, which all nodes see."""
    tmp_path.chmod(0o777)
    return tmp_path


def member(environment: str, program: str, folder: Path, **variables: str) -> dict[str, Any]:
    """A pod template: Python from the image, the framework from the machine."""
    places = {"framework": FRAMEWORKS / environment, "examples": EXAMPLES, "kept": folder}
    packages = FRAMEWORKS / environment / "lib" / "python3.11" / "site-packages"
    env = {"PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    container = {
        "name": "main",
        "image": "docker.io/local/python:1",
        "workingDir": "/tmp",
        "command": ["python3", str(EXAMPLES / program)],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "300Mi"}},
        "volumeMounts": [{"name": name, "mountPath": str(place)} for name, place in places.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": str(place)}} for name, place in places.items()]
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}}


def submit(cluster: LiveCluster, space: str, name: str, spec: dict[str, Any]) -> None:
    cluster.kubectl("apply", "-n", space, "-f", "-", stdin=paddle_job(name, {"cleanPodPolicy": "Never", **spec}))


def ended(cluster: LiveCluster, space: str, name: str) -> str:
    """The log of worker 0 of a job that completed."""
    cluster.wait(f"pdj/{name}", "condition=Complete", space, 300)
    return cluster.kubectl("logs", f"{name}-worker-0", "-n", space)


def until_logged(cluster: LiveCluster, space: str, words: str) -> None:
    """Until worker 0 of the elastic job says something; the pod may be on its way out and in again meanwhile."""
    deadline = time.monotonic() + 240
    while words not in _log(cluster, space):
        assert time.monotonic() < deadline, f"{words!r} never came: {job(cluster, space, 'elastic')['status']}"


def _log(cluster: LiveCluster, space: str) -> str:
    """What it said last. Of a pod that is just made or just deleted kubectl cannot tell; no words are as good."""
    words = ("logs", "-n", space, "-l", "paddle-res-name=elastic-worker-0", "--tail=20")
    return cluster.run("kubectl", *words).stdout


def test_a_collective_job_trains_in_a_gang(installed: LiveCluster, space: str, checkpoints: Path) -> None:
    template = member("paddle", "paddle-collective/train.py", checkpoints)
    submit(installed, space, "collective", {"worker": {"replicas": 2, "template": template}})
    assert "all 2 workers agree" in ended(installed, space, "collective")
    pod = installed.kubectl("get", "pod", "collective-worker-0", "-n", space, "-o", "jsonpath={.spec.schedulerName}")
    assert pod == "volcano"
    assert installed.kubectl("get", "podgroups", "-n", space, "-o", "name") == ""


def test_the_first_job_of_the_guide_runs_as_written(installed: LiveCluster, space: str, checkpoints: Path) -> None:
    """But for its image, which no registry gives us: Python from ours, Paddle from the machine."""
    page = (ROOT / "docs" / "guides" / "operator.md").read_text("utf-8")
    document = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    code = EXAMPLES / "paddle-collective" / "train.py"
    installed.kubectl("create", "configmap", "first-code", f"--from-file={code}", "-n", space)
    body = document["spec"]["worker"]["template"]["spec"]
    ours = member("paddle", "none", checkpoints)["spec"]
    (container,), (with_paddle,) = body["containers"], ours["containers"]
    container |= {"image": with_paddle["image"], "env": with_paddle["env"]}
    container["command"][0] = "python3"
    container["volumeMounts"] += with_paddle["volumeMounts"]
    body["volumes"] += ours["volumes"]
    installed.kubectl("apply", "-n", space, "-f", "-", stdin=yaml.safe_dump(document))
    assert "all 2 workers agree" in ended(installed, space, "first")


def test_servers_and_workers_train_by_address_and_by_name(
    installed: LiveCluster, space: str, checkpoints: Path
) -> None:
    """Both at once: they wait more than they work."""
    role = {"replicas": 2, "template": member("paddle-ps", "paddle-ps/train.py", checkpoints)}
    jobs = {"by-address": "PodIP", "by-name": "Service"}
    for name, intranet in jobs.items():
        submit(installed, space, name, {"ps": role, "worker": role, "withGloo": 1, "intranet": intranet})
    for name in jobs:
        assert "on the others' words" in ended(installed, space, name)
        assert job(installed, space, name)["status"]["mode"] == "PS"


def test_a_job_grows_shrinks_and_survives_while_it_trains(
    installed: LiveCluster, space: str, checkpoints: Path
) -> None:
    """2 → 3 → 2 workers, then one is killed: each time the training goes on from its checkpoint."""
    folder = checkpoints / "kept"
    settings = {"CHECKPOINTS": str(folder), "STEPS": "100000", "PACE": "0.1"}
    template = member("paddle", "paddle-elastic/train.py", checkpoints, **settings)
    submit(installed, space, "elastic", {"worker": {"replicas": 2, "template": template}})
    until_logged(installed, space, "with 2")
    for replicas in (3, 2):
        installed.kubectl("scale", "pdj/elastic", f"--replicas={replicas}", "-n", space)
        until_logged(installed, space, f"with {replicas}")
    events = installed.kubectl("get", "events", "-n", space, "--field-selector=reason=Scaled")
    assert "worker 2 → 3" in events
    assert "worker 3 → 2" in events
    before = job(installed, space, "elastic")["status"]["formation"]
    node = installed.kubectl("get", "pod", "elastic-worker-1", "-n", space, "-o", "jsonpath={.spec.nodeName}")
    installed.on(node, "sh", "-c", 'kill -9 $(pgrep -f "[p]ython3 .*paddle-elastic/train" | tail -1)')
    installed.wait("pdj/elastic", f"jsonpath={{.status.formation}}={before + 1}", space)
    status = job(installed, space, "elastic")["status"]
    assert status["failures"] == 1
    assert status["lastFailure"]["exitCode"] == 137
    until_logged(installed, space, f"formation {before + 1}")
    until_logged(installed, space, "with 2")
    shutil.rmtree(folder, ignore_errors=True)


def test_a_job_that_keeps_failing_says_why(installed: LiveCluster, space: str, checkpoints: Path) -> None:
    template = member("paddle", "paddle-collective/train.py", checkpoints)
    template["spec"]["containers"][0]["command"] = ["python3", "-c", "raise SystemExit('no data in /data')"]
    submit(installed, space, "broken", {"worker": {"replicas": 2, "template": template}, "backoffLimit": 0})
    installed.wait("pdj/broken", "condition=Failed", space)
    status = job(installed, space, "broken")["status"]
    assert (status["lastFailure"]["exitCode"], status["lastFailure"]["message"]) == (1, "no data in /data")
    assert "no data in /data" in status["message"]
