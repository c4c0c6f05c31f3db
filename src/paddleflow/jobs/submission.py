"""Submitting jobs: look up what they name, admit them, write rows and first events. One transaction, all or nothing.

Submissions of many clients that come together are written by the same few statements, each accepted or refused alone.

Most jobs are like one that came before. To admit a job, resolve what it names and encode its row costs many times what
the row costs, so the result is kept in an `AdmissionCache` as long as nothing that it depends on has changed: a queue or
cluster, a flavour, a storage, a grant (all counted in `store.counters`), a node. The engine keeps the jobs of steps in a
cache of the same kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, TypeAlias, TypeVar

from paddleflow.access.secrets import secret_names
from paddleflow.base.ids import new_job_id
from paddleflow.base.json_text import json_text
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Fault, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError
from paddleflow.jobs import dependencies
from paddleflow.jobs.admission import MAX_ENVIRONMENT, AdmissionContext, EarlierJob, QueueFacts, StorageFacts, admit
from paddleflow.jobs.model import Dependency, JobStatus, NewJob
from paddleflow.jobs.rows import SQL, common_row
from paddleflow.queues.clusters import find_cluster
from paddleflow.queues.flavours import find_flavour, flavour_names
from paddleflow.queues.model import COUNTER
from paddleflow.queues.queues import find_queue, may_use_queue, queues_above, usable_queues
from paddleflow.spec.job_sets import Identity, JobSet
from paddleflow.storage.storages import storage_names, usable_storage
from paddleflow.store import counters, events
from paddleflow.store.database import Batched, Tx, Value

Nodes: TypeAlias = Mapping[str, Sequence[tuple[str, Resources]]]  #: of clusters: name and capacity of each node
T = TypeVar("T")
MOST_DEPENDENCIES = 100_000  #: between the jobs of one submission and those that they wait for
MOST_REFUSED = 100  #: refused jobs of one batch that are listed
_MOST_CACHED = 1024
MAX_DOCUMENT = 512 * 2**10  #: bytes of a job, unless the settings say otherwise


class AdmissionCache(Generic[T]):
    """What admission found out about jobs that are alike, as long as everything that it depends on stays as it is."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._nodes: Nodes = {}
        self._found: dict[Hashable, T] = {}

    def validate(self, version: int, nodes: Nodes) -> None:
        """Forget everything if a queue, cluster, flavour, storage, grant or node has changed. See `admission_version`."""
        if version != self._version or nodes != self._nodes:
            self._version, self._nodes, self._found = version, nodes, {}

    def get(self, key: Hashable) -> T | None:
        return self._found.get(key)

    def put(self, key: Hashable, value: T) -> None:
        if len(self._found) >= _MOST_CACHED:
            self._found = {}
        self._found[key] = value


