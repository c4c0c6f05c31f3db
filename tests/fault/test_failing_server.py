"""A server whose inside raises ends or goes on, whatever clients and threads are doing at that moment; it never stands still."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.e2e.conftest import ServerProcess
from tests.lying_server import HEAD, lying
from tests.patience import PATIENCE, eventually

API = "/api/paddleflow/v1"
ENGINE = "paddleflow.engine.cluster_engine:ClusterEngine"
#: Each runs as long as the server does, and may fail at any moment.
TASKS = (
    "paddleflow.api.memory:trim_for_ever",
    "paddleflow.access.audit:AuditLog.run",
    "paddleflow.engine.schedule_engine:ScheduleEngine.run",
    "paddleflow.engine.clusters:ClusterEngines.run",
    "paddleflow.engine.clusters:sample_for_ever",
    "paddleflow.engine.shared_mounts:SharedMounts.run",
)


class Silence:
    """A store that answers like one until it is told to fall silent: then a thread of the server waits for it."""

    def __init__(self) -> None:
        self.silent = threading.Event()
        self.asked = threading.Event()
        self.over = threading.Event()

    def __call__(self, _: str) -> Iterable[bytes]:
        if self.silent.is_set():
            self.asked.set()
            self.over.wait()
        body = b"<ListBucketResult></ListBucketResult>"
        return [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body]


@pytest.fixture
def failing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server that serves a stream and waits for a store when `request.param` begins to fail, and the file that makes it fail."""
    sign = tmp_path / "sign"
    wrapper = [sys.executable, "-m", "tests.fault.failing_server", request.param, str(sign)]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    server = ServerProcess(tmp_path / "data", path, wrapper).start()
    with ExitStack() as stack:
        store = Silence()
        stack.callback(store.over.set)
        port = stack.enter_context(lying(store))
        client = server.connect()
        client.storages.create("silent", "s3://bucket", properties={"endpoint": f"http://127.0.0.1:{port}"})
        stream = stack.enter_context(begun(server, f"{API}/events"))
        assert stream.recv(12) == b"HTTP/1.1 200"
        store.silent.set()
        stack.enter_context(begun(server, f"{API}/fs/silent/files"))
        assert store.asked.wait(PATIENCE), "a thread of the server waits for the store"
        yield server, sign
    assert server.process is not None
    if server.process.poll() is None:
        server.kill()


def begun(server: ServerProcess, path: str) -> socket.socket:
    """A request whose answer nobody waits for."""
    url = urlsplit(server.url)
    line = socket.create_connection((url.hostname, url.port))
    line.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nx-pf-authorization: {server.token}\r\n\r\n".encode())
    return line


@pytest.mark.parametrize("failing", TASKS, indirect=True)
def test_a_task_that_fails_ends_the_server(failing: tuple[ServerProcess, Path]) -> None:
    server, sign = failing
    sign.touch()
    assert server.process is not None
    assert server.process.wait(PATIENCE) == 1
    assert "made to fail" in server.log.read_text()


@pytest.mark.parametrize("failing", ["paddleflow.server.main:announce"], indirect=True)
def test_a_server_that_is_told_to_end_waits_for_no_store(failing: tuple[ServerProcess, Path]) -> None:
    server, _ = failing
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("failing", [f"{ENGINE}._observe", f"{ENGINE}._renew"], indirect=True)
def test_an_engine_that_fails_says_so_and_begins_anew(failing: tuple[ServerProcess, Path]) -> None:
    server, sign = failing
    client = server.connect()
    sign.touch()
    eventually(lambda: "made to fail" in _readiness(server), "it is said at /readyz")
    sign.unlink()
    job = client.jobs.submit({"command": "true", "flavour": {"cpu": "100m", "mem": "64Mi"}})
    job.wait(PATIENCE)
    assert job.status == "succeeded"


def _readiness(server: ServerProcess) -> str:
    try:
        with urlopen(f"{server.url}/readyz", timeout=PATIENCE):
            return ""
    except HTTPError as error:
        return error.read().decode()
