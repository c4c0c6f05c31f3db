"""How long waiting jobs will probably run, for queues that serve the shortest first.

Learnt from the jobs that ended, by the same keys as forecasts. A server without such a queue reads and remembers nothing.
Called by `cluster_engine` with every row before the scheduler gets it, and by `run_engine` for the jobs of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from paddleflow.jobs.durations import DurationHistory, JobProfile, find_profile, keys_of
from paddleflow.jobs.queries import waiting_jobs
from paddleflow.jobs.rows import ChangedJob, WaitingClass, class_of
from paddleflow.scheduling.model import Queue
from paddleflow.store.database import Database, Tx


class ExpectedDurations:
    """What the engine expects of jobs."""

    def __init__(self, database: Database, cluster: str) -> None:
        self._database = database
        self._cluster = cluster
        self._history = DurationHistory()
        self._queues: frozenset[str] = frozenset()  # those that asked last time

    async def fill(self, rows: list[ChangedJob], queues: Iterable[Queue | None]) -> list[ChangedJob]:
        """The rows, with `expected` where the queue asks; and the waiting jobs of queues that did not ask before."""
        asking = frozenset(queue.name for queue in queues if queue is not None and queue.order == "shortest")
        began, self._queues = asking - self._queues, asking
        return await self._database.read(self._fill, rows, asking, began) if asking else rows

    async def spread(self, classes: list[WaitingClass], queues: Iterable[Queue | None]) -> list[WaitingClass]:
        """The waiting jobs of a board that is rebuilt; each job of a queue that asks is a class of its own, with `expected`."""
        self._queues = frozenset()
        rows = await self.fill([], queues)
        return [each for each in classes if each.queue not in self._queues] + [class_of(row) for row in rows]

    def _fill(self, tx: Tx, rows: list[ChangedJob], asking: Set[str], began: Set[str]) -> list[ChangedJob]:
        self._history.learn(tx)
        known = {row.id for row in rows}
        waiting = waiting_jobs(tx, self._cluster) if began else []
        rows = rows + [row for row in waiting if row.queue in began and row.id not in known]
        return [self._filled(tx, row) if row.queue in asking else row for row in rows]

    def _filled(self, tx: Tx, row: ChangedJob) -> ChangedJob:
        profile = find_profile(tx, row.id)
        return row if profile is None else row._replace(expected=self.seconds(profile))

    def seconds(self, job: JobProfile) -> float | None:
        """Of one job; None when nothing like it is known. Whole seconds: equal jobs stay equal."""
        found = self._history.durations.middle(keys_of(job)) if self._history.learnt else None
        return None if found is None else float(round(found))
