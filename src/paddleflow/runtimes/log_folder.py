"""Logs and samples of attempts that run elsewhere, in a folder of the server: collected while they run, kept when they are gone.

`LogFolder` implements `LogStore` and `SampleStore`. A member's attempts write one log, one after the other; how long it was when
an attempt began is noted beside it, so that a server that restarts knows how much of the attempt's log it already has.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from paddleflow.base.ids import AttemptId
from paddleflow.errors import NotFound, Unavailable
from paddleflow.runtimes import sample_history
from paddleflow.runtimes.log_store import LogChunk, Sample, TaskAddress

MOST = 16 * 2**20  #: bytes of one chunk, however much is asked for


class LogFolder:
    """Logs by task below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, task: TaskAddress, offset: int, limit: int) -> LogChunk:
        return await asyncio.to_thread(self._read, task, offset, min(max(limit, 0), MOST))

    async def size(self, task: TaskAddress) -> int:
        return await asyncio.to_thread(_size, self._log(task))

    async def begins(self, task: TaskAddress) -> Mapping[int, int]:
        return await asyncio.to_thread(self._begins, task)

    def _begins(self, task: TaskAddress) -> dict[int, int]:
        found = {}
        for mark in self._job(task.job).glob(f"{task.role}-{task.index}.*.begin"):
            with suppress(OSError, ValueError):  # the job was removed meanwhile
                found[int(mark.name.split(".")[1])] = int(mark.read_text())
        return found

    async def remove(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            await asyncio.to_thread(shutil.rmtree, self._job(job), True)

    # ---- written by the runtime

    def begin(self, task: TaskAddress, attempt: AttemptId) -> int:
        """How many bytes of this attempt's log are there; the first call notes where it begins."""
        log, mark = self._log(task), self._log(task).with_suffix(f".{attempt.rpartition('.')[2]}.begin")
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _size(log) - int(mark.read_text())
        except (OSError, ValueError):
            mark.write_text(str(_size(log)))
            return 0

    def append(self, task: TaskAddress, data: bytes) -> None:
        with suppress(FileNotFoundError), self._log(task).open("ab") as file:  # the job was removed meanwhile
            file.write(data)

    def touch(self, task: TaskAddress) -> None:
        """An attempt that wrote nothing has an empty log, not none."""
        with suppress(FileNotFoundError):
            self._log(task).touch()

    # ---- files

    def _read(self, task: TaskAddress, offset: int, limit: int) -> LogChunk:
        try:
            with self._log(task).open("rb") as file:
                size = file.seek(0, 2)
                start = max(size + offset, 0) if offset < 0 else min(offset, size)
                file.seek(start)
                data = file.read(limit)
        except FileNotFoundError as error:
            raise NotFound(f"there is no log of {task}", hint="it was never written, or has been deleted") from error
        except OSError as error:
            raise Unavailable(f"the log of {task} cannot be read: {error.strerror}") from error
        return LogChunk(data, start, start + len(data), size)

    def _job(self, job: str) -> Path:
        spread = hashlib.sha1(job.encode(), usedforsecurity=False).hexdigest()[:2]
        return self._folder / "jobs" / spread / job

    def _log(self, task: TaskAddress) -> Path:
        return self._job(task.job) / f"{task.role}-{task.index}.log"

    def log_size(self, task: TaskAddress) -> int:
        return _size(self._log(task))

    def samples_file(self, task: TaskAddress) -> str:
        return f"{self._log(task)}.stats"


class SampleFolder:
    """Samples beside the logs."""

    def __init__(self, logs: LogFolder) -> None:
        self._logs = logs

    async def append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        await asyncio.to_thread(self._append, samples)

    def _append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        for task, sample in samples.items():
            with suppress(OSError):  # the job was removed meanwhile
                sample = replace(sample, log_size=self._logs.log_size(task))
                sample_history.append(self._logs.samples_file(task), sample)

    async def read(self, task: TaskAddress) -> list[Sample]:
        return await asyncio.to_thread(sample_history.read, self._logs.samples_file(task))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
