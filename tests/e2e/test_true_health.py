"""A disk that is full, a keeper that cannot start and a database that is away: said by name, survived, over without a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from paddleflow.errors import PaddleFlowError
from paddleflow.sdk.jobs import Job
from tests.e2e.conftest import ServerProcess
from tests.patience import eventually
from tests.postgres_server import PostgresServer

TINY = {"cpu": "0.1", "mem": "64Mi"}
pytestmark = pytest.mark.timeout(600)


def not_ready(server: ServerProcess) -> dict[str, str]:
    """What /readyz finds wrong, by name; /healthz is well all the time."""
    with urlopen(f"{server.url}/healthz", timeout=60) as answer:
        assert answer.status == 200
    try:
        with urlopen(f"{server.url}/readyz", timeout=60):
            return {}
    except HTTPError as error:
        return {fault["where"]: fault["message"] for fault in json.load(error)["details"]}


def gauges(server: ServerProcess) -> dict[str, float]:
    with urlopen(f"{server.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.partition('{check="')[2].partition('"} ') for line in lines if line.startswith("pf_ready{")]
    return {name: float(value) for name, _, value in found}


def talker(server: ServerProcess, gate: Path) -> Job:
    """A job that writes to its log until the gate is there."""
    line = f"until [ -e {gate} ]; do echo 0123456789012345678901234567890123456789; sleep 0.02; done; echo last words"
    job = server.connect().jobs.submit(command=line, flavour=TINY)
    eventually(lambda: server.connect().jobs.get(job.id).status == "running", "the job runs")
    return job


def ended_well(server: ServerProcess, job: Job) -> None:
    eventually(lambda: server.connect().jobs.get(job.id).status not in ("init", "pending", "running"), "it ended")
    found = server.connect().jobs.get(job.id)
    assert (found.status, found.record.message) == ("succeeded", "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192m,mode=0700", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def on_small_disk(small_disk: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(small_disk / "data")
    server.start()
    yield server
    (small_disk / "filler").unlink(missing_ok=True)
    server.end()


def fill(disk: Path) -> Path:
    """Take every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
        try:
            while True:
                file.write(b"x")
        except OSError:
            return filler


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk(on_small_disk: ServerProcess, small_disk: Path, tmp_path: Path) -> None:
    server, gate = on_small_disk, tmp_path / "gate"
    eventually(lambda: not not_ready(server), "all is well")
    job = talker(server, gate)
    filler = fill(small_disk)
    assert "is full" in not_ready(server)["disk"]
    assert gauges(server)["disk"] == 0.0

    def refused() -> str:
        try:
            server.connect().jobs.submit(command="true", flavour=TINY)
        except PaddleFlowError as error:
            return error.message
        return ""

    eventually(lambda: "disk is full" in refused(), "submits are refused in words")
    assert server.connect().jobs.get(job.id).status == "running"
    # Its keeper cannot start without a place for its journal; the job itself goes on.
    os.kill(keeper_of(server), signal.SIGKILL)
    eventually(lambda: "engine" in not_ready(server), "it is said")
    filler.unlink()
    eventually(lambda: not not_ready(server), "all is well again, without a restart")
    assert gauges(server) == dict.fromkeys(gauges(server), 1.0)
    after = server.connect().jobs.submit(command="true", flavour=TINY)
    ended_well(server, after)
    gate.touch()
    eventually(lambda: server.connect().jobs.get(job.id).status not in ("init", "pending", "running"), "it ended")
    assert "log limit" not in server.connect().jobs.get(job.id).record.message
    assert any("last words" in line for line in server.connect().jobs.get(job.id).logs())


def keeper_of(server: ServerProcess) -> int:
    processes = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return next(pid for pid in processes if _is_keeper(pid, server.data))


def _is_keeper(pid: int, data: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return Path(f"/proc/{pid}/comm").read_text().strip() == "pf-keeper" and str(data).encode() in words
    except OSError:
        return False


@pytest.mark.postgres
def test_a_database_that_is_away(postgres_server: PostgresServer, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", {"PADDLEFLOW_DATABASE_URL": postgres_server.create()}).start()
    try:
        eventually(lambda: not not_ready(server), "all is well")
        job = talker(server, tmp_path / "gate")
        try:
            for how in (signal.SIGINT, signal.SIGQUIT):
                postgres_server.stop(how)
                eventually(lambda: "database" in not_ready(server), "it is said")
                assert gauges(server)["database"] == 0.0
                postgres_server.start()
                eventually(lambda: not not_ready(server), "all is well again, without a restart")
        finally:
            if not postgres_server.answers():
                postgres_server.start()
        assert server.connect().jobs.get(job.id).status == "running"
        ended_well(server, server.connect().jobs.submit(command="true", flavour=TINY))
        (tmp_path / "gate").touch()
        ended_well(server, job)
    finally:
        server.end()


def test_a_keeper_that_cannot_start(new_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = new_server()
    eventually(lambda: not not_ready(server), "all is well")
    job = talker(server, tmp_path / "gate")
    server.kill()
    os.kill(keeper_of(server), signal.SIGKILL)
    in_the_way = server.data / "keeper.sock"
    in_the_way.unlink(missing_ok=True)
    in_the_way.mkdir()
    server.start()
    eventually(lambda: "keeper" in not_ready(server).get("engine", ""), "it is said")
    assert gauges(server)["engine"] == 0.0
    in_the_way.rmdir()
    eventually(lambda: not not_ready(server), "all is well again, without a restart")
    assert server.log.read_text().count('"event": "cannot reach or start the keeper') == 1, (
        "said once, however often it was tried"
    )
    ended_well(server, server.connect().jobs.submit(command="true", flavour=TINY))
    (tmp_path / "gate").touch()
    eventually(lambda: server.connect().jobs.get(job.id).status not in ("init", "pending", "running"), "it ended")