def admission_version(tx: Tx) -> int:
    """Another number as soon as anything in the database has changed that admission depends on."""
    return counters.both(tx, COUNTER, counters.NAMED)


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """A job that passed every check, without id, name and time."""

    row: Mapping[str, Value]  #: what `insert_jobs` takes besides them
    labels: Mapping[str, str]
    storages: tuple[str, ...]  #: ids of those that the job uses
    waits_for: tuple[Dependency, ...] = ()  #: jobs that must end first


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, and what the nodes of the clusters can hold."""

    user: str
    root: bool
    nodes: Nodes
    skip_queue_maximum: bool = False
    queues: QueueCache = field(default_factory=lambda: QueueCache())
    admitted: AdmissionCache[AdmittedJob] = field(default_factory=AdmissionCache)
    max_document: int = MAX_DOCUMENT  #: bytes
    max_environment: int = MAX_ENVIRONMENT  #: bytes of one member's variables


@dataclass(frozen=True, slots=True)
class Submission:
    """Jobs that are accepted or refused as one."""

    job_sets: Sequence[JobSet]
    submitter: Submitter
    at: float
    batch: bool = False  #: the faults say of which job they are (``jobs[17].id``)


def _submit(tx: Tx, submissions: Sequence[Submission]) -> list[list[str] | PaddleFlowError]:
    """For each the ids of its jobs, in order; one job that is refused refuses its whole submission."""
    version = admission_version(tx)
    now = max(each.at for each in submissions)
    accepted: list[tuple[AdmittedJob, list[Identity]]] = []
    found: list[list[str] | PaddleFlowError] = []
    for each in submissions:
        try:
            admitted = _admit_all(tx, each, version)
            _refuse_taken_ids(tx, each)
        except PaddleFlowError as error:
            found.append(error)
            continue
        ids = []
        for job, job_set in zip(admitted, each.job_sets, strict=True):
            identities = [(id or new_job_id(now), name) for id, name in job_set.identities]
            ids += [id for id, _ in identities]
            if accepted and accepted[-1][0] is job:
                accepted[-1][1].extend(identities)
            else:
                accepted.append((job, identities))
        found.append(ids)
    if accepted:
        _insert(tx, accepted, now)
        written = [id for _, identities in accepted for id, _ in identities]
        events.append_alike(tx, "job", written, "status", now, {"status": JobStatus.INIT, "message": ""})
        for job, identities in accepted:
            if job.waits_for:
                _hold_back(tx, job, [id for id, _ in identities], now)
    return found


def _hold_back(tx: Tx, job: AdmittedJob, ids: Sequence[str], now: float) -> None:
    dependencies.note(tx, ids, job.waits_for)
    data = {"status": JobStatus.PENDING, "message": dependencies.waiting_message(job.waits_for)}
    events.append_alike(tx, "job", ids, "status", now, data)


submit = Batched(_submit)  #: for `Database.write`: submissions that come together are written together


def _admit_all(tx: Tx, submission: Submission, version: int) -> list[AdmittedJob]:
    """One admitted job for each set, or the faults of all; the first refusal decides the answer's code."""
    submitter = submission.submitter
    user, known = submitter.user, submitter.admitted
    known.validate(version, submitter.nodes)
    context: AdmissionContext | None = None
    found: list[AdmittedJob] = []
    refused: list[tuple[PaddleFlowError, range]] = []
    behind = dependent = 0
    for job_set in submission.job_sets:
        numbers = range(behind, behind + len(job_set.identities))
        behind = numbers.stop
        key = None if job_set.document.after else job_set.key  # what it waits for changes from moment to moment
        admitted = known.get((user, key)) if key is not None else None
        if admitted is None:
            context = context or admission_context(tx, submitter)
            try:
                job = admit(job_set.document, context)
            except (Invalid, NotFound, Forbidden, OverQuota) as error:
                refused.append((error, numbers))
                if len(refused) == MOST_REFUSED:
                    break
                continue
            admitted = AdmittedJob({**common_row(job), **_begin(job)}, job.labels, _storages(job), job.waits_for)
            size = sum(
                len(str(admitted.row[name] or "").encode()) for name in ("members", "labels", "annotations", "template")
            )
            if size > submitter.max_document:
                refused.append((_too_large(size, submitter.max_document), numbers))
                continue
            dependent += len(job.waits_for) * len(numbers)
            if dependent > MOST_DEPENDENCIES:
                refused.append((_too_many(len(job.waits_for), len(numbers)), numbers))
                continue
            if key is not None:
                known.put((user, key), admitted)
        found.append(admitted)
    if refused:
        raise _refusal(refused) if submission.batch else refused[0][0]
    return found


def _begin(job: NewJob) -> dict[str, Value]:
    """What a row says that is new: one that waits for other jobs is not seen by the scheduler before they have ended."""
    return {
        "status": JobStatus.PENDING if job.waits_for else JobStatus.INIT,
        "message": dependencies.waiting_message(job.waits_for) if job.waits_for else "",
        "gated": int(bool(job.waits_for)),
        "after_jobs": json_text(job.after) if job.after else "",
        "array_id": job.array or None,
    }


