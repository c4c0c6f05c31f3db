"""Jobs of a server on a real Kubernetes: from `cluster create` to the last line of a log."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddleflow.errors import PaddleFlowError
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.jobs import Job
from tests.cluster_fixture import LiveCluster
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.patience import PATIENCE, eventually

IMAGE = "docker.io/local/busybox:1"
SMALL = {"cpu": "50m", "mem": "32Mi"}
SETTING = json.dumps({"defaultImage": IMAGE, "imageGraceSeconds": 4, "lostNodeSeconds": 1, "rootQueues": ["*"]})
#: ends at once on SIGTERM, which the first process of a container ignores otherwise
GATED = "trap 'exit 143' TERM; echo waiting; until [ -e {gate} ]; do usleep 100000; done; echo done; exit {code}"


class Scene:
    """A server with one cluster `lab`, and a queue `q` on it."""

    def __init__(self, server: ServerProcess, cluster: LiveCluster, namespace: str, folder: Path) -> None:
        self.server = server
        self.cluster = cluster
        self.namespace = namespace
        self.folder = folder

    @property
    def client(self) -> PaddleFlow:
        return self.server.connect()

    def submit(self, command: str, **fields: Any) -> Job:
        policy = {"schedulingPolicy": {"queue": "q"}}
        return self.client.jobs.submit({"command": command, "flavour": SMALL, **policy, **fields})

    def gated(self, name: str, code: int = 0) -> Job:
        """A job that runs until `open` is called with its name; gates lie on a storage of all nodes."""
        return self.submit(GATED.format(gate=f"/gates/{name}", code=code), fs={"name": "gates", "mountPath": "/gates"})

    def open(self, name: str) -> None:
        (self.folder / name).touch()

    def status(self, job: Job) -> str:
        return self.client.jobs.get(job.id).status

    def wait_for(self, job: Job, status: str) -> None:
        """Until it has this status, or one that it never leaves."""
        ended = ("succeeded", "failed", "terminated")
        found = eventually(
            lambda: next((s for s in [self.status(job)] if s == status or s in ended), ""), f"{job.id} is {status}"
        )
        assert found == status, self.client.jobs.get(job.id).record.message

    def pods(self) -> str:
        return self.cluster.kubectl("get", "pods,configmaps,services", "-n", self.namespace, "-o", "name")


@pytest.fixture(scope="module")
def scene(cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("server")
    folder.chmod(0o755)
    gates = folder / "gates"
    gates.mkdir(mode=0o777)
    with cluster.namespace() as namespace:
        server = ServerProcess(folder / "data", {"PADDLEFLOW_SCHEDULING_RESIZE_PAUSE": "1"}).start()
        try:
            client = server.connect()
            client.clusters.create("lab", type="Kubernetes", credential=sent(cluster), setting=SETTING)
            client.queues.create("q", namespace, {"cpu": "6", "mem": "8Gi"}, cluster="lab")
            client.storages.create("gates", f"local://{gates}")
            yield Scene(server, cluster, namespace, gates)
            left = ("get", "pods", "-n", namespace, "-o", "name")
            eventually(lambda: cluster.kubectl(*left) == "", "no pod is left behind")
        finally:
            server.end()


def sent(cluster: LiveCluster, **user: str) -> str:
    """The kubeconfig of a cluster in base64, perhaps of another user."""
    config = json.loads(Path(cluster.kubeconfig).read_text())
    if user:
        config["users"][0]["user"] = user
    return base64.b64encode(json.dumps(config).encode()).decode()


def test_a_command_of_a_laptop_runs_in_a_pod_with_its_code(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo code of $PF_USER_NAME in $(pwd); exit 3\n")
    done = scene.server.cli(
        "job", "run", "--cluster", "lab", "--cpu", "50m", "--mem", "32Mi", "sh run.sh", check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (3, "code of root in /paddleflow/code\n"), done.stderr
    job = next(iter(scene.client.jobs.list(queue="q")))
    assert job.record.message == "the process exited with code 3"
    eventually(lambda: job.id not in scene.pods(), "its pod and config maps are gone")
    assert "code of root" in "".join(job.logs()), "the log stays"


def test_code_that_is_too_large_for_config_maps_is_sent_to_the_pod(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(12 * 2**20))
    (tmp_path / "run.sh").write_text("wc -c < large; md5sum < large\n")
    words = ("job", "run", "--cluster", "lab", "--cpu", "50m", "--mem", "64Mi", "sh run.sh")
    done = scene.server.cli(*words, check=False, cwd=tmp_path)
    digest = hashlib.md5((tmp_path / "large").read_bytes(), usedforsecurity=False).hexdigest()
    assert (done.returncode, done.stdout) == (0, f"{12 * 2**20}\n{digest}  -\n"), done.stderr


def test_a_job_outlives_the_server_and_the_api_server(scene: Scene) -> None:
    job, stopped = scene.gated("outlives", code=5), scene.gated("stopped")
    scene.wait_for(job, "running")
    scene.wait_for(stopped, "running")
    scene.server.kill()
    scene.server.start()
    scene.cluster.kill("apiserver")
    scene.open("outlives")
    scene.cluster.restart("apiserver")
    scene.wait_for(job, "failed")
    scene.client.jobs.get(stopped.id).stop()
    scene.wait_for(stopped, "terminated")
    found = scene.client.jobs.get(job.id)
    assert found.record.message == "the process exited with code 5"
    assert "".join(found.logs()) == "waiting\ndone\n"
    assert [task.exit_code for task in found.record.tasks] == [5]


def test_what_keeps_a_pod_from_starting_is_said_at_once_and_ends_it(scene: Scene) -> None:
    image = scene.submit("true", image="127.0.0.1:1/nothing:1")
    eventually(lambda: "127.0.0.1:1/nothing:1" in scene.client.jobs.get(image.id).record.message, "its message")
    hungry = scene.submit("x=12345678; while true; do x=$x$x; done")
    scene.wait_for(image, "failed")
    assert "its container cannot start" in scene.client.jobs.get(image.id).record.message
    scene.wait_for(hungry, "failed")
    assert "memory limit of 32Mi exceeded" in scene.client.jobs.get(hungry.id).record.message


def test_pods_of_others_take_room(scene: Scene) -> None:
    def taken() -> dict[str, str]:
        return {node.name: node.used_by_others["cpu"] for node in scene.client.clusters.nodes("lab")}

    eventually(lambda: bool(taken()), "the nodes are known")
    before = taken()
    node = sorted(before)[0]
    requests = {"requests": {"cpu": "1500m"}}
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "1000"], "resources": requests}
    spec = {"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": 0}
    metadata = {"name": "other", "namespace": scene.namespace}
    scene.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    eventually(lambda: taken()[node] != before[node], "the pod is counted")
    jobs = [scene.submit("true", flavour={"cpu": "1", "mem": "32Mi"}) for _ in range(2)]
    for job in jobs:
        scene.wait_for(job, "succeeded")
    nodes = {task.node for job in jobs for task in scene.client.jobs.get(job.id).record.tasks}
    assert node not in nodes
    scene.cluster.kubectl("delete", "pod", "other", "-n", scene.namespace)
    eventually(lambda: taken() == before, "its room is free again")


def test_bad_credentials_are_named(scene: Scene) -> None:
    def refusal(**fields: Any) -> str:
        with pytest.raises(PaddleFlowError) as caught:
            scene.client.clusters.create("other", type="Kubernetes", **fields)
        return caught.value.message

    scene.cluster.kubectl("create", "serviceaccount", "weak", "-n", scene.namespace)
    weak = scene.cluster.kubectl("create", "token", "weak", "-n", scene.namespace).strip()
    said = refusal(credential=sent(scene.cluster, token=weak))
    assert "list nodes" in said
    assert "create pods in namespace default" in said
    assert "refuses the credential" in refusal(credential=sent(scene.cluster, token="wrong"))
    payload = base64.urlsafe_b64encode(b'{"exp": 1000000000}').decode()
    assert "expired at 2001" in refusal(credential=sent(scene.cluster, token=f"e30.{payload}.x"))
    assert "names a file" in refusal(credential=sent(scene.cluster, tokenFile="/etc/token"))
    assert "its kubeconfig is of" in refusal(credential=sent(scene.cluster), endpoint="https://192.0.2.1:6443")
    assert "namespace missing: does not exist" in refusal(credential=sent(scene.cluster), namespaces=["missing"])
    assert [each.name for each in scene.client.clusters.list()] == ["default-cluster", "lab"]
    assert scene.server.cli("cluster", "check", "lab").returncode == 0


def test_a_second_platform_on_the_same_cluster_stands_back(scene: Scene, tmp_path: Path) -> None:
    second = ServerProcess(tmp_path / "second").start()
    try:
        client = second.connect()
        client.clusters.create("mine", type="Kubernetes", credential=sent(scene.cluster), setting=SETTING)
        eventually(
            lambda: "another PaddleFlow" in client.clusters.resources(["mine"])["mine"].error, "it says who is there"
        )
    finally:
        second.stop()


def test_a_cluster_that_is_set_offline_keeps_its_jobs(scene: Scene) -> None:
    job = scene.gated("offline")
    scene.wait_for(job, "running")
    eventually(lambda: "".join(job.logs()), "its log is collected")
    scene.client.clusters.update("lab", status="offline")
    try:
        eventually(lambda: "offline" in scene.client.clusters.resources(["lab"])["lab"].error, "it is offline")
        scene.open("offline")
        assert "".join(scene.client.jobs.get(job.id).logs()).startswith("waiting")
    finally:
        scene.client.clusters.update("lab", status="online")
    scene.wait_for(job, "succeeded")
    assert "".join(scene.client.jobs.get(job.id).logs()) == "waiting\ndone\n"


def test_members_of_a_distributed_job_find_each_other(scene: Scene) -> None:
    command = (
        'if [ "$RANK" = 0 ]; then echo hello | nc -l -p $MASTER_PORT; '
        "else until nc $MASTER_ADDR $MASTER_PORT < /dev/null | grep hello; do usleep 200000; done; fi"
    )
    member = {"role": "worker", "replicas": 2, "command": command, "flavour": SMALL}
    policy = {"schedulingPolicy": {"queue": "q"}}
    job = scene.client.jobs.submit({"framework": "pytorch", "members": [member], **policy})
    scene.wait_for(job, "succeeded")
    assert "hello" in "".join(job.logs())
    eventually(lambda: job.id not in scene.pods(), "pods and service are gone")


def test_commands_and_a_shell_inside_a_pod(scene: Scene, tmp_path: Path) -> None:
    job = scene.submit(
        GATED.format(gate="/gates/exec", code=0), fs={"name": "gates", "mountPath": "/gates"}, env={"COLOUR": "blue"}
    )
    scene.wait_for(job, "running")
    line = 'echo out $COLOUR; echo err >&2; test "$PWD" = /gates && exit 7'
    done = scene.server.cli("job", "exec", job.id, "--", "sh", "-c", line, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("out blue\n", "err\n", 7)
    text = "0123456789" * 100_000
    assert scene.server.cli("job", "exec", job.id, "--", "cat", stdin=text).stdout == text
    missing = scene.server.cli("job", "exec", job.id, "--", "no-such-program", check=False)
    assert (missing.returncode, "not found" in missing.stderr) == (127, True)
    code, seen = _typed(scene.server, job.id, b"tty; echo a$((40+2))z; exit 5\r")
    assert code == 5
    assert b"/dev/pts/" in seen
    assert b"a42z" in seen
    pid = "echo $$ > /gates/pid; exec sleep 1000"
    words = [PADDLEFLOW, "job", "exec", job.id, "--", "sh", "-c", pid]
    with subprocess.Popen(words, env=scene.server.environment, stdin=subprocess.DEVNULL) as left:
        eventually(lambda: (scene.folder / "pid").exists() and (scene.folder / "pid").read_text().strip(), "it runs")
        left.kill()
    alive = f"test -e /proc/{(scene.folder / 'pid').read_text().strip()}"
    eventually(
        lambda: scene.server.cli("job", "exec", job.id, "--", "sh", "-c", alive, check=False).returncode == 1,
        "it ended with its client",
    )
    scene.open("exec")
    scene.wait_for(job, "succeeded")


def _typed(server: ServerProcess, job: str, keys: bytes) -> tuple[int, bytes]:
    """The exit code and the screen of a shell in which somebody typed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PADDLEFLOW, "job", "shell", job], stdin=theirs, stdout=theirs, stderr=theirs, env=server.environment
    ) as shell:
        os.close(theirs)
        os.write(ours, keys)
        seen = b""
        with suppress(OSError):  # nobody is on the other side any more
            while data := os.read(ours, 4096):
                seen += data
        code = shell.wait(PATIENCE)
    os.close(ours)
    return code, seen


