"""Which process is the keeper, and how often each attempt ran: for the tests that kill it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from paddleflow.runtimes.runtime import Ended, Launch, Ready, Started
from tests.runtime_scene import Scene


def keeper_of(folder: Path) -> int:
    """The pid of the keeper: the holder of the lock."""
    inode = (folder / "data" / "keeper.lock").stat().st_ino
    for row in Path("/proc/locks").read_text().splitlines():
        fields = row.split()
        if fields[1] == "FLOCK" and int(fields[5].rsplit(":", 1)[1]) == inode and fields[4] != "-1":
            return int(fields[4])
    raise LookupError("no keeper")


def kill_keeper(folder: Path) -> int:
    """How many were killed: none while one is being started."""
    try:
        os.kill(keeper_of(folder), signal.SIGKILL)
    except (LookupError, ProcessLookupError, FileNotFoundError):
        return 0
    return 1


def counted(scene: Scene, name: str, script: str) -> Launch:
    """Says that it ran, each time that it runs."""
    return scene.shell(name, f'echo x >> "$RAN"; {script}', RAN=str(scene.folder / f"{name}.ran"))


def times_run(scene: Scene, name: str) -> int:
    file = scene.folder / f"{name}.ran"
    return len(file.read_text().split()) if file.exists() else 0


def check_each_ended_once(scene: Scene, launches: Sequence[Launch]) -> None:
    for launch in launches:
        stages = [type(seen) for seen in scene.seen if seen.attempt == launch.attempt]
        assert stages[-1] is Ended, stages
        assert stages.count(Ended) == 1, stages
        assert stages.count(Started) <= 1, stages
        assert stages.count(Ready) <= 1, stages
