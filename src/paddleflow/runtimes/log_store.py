"""Logs and samples of jobs' members, addressed by task: what stays when a process, a pod or a server is gone.

A runtime has one of each (`Runtime.logs`, `Runtime.samples`). The API reads them and never sees a path; deleting a
job calls `remove`. First implementations: a folder of the data folder (`local.job_folders`), memory (`memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class TaskAddress:
    """Names a member of a job. Its attempts write one log, one after the other."""

    job: str
    role: str
    index: int


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a log from `offset`; `next_offset` continues, `size` is how much there is now."""

    data: bytes
    offset: int
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What one attempt used at one moment. Counters count from its start; None where the machine does not tell."""

    at: float
    cpu_seconds: float
    memory: int
    disk_read: int | None = None
    disk_write: int | None = None
    net_received: int | None = None
    net_sent: int | None = None
    disk_usage: int | None = None
    log_size: int | None = None  #: how long the log was then; filled in by the store


class LogStore(Protocol):
    """Logs by task."""

    async def read(self, task: TaskAddress, offset: int, limit: int) -> LogChunk:
        """Up to `limit` bytes, also long after the attempt ended. A negative offset counts from the end.

        NotFound when nothing was ever written, or it was removed; Unavailable when it is there and cannot be read.
        """
        ...

    async def size(self, task: TaskAddress) -> int:
        """Bytes written so far; 0 when there is no log."""
        ...

    async def begins(self, task: TaskAddress) -> Mapping[int, int]:
        """The position at which the part of each attempt begins, by its number; those that began at 0 may be left out."""
        ...

    async def remove(self, jobs: Sequence[str]) -> None:
        """Everything that is kept of these jobs: logs, samples, work folders. Fine when there is nothing."""
        ...


class SampleStore(Protocol):
    """What each task used over its life, in bounded space."""

    async def append(self, samples: Mapping[TaskAddress, Sample]) -> None:
        """Add one sample to each; a job that was removed meanwhile is left out."""
        ...

    async def read(self, task: TaskAddress) -> list[Sample]:
        """Oldest first; empty when nothing is known."""
        ...
