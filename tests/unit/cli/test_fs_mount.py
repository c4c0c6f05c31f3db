"""What `fs umount` waits for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import Popen

from paddleflow.cli.fs_mount import has_ended


def test_a_process_that_nobody_waits_for_has_ended() -> None:
    process = Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists()
    assert has_ended(process.pid)
    process.wait()
    assert has_ended(process.pid)
    assert not has_ended(os.getpid())