def _too_many(after: int, jobs: int) -> Invalid:
    message = f"{jobs:,} jobs that each wait for {after:,} are more than {MOST_DEPENDENCIES:,} dependencies"
    hint = "put one job between them: it waits for all of the first, and the others wait for it"
    return Invalid.of([Fault("after", message, hint)], code="JobInvalidField")


def _too_large(size: int, most: int) -> Invalid:
    message = f"the job has {size} bytes, at most {most} are allowed"
    hint = "put what is large into a file on a storage; the setting jobs.max_document is the limit"
    return Invalid.of([Fault("", message, hint)], code="JobInvalidField")


def _refusal(refused: Sequence[tuple[PaddleFlowError, range]]) -> PaddleFlowError:
    """One refusal of a whole batch, which says what is wrong with each job."""
    first = refused[0][0]
    each = [(error, number) for error, numbers in refused for number in numbers]
    faults = [
        Fault(f"jobs[{number}].{fault.where}", fault.message, fault.hint)
        for error, number in each[:MOST_REFUSED]
        for fault in error.details
    ]
    text = "; ".join(map(str, faults)) + ("; and perhaps more" if len(each) >= MOST_REFUSED else "")
    return type(first)(text, code=first.code, hint=first.hint, details=faults)


def _refuse_taken_ids(tx: Tx, submission: Submission) -> None:
    """An id that another submission of the same moment has taken is not seen here: the insert breaks, and each is tried
    alone."""
    ids = [id for job_set in submission.job_sets for id, _ in job_set.identities]
    given = {*ids} - {""}
    if not given:
        return
    taken = {row["id"] for row in tx.all(SQL["ids_taken"], ids=json_text([[id] for id in given]))}
    if not taken and len(given) == len(ids) - ids.count(""):
        return
    hint = "leave id out to get a new one"
    faults: list[Fault] = []
    seen: set[str] = set()
    for number, id in enumerate(ids):
        where = f"jobs[{number}].id" if submission.batch else "id"
        if id in seen:
            faults.append(Fault(where, f"job[{id}] is listed twice", hint))
        elif id in taken:
            faults.append(Fault(where, f"job[{id}] exists already", hint))
        if id:
            seen.add(id)
        if len(faults) == MOST_REFUSED:
            break
    raise Conflict("; ".join(map(str, faults)), code="DuplicatedName", hint=hint, details=faults)


class QueueCache:
    """What admission must know of queues, kept between transactions.

    Every change of a queue or cluster raises a counter in the same transaction; one look at it tells whether what is
    kept is still true.
    """

    def __init__(self) -> None:
        self._version = -1
        self._facts: dict[str, QueueFacts] = {}

    def facts(self, tx: Tx, name: str) -> QueueFacts | None:
        """The queue as root sees it; None when there is none of that name."""
        version = counters.value(tx, COUNTER)
        if version != self._version:
            self._facts = {}
            self._version = version
        found = self._facts.get(name)
        if found is None:
            queue = find_queue(tx, name)
            cluster = None if queue is None else find_cluster(tx, queue.cluster)
            if queue is None or cluster is None:
                return None
            above = queues_above(tx, queue)
            others = [other for name in queue.other_clusters if (other := find_cluster(tx, name)) is not None]
            online = any(each.online for each in (cluster, *others))
            is_open = online and all(each.open for each in (queue, *above))
            ceilings = tuple((each.name, each.ceiling) for each in above if each.ceiling is not None)
            found = QueueFacts(
                name, is_open, True, queue.ceiling, cluster.cluster_type, ceilings, queue.cluster, queue.other_clusters,
                queue.namespace,
            )  # fmt: skip
            self._facts[name] = found
        return found


