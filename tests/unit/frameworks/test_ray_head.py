"""The shell text that a Ray head runs, with a stand-in for `ray`: what it ends with, and that it leaves no address behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from paddleflow.frameworks.catalogue import find
from paddleflow.frameworks.framework import PlacedMember
from tests.patience import eventually

#: Writes down where its cluster is and serves, as `ray start` does; is healthy from then on.
RAY = """\
#!/bin/sh
known=$RAY_TMPDIR/ray/ray_current_cluster
[ "$1" = health-check ] && exec test -e "$known"
for word; do case $word in --port=*) echo "192.0.2.7:${word#--port=}" > "$known.new"; mv "$known.new" "$known";; esac; done
exec sleep 600
"""


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """Where Ray writes its address."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ray"
    program.write_text(RAY)
    program.chmod(0o755)
    return tmp_path / "ray" / "ray_current_cluster"


def head(folder: Path, *argv: str, port: int = 20000) -> subprocess.Popen[bytes]:
    env = {"RAY_TMPDIR": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    ports = tuple(range(port, port + 5))
    members = [
        PlacedMember("master", 0, "127.0.0.1", ports, argv, env, 1000),
        PlacedMember("worker", 0, "127.0.0.1", (), (), {}, 1000),
    ]
    plan, _ = find("ray").plan("job-1", members)
    return subprocess.Popen(plan.argv, env=dict(plan.env), start_new_session=True)


def test_it_ends_with_the_entry_point_and_forgets_the_cluster(tmp_path: Path, known: Path) -> None:
    with head(tmp_path, "sh", "-c", f"cp {known} {tmp_path}/seen; exit 7") as process:
        assert process.wait(60) == 7
    assert (tmp_path / "seen").read_text() == "192.0.2.7:20000\n"
    assert not known.exists()


def test_one_that_serves_forgets_it_when_it_is_stopped(tmp_path: Path, known: Path) -> None:
    with head(tmp_path) as process:
        eventually(known.exists, "it is up")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 143
    assert not known.exists()


def test_the_cluster_of_another_stays_known(tmp_path: Path, known: Path) -> None:
    other = "192.0.2.7:30000\n"
    with head(tmp_path, "sh", "-c", f"echo {other.strip()} > {known}") as process:
        assert process.wait(60) == 0
    assert known.read_text() == other
