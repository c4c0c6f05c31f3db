"""``kill -9`` of the server at any moment of a job's life: what was acknowledged is there, and nothing ran twice."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from paddleflow.errors import PaddleFlowError
from paddleflow.sdk.jobs import Job
from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

TINY = {"cpu": "10m", "mem": "16Mi"}


def test_running_jobs_are_taken_up_and_ends_meanwhile_are_recorded(server: ServerProcess, tmp_path: Path) -> None:
    client = server.connect()

    def submit(name: str, code: int) -> Job:
        """A job that ends with `code` once the file `name` is there."""
        gate = tmp_path / name
        command = f"echo $$ > {gate}.pid; while [ ! -e {gate} ]; do sleep 0.05; done; exit {code}"
        return client.jobs.submit(command=command, flavour=TINY)

    long, short = submit("long", 5), submit("short", 4)
    for job in (long, short):
        eventually(lambda job=job: job.refresh().status == "running", "both run")  # type: ignore[misc]
    said = tmp_path / "short.pid"
    pid = eventually(lambda: said.exists() and said.read_text().strip(), "the short one says who it is")
    server.kill()
    (tmp_path / "short").touch()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the short one ends while no server is there")
    server.start()
    client = server.connect()
    ended = client.jobs.get(short.id).wait(PATIENCE)
    assert (ended.status, ended.record.tasks[0].exit_code) == ("failed", 4)
    assert client.jobs.get(long.id).status == "running"
    (tmp_path / "long").touch()
    ended = client.jobs.get(long.id).wait(PATIENCE)
    assert (ended.status, ended.record.tasks[0].exit_code) == ("failed", 5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_many_kills_lose_nothing_and_double_nothing(
    engine: str, tmp_path: Path, new_server: Callable[..., ServerProcess], request: pytest.FixtureRequest
) -> None:
    """A client submits all the time while the server is killed at random moments."""
    settings = {"PADDLEFLOW_LOCAL_CPUS": "4"}
    if engine == "postgres":
        settings["PADDLEFLOW_DATABASE_URL"] = request.getfixturevalue("postgres_url_factory")()
    server = new_server(**settings)
    marks = tmp_path / "marks"
    marks.mkdir()
    rng = random.Random(engine)
    acknowledged: list[str] = []
    stopped = threading.Event()

    def submit_for_ever() -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            name = f"kill-{number}"
            command = f"echo x >> {marks}/{name}; sleep 0.0{number % 9}; exit {number % 3}"
            try:
                server.connect().jobs.submit(id=name, command=command, flavour=TINY)
                acknowledged.append(name)
            except (PaddleFlowError, OSError, ValueError):
                stopped.wait(0.02)  # no server just now

    client = threading.Thread(target=submit_for_ever)
    client.start()
    try:
        for _ in range(8):
            reached = len(acknowledged) + rng.randint(1, 12)
            eventually(lambda reached=reached: len(acknowledged) >= reached, "jobs are accepted")  # type: ignore[misc]
            server.kill()
            server.start()
    finally:
        stopped.set()
        client.join()
    last = server.connect()
    for name in acknowledged:
        job = last.jobs.get(name).wait(60)
        wanted = "succeeded" if int(name.removeprefix("kill-")) % 3 == 0 else "failed"
        assert job.status == wanted, f"{name}: {job.record.message}"
    runs = Counter({file.name: len(file.read_text().splitlines()) for file in marks.iterdir()})
    assert {name: n for name, n in runs.items() if n != 1} == {}
    assert set(acknowledged) <= set(runs)


def test_a_job_started_after_a_restart_leaves_those_from_before_alone(server: ServerProcess) -> None:
    """Each attempt has limits of its own, also when one keeper serves several servers."""
    old = [server.connect().jobs.submit(command="sleep 600", flavour=TINY) for _ in range(3)]
    for job in old:
        eventually(lambda job=job: job.refresh().status == "running", "they run")  # type: ignore[misc]
    server.kill()
    server.start()
    client = server.connect()
    for _ in range(4):
        assert client.jobs.submit(command="true", flavour=TINY).wait(PATIENCE).status == "succeeded"
    assert [client.jobs.get(job.id).status for job in old] == ["running"] * 3
