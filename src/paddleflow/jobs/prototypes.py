"""Jobs that are alike: what was found out about one of them holds for all, as long as the world stays as it is.

To admit a job, resolve what it names and encode its row costs many times what the row costs. A prototype is the result
of that: all of a job but id, name and moment. `submission` keeps those of the last documents, by user and document, and
forgets all of them when the world has changed (`counters`): a queue or cluster, a flavour, a storage, a grant, a node.

Who makes jobs by another way than REST may use the same: ``prototype_of(admit(document, world))`` once, and then
`Prototype.stamped` for each job of the kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from paddleflow.base.quantity import Resources
from paddleflow.jobs.model import NewJob
from paddleflow.jobs.rows import SQL, common_row, json_text
from paddleflow.spec.orders import Key, Stamp
from paddleflow.store.database import Tx, Value

Nodes: TypeAlias = Mapping[str, Sequence[tuple[str, Resources]]]  #: cluster → name and capacity of each
World: TypeAlias = tuple[int, Nodes]  #: what the counters say, and the nodes

_MOST = 1024


@dataclass(frozen=True, slots=True)
class Prototype:
    """A job that passed every check, without id, name and moment."""

    row: Mapping[str, Value]  #: what `insert_jobs` takes besides them
    labels: Mapping[str, str]
    storages: tuple[str, ...]  #: ids of those that the job uses

    def stamped(self, id: str, name: str, now: float) -> dict[str, Value]:
        """The row of one job of the kind, as `rows.job_row` has it."""
        return {**self.row, "id": id, "name": name, "accepted_at": now}


def prototype_of(job: NewJob) -> Prototype:
    return Prototype(common_row(job), job.labels, _storages(job))


def _storages(job: NewJob) -> tuple[str, ...]:
    return tuple(dict.fromkeys(storage.id for member in job.members for storage in member.storages))


class Prototypes:
    """Those of the last documents, by user and document."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._found: dict[tuple[str, Key | None], Prototype] = {}

    def look(self, world: World) -> None:
        """From now on the world is this one."""
        if world != self._world:
            self._world, self._found = world, {}

    def get(self, user: str, key: Key | None) -> Prototype | None:
        return self._found.get((user, key))

    def keep(self, user: str, key: Key | None, prototype: Prototype) -> None:
        if key is not None:
            if len(self._found) >= _MOST:
                self._found = {}
            self._found[user, key] = prototype


def insert(tx: Tx, crowds: Sequence[tuple[Prototype, Sequence[Stamp]]], now: float) -> None:
    """Write the rows of jobs, and what is looked for beside them. Every stamp has its id."""
    tx.many(
        SQL["insert_jobs"],
        [{**prototype.row, "accepted_at": now, "stamps": json_text(stamps)} for prototype, stamps in crowds],
    )
    for prototype, stamps in crowds:
        if prototype.labels or prototype.storages:
            _note(tx, [id for id, _ in stamps], prototype.labels, prototype.storages)


def note(tx: Tx, job: NewJob) -> None:
    """What is looked for beside the row of a new job: its labels, and the storages it uses."""
    _note(tx, [job.id], job.labels, _storages(job))


def _note(tx: Tx, jobs: Sequence[str], labels: Mapping[str, str], storages: Sequence[str]) -> None:
    rows: list[dict[str, Value]] = [
        {"job_id": job, "key": key, "value": value} for job in jobs for key, value in labels.items()
    ]
    if rows:
        tx.many(SQL["insert_label"], rows)
    rows = [{"job_id": job, "fs_id": storage} for job in jobs for storage in storages]
    if rows:
        tx.many(SQL["insert_storage"], rows)
