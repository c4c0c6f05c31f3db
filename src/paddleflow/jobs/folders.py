"""Where the files of a job are: its logs, its samples and its work folder."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from pathlib import Path


def job_place(data: Path, job: str) -> str:
    """The job's own folder; spread over 256 folders, so that none grows too large. Text, which costs a launch less."""
    return f"{data}/jobs/{hashlib.sha1(job.encode(), usedforsecurity=False).hexdigest()[:2]}/{job}"


def job_folder(data: Path, job: str) -> Path:
    """The same as a path."""
    return Path(job_place(data, job))


def log_name(role: str, index: int) -> str:
    """The file in the job's folder that takes stdout and stderr of one member, over all its attempts."""
    return f"{role}-{index}.log"


def log_file(data: Path, job: str, role: str, index: int) -> Path:
    """Where that file is."""
    return job_folder(data, job) / log_name(role, index)


def stats_file(data: Path, job: str, role: str, index: int) -> Path:
    """What one member used over time."""
    return job_folder(data, job) / f"{log_name(role, index)}.stats"


def remove_folder(data: Path, job: str) -> None:
    """A deleted job's files; they may be gone already. The folder is moved away first: its id may be used again at once."""
    folder = job_folder(data, job)
    away = _bin(data) / f"{job}-{secrets.token_hex(4)}"
    try:
        away.parent.mkdir(exist_ok=True)
        folder.rename(away)
    except OSError:
        return  # there is none, or the disk does not let us; what cannot be moved could not be deleted either
    shutil.rmtree(away, ignore_errors=True)


def empty_bin(data: Path) -> None:
    """Finish what a server that died had begun to remove."""
    if _bin(data).is_dir():
        for left in _bin(data).iterdir():
            shutil.rmtree(left, ignore_errors=True)


def _bin(data: Path) -> Path:
    return data / "jobs" / "deleted"
