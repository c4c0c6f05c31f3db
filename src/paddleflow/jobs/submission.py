"""Submitting jobs: look the world up, admit, write rows and first events. One transaction, all or nothing.

Submissions of many clients that come together are written by the same few statements, each accepted or refused alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paddleflow.base.ids import new_job_id
from paddleflow.base.quantity import Resources
from paddleflow.errors import Conflict, Fault, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError
from paddleflow.jobs.admission import admit
from paddleflow.jobs.model import JobStatus
from paddleflow.jobs.prototypes import Nodes, Prototype, Prototypes, insert, prototype_of
from paddleflow.jobs.rows import SQL, json_text
from paddleflow.jobs.world import QueueFacts, StorageFacts, World
from paddleflow.queues.flavours import find_flavour, flavour_names
from paddleflow.queues.model import COUNTER
from paddleflow.queues.queues import may_use_queue, queue_of, queues_above, usable_queues
from paddleflow.spec.orders import Order, Stamp
from paddleflow.storage.storages import storage_names, usable_storage
from paddleflow.store import counters, events
from paddleflow.store.database import Batched, Tx


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, and what the nodes of the clusters can hold."""

    user: str
    root: bool
    nodes: Nodes
    skip_queue_maximum: bool = False
    queues: QueueCache = field(default_factory=lambda: QueueCache())
    prototypes: Prototypes = field(default_factory=Prototypes)


@dataclass(frozen=True, slots=True)
class Submission:
    """Jobs that are accepted or refused as one."""

    orders: Sequence[Order]
    submitter: Submitter
    at: float
    batch: bool = False  #: the faults say of which job they are (``jobs[17].id``)


MOST_REFUSED = 100  #: refused jobs of one batch that are told


def _submit(tx: Tx, submissions: Sequence[Submission]) -> list[list[str] | PaddleFlowError]:
    """For each the ids of its jobs, in order; one job that is refused refuses its whole submission."""
    version = counters.both(tx, COUNTER, counters.NAMED)
    now = max(each.at for each in submissions)
    crowds: list[tuple[Prototype, list[Stamp]]] = []
    found: list[list[str] | PaddleFlowError] = []
    for each in submissions:
        try:
            prototypes = _admit_all(tx, each, version)
            _refuse_taken_ids(tx, each)
        except PaddleFlowError as error:
            found.append(error)
            continue
        ids = []
        for prototype, order in zip(prototypes, each.orders, strict=True):
            stamps = [(id or new_job_id(now), name) for id, name in order.stamps]
            ids += [id for id, _ in stamps]
            if crowds and crowds[-1][0] is prototype:
                crowds[-1][1].extend(stamps)
            else:
                crowds.append((prototype, stamps))
        found.append(ids)
    if crowds:
        insert(tx, crowds, now)
        written = [id for _, stamps in crowds for id, _ in stamps]
        events.append_alike(tx, "job", written, "status", now, {"status": JobStatus.INIT, "message": ""})
    return found


submit = Batched(_submit)  #: for `Database.write`: submissions that come together are written together


def _admit_all(tx: Tx, submission: Submission, version: int) -> list[Prototype]:
    """One prototype for each order, or the faults of all; the first refusal decides the answer's code."""
    submitter = submission.submitter
    user, known = submitter.user, submitter.prototypes
    known.look((version, submitter.nodes))
    world = look_up(tx, submitter)
    found: list[Prototype] = []
    refused: list[tuple[PaddleFlowError, range]] = []
    behind = 0
    for order in submission.orders:
        numbers = range(behind, behind + len(order.stamps))
        behind = numbers.stop
        prototype = known.get(user, order.key)
        if prototype is None:
            try:
                prototype = prototype_of(admit(order.document, world))
            except (Invalid, NotFound, Forbidden, OverQuota) as error:
                refused.append((error, numbers))
                if len(refused) == MOST_REFUSED:
                    break
                continue
            known.keep(user, order.key, prototype)
        found.append(prototype)
    if refused:
        raise _told(refused) if submission.batch else refused[0][0]
    return found


def _told(refused: Sequence[tuple[PaddleFlowError, range]]) -> PaddleFlowError:
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
    ids = [id for order in submission.orders for id, _ in order.stamps]
    given = {id for id in ids if id}
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
            faults.append(Fault(where, f"job[{id}] is there twice", hint))
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
            row = tx.one(SQL["queue_for_submission"], queue=name)
            if row is None:
                return None
            queue = queue_of(row)
            above = queues_above(tx, queue)
            is_open = row["cluster_status"] == "online" and all(each.open for each in (queue, *above))
            ceilings = tuple((each.name, each.ceiling) for each in above if each.ceiling is not None)
            found = QueueFacts(name, is_open, True, queue.ceiling, queue.cluster, row["cluster_type"], ceilings)
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

    def flavour(self, name: str) -> Resources | None:
        if name not in self._flavours:
            found = find_flavour(self._tx, name)
            self._flavours[name] = found.each if found else None
        return self._flavours[name]

    def storage(self, name: str) -> StorageFacts | None:
        if name not in self._storages:
            found = usable_storage(self._tx, self._submitter.user, self._submitter.root, name)
            self._storages[name] = StorageFacts(found.id, found.name, found.sub_path) if found else None
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


def look_up(tx: Tx, submitter: Submitter) -> World:
    """What admission may ask of this moment."""
    user, root = submitter.user, submitter.root
    lookup = _Lookup(tx, submitter)
    return World(
        user=user,
        queue=lookup.queue,
        flavour=lookup.flavour,
        storage=lookup.storage,
        why_no_node=lookup.why_no_node,
        known_queues=lambda: usable_queues(tx, user, root),
        known_flavours=lambda: flavour_names(tx),
        known_storages=lambda: storage_names(tx, user, root),
        skip_queue_maximum=submitter.skip_queue_maximum,
    )
