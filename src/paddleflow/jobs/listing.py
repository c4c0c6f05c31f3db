"""Finding jobs: newest first, filters as an index can serve them, pages that neither repeat nor lose a row.

The statements are put together from fixed fragments (never from what a client sent), so that each combination of
filters gets a plan of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddleflow.errors import NotFound
from paddleflow.jobs.rows import SQL
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import Statement, compose


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
    statement, params = _select(wanted, before)
    rows = tx.all(statement, limit=limit, **params)
    return rows, members_by_job(tx, [row["id"] for row in rows])


def _select(wanted: JobFilter, before: int) -> tuple[Statement, dict[str, Value]]:
    conditions: list[str] = []
    params: dict[str, Value] = {}

    def one_of(column: str, given: Sequence[str]) -> None:
        words = dict.fromkeys(given)  # a word that is repeated a thousand times needs one parameter
        names = [f"{column}_{n}" for n in range(len(words))]
        conditions.append(f"{column} in ({', '.join(':' + name for name in names)})")
        params.update(zip(names, words, strict=True))

    if before:
        conditions.append("seq < :before")
        params["before"] = before
    if wanted.user is not None:
        one_of("user_name", [wanted.user])
    if wanted.statuses:
        one_of("status", wanted.statuses)
    if wanted.queues:
        one_of("queue", wanted.queues)
    if wanted.ids:
        one_of("id", wanted.ids)
    if wanted.updated_since is not None:
        conditions.append("updated_at >= :updated_since")
        params["updated_since"] = wanted.updated_since
    if wanted.started_since is not None:
        conditions.append("started_at >= :started_since")
        params["started_since"] = wanted.started_since
    for n, (key, value) in enumerate(sorted(wanted.labels.items())):
        conditions.append(f"id in (select job_id from job_labels where key = :key_{n} and value = :value_{n})")  # noqa: S608 fixed fragments
        params.update({f"key_{n}": key, f"value_{n}": value})
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return compose(f"select * from jobs{where} order by seq desc limit :limit"), params  # noqa: S608 fixed fragments


def members_by_job(tx: Tx, jobs: Sequence[str]) -> dict[str, list[Row]]:
    """The members of some jobs, in order."""
    found: dict[str, list[Row]] = defaultdict(list)
    if not jobs:
        return found
    names = [f"job_{n}" for n in range(len(jobs))]
    inside = ", ".join(f":{name}" for name in names)
    statement = compose(f"select * from tasks where job_id in ({inside}) order by job_id, role, idx")  # noqa: S608
    for row in tx.all(statement, **dict(zip(names, jobs, strict=True))):
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
