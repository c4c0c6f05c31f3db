"""Logs of jobs as users may read them: without the values of the secrets that the job was given.

Every route that answers parts of logs reads them here. For a job that names no secrets this is the log store itself.
"""

from __future__ import annotations

import json
from functools import lru_cache

from paddleflow.access import secrets
from paddleflow.api.platform import Platform
from paddleflow.errors import NotFound, Unavailable
from paddleflow.jobs.facts import Key
from paddleflow.jobs.masks import Masks
from paddleflow.jobs.rows import JobRow
from paddleflow.runtimes.log_store import LogChunk, LogStore, TaskAddress


class MaskedLogs:
    """The logs of one job."""

    def __init__(self, platform: Platform, row: JobRow) -> None:
        self._platform = platform
        self._store: LogStore = platform.jobs_run_here.logs(row.cluster)
        self._job = row.id
        self._cluster = row.cluster
        self._finished_at = row.finished_at
        self._masked = uses_secrets(row.members)
        self._masks = (frozenset[str](), Masks(()))  #: of which copies of secrets, and these
        self.user = row.user_name

    async def part(self, key: Key, offset: int, limit: int, *, ended: bool = False) -> LogChunk:
        """Part of a log; one that was never written, as that of a member without a process, is empty.

        Unless the job has `ended`, the last bytes wait while they may be the beginning of a value.
        """
        task = TaskAddress(self._job, *key)
        try:
            chunk = await self._store.read(task, offset, limit)
            return await self._hidden(task, chunk, ended) if self._masked and chunk.data else chunk
        except NotFound:
            return LogChunk(b"", 0, 0, 0)

    async def begin(self, key: Key, attempt: int) -> int | None:
        """Where the part of an attempt begins; None: it has not begun."""
        begins = await self._store.begins(TaskAddress(self._job, *key))
        return begins.get(attempt, 0 if attempt == 1 else None)

    async def size(self, key: Key) -> int:
        return await self._store.size(TaskAddress(self._job, *key))

    async def size_at(self, key: Key, moment: float) -> int:
        """How long the log was at a moment, or a little before: samples are taken now and then."""
        if self._finished_at is not None and self._finished_at <= moment:
            return await self.size(key)
        samples = await self._platform.jobs_run_here.samples(self._cluster).read(TaskAddress(self._job, *key))
        return max((each.log_size or 0 for each in samples if each.at <= moment), default=0)

    async def _hidden(self, task: TaskAddress, chunk: LogChunk, ended: bool) -> LogChunk:
        """The values are asked for after the bytes were read: what a job writes, it was given before."""
        sealed = await self._platform.database.read(secrets.given, self._job)
        run, known = self._platform.computing.run, frozenset(each.id for each in sealed)
        if known != self._masks[0]:
            keyring = self._platform.keyring
            self._masks = known, await run(self.user, lambda: Masks(each.open(keyring) for each in sealed))
        masks = self._masks[1]
        if not masks:
            return chunk
        beside = masks.longest - 1
        first = max(0, chunk.offset - beside)
        wide = await self._store.read(task, first, chunk.next_offset - first + beside)
        hidden, held = await run(self.user, lambda: (masks.hide(wide.data), masks.unfinished(wide.data)))
        end = chunk.next_offset
        if not ended and first + len(wide.data) >= wide.size:
            end = max(chunk.offset, min(end, wide.size - held))
        return LogChunk(hidden[chunk.offset - first : end - first], chunk.offset, end, chunk.size)


def unreadable(error: Unavailable) -> str:
    """The line in place of a log that cannot be read, such as a FIFO that the job put there, where other logs are shown beside it."""
    return f"paddleflow: {error.message}\n"


@lru_cache(maxsize=1024)
def uses_secrets(members: str) -> bool:
    """Whether a job with these members is given any; asked of the column, which jobs that are alike share."""
    if '"secrets"' not in members:
        return False
    return any(member["document"].get("secrets") for member in json.loads(members))
