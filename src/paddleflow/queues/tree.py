"""The quota tree of a cluster's queues: how the scheduler sees one, what cannot hold, and what is used below whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paddleflow.base.names import nearest
from paddleflow.base.quantity import Resources, total
from paddleflow.queues.model import Queue
from paddleflow.scheduling import model as scheduling
from paddleflow.scheduling.quota import ROOT, quota_faults
from paddleflow.spec.faults import Faults

#: The field of a queue's document that a fault of the tree is about. A guarantee above its own ceiling is left out:
#: the rule of the document has said so already, with the dimension.
FIELDS = {
    "twice": "name",
    "parent": "parent",
    "cycle": "parent",
    "weight": "weight",
    "order": "order",
    "amount": "minResources",
    "children": "minResources",
}
MOST_FAULTS = 20  #: of the tree in one answer


def as_scheduled(queue: Queue, online: bool) -> scheduling.Queue:
    """A queue as the scheduler knows it; in a cluster that is not online none is open."""
    return scheduling.Queue(
        name=queue.name,
        ceiling=queue.ceiling,
        guarantee=queue.least,
        open=queue.open and online,
        node_labels=tuple(sorted(queue.node_selector.items())),
        parent=queue.parent,
        weight=queue.weight,
        order=queue.order,
    )


def check(faults: Faults, queue: Queue, queues: Sequence[Queue]) -> None:
    """Adds what could not hold with `queue` as it is to be among the other `queues` of its cluster.

    What was wrong before and is not touched by this (a machine became smaller) stands in nobody's way.
    """
    others = [other for other in queues if other.name != queue.name]
    names = [other.name for other in others]
    if queue.parent not in (ROOT, queue.name, *names):
        message = f"queue[{queue.parent}] does not exist in cluster[{queue.cluster}]"
        faults.add("parent", message, nearest(queue.parent, [ROOT, *names]))
        return
    before = set(quota_faults(as_scheduled(other, True) for other in queues))
    after = quota_faults(as_scheduled(each, True) for each in [*others, queue])
    new = [fault for fault in after if fault not in before and fault.code in FIELDS]
    for fault in new[:MOST_FAULTS]:
        faults.add(FIELDS[fault.code], fault.text)


def beyond_machine(queues: Iterable[Queue], capacity: Resources) -> list[str]:
    """Where the guarantees at the top together are more than there is: a sentence per dimension."""
    promised = total(queue.least for queue in queues if queue.parent == ROOT)
    return [
        f"the queues under {ROOT} have min {dimension} {promised.text(dimension)} together, "
        f"the nodes have {capacity.text(dimension)}: not all guarantees can be kept at once"
        for dimension in promised.beyond(capacity)
    ]


def subtree_usage(queues: Sequence[Queue], uses: Mapping[str, Resources]) -> dict[str, Resources]:
    """What each queue and all queues below it use. Whoever stands in a circle counts once for each queue above it."""
    parents = {queue.name: queue.parent for queue in queues}
    sums: dict[str, Resources] = {name: Resources() for name in parents}
    for name, amount in uses.items():
        at, seen = name, set[str]()
        while at in parents and at not in seen:
            seen.add(at)
            sums[at] = sums[at] + amount
            at = parents[at]
    return sums
