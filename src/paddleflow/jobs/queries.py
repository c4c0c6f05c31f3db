"""Finding jobs: newest first, filters that an index can serve, pages that neither repeat nor lose a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddleflow.errors import NotFound
from paddleflow.jobs.rows import SQL
from paddleflow.store.conditions import Conditions
from paddleflow.store.database import Row, Tx, Value


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; everything that is given must hold."""

    user: str | None = None
    statuses: Sequence[str] = ()
    queues: Sequence[str] = ()
    updated_since: float | None = None
    started_since: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ids: Sequence[str] = ()


def find_jobs(tx: Tx, wanted: JobFilter, before: int, limit: int) -> tuple[list[Row], dict[str, list[Row]]]:
    """(rows newest first, members by job). `before` is the position of the last row of the page before, 0 at first."""
    where = Conditions()
    if before:
        where.add("seq < :before", before=before)
    where.one_of("user_name", [] if wanted.user is None else [wanted.user])
    where.one_of("status", wanted.statuses)
    where.one_of("queue", wanted.queues)
    where.one_of("id", wanted.ids)
    if wanted.updated_since is not None:
        where.add("updated_at >= :updated_since", updated_since=wanted.updated_since)
    if wanted.started_since is not None:
        where.add("started_at >= :started_since", started_since=wanted.started_since)
    for n, (key, value) in enumerate(sorted(wanted.labels.items())):
        params: dict[str, Value] = {f"key_{n}": key, f"value_{n}": value}
        where.add(f"id in (select job_id from job_labels where key = :key_{n} and value = :value_{n})", **params)  # noqa: S608 fixed fragments
    rows = tx.all(where.statement("select * from jobs", "order by seq desc limit :limit"), limit=limit, **where.params)
    return rows, members_by_job(tx, [row["id"] for row in rows])


def members_by_job(tx: Tx, jobs: Sequence[str]) -> dict[str, list[Row]]:
    """The members of some jobs, in order."""
    found: dict[str, list[Row]] = defaultdict(list)
    if not jobs:
        return found
    where = Conditions()
    where.one_of("job_id", jobs)
    for row in tx.all(where.statement("select * from tasks", "order by job_id, role, idx"), **where.params):
        found[row["job_id"]].append(row)
    return found


def get_job(tx: Tx, job: str) -> Row:
    """One job's row, or NotFound."""
    row = tx.one(SQL["job_by_id"], id=job)
    if row is None:
        raise NotFound(
            f"job[{job}] does not exist", code="JobNotFound", hint="paddleflow job list shows those there are"
        )
    return row


def get_tasks(tx: Tx, job: str) -> list[Row]:
    return tx.all(SQL["tasks_of_job"], job_id=job)