def test_secrets_reach_the_pod_and_nobody_else(scene: Scene) -> None:
    scene.server.cli("secret", "set", "token", stdin="s3cret\n")
    uses = [{"name": "token", "env": "TOKEN"}, {"name": "token", "file": "token.txt"}]
    job = scene.submit(
        "echo length ${#TOKEN}; cmp $PF_SECRETS_DIR/token.txt /gates/expected && "
        + GATED.format(gate="/gates/s", code=0),
        fs={"name": "gates", "mountPath": "/gates"},
        secrets=uses,
    )
    (scene.folder / "expected").write_text("s3cret")
    scene.wait_for(job, "running")
    assert "s3cret" not in scene.cluster.kubectl("get", "pods", "-n", scene.namespace, "-o", "yaml")
    scene.open("s")
    scene.wait_for(job, "succeeded")
    assert "length 6" in "".join(job.logs())
    secrets = ("get", "secrets", "-n", scene.namespace, "-o", "name")
    eventually(lambda: job.id not in scene.cluster.kubectl(*secrets), "the secret is gone")


def test_a_pod_template_gives_what_only_pods_have_and_no_rights(scene: Scene) -> None:
    container: dict[str, Any] = {
        "name": "x",
        "image": IMAGE,
        "command": ["sh", "-c", "cat /extra/word; grep -c . /proc/1/status > /dev/null"],
    }
    container["volumeMounts"] = [{"name": "extra", "mountPath": "/extra"}]
    init = {**container, "name": "before", "command": ["sh", "-c", "echo from before > /extra/word"]}
    spec = {"containers": [container], "initContainers": [init], "volumes": [{"name": "extra", "emptyDir": {}}]}
    for node in scene.cluster.nodes:
        chosen = {**spec, "nodeSelector": {"kubernetes.io/hostname": node}}
        job = scene.submit("", extensionTemplate={"apiVersion": "v1", "kind": "Pod", "spec": chosen})
        scene.wait_for(job, "succeeded")
        assert "".join(job.logs()) == "from before\n"
        assert [task.node for task in scene.client.jobs.get(job.id).record.tasks] == [node]
    spec["volumes"] = [{"name": "extra", "hostPath": {"path": "/etc"}}]
    job = scene.submit("", extensionTemplate={"apiVersion": "v1", "kind": "Pod", "spec": spec})
    scene.wait_for(job, "failed")
    assert "spec.volumes[0].hostPath is not allowed" in scene.client.jobs.get(job.id).record.message
