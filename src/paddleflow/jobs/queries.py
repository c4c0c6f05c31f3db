"""Finding jobs: newest first, filters that an index can serve, pages that neither repeat nor lose a row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound
from paddleflow.jobs.model import ACTIVE
from paddleflow.jobs.rows import (
    SQL,
    ChangedJob,
    EvictedJob,
    JobRow,
    TaskRow,
    WaitingClass,
    job_of,
    task_of,
)
from paddleflow.store.conditions import Conditions
from paddleflow.store.database import Row, Tx, Value

_AT_ONCE = 100  #: rows that are read at a time: a page of large jobs never is in memory as a whole


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
    array: str = ""
    run: str = ""
    fold: bool = False  #: of the jobs of one run or one array that are wanted, only the newest


class JobPage(NamedTuple):
    """A part of a list."""

    rows: list[JobRow]  #: newest first
    members: dict[str, list[TaskRow]]  #: by job
    cut: bool  #: there are more, although fewer were found than asked for


def find_jobs(tx: Tx, wanted: JobFilter, before: int, limit: int) -> tuple[list[JobRow], dict[str, list[TaskRow]]]:
    """(rows newest first, members by job). `before` is the position of the last row of the page before, 0 at first."""
    page = find_page(tx, wanted, before, limit, 1 << 60)
    return page.rows, page.members


def find_page(tx: Tx, wanted: JobFilter, before: int, limit: int, most_bytes: int) -> JobPage:
    """The same, with no more rows than their documents have bytes; one at least."""
    rows: list[JobRow] = []
    size, more = 0, True
    while more and len(rows) < limit:
        at_once = min(_AT_ONCE, limit - len(rows))
        found = _find(tx, wanted, rows[-1].seq if rows else before, at_once)
        more = len(found) == at_once
        for row in found:
            size += len(row.members) + len(row.labels) + len(row.annotations) + len(row.template or "")
            if rows and size > most_bytes:
                return JobPage(rows, members_by_job(tx, [row.id for row in rows]), True)
            rows.append(row)
    return JobPage(rows, members_by_job(tx, [row.id for row in rows]), False)


@dataclass(frozen=True, slots=True)
class JobGroup:
    """All jobs of a run or of an array."""

    jobs: Mapping[str, int]  #: how many are in each status
    accepted_at: float  #: of the first one
    started_at: float | None  #: of the first one
    finished_at: float | None  #: of the last one; None while one is active


def find_groups(tx: Tx, rows: Sequence[JobRow]) -> dict[tuple[str, str], JobGroup]:
    """The runs and arrays that these rows belong to, by user and id of the run or array."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for statement, ids in (
        ("group_runs", {row.run_id for row in rows if row.run_id}),
        ("group_arrays", {row.array_id for row in rows if row.array_id}),
    ):
        if ids:
            for row in tx.all(SQL[statement], ids=json.dumps([[id] for id in sorted(ids)])):
                found[row["user_name"], row["id"]].append(row)
    return {key: _group(each) for key, each in found.items()}


def _group(rows: Sequence[Row]) -> JobGroup:
    """One of rows that each tell of the jobs in one status."""
    started, finished = ([row[name] for row in rows if row[name] is not None] for name in ("started_at", "finished_at"))
    active = any(row["status"] in ACTIVE for row in rows)
    return JobGroup(
        jobs={row["status"]: row["jobs"] for row in rows},
        accepted_at=min(row["accepted_at"] for row in rows),
        started_at=min(started, default=None),
        finished_at=None if active else max(finished, default=None),
    )


def _find(tx: Tx, wanted: JobFilter, before: int, limit: int) -> list[JobRow]:
    where = _conditions(wanted)
    if wanted.fold:
        same = where.text
        for column in ("run_id", "array_id"):  # the names of the columns in `same` are those of the inner table
            alike = f"each.{column} = jobs.{column} and each.user_name = jobs.user_name"
            newest = f"select max(seq) from jobs each where {alike} and {same}"  # noqa: S608 fixed fragments
            where.add(f"({column} is null or seq = ({newest}))")
    if before:
        where.add("seq < :before", before=before)
    statement = where.statement("select * from jobs", "order by seq desc limit :limit")
    return [job_of(row) for row in tx.all(statement, limit=limit, **where.params)]


def _conditions(wanted: JobFilter) -> Conditions:
    where = Conditions()
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
    where.one_of("array_id", [wanted.array] if wanted.array else [])
    where.one_of("run_id", [wanted.run] if wanted.run else [])
    return where


def members_by_job(tx: Tx, jobs: Sequence[str]) -> dict[str, list[TaskRow]]:
    """The members of some jobs, in order."""
    found: dict[str, list[TaskRow]] = defaultdict(list)
    if not jobs:
        return found
    where = Conditions()
    where.one_of("job_id", jobs)
    for row in tx.all(where.statement("select * from tasks", "order by job_id, role, idx"), **where.params):
        found[row["job_id"]].append(task_of(row))
    return found


def find_job(tx: Tx, job: str) -> JobRow | None:
    """One job's row, whoever owns it."""
    row = tx.one(SQL["job_by_id"], id=job)
    return None if row is None else job_of(row)


def get_job(tx: Tx, job: str) -> JobRow:
    """One job's row, or NotFound."""
    row = find_job(tx, job)
    if row is None:
        raise NotFound(f"job[{job}] does not exist", code="JobNotFound", hint="paddleflow job list shows all")
    return row


