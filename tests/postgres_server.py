"""A real PostgreSQL for the tests: one server per test process, one empty schema per use.

Loaded as a plugin by ``tests/conftest.py``; suites ask for `postgres_url_factory`. The server's files are in a temporary
folder, it listens on loopback and a socket of its own, and it dies with the process that started it. A schema of its own
is for our code as good as a database of its own, and made in a hundredth of the time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports

_USER = "paddleflow"
_START_SECONDS = 60.0
_PDEATHSIG = 1

#: Gives the url of a new, empty place for tables each time it is called.
UrlFactory = Callable[[], str]


class PostgresServer:
    """A server that belongs to the tests; can be killed and started again, as fault tests do."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="paddleflow-pg-"))
        self._data = self.folder / "data"
        self._owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self._owner is not None:  # PostgreSQL refuses to run as root
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        (self.port,) = free_ports(1)
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._popen(
            "initdb", "-D", str(self._data), "-A", "trust", "-U", _USER, "-E", "UTF8", "--locale=C", "--no-sync"
        ).wait(_START_SECONDS)

    def url(self, database: str) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._process = self._popen(
            *("postgres", "-D", str(self._data), "-p", str(self.port), "-k", str(self.folder)),
            *("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=32MB"),
            *("-c", "max_connections=60", "-c", "autovacuum=off"),
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.02)

    def answers(self) -> bool:
        command = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends the server in order, SIGQUIT at once, without a word to its clients."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_START_SECONDS)

    def create(self) -> str:
        """A new database; its url."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"create database {name} template template0")
        return self.url(name)

    def create_schema(self) -> str:
        """A new schema; the url whose connections see nothing else."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"create schema {name}")
        return self.url("postgres") + f"?options=-c%20search_path%3D{name}"

    def execute(self, sql: str) -> None:
        command = [str(self._binaries / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url("postgres")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def _popen(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        libc = ctypes.CDLL(None)
        owner = self._owner
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / program, *args],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
                preexec_fn=lambda: libc.prctl(_PDEATHSIG, signal.SIGQUIT),
            )


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The running server; skips when PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_url_factory(postgres_server: PostgresServer) -> UrlFactory:
    """Call it for the url of a new, empty place for tables."""
    return postgres_server.create_schema
