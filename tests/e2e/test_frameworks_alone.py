"""The examples, trained for real with the environments that the framework tables give, without server or runtime.

What is proved here is the contract with the frameworks themselves: that their launchers and libraries read what `plan`
writes. Each framework lives in an environment of its own, made by ``scripts/frameworks``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paddleflow.frameworks.catalogue import find
from paddleflow.frameworks.framework import LaunchPlan, PlacedMember
from tests.framework_environments import programs_of
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
DEADLINE = 90.0  #: seconds; a quiet machine needs a tenth


def until(condition: Callable[[], bool], deadline: float) -> bool:
    """Whether the condition came true in time."""
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Gang:
    """Members of one job as plain processes."""

    folder: Path
    members: list[PlacedMember]
    plans: Sequence[LaunchPlan]
    processes: dict[tuple[str, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, roles: Sequence[str]) -> None:
        for member, plan in zip(self.members, self.plans, strict=True):
            if member.role in roles and not plan.passive:
                for name, text in plan.files.items():
                    (self.folder / name).write_text(text)
                with open(self.folder / f"{member.role}-{member.index}.log", "wb") as log:
                    self.processes[member.role, member.index] = subprocess.Popen(
                        plan.argv,
                        env=dict(plan.env),
                        cwd=self.folder / "work",
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )

    def ready(self, roles: Sequence[str]) -> bool:
        chosen = [plan for member, plan in zip(self.members, self.plans, strict=True) if member.role in roles]
        return self.failed() or all(listens(plan.ready_port) for plan in chosen if plan.ready_port)

    def failed(self) -> bool:
        return any(process.poll() for process in self.processes.values())

    def ended(self, roles: frozenset[str]) -> bool:
        return all(process.poll() is not None for (role, _), process in self.processes.items() if role in roles)

    def stop(self) -> None:
        for process in self.processes.values():
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue

    def log(self, role: str, index: int) -> str:
        return (self.folder / f"{role}-{index}.log").read_text("utf-8", "replace")

    def logs(self) -> str:
        return "\n".join(f"--- {role}-{index}\n{self.log(role, index)[-3000:]}" for role, index in self.processes)


Run = Callable[..., Gang]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs an example to its end: stages in order, over when the completing roles have ended or somebody failed."""
    gangs: list[Gang] = []

    def example(name: str, programs: Path, command: str = "") -> Gang:
        shutil.copytree(ROOT / "examples" / name, tmp_path / "work")
        document = json.loads((tmp_path / "work" / "job.json").read_text())
        framework = find(document["framework"])
        assert framework.check({item["role"]: item["replicas"] for item in document["members"]}) == []
        members = []
        for item in document["members"]:
            role = framework.role(item["role"])
            assert role is not None
            for index in range(item["replicas"]):
                members.append(_member(item, index, role.ports, programs, tmp_path, command))
        gang = Gang(tmp_path, members, framework.plan("job-1", members))
        gangs.append(gang)
        end = time.monotonic() + DEADLINE
        for stage in framework.stages:
            gang.start(stage)
            assert until(lambda stage=stage: gang.ready(stage), end), f"{stage} not ready\n{gang.logs()}"  # type: ignore[misc]
        counting = framework.completing({member.role for member in members})
        assert until(lambda: gang.failed() or gang.ended(counting), end), f"not done in time\n{gang.logs()}"
        assert not gang.failed(), gang.logs()
        return gang

    yield example
    for gang in gangs:
        gang.stop()


def _member(
    item: Mapping[str, Any], index: int, ports: int, programs: Path, folder: Path, command: str = ""
) -> PlacedMember:
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder), **item.get("env", {})}
    text = command or item.get("command", "")
    argv = ("sh", "-c", text) if text else ()
    return PlacedMember(item["role"], index, "127.0.0.1", free_ports(ports), argv, env, folder=str(folder))


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")  # each of them wants the whole machine
def test_paddle_collective(run: Run) -> None:
    gang = run("paddle-collective", programs_of("paddle"))
    for rank in (0, 1):
        assert f"worker {rank}: all 2 workers agree" in gang.log("worker", rank)


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
def test_paddle_collective_through_its_launcher(run: Run) -> None:
    gang = run("paddle-collective", programs_of("paddle"), "python -m paddle.distributed.launch train.py")
    for rank in (0, 1):
        assert f"worker {rank}: all 2 workers agree" in gang.log("worker", rank)
        assert (gang.folder / f"worker-{rank}.launch" / "workerlog.0").exists()


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
def test_paddle_parameter_server(run: Run) -> None:
    gang = run("paddle-ps", programs_of("paddle-ps"))
    for worker in (0, 1):
        assert f"worker {worker}: loss" in gang.log("worker", worker)
        assert f"server {worker} of 2 is ready" in gang.log("pserver", worker)
    servers = [process for (role, _), process in gang.processes.items() if role == "pserver"]
    assert [server.poll() for server in servers] == [None, None]  # they serve until they are stopped


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
def test_pytorch_through_its_launcher(run: Run) -> None:
    # PyTorch 1.13 on Python 3.11 fails over its own defaults of -r and -t: an enumeration does not name its zero any more.
    gang = run("pytorch", programs_of("pytorch"), "python -m torch.distributed.run -r 1 -t 1 train.py")
    assert "rank 0: all 2 processes agree" in gang.log("master", 0)
    assert "rank 1: all 2 processes agree" in gang.log("worker", 0)


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
@pytest.mark.parametrize(("command", "ranks"), [("", 2), ("mpirun -np 3 python pi.py", 3)])
def test_mpi(run: Run, command: str, ranks: int) -> None:
    gang = run("mpi", programs_of("mpi"), command)
    assert f"found by {ranks} ranks" in gang.log("master", 0)
    assert list(gang.processes) == [("master", 0)]


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
def test_mpi_of_the_system(run: Run) -> None:
    """Open MPI 4, as Debian has it, reads other variables than 5."""
    mpirun = Path("/usr/bin/mpirun")
    if not mpirun.exists():
        pytest.skip("no Open MPI of the system: apt-get install openmpi-bin")
    gang = run("mpi", programs_of("mpi"), f"{mpirun} python pi.py")
    assert "found by 2 ranks" in gang.log("master", 0)


def test_hello(tmp_path: Path) -> None:
    document = json.loads((ROOT / "examples" / "hello" / "job.json").read_text())
    member = _member(document | {"role": "worker"}, 0, 0, Path("/usr/bin"), tmp_path)
    (plan,) = find("standalone").plan("job-1", [member])
    done = subprocess.run(plan.argv, env=dict(plan.env), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == int(document["env"]["EPOCHS"]) + 2
    assert lines[-1].startswith("Learned.")
