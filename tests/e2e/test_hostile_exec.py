"""Sessions of `job exec` by hostile clients: many of them, silent ones, input that nobody reads, output that nobody reads."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import paddleflow
from paddleflow.sdk.websocket import BINARY, CLOSE, TEXT, frame, upgrade_headers
from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

EACH = 16  #: sessions of one user
MASK = b"\0\0\0\0"
EXTENDED = 126  #: from this length on, a frame has two or eight bytes of length more
TINY = {"cpu": "0.1", "mem": "64Mi"}


@pytest.fixture
def server(new_server: Callable[..., ServerProcess]) -> ServerProcess:
    return new_server(PADDLEFLOW_SERVER_WRITE_TIMEOUT="1")


@pytest.fixture
def mallory(server: ServerProcess) -> str:
    """The token of a plain user."""
    server.cli("user", "add", "mallory", "secret12")
    return server.connect().login("mallory", "secret12")


@pytest.fixture
def job(server: ServerProcess, mallory: str) -> Iterator[str]:
    """A job of that user, which runs as long as the test."""
    client = paddleflow.connect(server.url, token=mallory)
    made = client.jobs.submit(command="sleep 3600", flavour=TINY)
    eventually(lambda: client.jobs.get(made.id).status == "running", "the job runs")
    yield made.id
    made.stop()


def upgraded(server: ServerProcess, token: str, job: str) -> socket.socket:
    """The connection of a websocket that was let in and has said nothing yet."""
    url = urlsplit(server.url)
    line = socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=PATIENCE)
    headers = {**upgrade_headers(), "host": url.netloc, "x-pf-authorization": token}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    line.sendall(f"GET /api/paddleflow/v1/job/{job}/exec HTTP/1.1\r\n{head}\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = line.recv(1)
        assert byte, answer
        answer += byte
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return line


def run(line: socket.socket, *command: str) -> None:
    line.sendall(frame(TEXT, json.dumps({"command": command}).encode(), MASK))


def said(line: socket.socket) -> bytes:
    """All that the server sends until it closes the websocket; it then waits for us a while."""
    found, at = b"", 0
    with suppress(ConnectionResetError):
        while data := line.recv(65536):
            found += data
            while len(found) >= at + 10 or (len(found) >= at + 2 and found[at + 1] < EXTENDED):
                if found[at] & 0x0F == CLOSE:
                    return found
                kind = found[at + 1]
                wide = {EXTENDED: 2, EXTENDED + 1: 8}.get(kind, 0)
                length = int.from_bytes(found[at + 2 : at + 2 + wide], "big") if wide else kind
                at += 2 + wide + length
    return found


def test_one_user_takes_neither_the_places_nor_the_threads_of_others(
    server: ServerProcess, mallory: str, job: str
) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(upgraded(server, mallory, job))) for _ in range(EACH)]
        for line in lines[EACH // 2 :]:  # the first half says nothing at all
            run(line, "sleep", "3600")
            line.settimeout(2)
            with suppress(TimeoutError):  # more than all buffers take, and nobody reads it
                for _ in range(64):
                    line.sendall(frame(BINARY, b"x" * 2**18, MASK))
        with closing(upgraded(server, mallory, job)) as line:
            assert b"16 sessions of job exec of user[mallory] are in work already" in said(line)
        assert server.connect().login("mallory", "secret12")
        other = server.connect().jobs.submit(command="sleep 3600", flavour=TINY)
        eventually(lambda: server.connect().jobs.get(other.id).status == "running", "another user's job runs")
        assert server.cli("job", "exec", other.id, "--", "echo", "hello").stdout == "hello\n"
    eventually(lambda: b"\x01done" in once(server, mallory, job, "printf", "done"), "the places are free again")


def once(server: ServerProcess, token: str, job: str, *command: str) -> bytes:
    with closing(upgraded(server, token, job)) as line:
        run(line, *command)
        return said(line)


def test_a_client_that_does_not_read_is_cut_off(server: ServerProcess, mallory: str, job: str) -> None:
    with closing(upgraded(server, mallory, job)) as line:
        run(line, "yes", f"unread-{job}")
        eventually(lambda: is_running(f"yes\0unread-{job}\0"), "it writes")
        eventually(lambda: not is_running(f"yes\0unread-{job}\0"), "it was ended")


def is_running(command: str) -> bool:
    """Whether a process of this machine has this command; an isolated job sees other folders and numbers than we do."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if (process / "cmdline").read_text() == command:
                return True
    return False


@pytest.mark.parametrize(
    ("kind", "message", "answer"),
    [
        (BINARY, b"{}", b"the first message is text"),
        (TEXT, b"", b"the first message is text"),
        (TEXT, b"[" * 100_000, b"400"),
        (TEXT, b"x" * 600_000, b"the first message is text"),
        (TEXT, b'{"command": ["a\\u0000b"]}', b"a NUL character"),
        (TEXT, b'{"command": ["\\ud800"]}', b"half a surrogate pair"),
        (TEXT, b'{"command": ["", "x"]}', b"the program, is empty"),
        (BINARY, b"x" * (2**20 + 1), b""),
    ],
)
def test_what_is_not_a_question_is_refused(
    server: ServerProcess, mallory: str, job: str, kind: int, message: bytes, answer: bytes
) -> None:
    with closing(upgraded(server, mallory, job)) as line:
        line.sendall(frame(kind, message, MASK))
        assert answer in said(line)
    assert "Traceback" not in server.log.read_text()
