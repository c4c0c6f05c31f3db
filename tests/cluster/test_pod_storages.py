"""Storages on S3 and packages in pods of real nodes: mounted, copied, installed. The store and the index are servers of this machine."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddleflow.errors import NotFound
from paddleflow.objects.s3 import Bucket, S3Store
from tests.cluster.test_server_jobs import SETTING, Scene
from tests.cluster.test_server_jobs import scene as scene
from tests.patience import eventually
from tests.s3_servers import KEYS, versitygw

PYTHON = "docker.io/local/python:1"
PLATFORM = "docker.io/local/paddleflow:dev"
MOUNTS = "/var/lib/paddleflow/mounts/"
STEPS = """\
name: stored
docker_env: none
fs_options: {main_fs: {name: data}}
entry_points:
  make:
    env: {PF_JOB_QUEUE_NAME: q}
    artifacts: {output: [model]}
    command: mkdir {{model}} && echo "weights of $(id -u)" > {{model}}/part
  use:
    deps: make
    env: {PF_JOB_QUEUE_NAME: q}
    artifacts: {input: {model: "{{make.model}}"}, output: [report]}
    command: tee {{report}} < {{model}}/part
"""


class Stored:
    """The scene with a storage `data` on S3, which pods reach through the server."""

    def __init__(self, scene: Scene, bucket: Bucket, server: str) -> None:
        self.scene, self.store, self._server = scene, S3Store(bucket), server

    def set(self, **setting: Any) -> None:
        """Give the cluster this setting, and wait until it counts."""
        usual = {**json.loads(SETTING), "platformImage": PLATFORM, "serverUrl": self._server}
        self.scene.client.clusters.update("lab", setting=json.dumps({**usual, **setting}))
        eventually(lambda: not self.scene.client.clusters.resources(["lab"])["lab"].error, "the cluster is open")

    def end(self, command: str, **fields: Any) -> tuple[str, str]:
        """State and message of a job that has ended, or its log."""
        found = self.scene.submit(command, **fields).wait(timeout=200)
        return found.status, found.record.message if found.status != "succeeded" else "".join(found.logs())

    def content(self, key: str) -> bytes:
        """What the store has; empty when it has nothing."""
        try:
            return self.store.read(key, size=99)
        except NotFound:
            return b""

    def mounts(self) -> str:
        """What is mounted on nodes by us."""
        seen = [self.scene.cluster.on(node, "cat", "/proc/mounts") for node in self.scene.cluster.nodes]
        return "\n".join(line for text in seen for line in text.splitlines() if MOUNTS in line)


@pytest.fixture(scope="module")
def stored(scene: Scene) -> Iterator[Stored]:
    scene.cluster.load("operator", "python")
    with versitygw() as s3, scene.cluster.reached_from_pods(int(scene.server.url.rpartition(":")[2])) as address:
        bucket = s3.bucket()
        scene.client.storages.create(
            "data",
            f"s3://{bucket.name}/{bucket.prefix}",
            properties={"endpoint": bucket.endpoint, "accessKey": KEYS.access_key, "secretKey": KEYS.secret_key},
        )
        yield Stored(scene, bucket, f"http://{address}")


@pytest.mark.timeout(600)
def test_a_storage_on_s3_is_mounted_in_pods(stored: Stored) -> None:
    stored.set(storages="mount")
    stored.store.write("sets/in.txt", b"from s3")
    data = {"name": "data", "mountPath": "/data", "subPath": "sets"}
    job = stored.scene.submit(
        "cat /data/in.txt; echo more > /data/out.txt; until [ -e /gates/seen ]; do usleep 100000; done",
        fs=data,
        extraFS=[{"name": "gates", "mountPath": "/gates"}],
    )
    stored.scene.wait_for(job, "running")
    eventually(lambda: stored.content("sets/out.txt") == b"more\n", "what was written is in the store")
    shown = stored.scene.cluster.kubectl("get", "pods,secrets", "-n", stored.scene.namespace, "-o", "yaml")
    assert KEYS.secret_key not in shown, "no key of the store comes into the cluster"
    (stored.scene.folder / "seen").touch()
    stored.scene.wait_for(job, "succeeded")
    assert "".join(job.logs()) == "from s3"
    eventually(lambda: stored.mounts() == "", "no mount is left on a node")
    assert stored.end("true", fs={**data, "subPath": "nowhere"}) == (
        "failed",
        "mount source not found: nowhere of fs-root-data",
    )
    assert stored.end("echo no > /data/no", fs={**data, "readOnly": True})[0] == "failed"
    eventually(lambda: stored.mounts() == "", "no mount is left of those either")


@pytest.mark.timeout(600)
def test_artifacts_on_s3_are_copied_by_pods_that_are_nobody(stored: Stored) -> None:
    stored.set(storages="copy", rootQueues=[], runAsUser=65534)
    run = stored.scene.client.runs.create(yaml=STEPS, docker_env=json.loads(SETTING)["defaultImage"]).wait(300)
    assert run.status == "succeeded", run.record.message
    assert "weights of 65534" in "".join(run.logs())
    found = [each.key for each in stored.store.list_entries("", recursive=True) if each.key.endswith("report")]
    assert [stored.store.read(key, size=99) for key in found] == [b"weights of 65534\n"]
    status, said = stored.end("true", fs={"name": "data", "mountPath": "/data"})
    assert (status, "only artifacts of pipelines" in said) == ("failed", True)


def wheel(folder: Path) -> None:
    """A package index with one package, which says something."""
    place = folder / "simple" / "greeting"
    place.mkdir(parents=True)
    name = "greeting-1.0-py3-none-any.whl"
    info = "greeting-1.0.dist-info"
    files = {
        "greeting.py": "def say():\n    print('hello from a package')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngreet = greeting:say\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(place / name, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    (place / "index.html").write_text(f'<a href="{name}">{name}</a>')


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.timeout(600)
def test_requirements_are_installed_before_the_command(stored: Stored, tmp_path: Path) -> None:
    wheel(tmp_path)
    stored.set()
    index = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=index.serve_forever, daemon=True).start()
    try:
        with stored.scene.cluster.reached_from_pods(index.server_port) as address:
            env = {"UV_INDEX_URL": f"http://{address}/simple"}
            asked = {"image": PYTHON, "env": env, "flavour": {"cpu": "100m", "mem": "256Mi"}}
            assert stored.end("greet", requirements="greeting==1.0", **asked) == ("succeeded", "hello from a package\n")
            node = {"kubernetes.io/hostname": stored.scene.cluster.nodes[0]}
            spec = {"containers": [{"name": "x"}], "nodeSelector": node}
            there = {**asked, "extensionTemplate": {"kind": "Pod", "spec": spec}, "requirements": "greeting==1.0"}
            stored.set(environmentsFolder="/var/lib/paddleflow/environments", rootQueues=[], runAsUser=1000)
            assert stored.end("greet", **there) == ("succeeded", "hello from a package\n")
            (tmp_path / "simple").rename(tmp_path / "away")
            assert stored.end("greet", **there) == ("succeeded", "hello from a package\n"), "nothing is installed again"
            (tmp_path / "away").rename(tmp_path / "simple")
            stored.set()
            status, said = stored.end("true", requirements="no-such-package", **asked)
            assert (status, "its requirements could not be installed" in said) == ("failed", True)
            assert "no-such-package" in said
            status, said = stored.end("true", requirements="greeting", env=env)
            assert (status, "the image has no Python" in said) == ("failed", True)
    finally:
        index.shutdown()
        index.server_close()


def test_an_image_of_root_is_refused_where_the_queue_does_not_allow_it(stored: Stored) -> None:
    stored.set(rootQueues=[])
    status, said = stored.end("true")
    assert (status, "its image runs as root" in said) == ("failed", True)
    stored.set(rootQueues=["q"])
    assert stored.end("id -u") == ("succeeded", "0\n")
