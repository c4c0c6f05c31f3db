"""Processes that left the group of an attempt that has ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.runtimes.local import procfs
from paddleflow.runtimes.local.journal import Journal
from paddleflow.runtimes.local.launcher import Launcher
from paddleflow.runtimes.local.supervisor import DRAIN_EVERY, ORPHAN_CHECKS, Supervisor
from paddleflow.runtimes.local.timers import Timers


class Scene:
    """A keeper's supervisor without its loop, and a child that belongs to an attempt that has ended."""

    def __init__(self, folder: Path, orphan: int) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        launcher, journal = Launcher(str(folder / "began"), "k"), Journal(str(folder / "journal"), "boot")
        self.supervisor = Supervisor(launcher, journal, self.timers, self.clock, "k")
        self.supervisor._children = lambda: [orphan]  # type: ignore[assignment]

    def later(self) -> None:
        self.clock.advance(DRAIN_EVERY)
        self.timers.run()


def test_one_that_is_about_to_become_another_program_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter([None, None, "job-1.worker-0.1"])
    monkeypatch.setattr(procfs, "attempt_of", lambda pid, keeper: next(names))
    monkeypatch.setattr(procfs, "is_changing", lambda pid: True)
    with subprocess.Popen(["sleep", "1000"]) as orphan:
        scene = Scene(tmp_path, orphan.pid)
        scene.supervisor._kill_orphans()
        scene.later()
        assert orphan.poll() is None
        scene.later()
        assert orphan.wait(30) == -9


def test_one_that_has_no_environment_is_let_alone_after_a_while(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"], env={}) as orphan:
        while procfs.read(f"/proc/{orphan.pid}/cmdline") != b"sleep\x001000\0":
            pass
        assert procfs.is_changing(orphan.pid), "it cannot be told from one that is"
        scene = Scene(tmp_path, orphan.pid)
        scene.supervisor._kill_orphans()
        for _ in range(ORPHAN_CHECKS):
            assert orphan.poll() is None
            scene.later()
        assert scene.timers.delay() is None
        orphan.kill()


def test_one_that_has_ended_is_no_longer_changing() -> None:
    with subprocess.Popen(["true"]) as ended:
        while (seen := procfs.stat(ended.pid)) is not None and seen.state != "Z":
            pass
        assert not procfs.is_changing(ended.pid)
