"""Submitting jobs: look the world up, admit, write rows and first events. One transaction, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from paddleflow.base.quantity import Resources
from paddleflow.errors import Conflict
from paddleflow.jobs.admission import QueueFacts, StorageFacts, World, admit
from paddleflow.jobs.model import JobStatus, NewJob
from paddleflow.jobs.rows import SQL, job_row
from paddleflow.queues.clusters import find_cluster
from paddleflow.queues.flavours import find_flavour, flavour_names
from paddleflow.queues.queues import find_queue, may_use_queue, usable_queues
from paddleflow.spec.job import DistributedJob, SingleJob, WorkflowJob
from paddleflow.storage.storages import storage_names, usable_storage
from paddleflow.store import events
from paddleflow.store.database import Tx, Value


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, and what this server's machine can hold."""

    user: str
    root: bool
    nodes: Sequence[tuple[str, Resources]]  #: name and capacity of each node
    skip_queue_maximum: bool = False


def submit(
    tx: Tx, documents: Sequence[SingleJob | DistributedJob | WorkflowJob], submitter: Submitter, now: float
) -> list[str]:
    """The ids of the jobs, in order. One that is refused refuses all."""
    world = look_up(tx, submitter)
    jobs = [admit(document, world) for document in documents]
    for job, document in zip(jobs, documents, strict=True):
        if document.id and tx.value(SQL["job_exists"], id=job.id) is not None:
            raise Conflict(f"job[{job.id}] exists already", code="DuplicatedName", hint="leave id out to get a new one")
    _insert(tx, jobs, now)
    return [job.id for job in jobs]


def _insert(tx: Tx, jobs: Sequence[NewJob], now: float) -> None:
    tx.many(SQL["insert_job"], [job_row(job, now) for job in jobs])
    labels: list[dict[str, Value]] = [
        {"job_id": job.id, "key": key, "value": value} for job in jobs for key, value in job.labels.items()
    ]
    storages: list[dict[str, Value]] = [
        {"job_id": job.id, "fs_id": storage.id} for job in jobs for member in job.members for storage in member.storages
    ]
    if labels:
        tx.many(SQL["insert_label"], labels)
    if storages:
        tx.many(SQL["insert_storage"], storages)
    first = {"status": JobStatus.INIT, "message": ""}
    events.append_many(tx, [events.NewEvent("job", job.id, now, "status", first) for job in jobs])


def look_up(tx: Tx, submitter: Submitter) -> World:
    """What admission may ask of this moment; each answer is looked up once."""
    user, root = submitter.user, submitter.root

    @cache
    def queue(name: str) -> QueueFacts | None:
        found = find_queue(tx, name)
        if found is None:
            return None
        cluster = find_cluster(tx, found.cluster)
        usable = may_use_queue(tx, user, root, name)
        return QueueFacts(name, found.open, usable, found.ceiling, cluster.cluster_type if cluster else "")

    @cache
    def flavour(name: str) -> Resources | None:
        found = find_flavour(tx, name)
        return found.each if found else None

    @cache
    def storage(name: str) -> StorageFacts | None:
        found = usable_storage(tx, user, root, name)
        return StorageFacts(found.id, found.name, found.sub_path) if found else None

    @cache
    def why_no_node(amount: Resources) -> str:
        if any(amount.fits(capacity) for _, capacity in submitter.nodes):
            return ""
        name, capacity = max(submitter.nodes, key=lambda node: (node[1].cpu, node[1].memory))
        return f"it asks for {amount}, the largest node {name} has {capacity}"

    return World(
        user=user,
        queue=queue,
        flavour=flavour,
        storage=storage,
        why_no_node=why_no_node,
        known_queues=lambda: usable_queues(tx, user, root),
        known_flavours=lambda: flavour_names(tx),
        known_storages=lambda: storage_names(tx, user, root),
        skip_queue_maximum=submitter.skip_queue_maximum,
    )
