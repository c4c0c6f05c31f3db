"""What `fs umount` waits for, and how storages are not named."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen

import pytest
from click.testing import CliRunner

from paddleflow.cli.fs_mount import _going_on, _pids_behind, _wait_for, has_ended
from paddleflow.cli.main import root
from paddleflow.fs.control import ControlSocket


def test_a_process_that_nobody_waits_for_has_ended() -> None:
    process = Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists()
    assert has_ended(process.pid)
    process.wait()
    assert has_ended(process.pid)
    assert not has_ended(os.getpid())


def test_a_mount_that_does_not_answer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("paddleflow.fs.control.ANSWER_SECONDS", 0.05)
    with ControlSocket(tmp_path / "mount", {}):  # nobody takes connections from it
        assert _pids_behind(tmp_path / "mount") == [os.getpid()], "the parent is no supervisor"
    assert _pids_behind(tmp_path / "mount") == []


def test_a_process_that_goes_on_is_named(tmp_path: Path) -> None:
    assert _wait_for([os.getpid()], 0.0) == [os.getpid()]
    assert _going_on(tmp_path, []) == ""
    assert "process 12 goes on" in _going_on(tmp_path, [12])


@pytest.mark.parametrize("words", [["ls", "pfs://team"], ["cat", "pfs://team/a"], ["du", "pfs://host:8999/fs-1"]])
def test_a_storage_is_not_named_by_a_url(words: list[str]) -> None:
    result = CliRunner().invoke(root, ["fs", *words], prog_name="paddleflow")
    assert result.exit_code != 0
    assert "paddleflow fs mount" in f"{result.output}{result.exception}"
