"""The real entry point as a process: exit codes, stdout and stderr apart, quiet ends, late imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.client_stub import Answer, Stub

ENTRY = [sys.executable, "-c", "from paddleflow.cli.main import main; main()"]
MODULES = "import sys, atexit; atexit.register(lambda: sys.stderr.write('\\n' + ' '.join(sys.modules)))\n"


def start(stub: Stub, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*ENTRY, "--server", stub.url, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_interrupts,
    )


def _take_interrupts() -> None:
    """As from a terminal, also where the tests run behind a shell's `&`, which makes its children ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(stub: Stub, *words: str) -> tuple[int, str, str]:
    process = start(stub, *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_data_and_words_go_apart(stub: Stub) -> None:
    stub.on("GET /queue", {"queueList": [{"name": "q"}]})
    code, out, err = run(stub, "--output", "json", "queue", "list")
    assert (code, json.loads(out)[0]["name"], err) == (0, "q", "")
    stub.refuse("GET /job/j", 404, "JobNotFound", "job[j] is not there", hint="look")
    assert run(stub, "job", "show", "j") == (1, "", "error: job[j] is not there\nhint: look\n")
    code, out, err = run(stub, "queue", "lisst")
    assert (code, out) == (2, "")
    assert "error: No such command 'lisst'" in err


def test_run_ends_with_the_code_of_the_job(stub: Stub) -> None:
    stub.on("POST /job/single", {})
    stub.on("GET /job/*/log", Answer(b"out\n"))
    stub.on("GET /job/*/events", Answer(chunks=[b'id: 1\nevent: status\ndata: {"status": "failed"}\n\n']))
    stub.on("GET /job/*", {"status": "failed", "runtime": {"exitCode": 42}})
    assert run(stub, "job", "run", "--no-code", "--quiet", "--", "false") == (42, "out\n", "")


def test_a_reader_that_went_away_is_no_error(stub: Stub) -> None:
    stub.on("GET /job/j/log", Answer(chunks=[b"line\n" * 1000] * 200))
    process = start(stub, "job", "logs", "j")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "line\n"
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 1
    assert err == ""


@pytest.mark.parametrize("words", [["queue", "list"], ["queue", "list", "--json"], ["--help"]])
def test_output_that_cannot_be_written_is_said(stub: Stub, words: list[str]) -> None:
    stub.on("GET /queue", {"queueList": [{"name": "q"}]})
    with open("/dev/full", "w") as full:
        done = subprocess.run([*ENTRY, "--server", stub.url, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: the output could not be written: No space left on device\n")


def test_closed_streams_do_not_matter(stub: Stub) -> None:
    stub.on("GET /queue", {"queueList": [{"name": "q"}]})
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *ENTRY, "--server", stub.url, "queue", "list"]
    assert subprocess.run(command).returncode == 0


def test_characters_that_the_encoding_lacks_are_escaped(stub: Stub) -> None:
    stub.on("GET /queue", {"queueList": [{"name": "q✓"}]})
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [*ENTRY, "--server", stub.url, "queue", "list", "--json"]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)[0]["name"] == "q✓"


def test_a_password_is_read_from_a_pipe_without_a_warning(stub: Stub) -> None:
    stub.on("POST /login", {"authorization": "tok"})
    done = subprocess.run(
        [*ENTRY, "login", stub.url, "-u", "alice"],
        input="secret1\n",
        capture_output=True,
        text=True,
        start_new_session=True,  # no terminal to read it from instead
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert stub.requests[-1].body["password"] == "secret1"


def test_an_interrupt_is_quiet(stub: Stub) -> None:
    never = threading.Event()
    stub.on("GET /job/j/log", Answer(chunks=[b"line\n", never]))
    process = start(stub, "job", "logs", "j", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "line\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    never.set()
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_an_interrupted_run_stops_its_job(stub: Stub) -> None:
    never = threading.Event()
    stub.on("POST /job/single", {})
    stub.on("GET /job/*/log", Answer(chunks=[b"line\n", never]))
    stub.on("GET /job/*/events", Answer(chunks=[never]))
    stub.on("PUT /job/*", None)
    process = start(stub, "job", "run", "--no-code", "--", "sleep", "100")
    assert process.stdout is not None
    assert process.stdout.readline() == "line\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    never.set()
    assert process.returncode == 130
    assert "stopping" in err
    assert {"action": "stop"} in [request.query for request in stub.requests]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (
            "--help",
            "http.client rich json pathlib dataclasses paddleflow.errors paddleflow.sdk paddleflow.environment paddleflow.cli.job",
        ),
        ("version --client", "http.client rich paddleflow.sdk paddleflow.settings"),
        (
            "queue list",
            "rich pydantic asyncio http.client ssl paddleflow.settings paddleflow.sdk.jobs paddleflow.sdk.clusters secrets",
        ),
        ("job list", "rich yaml http.client ssl email tomllib configparser paddleflow.settings paddleflow.sdk.code"),
    ],
)
def test_what_is_not_needed_is_not_imported(stub: Stub, words: str, absent: str) -> None:
    stub.on("GET /queue", {"queueList": []})
    stub.on("GET /job", {"jobList": []})
    code = MODULES + ENTRY[2]
    command = [sys.executable, "-c", code, "--server", stub.url, *words.split()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # imports much
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    imported = done.stderr.rpartition("\n")[2].split()
    assert set(absent.split()) & set(imported) == set()
    assert "click" in imported


def test_the_environment_names_server_token_and_output(stub: Stub, home: Path) -> None:
    stub.on("GET /queue", {"queueList": [{"name": "q"}]})
    environment = {**os.environ, "PADDLEFLOW_SERVER": stub.url, "PADDLEFLOW_TOKEN": "tok", "PADDLEFLOW_OUTPUT": "json"}
    done = subprocess.run([*ENTRY, "queue", "list"], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout)[0]["name"] == "q"
    assert stub.requests[0].headers["x-pf-authorization"] == "tok"
