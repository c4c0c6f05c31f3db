"""What the keeper does for containers: read why one ended, and remove it before the end is reported.

A killed process is gone; a container whose client was killed keeps running. So an attempt with a container has in its plan the command
that removes it, and its end is reported when that command has succeeded: nothing of the attempt runs any more, however it ended.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH106, PTH108, PTH208

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from paddleflow.runtimes.local import process, procfs
from paddleflow.runtimes.local.process import Refused

TRIES = 5  #: of a removal that fails
TRY_EVERY = 1.0  #: seconds
FILES = ("pid", "verdict", "verdict.new")
MOUNTS = "mounts"  #: folder in which storages are shown to the container


class Verdict(NamedTuple):
    """What the main process of a container left when it ended by itself."""

    message: str = ""
    cpu_seconds: float | None = None
    peak_memory: int | None = None


def read(plan: dict[str, Any]) -> Verdict:
    text = procfs.read(f"{plan['container']['folder']}/verdict")
    try:
        return Verdict(*json.loads(text)) if text else Verdict()
    except (ValueError, TypeError):
        return Verdict()


def remove(plan: dict[str, Any], null: int) -> int:
    """The pid of the engine's command that does it; 0 when it cannot even be started."""
    wanted = plan["container"]
    streams: process.Actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    try:
        file = process.find(wanted["remove"][0], wanted["env"].get("PATH", process.DEFAULT_PATH))
        return process.spawn(file, wanted["remove"], wanted["env"], streams)
    except (Refused, OSError):
        return 0


def clear(plan: dict[str, Any]) -> None:
    folder = plan["container"]["folder"]
    for name in FILES:
        try:
            os.unlink(f"{folder}/{name}")
        except OSError:
            continue
    # Folders that something was mounted on, elsewhere: what `rmdir` cannot remove is not empty, and stays.
    for place in (*_inside(f"{folder}/{MOUNTS}"), f"{folder}/{MOUNTS}", folder):
        try:
            os.rmdir(place)
        except OSError:
            continue


def _inside(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []
