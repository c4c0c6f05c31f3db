"""Storages on S3, SFTP and behind links in jobs and runs of a real server, as root and as an ordinary account: real mounts, real kills."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from paddleflow.engine.shared_mounts import DIGEST
from paddleflow.errors import Conflict, Invalid, NotFound, Unavailable
from paddleflow.fs import device
from paddleflow.fs.control import ask_stats
from paddleflow.objects.s3 import Bucket, S3Store
from paddleflow.objects.urls import open_store
from paddleflow.sdk.client import PaddleFlow
from scripts.lib.hdfs import MiniCluster
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.hdfs_clusters import fresh_folder, hdfs_cluster
from tests.mounts import needs_fuse
from tests.ordinary_account import UID, needs_root
from tests.patience import PATIENCE, eventually
from tests.s3_servers import KEYS, S3Server, versitygw
from tests.ssh_servers import ssh_server
from tests.tcp_proxy import tcp_proxy

__all__ = ["hdfs_cluster"]
_numbers = count(1)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with versitygw() as server:
        yield server


@dataclass
class Place:
    """A server, and the stores that its storages lie in."""

    server: ServerProcess
    client: PaddleFlow
    s3: S3Server
    buckets: dict[str, Bucket] = field(default_factory=dict)

    def storage(self, **properties: str) -> str:
        name = f"data{next(_numbers)}"
        bucket = self.buckets[name] = self.s3.bucket()
        self.client.storages.create(name, url_of(bucket), properties={**access(bucket), **properties})
        return name

    def store(self, name: str) -> S3Store:
        return S3Store(self.buckets[name])

    def run(self, command: str, name: str, **fields: object) -> str:
        job = self.submit(command, name, **fields).wait(timeout=PATIENCE)
        assert job.status == "succeeded", (job.record.message, "".join(job.logs()))
        return "".join(job.logs())

    def submit(self, command: str, name: str, **fields: object):  # type: ignore[no-untyped-def]  # a handle of the client
        fs = {"name": name, "mountPath": "/data", **fields}
        return self.client.jobs.submit({"command": command, "fs": fs})

    def mounts(self, name: str) -> list[Path]:
        """Folders on which a storage is mounted."""
        folder = self.server.data.resolve() / "fs" / "mounts"
        found = [Path(each) for each in device.mounted_folders() if Path(each).parent == folder]
        return [each for each in found if each.name[: -DIGEST - 1] == f"fs-root-{name}"]

    def stats(self, name: str) -> dict[str, object]:
        (folder,) = self.mounts(name)
        return ask_stats(folder)


def access(bucket: Bucket) -> dict[str, str]:
    return {"endpoint": bucket.endpoint, "accessKey": KEYS.access_key, "secretKey": KEYS.secret_key}


def url_of(bucket: Bucket) -> str:
    return f"s3://{bucket.name}/{bucket.prefix}"


def end(server: ServerProcess) -> None:
    server.end()
    for folder in device.mounted_folders():
        if Path(folder).is_relative_to(server.data.resolve()):
            device.unmount(Path(folder), force=True)


SETTINGS = {"PADDLEFLOW_LOCAL_CPUS": "4", "PADDLEFLOW_LOCAL_MOUNT_IDLE": "3600", "PADDLEFLOW_LOCAL_STORAGE_WAIT": "4"}


@pytest.fixture(scope="module")
def place(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    server = ServerProcess(tmp_path_factory.mktemp("place") / "data", SETTINGS).start()
    try:
        yield Place(server, server.connect(), s3)
    finally:
        end(server)


@needs_fuse
def test_a_job_sees_its_bucket(place: Place) -> None:
    name = place.storage()
    place.store(name).write("in/words", b"hello\n")
    assert place.run("pwd; cat in/words; echo made > out", name).split() == ["/data", "hello"]
    assert place.store(name).read("out", size=10) == b"made\n"
    assert place.run("cat /data/words", name, subPath="in") == "hello\n"
    assert len(place.mounts(name)) == 1
    refused = place.submit("echo no > /data/words", name, readOnly=True).wait(timeout=PATIENCE)
    assert refused.status == "failed"
    assert "Read-only file system" in "".join(refused.logs())


@needs_fuse
def test_links_and_sftp_are_mounted(place: Place) -> None:
    name, other = place.storage(), place.s3.bucket()
    S3Store(other).write("far", b"away\n")
    place.client.storages.link(name, "there", url_of(other), properties=access(other))
    assert place.run("cat /data/there/far; echo b > /data/there/near; mv /data/there/far /data/close", name) == "away\n"
    assert place.store(name).read("close", size=10) == b"away\n"
    assert S3Store(other).read("near", size=10) == b"b\n"
    with ssh_server() as ssh:
        (ssh.folder / "things").mkdir()
        (ssh.folder / "things" / "in").write_text("over ssh\n")
        properties = {"user": ssh.user, "privateKey": ssh.private_key, "hostKey": ssh.host_key}
        url = f"sftp://127.0.0.1:{ssh.port}{ssh.folder}/things"
        eventually(lambda: created(place, "ssh", url, properties), "the server of SFTP answers in time")
        assert place.run("cat in; mkdir new; echo x > new/out; mv new/out new/kept; ls -R new", "ssh").split() == [
            "over", "ssh", "new:", "kept",
        ]  # fmt: skip
        assert (ssh.folder / "things" / "new" / "kept").read_text() == "x\n"


def created(place: Place, name: str, url: str, properties: dict[str, str]) -> bool:
    """The check of a new storage takes 5 s at most, which may be too short on a busy machine."""
    try:
        place.client.storages.create(name, url, properties=properties)
    except Invalid as error:
        if "no answer within" in error.message:
            return False
        raise
    return True


@needs_fuse
def test_cache_settings_are_those_of_the_storage(place: Place, tmp_path: Path) -> None:
    name = place.storage()
    place.client.storages.create_cache(name, {"cacheDir": str(tmp_path / "cache"), "quota": "1Gi"})
    place.store(name).write("large", os.urandom(300_000))
    place.run("cat large > /dev/null", name)
    assert any(each.stat().st_size >= 300_000 for each in (tmp_path / "cache").rglob("*") if each.is_file())


@needs_fuse
def test_a_killed_worker_is_not_noticed_and_a_killed_mount_is_made_anew(place: Place, tmp_path: Path) -> None:
    name, gate = place.storage(), tmp_path / "gate"
    wait = f"echo begun > begun; while ! test -e {gate}; do sleep 0.05; done; echo through > out && cat out"
    job = place.submit(wait, name)
    eventually(lambda: exists(place.store(name), "begun"), "the job runs")
    os.kill(int(str(place.stats(name)["worker"])), signal.SIGKILL)
    gate.touch()
    done = job.wait(timeout=PATIENCE)
    assert (done.status, "".join(done.logs())) == ("succeeded", "through\n")
    found = eventually(lambda: answered(place, name), "the next worker answers")
    assert found["restarts"] == 1
    for which in ("pid", "worker"):
        os.kill(int(str(found[which])), signal.SIGKILL)
    assert place.run("cat out", name) == "through\n"
    assert len(place.mounts(name)) == 1


def exists(store: S3Store, key: str) -> bool:
    return any(entry.key == key for entry in store.list_entries())


def answered(place: Place, name: str) -> dict[str, object]:
    """What the mount says; nothing while its next worker starts."""
    try:
        return place.stats(name)
    except (NotFound, Unavailable):
        return {}


@needs_fuse
def test_a_refused_mount_is_the_message_of_the_job(place: Place) -> None:
    bucket = Bucket(place.s3.endpoint, "vanishing", "", credentials=KEYS)
    store = S3Store(bucket)
    assert store._ask("PUT", "").status == 200
    place.client.storages.create("vanished", "s3://vanishing/", properties=access(bucket))
    assert store._ask("DELETE", "").status == 204
    job = place.submit("true", "vanished").wait(timeout=PATIENCE)
    assert job.status == "failed"
    assert "fs[vanished] of type s3 cannot be mounted" in job.record.message
    assert "vanishing" in job.record.message


@needs_fuse
def test_a_store_that_is_away_delays_its_own_jobs_only(place: Place) -> None:
    with versitygw() as away:
        bucket = away.bucket()
        place.client.storages.create("away", url_of(bucket), properties=access(bucket))
    job = place.submit("true", "away")
    assert place.run("echo here", place.storage()) == "here\n"
    done = job.wait(timeout=PATIENCE)
    assert done.status == "failed"
    assert "no connection to 127.0.0.1" in done.record.message
    assert "tried" in done.record.message


@needs_fuse
def test_delete_is_refused_while_a_job_uses_it(place: Place, tmp_path: Path) -> None:
    name, gate = place.storage(), tmp_path / "gate"
    job = place.submit(f"echo b > begun; while ! test -e {gate}; do sleep 0.05; done", name)
    eventually(lambda: exists(place.store(name), "begun"), "the job runs")
    with pytest.raises(Conflict, match=job.id):
        place.client.storages.delete(name)
    gate.touch()
    job.wait(timeout=PATIENCE)
    place.client.storages.delete(name)


@needs_fuse
def test_mounts_outlive_a_killed_server_and_go_when_unused(s3: S3Server, tmp_path: Path) -> None:
    settings = {**SETTINGS, "PADDLEFLOW_LOCAL_MOUNT_IDLE": "1"}
    server = ServerProcess(tmp_path / "data", settings).start()
    try:
        place = Place(server, server.connect(), s3)
        name, gate = place.storage(), tmp_path / "gate"
        job = place.submit(f"echo b > begun; while ! test -e {gate}; do sleep 0.05; done; echo c > out", name)
        eventually(lambda: exists(place.store(name), "begun"), "the job runs")
        before = place.stats(name)["pid"]
        server.kill()
        server.start()
        place.client = server.connect()
        other = place.submit("cat begun", name).wait(timeout=PATIENCE)
        assert "".join(other.logs()) == "b\n"
        assert place.stats(name)["pid"] == before
        unrelated = place.client.jobs.submit(command=f"while ! test -e {gate}.2; do sleep 0.05; done")
        gate.touch()
        assert place.client.jobs.get(job.id).wait(timeout=PATIENCE).status == "succeeded"
        assert place.store(name).read("out", size=10) == b"c\n"
        eventually(lambda: not place.mounts(name), "the storage is unmounted")
        eventually(
            lambda: not Path(f"/proc/{before}/fd").exists() or not lives(int(str(before))), "its process is gone"
        )
        Path(f"{gate}.2").touch()
        unrelated.wait(timeout=PATIENCE)
    finally:
        end(server)


@needs_fuse
def test_the_mounts_of_an_owner_are_limited(s3: S3Server, tmp_path: Path) -> None:
    """An idle one makes room; while jobs use all of them a further job waits, with the reason, and then fails with it."""
    settings = {**SETTINGS, "PADDLEFLOW_LOCAL_MOUNTS_PER_USER": "2", "PADDLEFLOW_LOCAL_STORAGE_WAIT": "1"}
    server = ServerProcess(tmp_path / "data", settings).start()
    try:
        place = Place(server, server.connect(), s3)
        used, idle, third, fourth = (place.storage() for _ in range(4))
        gate = tmp_path / "gate"
        wait = f"echo b > begun; while ! test -e {gate}; do sleep 0.05; done"
        jobs = [place.submit(wait, used)]
        eventually(lambda: exists(place.store(used), "begun"), "the job runs")
        assert place.run("echo here", idle) == "here\n"
        jobs.append(place.submit(wait, third))
        eventually(lambda: exists(place.store(third), "begun"), "the job runs")
        assert [len(place.mounts(name)) for name in (used, idle, third)] == [1, 0, 1]
        refused = place.submit("echo here", fourth).wait(timeout=PATIENCE)
        assert refused.status == "failed"
        assert (
            "user[root] has 2 storages mounted on this machine, at most 2, and jobs use all" in refused.record.message
        )
        gate.touch()
        for job in jobs:
            assert job.wait(timeout=PATIENCE).status == "succeeded"
        assert place.run("echo here", fourth) == "here\n"
    finally:
        end(server)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


THREE = """
name: three
fs_options: {main_fs: {name: %s, sub_path: team}}
cache: {enable: true}
entry_points:
  make:
    command: 'mkdir {{numbers}}; seq 1 10 > {{numbers}}/all; echo 3 > {{limit}}'
    artifacts: {output: [numbers, limit]}
  add:
    deps: make
    command: 'head -n $(cat {{limit}}) {{numbers}}/all | paste -sd+ | bc > {{total}} || echo 6 > {{total}}'
    artifacts: {input: {numbers: '{{make.numbers}}', limit: '{{make.limit}}'}, output: [total]}
  show:
    deps: add
    command: 'echo the total is $(cat {{total}})'
    artifacts: {input: {total: '{{add.total}}'}}
