"""When jobs of queues with several clusters would start on each of them: written by each engine, compared by all.

The engine of each cluster writes what it forecasts of the jobs that have waited longest (`tell`), of those that wait elsewhere as if each
came alone. `move_one` then brings at most one of a queue's jobs to the cluster that asks. After a move everything that was said about
the queue is forgotten, so that each move rests on what is true after the one before it. Routes read what was said, on every server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paddleflow.base.clock import local_text
from paddleflow.jobs.changes import move_jobs
from paddleflow.jobs.rows import SQL
from paddleflow.scheduling.forecast import StartForecast
from paddleflow.store.database import Tx

FRESH = 60.0  #: seconds for which a forecast counts
LEAST_GAIN = 60.0  #: seconds that a move must gain at least
GAIN_SHARE = 0.25  #: and this part of the time that the job would still wait: forecasts are not exact


class ExpectedStart(NamedTuple):
    """What one cluster says of one job."""

    id: str
    cluster: str
    queue: str
    at: float  #: when it was computed
    starts_at: float | None  #: None: never, as things are
    beyond: int = 0  #: 1: it starts later than `starts_at`
    rests_on: str = ""  #: a job of unknown duration that must end first
    seq: int = 0
    touched: int = 0
    waits_on: str = ""  #: the cluster on which it waits now

    @property
    def text(self) -> str:
        """For people, of a cluster on which it does not wait or on which it does."""
        if self.starts_at is None:
            return "it would not start there as things are"
        if self.beyond:
            return f"it would start there after {local_text(self.starts_at)}"
        if self.rests_on:
            return f"when it would start there is not known: {self.rests_on} must end first, and no job like it has ended yet"
        return f"it would start there about {local_text(self.starts_at)}"


def expected_start(job: str, cluster: str, queue: str, at: float, found: StartForecast) -> ExpectedStart:
    if found.beyond is not None:
        return ExpectedStart(job, cluster, queue, at, at + found.beyond, 1)
    starts_at = None if found.forecast is None else at + found.forecast.middle
    return ExpectedStart(job, cluster, queue, at, starts_at, rests_on=found.unknown)


def better_here(
    starts: Iterable[ExpectedStart], clusters: Sequence[str], here: str, now: float
) -> tuple[str, ExpectedStart] | None:
    """The first job that starts notably earlier here than where it waits, and not earlier still on a third cluster; with that cluster."""
    by_job: dict[str, dict[str, ExpectedStart]] = {}
    for each in starts:
        if abs(now - each.at) < FRESH:
            by_job.setdefault(each.id, {})[each.cluster] = each
    for of_job in by_job.values():
        mine = of_job.get(here)
        source = None if mine is None else of_job.get(mine.waits_on)
        if mine is None or source is None or mine.waits_on == here or not _gains(mine, source, now):
            continue
        rank = [
            (each.starts_at, clusters.index(name))
            for name, each in of_job.items()
            if _certain(each) and name in clusters
        ]
        if not _certain(mine) or min(rank)[1] == clusters.index(here):
            return source.cluster, mine
    return None


def _certain(start: ExpectedStart) -> bool:
    return start.starts_at is not None and not start.beyond and not start.rests_on


def _gains(mine: ExpectedStart, source: ExpectedStart, now: float) -> bool:
    """Whether a move is worth it. From where it never starts it is; else both sides must be known, of the slow one a lower bound."""
    if mine.starts_at is None or source.starts_at is None:
        return mine.starts_at is not None
    if not _certain(mine) or source.rests_on:
        return False
    return source.starts_at - mine.starts_at > max(LEAST_GAIN, GAIN_SHARE * (source.starts_at - now))


def tell(tx: Tx, cluster: str, starts: Sequence[ExpectedStart]) -> None:
    """All that a cluster says now, instead of what it said before."""
    tx.run(SQL["delete_expected_starts"], cluster=cluster)
    names = ("id", "cluster", "queue", "at", "starts_at", "beyond", "rests_on")
    tx.many(SQL["insert_expected_start"], [{name: getattr(each, name) for name in names} for each in starts])


def move_one(tx: Tx, queue: str, clusters: Sequence[str], here: str, now: float) -> list[str]:
    """Bring the first job of a queue here that starts notably earlier here, if there is one; its id."""
    starts = tx.rows(ExpectedStart, SQL["expected_starts_of_queue"], queue=queue)
    found = better_here(starts, clusters, here, now)
    if found is None:
        return []
    moved = move_jobs(tx, [found[1]], found[0], here, now)
    tx.run(SQL["forget_expected_starts"], queue=queue)
    return moved


def expected_starts(tx: Tx, job: str, now: float) -> dict[str, ExpectedStart]:
    """What is said of one job, by cluster."""
    rows = tx.rows(ExpectedStart, SQL["expected_starts_of_job"], id=job)
    return {row.cluster: row for row in rows if abs(now - row.at) < FRESH}
