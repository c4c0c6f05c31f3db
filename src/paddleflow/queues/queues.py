"""Transactions on queues, and who may use one.

The rule: root may use every queue, everybody else ``default-queue`` and those that were granted to them. The default one
is open to all because on a laptop it is the only one; an administrator who minds closes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources
from paddleflow.errors import Conflict, Forbidden, NotFound
from paddleflow.queues import rules, tree
from paddleflow.queues.clusters import among, cluster_names, find_cluster
from paddleflow.queues.model import COUNTER, DEFAULT_QUEUE, Queue, QueueStatus, amounts, columns
from paddleflow.scheduling import model as scheduling
from paddleflow.scheduling.quota import ROOT
from paddleflow.spec.queue import NewQueue, QueueChange
from paddleflow.store.counters import bump
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.queues", "queues.sql")
RESERVED = ("default", ROOT)
_MANY = 1_000_000  #: more names than anybody has; for lists that are not paged


def find_queue(tx: Tx, name: str) -> Queue | None:
    row = tx.one(SQL["queue_by_name"], name=name)
    return _queue(row) if row else None


def get_queue(tx: Tx, name: str, *, user: str = "", root: bool = True) -> Queue:
    """The queue, or `NotFound` with the nearest that the user may use, or `Forbidden` without a grant."""
    queue = find_queue(tx, name)
    if queue is None:
        hint = nearest(name, usable_queues(tx, user, root))
        raise NotFound(f"queue[{name[:80]}] does not exist", code="QueueNameNotFound", hint=hint)
    if not may_use_queue(tx, user, root, name):
        raise Forbidden(
            f"user[{user}] may not use queue[{name}]", hint=f"ask root for it: paddleflow queue grant {user} {name}"
        )
    return queue


def may_use_queue(tx: Tx, user: str, root: bool, queue: str) -> bool:
    """Whether this user may see the queue and send jobs to it (the rule at the top of this module)."""
    if root or queue == DEFAULT_QUEUE:
        return True
    return tx.value(SQL["queue_granted"], user_name=user, queue=queue) is not None


def usable_queues(tx: Tx, user: str, root: bool) -> list[str]:
    """The names of all queues that this user may use."""
    return [queue.name for queue in list_queues(tx, 0, _MANY, user=user, root=root)]


def list_queues(tx: Tx, after: int, limit: int, *, user: str, root: bool, names: Sequence[str] = ()) -> list[Queue]:
    """Those that the user may see, behind the position `after`, oldest first."""
    rows = tx.all(
        SQL["list_queues"],
        after=after,
        limit=limit,
        names=among(names),
        user_name="" if root else user,
        for_all=DEFAULT_QUEUE,
    )
    return [_queue(row) for row in rows]


def create_queue(tx: Tx, document: NewQueue, now: float) -> Queue:
    cluster = find_cluster(tx, document.cluster_name)
    beside = cluster_queues(tx, cluster.name) if cluster else []
    others = {name: find_cluster(tx, name) for name in document.other_clusters}
    queue = rules.new_queue(document, cluster, cluster_names(tx), now, beside, others)
    if queue.name in RESERVED:
        raise Conflict(f"queue name[{queue.name}] is reserved", code="QueueNameDuplicated", hint="choose another name")
    insert_queue(tx, queue)
    return queue


def insert_queue(tx: Tx, queue: Queue) -> None:
    made = tx.run(
        SQL["insert_queue"],
        **_columns(queue),
        id=queue.id,
        namespace=queue.namespace,
        cluster=queue.cluster,
        quota_type=queue.quota_type,
        created_at=queue.created_at,
    )
    if not made:
        raise Conflict(
            f"queue[{queue.name}] exists already", code="QueueNameDuplicated", hint="choose another name, or update it"
        )
    bump(tx, COUNTER)


def change_queue(tx: Tx, name: str, document: QueueChange, now: float) -> Queue:
    queue = get_queue(tx, name)
    others = {name: find_cluster(tx, name) for name in document.other_clusters or ()}
    home = find_cluster(tx, queue.cluster)
    changed = rules.changed_queue(queue, document, now, cluster_queues(tx, queue.cluster), home, others)
    gone = [name for name in queue.other_clusters if name not in changed.other_clusters]
    for name in gone:
        left = int(tx.value(SQL["count_active_jobs_on"], queue=queue.name, cluster=name))
        if left:
            raise Conflict(
                f"{left} jobs of queue[{queue.name}] that have not ended are on cluster[{name}]",
                code="QueueIsInUse",
                hint=f"stop them first; paddleflow job list -q {queue.name}",
            )
    write_queue(tx, changed)
    return changed


def write_queue(tx: Tx, queue: Queue) -> None:
    tx.run(SQL["update_queue"], **_columns(queue))
    bump(tx, COUNTER)


def delete_queue(tx: Tx, name: str, active_jobs: int) -> None:
    """Take the queue and its grants away. `active_jobs` is how many of its jobs have not ended.

    Only a queue without queues below it goes, so the tree that is left can hold what it held before.
    """
    get_queue(tx, name)
    if name == DEFAULT_QUEUE:
        raise Conflict(
            f"queue[{name}] cannot be deleted", hint=f"close it instead: paddleflow queue update {name} --status closed"
        )
    if active_jobs:
        raise Conflict(
            f"queue[{name}] is in use by {active_jobs} jobs that have not ended",
            code="QueueIsInUse",
            hint=f"stop them first; paddleflow job list -q {name}",
        )
    below = [row["name"] for row in tx.all(SQL["queues_below"], name=name)]
    if below:
        raise Conflict(
            f"queue[{name}] has queues below it: {', '.join(below[:10])}{', …' if below[10:] else ''}",
            code="QueueIsInUse",
            hint=f"delete them first, or move them: paddleflow queue update {below[0]} --parent {ROOT}",
        )
    tx.run(SQL["delete_queue"], name=name)
    tx.run(SQL["delete_queue_grants"], name=name)
    bump(tx, COUNTER)


def queues_above(tx: Tx, queue: Queue) -> list[Queue]:
    """The queues that a queue stands under, the nearest first."""
    found: list[Queue] = []
    seen = {queue.name}
    while queue.parent not in seen:  # `ROOT` is no queue, and a circle ends where it began
        above = find_queue(tx, queue.parent)
        if above is None:
            break
        found.append(above)
        seen.add(above.name)
        queue = above
    return found


def active_jobs(tx: Tx, queue: str) -> int:
    """How many jobs of the queue have not ended."""
    return int(tx.value(SQL["count_active_jobs"], queue=queue))


def usage_by_queue(tx: Tx) -> dict[str, Resources]:
    """What the jobs of each queue hold at this moment; queues whose jobs hold nothing are left out."""
    found: dict[str, Resources] = {}
    for row in tx.all(SQL["used_by_queue"]):
        scalars = {name: amount * row["jobs"] for name, amount in json.loads(row["scalars"]).items()}
        amount = Resources.of(row["cpu"], row["memory"], scalars)
        found[row["queue"]] = found.get(row["queue"], Resources()) + amount
    return found


def all_queues(tx: Tx) -> list[Queue]:
    """The queues of all clusters; names are unique over them."""
    return list_queues(tx, 0, _MANY, user="", root=True)


def cluster_queues(tx: Tx, cluster: str) -> list[Queue]:
    """All queues of a cluster, oldest first."""
    rows = tx.all(SQL["queues_of_cluster"], cluster=cluster, pattern=f'%"{cluster}"%')
    return [queue for queue in map(_queue, rows) if cluster in queue.clusters]


def queue_namespaces(tx: Tx, cluster: str) -> dict[str, str]:
    """The namespace of each queue of a cluster."""
    return {queue.name: queue.namespace for queue in cluster_queues(tx, cluster)}


def queue_node_labels(tx: Tx, cluster: str) -> dict[str, dict[str, str]]:
    """The labels that a node must carry to take jobs of each queue of a cluster."""
    return {queue.name: dict(queue.node_selector) for queue in cluster_queues(tx, cluster) if queue.node_selector}


def scheduled_queues(tx: Tx, cluster: str) -> tuple[scheduling.Queue, ...]:
    """All queues of a cluster as the scheduler sees them. In a cluster that is not online none is open."""
    found = find_cluster(tx, cluster)
    online = found is not None and found.online
    return tuple(tree.as_scheduled(queue, online) for queue in cluster_queues(tx, cluster))


def _queue(row: Row) -> Queue:
    return Queue(
        id=row["id"],
        name=row["name"],
        namespace=row["namespace"],
        cluster=row["cluster"],
        quota_type=row["quota_type"],
        most=amounts(row, "max_"),
        least=amounts(row, "min_"),
        location=json.loads(row["location"]),
        node_selector=json.loads(row["node_selector"]),
        policies=tuple(json.loads(row["policies"])),
        status=QueueStatus(row["status"]),
        follows=bool(row["follows"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        parent=row["parent"],
        weight=row["weight"],
        order=row["job_order"],
        other_clusters=tuple(json.loads(row["other_clusters"])),
        seq=row["seq"],
    )


def _columns(queue: Queue) -> dict[str, Value]:
    """The name and all columns that may change."""
    return {
        "name": queue.name,
        **columns("max_", queue.most),
        **columns("min_", queue.least),
        "location": json.dumps(queue.location),
        "node_selector": json.dumps(queue.node_selector),
        "policies": json.dumps(queue.policies),
        "parent": queue.parent,
        "weight": queue.weight,
        "job_order": queue.order,
        "other_clusters": json.dumps(queue.other_clusters),
        "status": queue.status.value,
        "follows": int(queue.follows),
        "updated_at": queue.updated_at,
    }
