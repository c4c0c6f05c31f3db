"""What the keeper knows of its children without asking much."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from paddleflow.runtimes.local import procfs
from paddleflow.runtimes.local.launcher import Launcher, SpawnSpec


def sleeper() -> int:
    return os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})


def bury(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def test_children_are_all_told_however_many() -> None:
    """The kernel gives no more than a page at a time."""
    children = procfs.Children()
    before = set(children())
    pids = [sleeper() for _ in range(900)]
    try:
        assert set(children()) - before == set(pids)
    finally:
        bury(pids)
    assert not set(children()) & set(pids)


def spawned(launcher: Launcher, folder: Path, name: str) -> int:
    plan: dict[str, Any] = {"word": "/bin/sleep", "fresh": True}
    argv = ["/bin/sleep", "1000"]
    return launcher.spawn(SpawnSpec(name, argv, {}, str(folder), "", str(folder / name), "", plan, [], entered=False))


@pytest.mark.parametrize("ahead", [0, 7])
def test_the_start_of_a_child_is_as_proc_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    """Also where the clock is not the one by which the kernel counts."""
    clock, stat = procfs.clock_ticks, procfs.stat
    asked: list[int] = []

    def noted(pid: int) -> procfs.Stat | None:
        asked.append(pid)
        return stat(pid)

    monkeypatch.setattr(procfs, "clock_ticks", lambda: clock() + ahead)
    monkeypatch.setattr(procfs, "stat", noted)
    launcher = Launcher(str(tmp_path / "marker"), "keeper")
    pids: list[int] = []
    try:
        for i in range(300):
            pids.append(spawned(launcher, tmp_path, str(i)))
            told, seen = launcher.ticks_of(pids[-1]), stat(pids[-1])
            assert seen is not None
            assert told == seen.ticks
    finally:
        bury(pids)
    assert len(asked) == 300 if ahead else len(asked) < 300
