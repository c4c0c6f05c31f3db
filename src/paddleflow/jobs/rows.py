"""Jobs as rows: their types, and encoding and decoding of what the columns hold. The SQL is in ``jobs.sql``.

Rows leave this package as the named tuples below (the cheapest immutable value: a restart reads a hundred thousand).
`queries` reads them; engine, API and runs see nothing else of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from paddleflow.base.json_text import json_text
from paddleflow.base.quantity import Resources
from paddleflow.frameworks.catalogue import find
from paddleflow.jobs.machine import JobState, Lifecycle, TaskState
from paddleflow.jobs.model import JobStatus, Member, MountedStorage, NewJob, RestartPolicy, TaskStatus
from paddleflow.jobs.neighbour_rules import TemplateRules
from paddleflow.jobs.node_rules import ANY_NODE, NodeRules, RequiredAffinity, common_rules, read_rules
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Request
from paddleflow.settings import JobSettings
from paddleflow.spec.job import PRIORITIES
from paddleflow.store.database import Row, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.jobs", "jobs.sql")
RETRIES_VARIABLE = "PF_JOB_RETRIES"  #: how often a failed job is started again, instead of the server's limit
MOST_RETRIES = 100
PREEMPTED_VARIABLE = "PF_JOB_WHEN_PREEMPTED"  #: `end`: a job that made way does not wait for a new place


class JobRow(NamedTuple):
    """A row of ``jobs``, column by column; the migrations say what each means."""

    id: str
    name: str
    user_name: str
    queue: str
    cluster: str
    kind: str
    framework: str
    priority: str
    status: str
    message: str
    members: str
    member_sets: str
    labels: str
    annotations: str
    template: str | None
    cpu: int
    memory: int
    scalars: str
    accepted_at: float
    updated_at: float
    ttl: float | None
    seq: int = 0
    outcome: str | None = None
    placed: int = 0
    attempt: int = 0
    not_before: float | None = None
    gated: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    delete_at: float | None = None
    touched: int = 1
    seen: int = 0
    run_id: str | None = None
    placed_at: float | None = None
    preemptions: int = 0
    evicted_at: float | None = None
    evicted_by: str = ""
    lost_seconds: float = 0.0
    resizes: int = 0
    resized_at: float | None = None
    after_jobs: str = ""
    array_id: str | None = None


class TaskRow(NamedTuple):
    """A row of ``tasks``: one member of a job with its placement."""

    job_id: str
    role: str
    idx: int
    attempt: int
    status: str
    node: str
    devices: str
    ports: str
    ready: int
    exit_code: int | None
    message: str
    started_at: float | None
    finished_at: float | None
    cpu_seconds: float | None
    peak_memory: int | None
    leaving: int


class ChangedJob(NamedTuple):
    """A job that somebody else than the engine wrote, or that waits: no more than the scheduler needs to know."""

    seq: int
    id: str
    queue: str
    user_name: str
    framework: str
    priority: str
    member_sets: str
    accepted_at: float
    attempt: int
    not_before: float | None
    gated: int
    touched: int
    status: str  #: `DELETED` if the row is gone
    placed: int
    message: str
    expected: float | None = None  #: seconds that it will probably run; no column
    data: tuple[str, ...] = ()  #: nodes that hold its data, those with most first; no column


class WaitingClass(NamedTuple):
    """Waiting jobs that are equal to the scheduler."""

    queue: str
    user_name: str
    framework: str
    priority: str
    member_sets: str
    attempt: int
    not_before: float | None
    gated: int
    touched: int
    status: str
    message: str
    jobs: Sequence[tuple[int, str, float]]  #: position, id and time of submission of each
    expected: float | None = None
    data: tuple[str, ...] = ()


class EvictedJob(NamedTuple):
    """A job whose last eviction still counts."""

    id: str
    status: str
    evicted_at: float
    evicted_by: str


class _Schedulable(Protocol):
    """What the scheduler needs to know of a job; `JobRow` and `ChangedJob` have it."""

    @property
    def id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def member_sets(self) -> str: ...
    @property
    def accepted_at(self) -> float: ...
    @property
    def priority(self) -> str: ...
    @property
    def user_name(self) -> str: ...


_SHORT = 4096  #: characters of members that are worth remembering
DELETED = "deleted"  #: the status of a `ChangedJob` whose row is gone
_job_columns = itemgetter(*JobRow._fields)
_task_columns = itemgetter(*TaskRow._fields)


def inserted_job(values: Mapping[str, Value], seq: int, now: float) -> JobRow:
    """The row that an insert of these values made; columns that it left out have their defaults."""
    return job_of({**JobRow._field_defaults, **values, "updated_at": now, "seq": seq})


def job_of(row: Row) -> JobRow:
    """A whole row of ``jobs`` as the database gives it."""
    return JobRow._make(_job_columns(row))


def task_of(row: Row) -> TaskRow:
    """A whole row of ``tasks`` as the database gives it."""
    return TaskRow._make(_task_columns(row))


def job_row(job: NewJob, at: float) -> dict[str, Value]:
    """What is inserted for a new job."""
    return {**common_row(job), "id": job.id, "name": job.name, "accepted_at": at}


def common_row(job: NewJob) -> dict[str, Value]:
    """All of it that jobs have in common which differ in nothing but id, name and moment."""
    return {
        "user_name": job.user,
        "queue": job.queue,
        "cluster": job.cluster,
        "kind": job.kind,
        "framework": job.framework,
        "priority": job.priority,
        "members": json_text([_member_json(member) for member in job.members]),
        "member_sets": needs_text(
            tuple((m.role, m.replicas, m.request, m.least, m.in_place, m.nodes) for m in job.members)
        ),
        "labels": json_text(job.labels) if job.labels else "{}",
        "annotations": json_text(job.annotations) if job.annotations else "{}",
        "template": None if job.template is None else json_text(job.template),
        "cpu": job.request.cpu,
        "memory": job.request.memory,
        "scalars": json_text(dict(job.request.scalars)) if job.request.scalars else "{}",
        "ttl": job.ttl,
    }


@lru_cache(maxsize=4096)
def needs_text(members: tuple[tuple[str, int, Resources, int | None, bool, NodeRules], ...]) -> str:
    """What `member_sets_of` and `node_rules_of` read; most jobs are of few sizes, most members all or none and on any node."""
    rows: list[list[Any]] = []
    for role, count, each, least, in_place, nodes in members:
        rest = [least, in_place, nodes.json()] if nodes != ANY_NODE else [] if least is None else [least, in_place]
        rows.append([role, count, *_amounts(each), *rest])
    return json_text(rows)


def _amounts(amount: Resources) -> tuple[int, int, dict[str, int]]:
    return amount.cpu, amount.memory, dict(amount.scalars)


def _resources(cpu: int, memory: int, scalars: Mapping[str, int]) -> Resources:
    return Resources.of(cpu, memory, scalars)


def _member_json(member: Member) -> dict[str, Any]:
    data: dict[str, Any] = {
        "role": member.role,
        "replicas": member.replicas,
        "argv": member.argv,
        "request": _amounts(member.request),
        "document": member.document,
    }
    if member.env:
        data["env"] = dict(member.env)
    if member.limit != member.request:
        data["limit"] = None if member.limit is None else _amounts(member.limit)
    if member.least is not None:
        data["least"], data["inPlace"] = member.least, member.in_place
    if member.storages:
        data["storages"] = [[s.id, s.name, s.source, s.mount_path, s.sub_path, s.read_only] for s in member.storages]
    return data


def members_of(text: str) -> tuple[Member, ...]:
    """The members that a job row holds; equal jobs share them, unless they are large."""
    return (_members_of if len(text) <= _SHORT else _members_of.__wrapped__)(text)


@lru_cache(maxsize=1024)
def _members_of(text: str) -> tuple[Member, ...]:
    members = []
    for data in json.loads(text):
        request = _resources(*data["request"])
        limit = data["limit"] and _resources(*data["limit"]) if "limit" in data else request
        members.append(
            Member(
                role=data["role"],
                replicas=data["replicas"],
                argv=tuple(data["argv"]),
                env=data.get("env", {}),
                request=request,
                limit=limit,
                storages=tuple(MountedStorage(*fields) for fields in data.get("storages", ())),
                least=data.get("least"),
                in_place=data.get("inPlace", False),
                document=data["document"],
            )
        )
    return tuple(members)


@lru_cache(maxsize=4096)
def member_sets_of(text: str) -> tuple[MemberSet, ...]:
    """What the scheduler needs to know; equal texts give the same object, so that equal jobs are cheap."""
    return tuple(
        MemberSet(role, count, _resources(cpu, memory, scalars), *rest[:1])
        for role, count, cpu, memory, scalars, *rest in json.loads(text)
    )


@lru_cache(maxsize=4096)
def _restarts(text: str) -> bool:
    """Whether another number of members means to start all of them anew."""
    return any(len(need) > 5 and need[5] is not None and not need[6] for need in json.loads(text))


@lru_cache(maxsize=4096)
def _rules_of_needs(text: str) -> tuple[Mapping[str, Any], tuple[tuple[str, str], ...]]:
    """The fields of a request that say which nodes come into question, and by role what pods ask of those beside them."""
    needs = json.loads(text)
    by_role = [read_rules(need[7]) if len(need) > 7 else ANY_NODE for need in needs]
    rules = common_rules(by_role)
    found: dict[str, Any] = {"node_labels": rules.labels, "tolerates": rules.tolerates}
    if rules.affinity:
        found["filter"] = RequiredAffinity(rules.affinity, rules.tolerates)
    return found, tuple((need[0], each.near) for need, each in zip(needs, by_role, strict=True) if each.near)


def _node_rules(text: str, job: str) -> Mapping[str, Any]:
    fields, near = _rules_of_needs(text)
    return {**fields, "constraint": TemplateRules.of(near, job)} if near else fields


def request_of(row: _Schedulable, expected: float | None = None, data: tuple[str, ...] = ()) -> Request:
    """A job as the scheduler sees it."""
    return Request(
        job=row.id,
        queue=row.queue,
        member_sets=member_sets_of(row.member_sets),
        submitted_at=row.accepted_at,
        seq=row.seq,
        priority=PRIORITIES[row.priority],
        user=row.user_name,
        data=data,
        expected=expected,
        restarts=_restarts(row.member_sets),
        **_node_rules(row.member_sets, row.id),
    )


def request_of_new(
    job: NewJob, member_sets: str, at: float, seq: int, expected: float | None, data: tuple[str, ...]
) -> Request:
    """The same for a job whose row is not written yet."""
    priority, restarts = PRIORITIES[job.priority], _restarts(member_sets)
    return Request(
        job.id,
        job.queue,
        member_sets_of(member_sets),
        at,
        seq,
        priority,
        job.user,
        data=data,
        expected=expected,
        restarts=restarts,
        **_node_rules(member_sets, job.id),
    )


def requests_of(waiting: WaitingClass) -> list[Request]:
    """All jobs of a class as the scheduler sees them."""
    queue, member_sets, priority = waiting.queue, member_sets_of(waiting.member_sets), PRIORITIES[waiting.priority]
    seq, job, at = waiting.jobs[0]
    first = Request(
        job, queue, member_sets, at, seq, priority, waiting.user_name,
        data=waiting.data, expected=waiting.expected, restarts=_restarts(waiting.member_sets),
        **_node_rules(waiting.member_sets, job),
    )  # fmt: skip
    if isinstance(first.constraint, TemplateRules) and first.constraint.job:  # a rule names the label of a single job
        found = [first._replace(job=job, submitted_at=at, seq=seq) for seq, job, at in waiting.jobs]
        return [each._replace(constraint=first.constraint._replace(job=each.job)) for each in found]
    rest = first[5:]
    return [Request(job, queue, member_sets, at, seq, *rest) for seq, job, at in waiting.jobs]


def class_of(row: ChangedJob) -> WaitingClass:
    """A waiting job as a class of its own."""
    return WaitingClass(
        row.queue, row.user_name, row.framework, row.priority, row.member_sets, row.attempt, row.not_before, row.gated, row.touched,
        row.status, row.message, [(row.seq, row.id, row.accepted_at)], row.expected, row.data,
    )  # fmt: skip


def allocation_of(row: JobRow, tasks: Iterable[TaskRow]) -> Allocation:
    """A job with the placement of its members."""
    assignments = tuple(
        Assignment(
            task.role,
            task.idx,
            task.node,
            tuple((name, tuple(numbers)) for name, numbers in json.loads(task.devices)),
        )
        for task in tasks
    )
    return Allocation(request_of(row), assignments, row.placed_at or row.updated_at, row.resized_at)


def lifecycle_of(framework: str, members: Sequence[Member], rules: JobSettings) -> Lifecycle:
    """What the framework, the members' restart policy and their word about evictions say."""
    again = {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE}
    restarts = any(member.env.get("PF_JOB_RESTART_POLICY") in again for member in members)
    given = [text for member in members if (text := member.env.get(RETRIES_VARIABLE, "")).isdecimal()]
    limit = rules.restart_limit if restarts else 0
    if given:
        limit = min(max(int(text[:9]) for text in given), MOST_RETRIES)
    ends = any(member.env.get(PREEMPTED_VARIABLE, "").lower() == "end" for member in members)
    return _lifecycle(framework, tuple(member.role for member in members), limit, not ends, rules.restart_delay)


