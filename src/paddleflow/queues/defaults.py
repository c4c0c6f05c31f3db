"""What exists from the first start: this machine as a cluster, a queue on it, and three flavours.

`ensure_defaults` is called at every start, in one transaction. What an administrator changed or deleted stays so: the
flavours are made once, and the default queue's ceiling follows the machine until somebody sets it.
"""

from __future__ import annotations

from dataclasses import replace

from paddleflow.base.ids import new_short_id
from paddleflow.base.quantity import Resources
from paddleflow.queues.clusters import claim_cluster, find_cluster, insert_cluster
from paddleflow.queues.flavours import find_flavour, insert_flavour
from paddleflow.queues.model import (
    CAPABILITY_QUOTA,
    DEFAULT_CLUSTER,
    DEFAULT_QUEUE,
    LOCAL,
    Cluster,
    Flavour,
    Queue,
    QueueStatus,
)
from paddleflow.queues.queues import find_queue, insert_queue, write_queue
from paddleflow.store.database import Tx

GPU = "nvidia.com/gpu"
FLAVOURS = {
    "flavour1": Resources.of(1000, 2**30),
    "flavour2": Resources.of(4000, 8 * 2**30, {GPU: 1000}),
    "flavour3": Resources.of(4000, 8 * 2**30, {GPU: 2000}),
}


def ensure_defaults(tx: Tx, now: float, capacity: Resources) -> None:
    """Make what is missing. `capacity` is what this machine has for jobs at this start."""
    if find_cluster(tx, DEFAULT_CLUSTER) is None:
        insert_cluster(tx, _cluster(now))
        for name, each in FLAVOURS.items():
            if find_flavour(tx, name) is None:
                insert_flavour(tx, Flavour(new_short_id("flavour"), name, "", each, now, now))
    queue = find_queue(tx, DEFAULT_QUEUE)
    if queue is None:
        insert_queue(tx, _queue(now, capacity))
    elif queue.follows and queue.most != capacity:
        write_queue(tx, replace(queue, most=capacity, least=_at_most(queue.least, capacity), updated_at=now))


def claim_machine(tx: Tx, now: float, capacity: Resources, owner: str, *, take: bool) -> bool:
    """The same for the server whose machine the default cluster is; False, and nothing done, when it is another server's.

    Processes can be seen on their own machine only: a server that moved the jobs of another machine would take them for lost and
    start them again. `take`: it is this server's from now on, whatever was noted.
    """
    cluster = find_cluster(tx, DEFAULT_CLUSTER)
    if cluster is not None and cluster.owner not in {"", owner} and not take:
        return False
    ensure_defaults(tx, now, capacity)
    claim_cluster(tx, DEFAULT_CLUSTER, owner)
    return True


def _at_most(least: Resources, most: Resources) -> Resources:
    """The guarantee, cut to a machine that has become smaller."""
    scalars = {name: min(amount, most.scalar(name)) for name, amount in least.scalars}
    return Resources.of(min(least.cpu, most.cpu), min(least.memory, most.memory), scalars)


def _cluster(now: float) -> Cluster:
    return Cluster(
        id=new_short_id("cluster"),
        name=DEFAULT_CLUSTER,
        description="this machine",
        endpoint="127.0.0.1",
        source="OnPremise",
        cluster_type=LOCAL,
        version="",
        status="online",
        credential="",
        setting="",
        namespaces=(),
        created_at=now,
        updated_at=now,
    )


def _queue(now: float, capacity: Resources) -> Queue:
    return Queue(
        id=new_short_id("queue"),
        name=DEFAULT_QUEUE,
        namespace="default",
        cluster=DEFAULT_CLUSTER,
        quota_type=CAPABILITY_QUOTA,
        most=capacity,
        least=Resources(),
        location={},
        policies=(),
        status=QueueStatus.OPEN,
        follows=True,
        created_at=now,
        updated_at=now,
    )