"""


@pytest.fixture(scope="module")
def copying(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = {**SETTINGS, "PADDLEFLOW_LOCAL_STORAGES": "copy", "PADDLEFLOW_LOCAL_STORAGE_WAIT": "600"}
    server = ServerProcess(tmp_path_factory.mktemp("copying") / "data", settings).start()
    try:
        yield Place(server, server.connect(), s3)
    finally:
        end(server)


def check_three(place: Place) -> None:
    """Three steps with artifacts on S3, all cached the second time; a missing output has its words."""
    name = place.storage()
    run = place.client.runs.create(yaml=THREE % name).wait(timeout=PATIENCE)
    assert run.status == "succeeded", [(step.name, step.message) for step in run.steps]
    assert any("the total is 6" in line for line in run.logs("show"))
    paths = sorted(entry.key for entry in place.store(name).list_entries("team/.pipeline", recursive=True))
    assert [path.rpartition("/")[2] for path in paths] == ["total", "limit", "all"]
    again = place.client.runs.create(yaml=THREE % name).wait(timeout=PATIENCE)
    assert {step.step_name: step.cache_run_id for step in again.steps} == dict.fromkeys(("make", "add", "show"), run.id)
    lost = (THREE % name).replace("echo 3 > {{limit}}", "true")
    failed = place.client.runs.create(yaml=lost).wait(timeout=PATIENCE)
    assert failed.status == "failed"
    assert any("output artifact[limit] was not written" in step.message for step in failed.steps)


@needs_fuse
def test_artifacts_on_s3_through_a_mount(place: Place) -> None:
    check_three(place)


def test_artifacts_on_s3_without_a_mount(copying: Place) -> None:
    check_three(copying)
    job = copying.submit("true", copying.storage()).wait(timeout=PATIENCE)
    assert job.status == "failed"
    assert "cannot be mounted on this machine (by the setting local.storages)" in job.record.message


def test_outputs_survive_a_store_that_is_away_and_a_killed_server(copying: Place, tmp_path: Path) -> None:
    place, gate, begun = copying, tmp_path / "gate", tmp_path / "begun"
    with tcp_proxy(int(place.s3.endpoint.rpartition(":")[2])) as proxy:
        bucket = place.s3.bucket()
        near = replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}")
        place.client.storages.create("flaky", url_of(near), properties=access(near))
        command = f"echo b >> {begun}; while ! test -e {gate}; do sleep 0.05; done; echo made > {{{{out}}}}"
        yaml = (
            f"name: one\nfs_options: {{main_fs: {{name: flaky}}}}\nentry_points:\n  make:\n    command: '{command}'\n"
        )
        run = place.client.runs.create(yaml=yaml + "    artifacts: {output: [out]}\n")
        eventually(begun.exists, "the step runs")
        proxy.refusing = True
        proxy.cut()
        gate.touch()
        before = proxy.accepted
        eventually(lambda: proxy.accepted > before + 2, "the server tries to store the output")
        assert run.refresh().status == "running"
        place.server.kill()
        place.server.start()
        place.client = place.server.connect()
        proxy.refusing = False
        done = place.client.runs.get(run.id).wait(timeout=PATIENCE)
        assert done.status == "succeeded", [step.message for step in done.steps]
    assert begun.read_text() == "b\n"
    (made,) = [entry.key for entry in S3Store(bucket).list_entries(recursive=True)]
    assert S3Store(bucket).read(made, size=10) == b"made\n"


def check_run(place: Place, name: str) -> None:
    """Three steps with artifacts on a storage of any type, and a job beside them."""
    run = place.client.runs.create(yaml=THREE % name).wait(timeout=PATIENCE)
    assert run.status == "succeeded", [(step.name, step.message) for step in run.steps]
    assert any("the total is 6" in line for line in run.logs("show"))


@needs_fuse
@pytest.mark.parametrize("way", ["place", "copying"])
def test_a_pipeline_on_sftp(way: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(way)
    with ssh_server() as ssh:
        (ssh.folder / "team").mkdir()
        properties = {"user": ssh.user, "privateKey": ssh.private_key, "hostKey": ssh.host_key}
        url = f"sftp://127.0.0.1:{ssh.port}{ssh.folder}"
        eventually(lambda: created(place, "runs-ssh", url, properties), "the server of SFTP answers in time")
        check_run(place, "runs-ssh")
        assert len(list(ssh.folder.glob("team/.pipeline/**/total"))) == 1


@needs_fuse
@pytest.mark.xdist_group("hdfs")
@pytest.mark.parametrize("way", ["place", "copying"])
def test_a_pipeline_on_hdfs(way: str, request: pytest.FixtureRequest, hdfs_cluster: MiniCluster) -> None:
    place: Place = request.getfixturevalue(way)
    url = f"hdfs://127.0.0.1:{hdfs_cluster.port}/{fresh_folder()}"
    store = open_store(url, {"user": "root"})
    store.write("team/in", b"words\n")
    eventually(lambda: created(place, "lake", url, {"user": "root"}), "the name node answers in time")
    check_run(place, "lake")
    assert any(entry.key.endswith("/total") for entry in store.list_entries("team/.pipeline", recursive=True))
    if way == "place":
        command = "cat team/in; mkdir new; echo x > new/out; mv new/out new/kept; ls new"
        assert place.run(command, "lake").split() == ["words", "kept"]
        assert store.read("new/kept", size=10) == b"x\n"
    store.close()


#: A mount namespace whose /dev/fuse everybody may open, as on most machines.
OPEN_DEVICE = 'mknod -m 666 "$0/fuse" c 10 229 && mount --bind "$0/fuse" /dev/fuse && exec "$@"'


@pytest.fixture
def ordinary(s3: S3Server) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, UID, UID)
        path = f"{Path(PADDLEFLOW).parent}:{os.environ['PATH']}"
        environment = {**SETTINGS, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}
        environment["PADDLEFLOW_LOCAL_MOUNT_IDLE"] = "1"
        account = ["unshare", "-m", "sh", "-c", OPEN_DEVICE, name, sys.executable, "-m", "tests.ordinary_account", name]
        server = ServerProcess(folder / "server", environment, account).start()
        try:
            yield Place(server, server.connect(), s3)
        finally:
            server.end()


@needs_root
@needs_fuse
@pytest.mark.skipif(shutil.which("fusermount3") is None, reason="fusermount3 is not installed")
def test_an_ordinary_account_mounts_too(ordinary: Place) -> None:
    name = ordinary.storage()
    ordinary.store(name).write("in", b"words\n")
    assert ordinary.run("id -u; pwd; cat in; echo made > out", name).split() == [str(UID), "/data", "words"]
    assert ordinary.store(name).read("out", size=10) == b"made\n"
    check_three(ordinary)
    mounts = ordinary.server.data / "fs" / "mounts"
    eventually(lambda: not any(mounts.iterdir()), "what nobody uses is unmounted")
