"""Routes of jobs: submit, list, show, stop, modify, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic_core import to_json

from paddleflow.access.callers import Caller, require_owner
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Handler, NoBody, NoQuery, Route
from paddleflow.jobs.changes import delete_job, modify_job, stop_job
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.queries import JobFilter, find_groups, find_page, get_job, get_tasks
from paddleflow.jobs.rows import JobRow, TaskRow
from paddleflow.jobs.submission import Submission, Submitter, submit
from paddleflow.jobs.views import group_view, job_view
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.job import DistributedJob, JobBatch, JobChange, SingleJob, WorkflowJob
from paddleflow.spec.job_query import JobActionQuery, JobListQuery, label_filter, parse_time
from paddleflow.spec.job_sets import JobSet, read_job_sets
from paddleflow.store.bus import EVENTS, JOBS
from paddleflow.store.database import Tx

LIST_BYTES = 4 * 2**20  #: of documents in one page of a list; a page of larger ones has fewer jobs than asked for
AT_ONCE = 100  #: jobs of a page that are shown in one step of the event loop
NOT_WAITING = {"unknown_job", "running"}  #: what the scheduler says of a job that does not wait for it


def owned_job(tx: Tx, caller: Caller, job: str) -> JobRow:
    """A job's row for its owner or root."""
    row = get_job(tx, job)
    require_owner(caller, row.user_name, f"job[{job}]")
    return row


def _submission(platform: Platform, caller: Caller, job_sets: Sequence[JobSet], *, batch: bool = False) -> Submission:
    here = platform.jobs_run_here
    submitter = Submitter(
        user=caller.name,
        root=caller.root,
        nodes=here.engines.capacities(),
        skip_queue_maximum=platform.settings.jobs.skip_resource_validate,
        max_document=platform.settings.jobs.max_document,
        max_environment=platform.settings.jobs.max_environment,
        queues=here.queues,
        admitted=here.admitted,
    )
    return Submission(job_sets, submitter, platform.clock.now(), batch)


def _create(operation: str) -> Handler:
    """The handler that submits one job of any kind."""

    async def create(platform: Platform, call: Call[list[JobSet], NoQuery]) -> wire.JobId:
        [id] = await platform.database.write(submit, _submission(platform, call.caller, call.body))
        platform.bus.wake(JOBS)
        return {"id": id}

    create.__name__ = operation
    return create


async def create_batch(platform: Platform, call: Call[list[JobSet], NoQuery]) -> wire.JobIds:
    ids = await platform.database.write(submit, _submission(platform, call.caller, call.body, batch=True))
    platform.bus.wake(JOBS)
    return {"ids": ids}


async def list_jobs(platform: Platform, call: Call[NoBody, JobListQuery]) -> bytes:
    query = call.query
    wanted = JobFilter(
        user=(query.user_filter or None) if call.caller.root else call.caller.name,
        statuses=listed(query.status),
        queues=listed(query.queue),
        updated_since=query.timestamp,
        started_since=parse_time("startTime", query.start_time) if query.start_time else None,
        labels=label_filter(query.labels) if query.labels else {},
        array=query.array,
        run=query.run_id,
        fold=query.fold,
    )
    if query.max_keys <= AT_ONCE:
        return await _jobs_page(platform, query, wanted)
    async with platform.large_pages.seat(call.caller.name):
        return await _jobs_page(platform, query, wanted)


async def _jobs_page(platform: Platform, query: JobListQuery, wanted: JobFilter) -> bytes:
    found = await platform.database.read(find_page, wanted, query.after, query.limit, LIST_BYTES)
    shown, truncated, marker = page(found.rows, query, cut=found.cut)
    groups = await platform.database.read(find_groups, shown) if query.fold else {}
    texts = []
    for begin in range(0, len(shown), AT_ONCE):
        if begin:
            await asyncio.sleep(0)  # a large page is shown in steps, between which others have their turn
        views = []
        for row in shown[begin : begin + AT_ONCE]:
            view = _view(platform, row, found.members[row.id])
            if query.fold and (id := row.run_id or row.array_id):
                view["group"] = group_view(id, groups[row.user_name, id])
            views.append(view)
        texts.append(to_json(views)[1:-1])
    answer: wire.JobList = {**page_fields(query, truncated, marker), "jobList": []}
    return to_json(answer).removesuffix(b"]}") + b",".join(texts) + b"]}"


