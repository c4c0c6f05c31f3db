"""`--retries`, `--timeout` and `--after` of `job run` do what their help says, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import ServerProcess


def test_retries_start_a_failed_job_again_at_most_so_often(server: ServerProcess, tmp_path: Path) -> None:
    words = ("job", "run", "--quiet", "--no-code", "--retries", "2")
    failed = server.cli(*words, f"echo try >> {tmp_path}/failed; exit 7", check=False)
    assert failed.returncode == 7
    assert (tmp_path / "failed").read_text().split() == ["try"] * 3
    server.cli(*words, f"echo try >> {tmp_path}/mended; test $(wc -l < {tmp_path}/mended) = 2")
    assert (tmp_path / "mended").read_text().split() == ["try"] * 2


def test_without_retries_a_failed_job_is_not_started_again(server: ServerProcess, tmp_path: Path) -> None:
    for number, words in enumerate([(), ("--retries", "0")]):
        line = f"echo try >> {tmp_path}/{number}; exit 7"
        assert server.cli("job", "run", "--quiet", "--no-code", *words, line, check=False).returncode == 7
        assert (tmp_path / str(number)).read_text() == "try\n"


def test_a_timeout_stops_the_command(server: ServerProcess) -> None:
    for command in (("sleep", "600"), ("sleep 600; echo late",)):
        done = server.cli("job", "run", "--quiet", "--no-code", "--timeout", "0.2s", "--", *command, check=False)
        assert (done.returncode, done.stdout) == (124, "")
    assert server.cli("job", "list", "-s", "running,pending", "-o", "name").stdout == ""


def test_each_try_has_the_whole_timeout(server: ServerProcess, tmp_path: Path) -> None:
    line = f"echo try >> {tmp_path}/tries; sleep 600"
    done = server.cli("job", "run", "--quiet", "--no-code", "--timeout", "0.2s", "--retries", "1", line, check=False)
    assert done.returncode == 124
    assert (tmp_path / "tries").read_text().split() == ["try"] * 2


def test_after_waits_in_the_client_until_the_other_job_has_succeeded(server: ServerProcess, tmp_path: Path) -> None:
    first = server.cli("job", "run", "-d", "--no-code", f"sleep 1; echo first > {tmp_path}/order").stdout.strip()
    server.cli("job", "run", "--quiet", "--no-code", "--after", first, f"echo second >> {tmp_path}/order")
    assert (tmp_path / "order").read_text().split() == ["first", "second"]


def test_after_a_job_that_failed_nothing_is_submitted(server: ServerProcess) -> None:
    first = server.cli("job", "run", "-d", "--no-code", "exit 3").stdout.strip()
    refused = server.cli("job", "run", "--no-code", "--after", first, "true", check=False)
    assert refused.returncode == 1
    assert f"job[{first}] is failed: nothing was submitted" in refused.stderr
    assert server.cli("job", "list", "-o", "name").stdout.split() == [first]
