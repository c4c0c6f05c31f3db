"""Becomes an ordinary account and runs a command: ``python -m tests.ordinary_account FOLDER COMMAND…``, as root.

The account is `nobody`, with FOLDER as its home, no groups and no capabilities. The interpreter of the tests may lie in a
folder that only root may enter: such folders are shown again, open, in a mount namespace of the account's own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paddleflow.runtimes.local.mounts import Mount, MountTable
from paddleflow.runtimes.local.namespaces import can_fork_into, unshare

UID = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming an ordinary account needs root")


def closed_folders() -> list[Path]:
    """Folders above the interpreter that others may not enter, upper ones first."""
    above = [folder for prefix in (sys.base_prefix, sys.prefix) for folder in Path(prefix).resolve().parents]
    return sorted({folder for folder in above if not folder.stat().st_mode & 0o001})


def main() -> None:
    folder, *command = sys.argv[1:]
    if closed := closed_folders():
        assert can_fork_into(users=False), "as root"
        shown = [Mount("/usr", f"{each}/shown-again", True) for each in closed]
        MountTable(unshare(users=False)).apply(shown)
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    env = {**os.environ, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    os.execvpe(command[0], command, env)


if __name__ == "__main__":
    main()
