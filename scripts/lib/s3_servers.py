"""Real S3 servers on this machine, from `scripts/stores`, for tests and benchmarks: versitygw, which starts at once, and SeaweedFS.

Where one is absent, `NotInstalled` says in one line how to install it.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from paddleflow.errors import PaddleFlowError
from paddleflow.objects.s3 import Bucket, S3Store
from paddleflow.objects.signature import Credentials
from scripts.lib.ports import free_ports

START_SECONDS = 90.0  #: that a server may take until it answers
KEYS = Credentials("test-access", "test-secret")
_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_numbers = count(1)


class NotInstalled(Exception):
    """A server is not on this machine."""


def program(name: str) -> Path:
    found = _cache / "paddleflow" / "stores" / "bin" / name
    if not found.exists():
        raise NotInstalled(f"{name} is not installed: scripts/stores installs it")
    return found


@dataclass
class S3Server:
    """A server that answers."""

    endpoint: str
    process: subprocess.Popen[bytes]
    folder: Path  #: of the server; its buckets are below `data`

    def bucket(self) -> Bucket:
        """A prefix of the caller's own. One bucket for all: SeaweedFS gives each bucket volumes, and runs out of them."""
        made = Bucket(self.endpoint, "tests", f"some/prefix-{next(_numbers)}", credentials=KEYS)
        store = S3Store(made)
        answer = store._ask("PUT", "")
        store.close()
        assert answer.status in (200, 409), answer
        return made


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {START_SECONDS:g} s: {what}")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status in (200, 403)
        finally:
            connection.close()
    except OSError:
        return False


@contextmanager
def _running(command: list[str], port: int, environment: dict[str, str], folder: Path) -> Iterator[S3Server]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log, cwd=folder)
    try:
        _wait_for(lambda: process.poll() is not None or _answers(port), f"{command[0]} answers")
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield S3Server(f"http://127.0.0.1:{port}", process, folder)
    finally:
        process.kill()
        process.wait()


@contextmanager
def versitygw() -> Iterator[S3Server]:
    command, port = program("versitygw"), free_ports(1)[0]
    with tempfile.TemporaryDirectory(prefix="pf-versity-") as place:
        folder = Path(place)
        (folder / "data").mkdir()
        keys = {"ROOT_ACCESS_KEY": KEYS.access_key, "ROOT_SECRET_KEY": KEYS.secret_key}
        with _running(
            [str(command), "--port", f"127.0.0.1:{port}", "posix", str(folder / "data")], port, keys, folder
        ) as made:
            yield made


@contextmanager
def seaweedfs() -> Iterator[S3Server]:
    command = program("weed")
    ports = free_ports(8)
    with tempfile.TemporaryDirectory(prefix="pf-weed-") as place:
        folder = Path(place)
        (folder / "data").mkdir()
        identity = {
            "name": "root",
            "credentials": [{"accessKey": KEYS.access_key, "secretKey": KEYS.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "keys.json").write_text(json.dumps({"identities": [identity]}))
        words = [str(command), "server", "-dir", str(folder / "data"), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"]
        for number, part in enumerate(("master", "volume", "filer")):
            words += [f"-{part}.port", str(ports[number]), f"-{part}.port.grpc", str(ports[3 + number])]
        words += [
            "-s3",
            "-s3.port",
            str(ports[6]),
            "-s3.port.grpc",
            str(ports[7]),
            "-s3.config",
            str(folder / "keys.json"),
        ]
        words += ["-s3.port.iceberg", "0", "-s3.port.lance", "0", "-s3.autoCreateBucket=false"]
        words += ["-master.volumeSizeLimitMB", "64", "-volume.max", "100", "-master.telemetry=false"]
        with _running(words, ports[6], {}, folder) as made:
            _wait_for(lambda: _usable(made), "SeaweedFS takes a bucket")
            yield made


def _usable(server: S3Server) -> bool:
    try:
        store = S3Store(server.bucket())
    except AssertionError:
        return False
    try:
        store.write("probe", b"x")
    except PaddleFlowError:
        return False
    finally:
        store.close()
    return True
