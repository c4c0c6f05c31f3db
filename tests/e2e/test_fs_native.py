"""A real GlusterFS: mounted by the command line, in jobs and under pipelines; worker and client killed; nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.errors import Invalid, NotFound, Unavailable
from tests.e2e.conftest import ServerProcess
from tests.e2e.test_job_storages import SETTINGS, THREE, end
from tests.gluster_servers import GlusterServer, gluster_server
from tests.mounts import Mount, mounted, needs_fuse
from tests.patience import PATIENCE, eventually

pytestmark = [needs_fuse, pytest.mark.timeout(300), pytest.mark.xdist_group("glusterfs")]


@pytest.fixture(scope="module")
def gluster() -> Iterator[GlusterServer]:
    with gluster_server() as server:
        yield server


def clients(gluster: GlusterServer) -> list[str]:
    """Processes that mount the volume."""
    done = subprocess.run(
        ["pgrep", "-f", f"process-name fuse.*volfile-id={gluster.volume} "], capture_output=True, text=True
    )
    return done.stdout.split()


def restarts(mount: Mount) -> int:
    """-1 while the next worker starts."""
    try:
        return int(str(mount.stats()["restarts"]))
    except (NotFound, Unavailable):
        return -1


def test_a_mount_is_posix_and_outlives_its_worker(gluster: GlusterServer) -> None:
    with mounted(gluster.url) as mount:
        top = mount.folder
        (top / "a").write_bytes(b"one")
        os.link(top / "a", top / "b")
        (top / "c").symlink_to("a")
        (top / "a").chmod(0o600)
        os.setxattr(top / "a", "user.word", b"x")
        assert (gluster.brick / "b").read_bytes() == b"one"
        assert (gluster.brick / "a").stat().st_nlink == 3  # GlusterFS has a name of its own for each file
        with (top / "a").open("r+b") as file:
            os.kill(int(str(mount.stats()["worker"])), signal.SIGKILL)
            file.write(b"two")
            file.flush()
            os.fsync(file.fileno())
        assert (top / "c").read_bytes() == b"two"
        assert (top / "b").stat().st_mode & 0o777 == 0o600
        eventually(lambda: restarts(mount) == 1, "the next worker is counted")
        assert len(clients(gluster)) == 1
    eventually(lambda: not clients(gluster), "the client of GlusterFS ends")


def test_a_mount_whose_processes_are_killed_leaves_no_client(gluster: GlusterServer) -> None:
    with mounted(gluster.url) as mount:
        (mount.folder / "d").write_bytes(b"x")
        mount.kill()
        eventually(lambda: not clients(gluster), "the client of GlusterFS ends")


def test_jobs_and_runs(gluster: GlusterServer, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", SETTINGS).start()
    try:
        client = server.connect()
        eventually(lambda: made(client, "shared", gluster.url), "the server of GlusterFS answers in time")
        shown = client.storages.get("shared")
        assert (shown.type, shown.server_address, shown.sub_path) == ("glusterfs", gluster.host, gluster.volume)
        fs = {"name": "shared", "mountPath": "/data"}
        job = client.jobs.submit({"command": "mkdir team; echo made > team/out; ln team/out team/too", "fs": fs})
        done = job.wait(timeout=PATIENCE)
        assert done.status == "succeeded", (done.record.message, "".join(done.logs()))
        assert (gluster.brick / "team" / "too").read_bytes() == b"made\n"
        run = client.runs.create(yaml=THREE % "shared").wait(timeout=PATIENCE)
        assert run.status == "succeeded", [(step.name, step.message) for step in run.steps]
        assert any("the total is 6" in line for line in run.logs("show"))
        for url, words in (
            (f"glusterfs://{gluster.host}:absent", "bucket or path"),
            (f"{gluster.url}/absent", "bucket or path"),
        ):
            with pytest.raises(Invalid, match=words):
                client.storages.create("other", url)
    finally:
        end(server)
    eventually(lambda: not clients(gluster), "the client of GlusterFS ends")


def made(client, name: str, url: str) -> bool:  # type: ignore[no-untyped-def]  # a handle of the client
    """The check of a new storage takes 5 s at most, which may be too short on a busy machine."""
    try:
        client.storages.create(name, url)
    except Invalid as error:
        if "no answer within" in error.message:
            return False
        raise
    return True
