"""A runtime over a temporary folder, and what was observed of it: for the tests that run real processes."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.local.job_folders import log_file
from paddleflow.runtimes.local.keeper_connection import KEEPER_COMMAND
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.memory import task_of
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import (
    AttemptObservation,
    Ended,
    Launch,
    NodeChanged,
    NodeRemoved,
    Ready,
    Runtime,
    Started,
)
from paddleflow.settings import LocalSettings
from tests.patience import PATIENCE, soon

PATH = "/usr/local/bin:/usr/bin:/bin"

Opener = Callable[[Path], Awaitable[Runtime]]
T = TypeVar("T", Started, Ready, Ended, Returned)


async def open_local(
    data: Path,
    settings: LocalSettings | None = None,
    *,
    keeper: Sequence[str] = KEEPER_COMMAND,
    patience: float = PATIENCE,
) -> Runtime:
    runtime = LocalRuntime(settings or LocalSettings(), data, SystemClock(), keeper=keeper, patience=patience)
    await runtime.open()
    return runtime


class Scene:
    """A runtime, and what was observed of it."""

    def __init__(self, opener: Opener, folder: Path) -> None:
        self.folder = folder
        self.seen: list[AttemptObservation] = []
        self.started: list[AttemptId] = []
        self.runtime: Runtime
        self._opener = opener

    async def open(self) -> None:
        self.runtime = await self._opener(self.folder / "data")

    async def reopen(self) -> None:
        """As a server that ends and the next one."""
        await self.runtime.close()
        self.seen.clear()
        await self.open()

    def launch(self, name: str, *argv: str, port: int | None = None, **env: str) -> Launch:
        attempt = AttemptId(f"job-{name}.worker-0.1")
        self.started.append(attempt)
        cwd = self.folder / "work"
        cwd.mkdir(exist_ok=True)
        return Launch(attempt=attempt, command=argv, env={"PATH": PATH, **env}, working_dir=str(cwd), ready_port=port)

    def log_path(self, launch: Launch) -> Path:
        """Where the local runtime keeps its log; the folder is made by the launch."""
        return Path(log_file(self.folder / "data", task_of(launch.attempt)))

    def shell(self, name: str, script: str, *, port: int | None = None, **env: str) -> Launch:
        return self.launch(name, "sh", "-c", script, port=port, **env)

    def reported(self, kind: type[T], attempt: AttemptId | None = None) -> list[T]:
        return [seen for seen in self.seen if isinstance(seen, kind) and attempt in {None, seen.attempt}]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Observe until the condition holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                async for batch in self.runtime.observe():
                    self.seen += [seen for seen in batch if not isinstance(seen, NodeChanged | NodeRemoved)]
                    break

    async def end_of(self, launch: Launch) -> Ended:
        await self.until(lambda: bool(self.reported(Ended, launch.attempt)))
        return self.reported(Ended, launch.attempt)[0]

    async def run(self, launch: Launch) -> Ended:
        await self.runtime.start([launch])
        return await self.end_of(launch)

    async def end(self) -> None:
        """Leave nothing running behind."""
        await self.runtime.stop(self.started, 0.0)
        known = await self.runtime.adopt()
        running = {seen.attempt for seen in known} - {seen.attempt for seen in known if isinstance(seen, Ended)}
        await self.until(lambda: running <= {seen.attempt for seen in self.reported(Ended)})
        await self.runtime.forget(self.started)
        await self.runtime.close()
        await soon(lambda: is_free(self.folder / "data" / "keeper.lock"))

    async def log_of(self, launch: Launch) -> bytes:
        return (await self.runtime.logs.read(task_of(launch.attempt), 0, 1 << 20)).data


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@asynccontextmanager
async def opened(opener: Opener, folder: Path) -> AsyncIterator[Scene]:
    """A scene that leaves nothing running behind."""
    scene = Scene(opener, folder)
    await scene.open()
    try:
        yield scene
    finally:
        await scene.end()


def is_free(lock: Path) -> bool:
    """Whether the keeper of a data folder has left."""
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def gated(scene: Scene, name: str) -> Launch:
    """One that goes on until `open_gate`, and says when it began and ended."""
    gate, story = scene.folder / f"{name}.gate", scene.folder / "story"
    script = f"echo {name} begins >> {story}; until [ -e {gate} ]; do sleep 0.01; done; echo {name} ends >> {story}"
    return scene.shell(name, script)


def open_gate(scene: Scene, *names: str) -> None:
    for name in names:
        (scene.folder / f"{name}.gate").touch()


def story(scene: Scene) -> list[str]:
    path = scene.folder / "story"
    return path.read_text().splitlines() if path.exists() else []