class _Lookup:
    """Answers what admission asks of this moment; each answer is looked up once."""

    def __init__(self, tx: Tx, submitter: Submitter) -> None:
        self._tx = tx
        self._submitter = submitter
        self._queues: dict[str, QueueFacts | None] = {}
        self._flavours: dict[str, Resources | None] = {}
        self._storages: dict[str, StorageFacts | None] = {}
        self._fits: dict[tuple[str, Resources], str] = {}

    def queue(self, name: str) -> QueueFacts | None:
        if name not in self._queues:
            who = self._submitter
            found = who.queues.facts(self._tx, name)
            if found is not None and not may_use_queue(self._tx, who.user, who.root, name):
                found = replace(found, usable=False)
            self._queues[name] = found
        return self._queues[name]

    def earlier_job(self, id: str) -> EarlierJob | None:
        row = self._tx.one(SQL["job_owner"], id=id)
        if row is None or (row["user_name"] != self._submitter.user and not self._submitter.root):
            return None
        return EarlierJob(JobStatus(row["status"]), row["message"])

    def flavour(self, name: str) -> Resources | None:
        if name not in self._flavours:
            found = find_flavour(self._tx, name)
            self._flavours[name] = found.each if found else None
        return self._flavours[name]

    def storage(self, name: str) -> StorageFacts | None:
        if name not in self._storages:
            found = usable_storage(self._tx, self._submitter.user, self._submitter.root, name)
            self._storages[name] = StorageFacts(found.id, found.name, found.source) if found else None
        return self._storages[name]

    def why_no_node(self, cluster: str, amount: Resources) -> str:
        key = cluster, amount
        if key not in self._fits:
            self._fits[key] = self._why_no_node(cluster, amount)
        return self._fits[key]

    def _why_no_node(self, cluster: str, amount: Resources) -> str:
        nodes = self._submitter.nodes.get(cluster)
        if nodes is None:  # another server knows them: its scheduler says whether it fits
            return ""
        if any(amount.fits(capacity) for _, capacity in nodes):
            return ""
        if not nodes:
            return "there is none"
        name, capacity = max(nodes, key=lambda node: (node[1].cpu, node[1].memory))
        return f"it asks for {amount}, the largest node {name} has {capacity}"


def admission_context(tx: Tx, submitter: Submitter) -> AdmissionContext:
    """What admission may ask of this moment."""
    user, root = submitter.user, submitter.root
    lookup = _Lookup(tx, submitter)
    return AdmissionContext(
        user=user,
        queue=lookup.queue,
        flavour=lookup.flavour,
        storage=lookup.storage,
        why_no_node=lookup.why_no_node,
        earlier_job=lookup.earlier_job,
        known_secrets=lambda: secret_names(tx, user),
        known_queues=lambda: usable_queues(tx, user, root),
        known_flavours=lambda: flavour_names(tx),
        known_storages=lambda: storage_names(tx, user, root),
        skip_queue_maximum=submitter.skip_queue_maximum,
        max_environment=submitter.max_environment,
    )


# --- rows -----------------------------------------------------------------------------------------------------------


def _insert(tx: Tx, accepted: Sequence[tuple[AdmittedJob, Sequence[Identity]]], now: float) -> None:
    """Write the rows of jobs, and what is searched for beside them. Every identity has its id."""
    tx.many(
        SQL["insert_jobs"],
        [{**job.row, "accepted_at": now, "identities": json_text(identities)} for job, identities in accepted],
    )
    for job, identities in accepted:
        if job.labels or job.storages:
            _index(tx, [id for id, _ in identities], job.labels, job.storages)


def _storages(job: NewJob) -> tuple[str, ...]:
    return tuple(dict.fromkeys(storage.id for member in job.members for storage in member.storages))


def index_job(tx: Tx, job: NewJob) -> None:
    """Write what is searched for beside the row of a new job: its labels, and the storages it uses."""
    _index(tx, [job.id], job.labels, _storages(job))


def _index(tx: Tx, jobs: Sequence[str], labels: Mapping[str, str], storages: Sequence[str]) -> None:
    rows: list[dict[str, Value]] = [
        {"job_id": job, "key": key, "value": value} for job in jobs for key, value in labels.items()
    ]
    if rows:
        tx.many(SQL["insert_label"], rows)
    rows = [{"job_id": job, "fs_id": storage} for job in jobs for storage in storages]
    if rows:
        tx.many(SQL["insert_storage"], rows)
