"""Reading submissions: jobs that are alike are decoded once. Pure; `api` reads bodies with `read_job_sets`.

Most jobs come in sets that differ in id and name only. So a body is cut into what its jobs have in common, as canonical
JSON, and an identity of id and name for each. The common part is decoded and checked once; `jobs.submission` goes on the same
way: it admits the first of a set, and the others are copies of it.

This is the quick way of documents that are in order. Whatever it does not understand is read as a whole by
`spec.document.decode`, which knows every spelling and tells all faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from paddleflow.base.names import JOB_ID
from paddleflow.base.values import dataclass
from paddleflow.errors import MOST_FAULTS, Fault, Invalid
from paddleflow.spec.document import decode, parse
from paddleflow.spec.job import MOST_JOBS, MOST_NAME, DistributedJob, JobBatch, SingleJob, WorkflowJob

AnyJob: TypeAlias = SingleJob | DistributedJob | WorkflowJob
Identity: TypeAlias = tuple[str, str]  #: id, empty for a new one, and name
Key: TypeAlias = tuple[str, bytes]

_LARGE = 64 * 1024  #: bytes of a batch beyond which its faults are not all looked for
_LONGEST = 4096  #: bytes of a common part that is remembered
_MOST = 1024  #: common parts that are remembered


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs that follow each other in a submission and are equal apart from id and name."""

    document: AnyJob  #: its id and name do not count
    identities: Sequence[Identity]
    key: Key | None = None  #: equal for equal documents; None: not worth remembering


def job_set_of(document: AnyJob) -> JobSet:
    """One job by itself."""
    return JobSet(document, [(document.id, document.name)])


def read_job_sets(kind: type[AnyJob | JobBatch], body: bytes, *, ignore_unknown: bool = False) -> list[JobSet]:
    """The jobs in a body, or one `Invalid` that lists every fault."""
    try:
        return _quickly(kind, body, ignore_unknown)
    except (ValueError, Invalid):  # not spelled as documented, or wrong
        if issubclass(kind, JobBatch) and len(body) > _LARGE:
            return [job_set_of(document) for document in _one_by_one(body, ignore_unknown)]
        whole = decode(kind, body, ignore_unknown=ignore_unknown)
    return [job_set_of(document) for document in (whole.jobs if isinstance(whole, JobBatch) else [whole])]


def _one_by_one(body: bytes, ignore_unknown: bool) -> Iterator[SingleJob]:
    """The jobs of a large batch, each checked by itself and no further than the faults that are listed: to find all faults of
    ten thousand jobs at once would hold up everybody else for seconds."""
    try:
        data = from_json(body)
    except ValueError as error:
        raise Invalid(f"the request body is not JSON: {error}", code="MalformedJSON") from error
    given = {str(key).lower(): value for key, value in data.items()} if isinstance(data, dict) else {}
    jobs = given.get("jobs")
    if list(given) != ["jobs"] or not isinstance(jobs, list) or not 1 <= len(jobs) <= MOST_JOBS:
        raise Invalid(
            f"an object with jobs, a list of 1 to {MOST_JOBS:,}, is wanted and nothing else", code=JobBatch.code
        )
    documents: list[SingleJob] = []
    faults: list[Fault] = []
    for number, job in enumerate(jobs):
        try:
            documents.append(parse(SingleJob, job, ignore_unknown=ignore_unknown))
        except Invalid as error:
            faults += [
                replace(fault, where=f"jobs[{number}]{'.' if fault.where else ''}{fault.where}")
                for fault in error.details or (Fault("", error.message),)
            ]
            if len(faults) >= MOST_FAULTS:
                faults[MOST_FAULTS - 1 :] = [Fault("", f"{len(jobs) - number - 1:,} further jobs were not checked")]
                break
    if faults:
        raise Invalid.of(faults, code=JobBatch.code)
    return iter(documents)


def _quickly(kind: type[AnyJob | JobBatch], body: bytes, ignore_unknown: bool) -> list[JobSet]:
    """The same for bodies in good order; ValueError or `Invalid` for others."""
    data = from_json(body)
    each: type[AnyJob]
    if issubclass(kind, JobBatch):
        each, jobs = SingleJob, data["jobs"] if isinstance(data, dict) and list(data) == ["jobs"] else None
        if not isinstance(jobs, list) or not 1 <= len(jobs) <= MOST_JOBS:
            raise ValueError("not a list of jobs")
    else:
        each, jobs = kind, [data]
    job_sets: list[JobSet] = []
    last: bytes = b""
    identities: list[Identity] = []
    for job in jobs:
        identity = _take_identity(job)
        common = to_json(job, inf_nan_mode="constants")
        if common != last:
            last, identities = common, []
            job_sets.append(_job_set(each, common, identities, ignore_unknown))
        identities.append(identity)
    return job_sets


def _take_identity(job: Any) -> Identity:
    if type(job) is not dict:
        raise ValueError("not a job")
    id, name = job.pop("id", None), job.pop("name", None)
    if (id is not None and type(id) is not str) or (name is not None and type(name) is not str):
        raise ValueError("not text")
    if (id and JOB_ID.fault(id)) or (name and len(name) > MOST_NAME):
        raise ValueError("not an id and a name")
    return id or "", name or ""


def _job_set(kind: type[AnyJob], common: bytes, identities: list[Identity], ignore_unknown: bool) -> JobSet:
    short = len(common) <= _LONGEST
    document = (_decoded if short else _decoded.__wrapped__)(kind, common, ignore_unknown)
    if not document.model_fields_set.isdisjoint(("id", "name")):  # with other capitals
        raise ValueError("not spelled as documented")
    return JobSet(document, identities, (kind.__name__, common) if short else None)


@lru_cache(maxsize=_MOST)
def _decoded(kind: type[AnyJob], common: bytes, ignore_unknown: bool) -> AnyJob:
    """Documents are frozen, so that all who send the same may share one."""
    return decode(kind, common, ignore_unknown=ignore_unknown)
