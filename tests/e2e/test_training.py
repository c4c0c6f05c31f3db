"""The examples, trained through a real server by the command line, as the README says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess
from tests.framework_environments import programs_of

ROOT = Path(__file__).parents[2]


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")  # each of them wants the whole machine
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("example", "framework", "words"),
    [
        ("hello", "", "hello"),
        ("paddle-collective", "paddle", "loss"),
        ("paddle-ps", "paddle-ps", "loss"),
        ("pytorch", "pytorch", "all 2 processes agree"),
        ("tensorflow", "tensorflow", "all 2 workers agree"),
        ("tensorflow-ps", "tensorflow", "weights on the server"),
        ("spark", "spark", "words counted on 2 cores"),
        ("mpi", "mpi", "pi"),
        ("ray", "ray", "found by 8 tasks"),
    ],
)
def test_the_example_trains(example: str, framework: str, words: str, new_server: Callable[..., ServerProcess]) -> None:
    path = os.environ["PATH"]
    if framework:
        path = f"{programs_of(framework)}:{path}"
    server = new_server(PATH=path, PADDLEFLOW_LOCAL_CPUS="8")
    server.cli("fs", "create", "examples", f"local://{ROOT / 'examples'}")
    job = server.cli("job", "submit", str(ROOT / "examples" / example / "job.json")).stdout.strip()
    log = server.cli("job", "logs", "-f", job, patience=200).stdout
    done = server.cli("job", "wait", job, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    assert words in log.lower()
