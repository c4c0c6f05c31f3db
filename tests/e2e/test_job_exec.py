"""`job exec` and `job shell` inside real jobs: streams, exit codes, a terminal, and who may."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.patience import PATIENCE, eventually


@pytest.fixture
def job(server: ServerProcess, tmp_path: Path) -> Iterator[str]:
    """A job that runs as long as the test."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    started = tmp_path / "started"
    made = server.cli("job", "run", "-d", "--no-code", "-e", "COLOUR=blue", f"touch {started}; read _ < {gate}")
    eventually(started.exists, "the job runs")
    id = made.stdout.strip()
    eventually(lambda: '"running"' in server.cli("job", "show", id, "-o", "json").stdout, "the server knows it")
    yield id
    server.cli("job", "stop", id, check=False)


def test_a_command_inside_a_job(server: ServerProcess, job: str) -> None:
    line = 'echo out $COLOUR; echo err >&2; test "$PWD" = "$PF_WORK_DIR" && exit 7'
    done = server.cli("job", "exec", job, "--", "sh", "-c", line, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("out blue\n", "err\n", 7)
    text = "0123456789" * 100_000
    assert server.cli("job", "exec", job, "--member", "worker-0", "--", "cat", stdin=text).stdout == text
    missing = server.cli("job", "exec", job, "--", "no-such-program", check=False)
    assert (missing.stderr, missing.returncode) == ("no-such-program: not found\n", 127)
    unknown = server.cli("job", "exec", job, "--member", "worker-9", "--", "true", check=False)
    assert "has no member[worker-9]" in unknown.stderr


def test_a_shell_has_a_terminal(server: ServerProcess, job: str) -> None:
    ours, theirs = pty.openpty()
    words = [PADDLEFLOW, "job", "shell", job]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=server.environment) as shell:
        os.close(theirs)
        os.write(ours, b"tty; echo a$((40+2))z; exit 5\r")
        seen = b""
        with suppress(OSError):  # nobody is on the other side any more
            while data := os.read(ours, 4096):
                seen += data
        assert shell.wait(PATIENCE) == 5
    os.close(ours)
    assert b"/dev/pts/" in seen
    assert b"a42z" in seen


def test_a_command_ends_with_its_job_and_with_its_client(server: ServerProcess, job: str, tmp_path: Path) -> None:
    def begin(name: str) -> subprocess.Popen[bytes]:
        words = [PADDLEFLOW, "job", "exec", job, "--", "sh", "-c", f"echo $$ > {tmp_path}/{name}; exec sleep 600"]
        begun = subprocess.Popen(words, env=server.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        eventually(lambda: (tmp_path / name).exists() and (tmp_path / name).read_text().strip(), "it runs")
        return begun

    def is_gone(name: str) -> bool:
        return not Path("/proc", (tmp_path / name).read_text().strip()).exists()

    with begin("killed") as first:
        first.kill()
    eventually(lambda: is_gone("killed"), "it ended with its client")
    with begin("stopped") as second:
        server.cli("job", "stop", job)
        assert second.wait(PATIENCE) != 0
    eventually(lambda: is_gone("stopped"), "it ended with its job")
    late = server.cli("job", "exec", job, "--", "true", check=False)
    assert "no member runs" in late.stderr


def test_only_the_owner_may(server: ServerProcess, job: str) -> None:
    server.cli("user", "add", "mallory", "secret12")
    token = server.connect().login("mallory", "secret12")
    words = ("--server", server.url, "job", "exec", job, "--", "id")
    refused = server.cli(*words, check=False, environment={"PADDLEFLOW_TOKEN": token})
    assert refused.returncode == 1
    assert "user[mallory] has no access to job" in refused.stderr
