"""Unpacks a snapshot of code and becomes the command: python -m paddleflow.jobs.checkout STORE USER ID FOLDER WORKDIR COMMAND…

Runs as the first program of a member, in its own process and limits, so that a large folder delays nobody else and errors
are in the job's log. Members of one job on one machine share the folder: the first one unpacks it, under a lock. A
job that is tried again finds it as it left it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.code import CodeStore
from paddleflow.objects.urls import open_store

CANNOT_RUN, NOT_FOUND = 126, 127


def check_out(store: str, user: str, snapshot: str, folder: Path) -> None:
    """Makes `folder` hold the snapshot, unless it does already."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return
        half = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        CodeStore(open_store(store)).unpack(user, snapshot, half)
        half.rename(folder)


def main(words: Sequence[str]) -> int:
    store, user, snapshot, folder, workdir, *command = words
    try:
        check_out(store, user, snapshot, Path(folder))
        os.chdir(Path(folder, workdir))
    except (PaddleFlowError, OSError) as error:
        print(f"paddleflow: the code of this job cannot be unpacked: {error}", file=sys.stderr)
        return 1
    try:
        os.execvp(command[0], command)  # noqa: S606  the command of the user, as it was submitted
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
