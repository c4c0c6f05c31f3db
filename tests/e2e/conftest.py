"""A real server in its own process, and the clients that people use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import paddleflow
from paddleflow.errors import Conflict
from paddleflow.sdk.client import PaddleFlow
from tests.patience import PATIENCE, eventually

PADDLEFLOW = str(Path(sys.executable).parent / "paddleflow")


class ServerProcess:
    """``paddleflow server`` on a data folder; may be killed and started again."""

    def __init__(self, data: Path, environment: dict[str, str] | None = None, account: Sequence[str] = ()) -> None:
        self.data = data
        self.account = account  #: command by which it becomes another account
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PADDLEFLOW_")},
            "PADDLEFLOW_HOME": str(data / "home"),
            "PADDLEFLOW_LOCAL_GRACE": "1",
            **(environment or {}),
        }
        self.log = data.parent / f"{data.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> ServerProcess:
        (self.data / "server.json").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.account, PADDLEFLOW, "server", "--port", "0", "--data", str(self.data)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._ready, "the server is up")
        except pytest.fail.Exception as error:
            self.kill()
            pytest.fail(f"{error}; its log: {self.log.read_text()}")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the server ended with {self.process.returncode}")
        return (self.data / "server.json").exists()

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.data / "client-token").read_text().strip()

    def connect(self) -> PaddleFlow:
        return paddleflow.connect(self.url, token=self.token)

    def kill(self) -> None:
        """``kill -9``: nothing is said, nothing is written."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def cli(
        self,
        *words: str,
        check: bool = True,
        stdin: str = "",
        patience: float = PATIENCE,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command as a person types it; the context that the server left makes it work."""
        done = subprocess.run(
            [PADDLEFLOW, *words],
            env={**self.environment, **(environment or {})},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
        if check and done.returncode:
            pytest.fail(f"paddleflow {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def end(self) -> None:
        """Stop every job and the server; nothing stays behind."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.start()
        client = self.connect()
        for run in client.runs.list(status="initiating,pending,running,terminating"):
            with suppress(Conflict):  # it ended meanwhile
                run.stop(force=True)
        for job in client.jobs.list(status="init,pending,running"):
            with suppress(Conflict):
                job.stop()
        eventually(lambda: not list(client.jobs.list(status="init,pending,running,terminating")), "all jobs have ended")
        self.stop()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Makes servers, and ends them with their jobs."""
    made: list[ServerProcess] = []

    def make(**environment: str) -> ServerProcess:
        made.append(ServerProcess(tmp_path / f"data-{len(made)}", environment).start())
        return made[-1]

    yield make
    for server in made:
        server.end()


@pytest.fixture
def server(new_server: Callable[..., ServerProcess]) -> ServerProcess:
    return new_server()
