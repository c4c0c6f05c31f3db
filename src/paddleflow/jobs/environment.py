"""Installs the packages of a job and becomes the command: python -m paddleflow.jobs.environment ROOT COMMAND…

The lines of its requirements file are in the variable `VARIABLE`. An environment is built once for each content, with uv, below
ROOT, and used by all later jobs of the same user on the same node; the least recently used ones go when there are more than
`MOST_ENVIRONMENTS`. A job holds a shared lock on its environment while it runs: the descriptor is inherited by the command. Runs as
the first program of a member, in its own process and limits, so that what goes wrong is in the job's log.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from paddleflow.environment import whole_environment

FOLDER = "environments"  #: of the data folder, by user
VARIABLE = "PF_REQUIREMENTS"
MOST_ENVIRONMENTS = 16  #: kept of one user on one node
READY = "ready"  #: file of an environment that is whole; its time says when it was used last
CANNOT_RUN, NOT_FOUND = 126, 127


class CannotInstall(Exception):
    """In words for a person."""


def key_of(requirements: str) -> str:
    """The name of an environment: of what is asked for, and what it is built for."""
    lines = sorted(text for line in requirements.splitlines() if (text := line.strip()) and not text.startswith("#"))
    built_for = [platform.python_implementation(), platform.python_version(), platform.machine()]
    return hashlib.sha256("\n".join([*built_for, *lines]).encode()).hexdigest()[:32]


def hold(root: Path, requirements: str, most: int = MOST_ENVIRONMENTS) -> tuple[Path, int]:
    """The environment of these requirements, built if it is not there, and the descriptor of the lock that keeps it."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root / key_of(requirements)
    ready = folder / READY
    lock = _lock(folder, fcntl.LOCK_SH)
    if not ready.exists():
        os.close(lock)
        lock = _lock(folder, fcntl.LOCK_EX)
        if not ready.exists():  # nobody else has built it meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            _build(folder, requirements)
            ready.touch()
            _evict(root, folder, most)
        fcntl.flock(lock, fcntl.LOCK_SH)
    os.utime(ready)
    os.set_inheritable(lock, True)
    return folder, lock


def _lock(folder: Path, kind: int) -> int:
    """The lock of an environment, held; the file may have been removed with the environment just before."""
    path = f"{folder}.lock"
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, kind)
            if os.fstat(lock).st_ino == Path(path).stat().st_ino:
                return lock
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(lock)
            raise
        os.close(lock)


def _build(folder: Path, requirements: str) -> None:
    uv = _uv()
    count = len([line for line in requirements.splitlines() if line.strip() and not line.strip().startswith("#")])
    print(
        f"paddleflow: installing {count} requirements, once for all jobs that have the same",
        file=sys.stderr,
        flush=True,
    )
    steps = (
        ([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], ""),
        ([*uv, "pip", "install", "--no-progress", "--python", f"{folder}/bin/python", "-r", "-"], requirements),
    )
    for words, text in steps:
        done = subprocess.run(words, input=text.encode(), stdout=sys.stderr.fileno(), check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise CannotInstall(f"uv ended with {done.returncode}, its messages are above")


def _uv() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise CannotInstall("uv is not installed on this node; the one who runs the server can: pip install uv")
    return [found]


def _evict(root: Path, kept: Path, most: int) -> None:
    """Remove the least recently used environments beyond the limit, except those in use."""
    markers = sorted(root.glob(f"*/{READY}"), key=lambda marker: marker.stat().st_mtime)
    for marker in markers[: max(0, len(markers) - most)]:
        folder = marker.parent
        if folder == kept:
            continue
        try:
            lock = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        marker.unlink(missing_ok=True)  # first: what is half removed is not whole
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"{folder}.lock").unlink(missing_ok=True)
        os.close(lock)


def environment_command(python: str, root: str) -> Sequence[str]:
    """The words before a member's command that install its packages first; `VARIABLE` must hold them."""
    return (python, "-I", "-m", "paddleflow.jobs.environment", root)


def main(words: Sequence[str]) -> int:
    root, *command = words
    variables = whole_environment()
    try:
        folder, _ = hold(Path(root), variables.pop(VARIABLE, ""))
    except (CannotInstall, OSError) as error:
        print(f"paddleflow: the packages of this job cannot be installed: {error}", file=sys.stderr)
        return 1
    variables |= {"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin:{variables.get('PATH', os.defpath)}"}
    variables.pop("PYTHONHOME", None)
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606  the command of the user, as it was submitted
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
