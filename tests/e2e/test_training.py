"""The examples, trained through a real server by the command line, as the README says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess

ROOT = Path(__file__).parents[2]


def interpreter_folder(name: str) -> Path:
    """The folder with a framework's programs; skips when the framework cannot be had."""
    done = subprocess.run([ROOT / "scripts" / "frameworks", name], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return Path(done.stdout.strip()).parent


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")  # each of them wants the whole machine
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("example", "framework", "words"),
    [
        ("hello", "", "hello"),
        ("paddle-collective", "paddle", "loss"),
        ("paddle-ps", "paddle-ps", "loss"),
        ("mpi", "mpi", "pi"),
    ],
)
def test_the_example_trains(example: str, framework: str, words: str, new_server: Callable[..., ServerProcess]) -> None:
    path = os.environ["PATH"]
    if framework:
        path = f"{interpreter_folder(framework)}:{path}"
    server = new_server(PATH=path, PADDLEFLOW_LOCAL_CPUS="8")
    server.cli("fs", "create", "examples", f"local://{ROOT / 'examples'}")
    job = server.cli("job", "submit", str(ROOT / "examples" / example / "job.json")).stdout.strip()
    log = server.cli("job", "logs", "-f", job, patience=200).stdout
    done = server.cli("job", "wait", job, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    assert words in log.lower()
