"""Our server as a benchmark sees it: started as people start it, on a folder of its own, ended by its process id."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchmarks.harness import wait_for

PASSWORD = "bench-password-1"
COMMAND = Path(sys.executable).with_name("paddleflow")
#: What a job of a benchmark asks for; small enough that only the number of slots counts.
FLAVOUR = {"cpu": "1", "mem": "64Mi"}
KEEPER = "pf-keeper"  #: what the keeper calls itself
ACTIVE = ("init", "pending", "running", "terminating")


def single(command: str, **more: object) -> dict[str, object]:
    """The document of a single job. It names no image: of one that is ignored the log of each job would say so."""
    return {"command": command, "flavour": FLAVOUR, **more}


def command_of(pid: int) -> str:
    """What a process calls itself; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Server:
    """A server on a temporary data folder, for the length of a ``with``; may be killed and started again within."""

    def __init__(self, slots: int, **variables: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="paddleflow-bench-"))
        self.data = self.folder / "data"
        self._env = {
            # Compiled modules are kept, as where a package is installed; some shells forbid that.
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith("PADDLEFLOW_") and k != "PYTHONDONTWRITEBYTECODE"
            },
            "PADDLEFLOW_HOME": str(self.folder / "home"),
            "PADDLEFLOW_ACCESS_ROOT_PASSWORD": PASSWORD,
            "PADDLEFLOW_LOCAL_CPUS": str(slots),
            "PADDLEFLOW_LOCAL_MEMORY": f"{slots}Gi",
            "PADDLEFLOW_SERVER_LOG_LEVEL": "warning",
            **variables,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.token = ""

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:  # jobs outlive their server, by design
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        # At the very end: ext4 without a journal makes folders slowly for minutes after many were removed.
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    # ---- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> float:
        """Start it; the seconds until it was ready."""
        began = time.perf_counter()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [COMMAND, "server", "--port", "0", "--data", str(self.data)],
                env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        wait_for(self._is_ready, "a ready server", within=120, every=0.002)
        seconds = time.perf_counter() - began
        self.token = self.call("POST", "/login", {"username": "root", "password": PASSWORD})["authorization"]
        return seconds

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended with {self._process.returncode}:\n{self.log()}")
        try:
            told = json.loads((self.data / "server.json").read_text())
            if told["pid"] != self._process.pid:
                return False
            self.url = told["url"]
            with contextlib.closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=10)) as connection:
                connection.request("GET", "/readyz")
                with connection.getresponse() as answer:
                    return answer.status == 200
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return False

    def stop(self) -> None:
        """As Ctrl-C does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """As nobody should."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-3000:]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def processes(self) -> list[int]:
        """The server and what it started: processes that name our folder in command, environment or working folder."""
        needle = str(self.folder).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    named = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if needle in named or needle in bytes((entry / "cwd").readlink()):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    # ---- calls ------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """One request; the decoded answer, or RuntimeError with what the server said."""
        text = self._ask(method, path, body, query, 120)
        return json.loads(text) if text else None

    def stream(self, path: str, **query: object) -> bytes:
        """All that a stream of events tells, until the server ends it."""
        return self._ask("GET", path, None, query, 900)

    def _ask(self, method: str, path: str, body: object, query: Mapping[str, object], within: float) -> bytes:
        target = f"/api/paddleflow/v1{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"content-type": "application/json", "x-pf-authorization": self.token}
        with contextlib.closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=within)) as connection:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as answer:
                text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return text

    def make_queue(self, name: str, slots: int) -> None:
        amount = {"cpu": str(slots), "mem": f"{slots}Gi"}
        self.call(
            "POST", "/queue",
            {"name": name, "namespace": "default", "clusterName": "default-cluster", "maxResources": amount},
        )  # fmt: skip

    def block(self, queue: str) -> None:
        """A queue of one slot, taken by a job that sleeps: whatever else is put into it waits."""
        self.make_queue(queue, 1)
        job = self.call("POST", "/job/single", single("sleep 100000", schedulingPolicy={"queue": queue}))["id"]
        wait_for(lambda: self.call("GET", f"/job/{job}")["status"] == "running", "the blocker", within=30)

    def submit_many(self, jobs: Sequence[Mapping[str, object]], each: int = 1000) -> list[str]:
        """Many jobs at once; their ids."""
        ids: list[str] = []
        for begin in range(0, len(jobs), each):
            ids.extend(self.call("POST", "/job/batch", {"jobs": list(jobs[begin : begin + each])})["ids"])
        return ids

    def jobs(self, **query: object) -> Iterator[dict[str, Any]]:
        """All jobs that match, page by page."""
        marker: dict[str, object] = {}
        while True:
            page = self.call("GET", "/job", maxKeys=1000, **query, **marker)
            yield from page["jobList"]
            if not page.get("nextMarker"):
                return
            marker = {"marker": page["nextMarker"]}

    def settle(self, within: float = 600.0) -> None:
        """Until no job is active."""
        wait_for(
            lambda: not any(self.call("GET", "/job", status=status, maxKeys=1)["jobList"] for status in ACTIVE),
            "the end of all jobs", within=within, every=0.02,
        )  # fmt: skip

    def memory(self, pid: int) -> float:
        """MiB of a process that are its own share (PSS)."""
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    def cpu_seconds(self, pid: int) -> float:
        """Seconds of processor time that a process has used."""
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")  # nanoseconds, where stat counts in hundredths
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
