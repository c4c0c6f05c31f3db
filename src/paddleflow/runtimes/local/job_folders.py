"""The folders of jobs in the data folder: logs, samples and work folders of their members. The `LogStore` and `SampleStore` of
`LocalRuntime`; nothing else knows these paths.

Jobs can change what is in their folders, so a log or a sample file is opened without blocking and without following a link,
and only a regular file is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from paddleflow.runtimes import sample_history
from paddleflow.runtimes.local.logs import log_size, read_begins, read_chunk
from paddleflow.runtimes.log_store import LogChunk, Sample, TaskAddress


@lru_cache(maxsize=1024)
def folder_text(data: Path | str, job: str) -> str:
    """The job's own folder; spread over 256 folders, so that none grows too large. Text, which costs a launch less.

    A launch calls it twice: for its framework's variables, and for what the keeper makes.
    """
    return f"{data}/jobs/{hashlib.sha1(job.encode(), usedforsecurity=False).hexdigest()[:2]}/{job}"


def job_folder(data: Path, job: str) -> Path:
    """The same as a path."""
    return Path(folder_text(data, job))


def log_name(role: str, index: int) -> str:
    """The file in the job's folder that takes stdout and stderr of one member, over all its attempts."""
    return f"{role}-{index}.log"


def log_file(data: Path, task: TaskAddress) -> str:
    """Where that file is."""
    return f"{folder_text(data, task.job)}/{log_name(task.role, task.index)}"


def stats_file(data: Path, task: TaskAddress) -> str:
    """What one member used over time."""
    return log_file(data, task) + ".stats"


class JobLogs:
    """The logs below one data folder."""

    def __init__(self, data: Path) -> None:
        self._data = data

    async def read(self, task: TaskAddress, offset: int, limit: int) -> LogChunk:
        return await asyncio.to_thread(read_chunk, log_file(self._data, task), offset, limit)

    async def size(self, task: TaskAddress) -> int:
        return await asyncio.to_thread(log_size, log_file(self._data, task))

    async def begins(self, task: TaskAddress) -> Mapping[int, int]:
        return await asyncio.to_thread(read_begins, log_file(self._data, task))

    async def remove(self, jobs: Sequence[str]) -> None:
        await asyncio.to_thread(self._remove, jobs)

    def _remove(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            remove_folder(self._data, job)


class JobSamples:
    """The samples below one data folder."""

    def __init__(self, data: Path) -> None:
        self._data = data

    async def append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        await asyncio.to_thread(self._append, samples)

    def _append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        for task, sample in samples.items():
            with suppress(OSError):  # it was deleted just now, or put something else there
                sample = replace(sample, log_size=log_size(log_file(self._data, task)))
                sample_history.append(stats_file(self._data, task), sample)

    async def read(self, task: TaskAddress) -> list[Sample]:
        return await asyncio.to_thread(sample_history.read, stats_file(self._data, task))


def remove_folder(data: Path, job: str) -> None:
    """A deleted job's files; they may be gone already. The folder is moved away first: its id may be used again at once."""
    folder = job_folder(data, job)
    away = _trash(data) / f"{job}-{secrets.token_hex(4)}"
    try:
        away.parent.mkdir(exist_ok=True)
        folder.rename(away)
    except OSError:
        return  # there is none, or the disk does not let us; what cannot be moved could not be deleted either
    shutil.rmtree(away, ignore_errors=True)


def empty_trash(data: Path) -> None:
    """Finish what a server that died had begun to remove."""
    if _trash(data).is_dir():
        for left in _trash(data).iterdir():
            shutil.rmtree(left, ignore_errors=True)


def _trash(data: Path) -> Path:
    return data / "jobs" / "deleted"
