"""Where the files of a job are: its logs, its samples and its work folder."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path


def job_folder(data: Path, job: str) -> Path:
    """The job's own folder; spread over 256 folders, so that none grows too large."""
    return data / "jobs" / hashlib.sha1(job.encode(), usedforsecurity=False).hexdigest()[:2] / job


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
    """A deleted job's files; they may be gone already."""
    shutil.rmtree(job_folder(data, job), ignore_errors=True)
