"""`--retries`, `--timeout`, `--after` and `--array` of `job run` do what their help says, against a real server."""

from __future__ import annotations

import json
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


def test_after_is_kept_by_the_server(server: ServerProcess, tmp_path: Path) -> None:
    gate = f"while ! test -e {tmp_path}/gate; do sleep 0.05; done"
    first = server.cli("job", "run", "-d", "--no-code", f"{gate}; echo first > {tmp_path}/order").stdout.strip()
    words = ("job", "run", "-d", "--no-code", "--after", first, f"echo second >> {tmp_path}/order")
    second = server.cli(*words).stdout.strip()
    assert f"waits for {first} to succeed" in server.cli("job", "why", second).stdout
    server.kill()
    server.start()
    (tmp_path / "gate").touch()
    server.cli("job", "wait", second)
    assert (tmp_path / "order").read_text().split() == ["first", "second"]


def test_after_a_job_that_fails_the_other_one_is_cancelled(server: ServerProcess, tmp_path: Path) -> None:
    gate = f"while ! test -e {tmp_path}/gate; do sleep 0.05; done"
    first = server.cli("job", "run", "-d", "--no-code", f"{gate}; exit 3").stdout.strip()
    second = server.cli("job", "run", "-d", "--no-code", "--after", first, "true").stdout.strip()
    (tmp_path / "gate").touch()
    waited = server.cli("job", "wait", second, check=False)
    assert waited.returncode == 1
    assert "cancelled" in waited.stdout
    refused = server.cli("job", "run", "--no-code", "--after", first, "true", check=False)
    assert refused.returncode == 1
    assert f"job[{first}] has failed" in refused.stderr


def test_an_array_is_listed_stopped_and_waited_for_as_one(server: ServerProcess) -> None:
    ids = server.cli(
        "job", "run", "-d", "--no-code", "--array", "1-3", "--name", "sweep", "echo $PF_ARRAY_INDEX"
    ).stdout
    array = json.loads(server.cli("job", "show", ids.split()[0], "-o", "json").stdout)["array"]
    assert len(server.cli("job", "wait", array).stdout.splitlines()) == 4  # with the header
    assert server.cli("job", "run", "--quiet", "--no-code", "--after", array, "echo collected").stdout == "collected\n"
    lines = server.cli("job", "list").stdout.splitlines()
    [line] = [line.split() for line in lines if "sweep" in line]
    assert (line[:2], line[4:6]) == ([array, "sweep"], ["succeeded", "3/3"])
    assert len(server.cli("job", "list", "-A").stdout.splitlines()) == 5
    server.cli("job", "delete", array)
    assert server.cli("job", "list", "--array", array, "-o", "name").stdout == ""
