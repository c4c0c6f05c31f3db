"""Real kernel mounts for tests and benchmarks: made by the command line, unmounted at the end whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from paddleflow.fs.control import ask_stats

COMMAND = [sys.executable, "-c", "from paddleflow.cli.main import main; main()"]


def why_not() -> str:
    """Why nothing can be mounted here; empty if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "fusermount3 is not installed"
    return ""


class Mount:
    """A mount of `url` on `folder`."""

    def __init__(self, url: str, folder: Path, home: Path, prefix: tuple[str, ...] = ()) -> None:
        self.url, self.folder, self.prefix = url, folder, prefix
        self.options: tuple[str, ...] = ()  #: to mount it again with
        self.environment = {**os.environ, "HOME": str(home)}

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.prefix, *COMMAND, "fs", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def mount(self, *options: str) -> None:
        self.run("mount", "--url", self.url, str(self.folder), *options)

    def umount(self, *options: str) -> None:
        self.run("umount", str(self.folder), *options)

    def kill(self) -> None:
        """kill -9 of supervisor and worker, so that nobody is left to go on."""
        found = self.stats()
        for pid in (found["pid"], found["worker"]):
            os.kill(pid, signal.SIGKILL)

    def logs(self) -> list[str]:
        """The last lines of what its processes wrote."""
        folder = Path(self.environment["HOME"]) / ".cache" / "paddleflow" / "mounts"
        return [line for log in folder.glob("*.log") for line in log.read_text("utf-8").splitlines()[-40:]]

    def stats(self) -> dict[str, Any]:
        with patch.dict(os.environ, HOME=self.environment["HOME"]):
            return ask_stats(self.folder)


@contextmanager
def mounted(url: str, *options: str, prefix: tuple[str, ...] = (), where: Path | None = None) -> Iterator[Mount]:
    """A mount on a fresh folder, gone at the end whatever happens."""
    home = Path(tempfile.mkdtemp(prefix="pf-home-"))
    folder = where or Path(tempfile.mkdtemp(prefix="pf-mnt-"))
    if prefix:
        home.chmod(0o777)
        folder.chmod(0o777)
    mount = Mount(url, folder, home, prefix)
    try:
        mount.mount(*options)
        yield mount
    finally:
        mount.run("umount", "-f", str(folder), check=False)
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)
        if not where:
            folder.rmdir()
