"""Code delivery: a folder of the caller becomes the working directory of a job.

`Code.reference` decides: where client and server share files and account, the folder itself is named; elsewhere a snapshot of
it is sent, by `code_snapshot`, which is imported only then.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from paddleflow.base.host import host_fingerprint
from paddleflow.errors import Invalid
from paddleflow.sdk.area import Area
from paddleflow.sdk.records import table
from paddleflow.sdk.transport import segment

LOOPBACK = ("127.", "localhost", "::1")

Progress = Callable[[int, int], None]  #: bytes sent so far, bytes in all


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and whether files differ from it; None outside of a repository or without git."""
    git = shutil.which("git")
    if git is None:
        return None

    def ask(*words: str) -> str:
        done = subprocess.run([git, "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        if not commit:
            return None
        branch = ask("rev-parse", "--abbrev-ref", "HEAD")
        dirty = bool(ask("status", "--porcelain", "--", "."))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"commit": commit, "branch": "" if branch == "HEAD" else branch[:250], "dirty": dirty}


class Code(Area):
    """Code delivery."""

    def shares_files(self) -> bool:
        """Whether the server sees this machine's files as the same account; only a server on loopback is asked."""
        if not self._transport.address.host.startswith(LOOPBACK):
            return False
        own = host_fingerprint()
        return bool(own) and table(self._transport.call("GET", "/whoami")).get("host") == own

    def reference(
        self, folder: Path, workdir: str = "", progress: Progress | None = None, *, snapshot: bool = False
    ) -> dict[str, Any]:
        """What a job document says as its `code`: the folder itself where the server shares it, else a snapshot of it; with
        `snapshot` always that, for clusters beyond the server's machine."""
        folder = folder.resolve()
        if not folder.is_dir():
            raise Invalid(f"{folder} is not a folder")
        git: list[dict[str, Any] | None] = []
        asking = Thread(target=lambda: git.append(git_state(folder)))  # it looks at every file, too
        asking.start()
        try:
            found = {"path": str(folder)} if not snapshot and self.shares_files() else self.upload(folder, progress)
        finally:
            asking.join()
        extra = {"workdir": workdir, "git": git[0]}
        return {**found, **{key: value for key, value in extra.items() if value}}

    def upload(self, folder: Path, progress: Progress | None = None) -> dict[str, Any]:
        """Makes a snapshot of a folder; sends what the server does not have."""
        made: dict[str, Any] = import_module("paddleflow.sdk.code_snapshot").upload(self._transport, folder, progress)
        return made

    def download(self, job: str, to: Path) -> Path:
        """Unpacks the code that a job ran with into a new folder."""
        to.mkdir(parents=True, exist_ok=False)
        with self._transport.stream(f"/job/{segment(job)}/code") as stream:
            chunks = stream.chunks(lambda: self._transport.timeout)
            import_module("paddleflow.sdk.code_snapshot").unpack(chunks, to)
        return to
