"""What the contract suites of runtimes need of an implementation: launches that succeed, fail, or run until they are told.

A suite that uses a `RuntimeDriver` needs no shell and no /proc; a driver may, if its runtime runs processes. An implementation
joins by adding its driver to `DRIVERS`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.runtimes import memory
from paddleflow.runtimes.memory import MemoryCluster, MemoryRuntime
from paddleflow.runtimes.runtime import Launch, Runtime
from tests.runtime_scene import PATH, Scene, open_local


class RuntimeDriver(Protocol):
    """Makes launches for one runtime over one folder, and ends them."""

    tells_signals: bool  #: an exit with 137 is not taken for an end by SIGKILL; of a container nothing else is known

    async def open(self) -> Runtime:
        """An opened runtime; a second one reaches what the first one started."""
        ...

    def launch(self, name: str, *, exit_code: int | None = None, says: str = "", node: str = "") -> Launch:
        """One that writes `says` to its log and ends with this code at once; None: it runs until `finish` or a stop."""
        ...

    def finish(self, launch: Launch, exit_code: int = 0) -> None:
        """Let one that runs end with this code, now or as soon as it starts."""
        ...

    def times_started(self, launch: Launch) -> int: ...


class LocalDriver:
    """Processes of this machine."""

    tells_signals = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> Runtime:
        return await open_local(self._folder / "data")

    def launch(self, name: str, *, exit_code: int | None = None, says: str = "", node: str = "") -> Launch:
        attempt = AttemptId(f"job-{name}.worker-0.1")
        ran, gate = self._folder / f"{name}.ran", self._folder / f"{name}.gate"
        end = f"exit {exit_code}" if exit_code is not None else f"until [ -e {gate} ]; do sleep 0.01; done; . {gate}"
        script = f"echo x >> {ran}; printf %s {shlex.quote(says)}; {end}"
        return Launch(attempt, ("sh", "-c", script), {"PATH": PATH}, node=node)

    def finish(self, launch: Launch, exit_code: int = 0) -> None:
        name = launch.attempt.removeprefix("job-").removesuffix(".worker-0.1")
        fresh = self._folder / f"{name}.gate.new"
        fresh.write_text(f"exit {exit_code}\n")
        fresh.rename(self._folder / f"{name}.gate")

    def times_started(self, launch: Launch) -> int:
        name = launch.attempt.removeprefix("job-").removesuffix(".worker-0.1")
        file = self._folder / f"{name}.ran"
        return len(file.read_text().split()) if file.exists() else 0


class MemoryDriver:
    """No processes at all."""

    tells_signals = True

    def __init__(self, folder: Path) -> None:
        self._cluster = MemoryCluster()
        self._runtime: MemoryRuntime

    async def open(self) -> Runtime:
        self._runtime = MemoryRuntime(SystemClock(), cluster=self._cluster)
        return self._runtime

    def launch(self, name: str, *, exit_code: int | None = None, says: str = "", node: str = "") -> Launch:
        env = {memory.LOG: says} if says else {}
        if exit_code is not None:
            env[memory.EXIT] = str(exit_code)
        return Launch(AttemptId(f"job-{name}.worker-0.1"), ("run",), env, node=node)

    def finish(self, launch: Launch, exit_code: int = 0) -> None:
        if launch.attempt in self._cluster.known:
            self._runtime.finish(launch.attempt, exit_code)
        else:
            self._cluster.planned_ends[launch.attempt] = exit_code

    def times_started(self, launch: Launch) -> int:
        return [each.attempt for each in self._cluster.launched].count(launch.attempt)


DRIVERS: dict[str, Callable[[Path], RuntimeDriver]] = {"local": LocalDriver, "memory": MemoryDriver}


class DrivenScene(Scene):
    """A runtime, its driver, and what was observed."""

    def __init__(self, driver: RuntimeDriver, folder: Path) -> None:
        super().__init__(lambda _: driver.open(), folder)
        self.driver = driver

    def make(self, name: str, *, exit_code: int | None = None, says: str = "", node: str = "") -> Launch:
        launch = self.driver.launch(name, exit_code=exit_code, says=says, node=node)
        self.started.append(launch.attempt)
        return launch