@lru_cache(maxsize=256)
def _lifecycle(framework: str, roles: tuple[str, ...], restarts: int, requeued: bool, delay: float) -> Lifecycle:
    table = find(framework)
    return Lifecycle(table.stages, table.completing(roles), table.completion, restarts, requeued, delay)


def state_of(row: JobRow, tasks: Iterable[TaskRow], lifecycle: Lifecycle) -> JobState:
    """The machine's state that a job row and its members' rows stand for."""
    status = JobStatus(row.status)
    states = tuple(
        TaskState(
            role=task.role,
            index=task.idx,
            status=TaskStatus(task.status),
            ready=bool(task.ready),
            exit_code=task.exit_code,
            message=task.message,
            started_at=task.started_at,
            finished_at=task.finished_at,
            cpu_seconds=task.cpu_seconds,
            peak_memory=task.peak_memory,
            leaving=bool(task.leaving),
        )
        for task in tasks
        if row.placed and task.attempt == row.attempt
    )
    return JobState(
        id=row.id,
        lifecycle=lifecycle,
        status=status,
        message=row.message,
        tasks=states,
        attempt=row.attempt,
        outcome=JobStatus(row.outcome) if row.outcome else None,
        started_at=row.started_at,
        finished_at=row.finished_at,
        not_before=row.not_before,
        excused=row.preemptions + row.resizes,
    )


def delete_at(status: JobStatus, finished_at: float | None, ttl: float | None, rules: JobSettings) -> float | None:
    """When an ended job is deleted by itself: its own TTL, or the one of the settings; None: never."""
    if finished_at is None:
        return None
    general = rules.ttl_succeeded if status is JobStatus.SUCCEEDED else rules.ttl_failed
    if ttl is not None:
        return finished_at + ttl
    return finished_at + general if general else None