def get_tasks(tx: Tx, job: str) -> list[TaskRow]:
    return [task_of(row) for row in tx.all(SQL["tasks_of_job"], job_id=job)]


def jobs_of_run(tx: Tx, run: str) -> list[JobRow]:
    """The jobs that ran a run's steps, in the order in which they were made."""
    return [job_of(row) for row in tx.all(SQL["jobs_of_run"], run_id=run)]


# --- for the engine -------------------------------------------------------------------------------------------------


def changed_jobs(tx: Tx, cluster: str, limit: int) -> list[ChangedJob]:
    """Jobs of a cluster that its engine has not seen since somebody else changed them, and those that are gone altogether."""
    return tx.rows(ChangedJob, SQL["unseen_jobs"], cluster=cluster, limit=limit)


def waiting_jobs(tx: Tx, cluster: str) -> list[ChangedJob]:
    """All jobs of a cluster that wait for resources."""
    return tx.rows(ChangedJob, SQL["waiting_jobs"], cluster=cluster)


def movable_jobs(
    tx: Tx, cluster: str, queue: str, after: int, before: float, now: float, limit: int
) -> list[ChangedJob]:
    """Jobs of a queue behind a position that wait on a cluster since `before` and may go to another."""
    return tx.rows(
        ChangedJob,
        SQL["movable_jobs"],
        cluster=cluster,
        queue=queue,
        after=after,
        before=before,
        now=now,
        limit=limit,
    )


def waiting_classes(tx: Tx, cluster: str) -> list[WaitingClass]:
    """The same in classes of jobs that are equal to the scheduler, so that a hundred thousand are few rows."""
    found = []
    for row in tx.all(SQL["waiting_classes"], cluster=cluster):
        lists = [json.loads(row.pop(name)) for name in ("seqs", "ids", "moments")]
        found.append(WaitingClass(**row, jobs=list(zip(*lists, strict=True))))
    return found


def held_jobs(tx: Tx, cluster: str) -> list[JobRow]:
    """Jobs that hold resources or are being ended."""
    return [job_of(row) for row in tx.all(SQL["held_jobs"], cluster=cluster)]


def tasks_of_held_jobs(tx: Tx, cluster: str) -> list[TaskRow]:
    return [task_of(row) for row in tx.all(SQL["tasks_of_held_jobs"], cluster=cluster)]


def evicted_jobs(tx: Tx, cluster: str, since: float) -> list[EvictedJob]:
    """Those whose eviction since then still counts."""
    return tx.rows(EvictedJob, SQL["evicted_jobs"], cluster=cluster, since=since)


def placeable_jobs(tx: Tx, seqs: Sequence[int]) -> dict[int, JobRow]:
    """Those of the jobs at these positions that still wait."""
    rows = tx.all(SQL["placeable_jobs"], seqs=json.dumps([[seq] for seq in seqs])) if seqs else []
    return {row["seq"]: job_of(row) for row in rows}


# --- for metrics and reports ----------------------------------------------------------------------------------------


class StatusCount(NamedTuple):
    """How many active jobs of a queue are in one status."""

    status: str
    queue: str
    jobs: int


class HeldResources(NamedTuple):
    """What jobs of a user in a queue with equal scalars hold together; `scalars` is what one of them has, as JSON."""

    queue: str
    user_name: str
    scalars: str
    jobs: int
    cpu: int
    memory: int


class EndedJob(NamedTuple):
    """A job that reached a final status; `scalars` is JSON."""

    queue: str
    user_name: str
    status: str
    accepted_at: float
    started_at: float | None
    finished_at: float
    cpu: int
    memory: int
    scalars: str


class PlacedTask(NamedTuple):
    """A member that holds resources; `member_sets` and `labels` are its job's."""

    node: str
    job_id: str
    role: str
    idx: int
    status: str
    member_sets: str
    labels: str


class CardJob(NamedTuple):
    """A job of a queue that ran between two moments."""

    id: str
    queue: str
    user_name: str
    member_sets: str
    accepted_at: float
    started_at: float
    finished_at: float | None


class CardSize(NamedTuple):
    """From when on a job whose members come and go held which scalars, as JSON."""

    job_id: str
    at: float
    scalars: str


class JobProgress(NamedTuple):
    status: str
    attempt: int


def job_progress(tx: Tx, job: str) -> JobProgress | None:
    row = tx.one(SQL["job_progress"], id=job)
    return None if row is None else JobProgress(**row)


def count_by_status(tx: Tx) -> list[StatusCount]:
    return tx.rows(StatusCount, SQL["count_by_status"])


def held_by_user(tx: Tx) -> list[HeldResources]:
    return tx.rows(HeldResources, SQL["held_by_user"])


def ended_behind(tx: Tx, after: int) -> list[EndedJob]:
    """Jobs that reached a final status by an event behind a position."""
    return tx.rows(EndedJob, SQL["ended_behind"], after=after)


def tasks_on_nodes(tx: Tx, cluster: str) -> list[PlacedTask]:
    return tx.rows(PlacedTask, SQL["tasks_on_nodes"], cluster=cluster)


def card_jobs(tx: Tx, queue: str, since: float, until: float) -> list[CardJob]:
    return tx.rows(CardJob, SQL["card_time"], queue=queue, since=since, until=until)


def card_sizes(tx: Tx, queue: str, since: float, until: float) -> list[CardSize]:
    return tx.rows(CardSize, SQL["card_sizes"], queue=queue, since=since, until=until)