async def show_job(platform: Platform, call: Call[NoBody, NoQuery]) -> bytes:
    row, tasks = await platform.database.peek(_job_with_tasks, call.caller, call.path["id"])
    return to_json(_view(platform, row, tasks))


def _job_with_tasks(tx: Tx, caller: Caller, job: str) -> tuple[JobRow, list[TaskRow]]:
    row = owned_job(tx, caller, job)
    return row, get_tasks(tx, job) if row.attempt else []


def _view(platform: Platform, row: JobRow, tasks: Sequence[TaskRow]) -> wire.Job:
    """A waiting job's message is the reason of this moment, not the one when it was first looked at."""
    if row.status == JobStatus.PENDING and not row.placed and row.not_before is None:
        engine = platform.jobs_run_here.engines.engine(row.cluster)
        reason = None if engine is None else engine.why(row.id)
        if reason is not None and reason.code not in NOT_WAITING:
            row = row._replace(message=reason.text)
    return job_view(row, tasks)


async def change_job(platform: Platform, call: Call[JobChange | None, JobActionQuery]) -> None:
    job, now = call.path["id"], platform.clock.now()

    def change(tx: Tx) -> None:
        owned_job(tx, call.caller, job)
        if call.query.action == "stop":
            stop_job(tx, job, f"stopped by {call.caller.name}", now, platform.settings.jobs)
        else:
            modify_job(tx, job, call.body or JobChange(), now, platform.settings.jobs)

    await platform.database.write(change)
    platform.bus.wake(JOBS)
    platform.bus.wake(EVENTS)


async def remove_job(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    job = call.path["id"]

    def remove(tx: Tx) -> None:
        owned_job(tx, call.caller, job)
        delete_job(tx, job)

    await platform.database.write(remove)
    await platform.jobs_run_here.remove_logs([job])
    platform.bus.wake(EVENTS)


_REFUSED = (
    "JobInvalidField", "400 QueueNameNotFound", "404 FlavourNotFound", "404 SecretNotFound", "404 JobNotFound", "403 AccessDenied", "InvalidState", "409 DuplicatedName",
)  # fmt: skip

ROUTES = (
    Route(
        "POST", "/job/single", _create("create_single"), "Submit a job of one process.",
        body=SingleJob, reader=read_job_sets, audited=False, answer=wire.JobId, errors=_REFUSED,
    ),
    Route(
        "POST", "/job/distributed", _create("create_distributed"), "Submit a job of several members that start together or not at all.",
        body=DistributedJob, reader=read_job_sets, audited=False, answer=wire.JobId, errors=_REFUSED,
    ),
    Route(
        "POST", "/job/workflow", _create("create_workflow"), "Submit an Argo Workflow; only clusters of type Kubernetes can run one.",
        body=WorkflowJob, reader=read_job_sets, audited=False, answer=wire.JobId, errors=_REFUSED,
    ),
    Route(
        "POST", "/job/batch", create_batch, "Submit many single jobs at once; all are accepted or none.",
        body=JobBatch, bulk=True, reader=read_job_sets, audited=False, answer=wire.JobIds, errors=_REFUSED,
    ),
    Route(
        "GET", "/job", list_jobs, "Jobs, newest first: one's own, or everybody's for root.",
        query=JobListQuery, answer=wire.JobList, errors=("InvalidMarker",),
    ),
    Route(
        "GET", "/job/{id}", show_job, "One job with its members and, while it waits, the reason.",
        answer=wire.Job, errors=("404 JobNotFound", "403 AccessDenied"),
    ),
    Route(
        "PUT", "/job/{id}", change_job, "Stop a job, or change its priority, labels and annotations.",
        body=JobChange, body_optional=True, query=JobActionQuery,
        errors=("404 JobNotFound", "403 AccessDenied", "409 ActionNotAllowed", "JobInvalidField"),
    ),
    Route(
        "DELETE", "/job/{id}", remove_job, "Delete a job that has ended, with its logs.",
        errors=("404 JobNotFound", "403 AccessDenied", "409 ActionNotAllowed"),
    ),
)  # fmt: skip
