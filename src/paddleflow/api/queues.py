"""Routes of queues. Root makes and changes them; everybody sees those they may use (`queues.queues` has the rule)."""

from __future__ import annotations

from collections.abc import Mapping

from paddleflow.api.amounts import amounts
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.base.quantity import Resources, left_of, total
from paddleflow.base.values import dataclass
from paddleflow.queues import queues, tree
from paddleflow.queues.model import Queue
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.queue import NewQueue, QueueChange, QueueQuery
from paddleflow.store.bus import JOBS
from paddleflow.store.database import Tx


async def create_queue(platform: Platform, call: Call[NewQueue, NoQuery]) -> wire.QueueMade:
    queue = await platform.database.write(queues.create_queue, call.body, platform.clock.now())
    platform.bus.wake(JOBS)
    answer: wire.QueueMade = {"name": queue.name}
    if warnings := await _warnings(platform, queue):
        answer["warnings"] = warnings
    return answer


async def _warnings(platform: Platform, queue: Queue) -> list[str]:
    """Guarantees that this machine cannot keep. Accepted all the same, for a machine may grow."""
    nodes = platform.compute.engines.nodes(queue.cluster) if platform.compute else ()
    if not nodes:
        return []
    beside = await platform.database.read(queues.cluster_queues, queue.cluster)
    return tree.beyond_machine(beside, total(node.capacity for node in nodes))


async def list_queues(platform: Platform, call: Call[NoBody, QueueQuery]) -> wire.QueueList:
    query, caller = call.query, call.caller
    found = await platform.database.read(
        queues.list_queues, query.after, query.limit, user=caller.name, root=caller.root, names=listed(query.name)
    )
    rows, truncated, marker = page(found, query)
    shown: list[wire.Queue | wire.QueueUse]
    if query.usage:
        use = await platform.database.read(_usage)
        shown = [use.view(queue) for queue in rows]
    else:
        shown = [queue_view(queue) for queue in rows]
    return {**page_fields(query, truncated, marker), "queueList": shown}


async def show_queue(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.QueueUse:
    queue, use = await platform.database.read(_show, call.path["name"], call.caller.name, call.caller.root)
    return use.view(queue)


@dataclass(frozen=True, slots=True)
class _Usage:
    """What is held at one moment, by a queue's own jobs and by all below it."""

    own: Mapping[str, Resources]
    subtree: Mapping[str, Resources]

    def view(self, queue: Queue) -> wire.QueueUse:
        subtree = self.subtree.get(queue.name, Resources())
        return {
            **queue_view(queue),
            "usedResources": amounts(self.own.get(queue.name, Resources())),
            "usedTogether": amounts(subtree),
            "idleResources": amounts(left_of(queue.most, subtree)),
        }


def _usage(tx: Tx) -> _Usage:
    own = queues.usage_by_queue(tx)
    return _Usage(own, tree.subtree_usage(queues.all_queues(tx), own))


def _show(tx: Tx, name: str, user: str, root: bool) -> tuple[Queue, _Usage]:
    return queues.get_queue(tx, name, user=user, root=root), _usage(tx)


async def change_queue(platform: Platform, call: Call[QueueChange, NoQuery]) -> wire.Queue:
    queue = await platform.database.write(queues.change_queue, call.path["name"], call.body, platform.clock.now())
    platform.bus.wake(JOBS)
    answer = queue_view(queue)
    if warnings := await _warnings(platform, queue):
        answer["warnings"] = warnings
    return answer


async def delete_queue(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(_delete, call.path["name"])
    platform.bus.wake(JOBS)


def _delete(tx: Tx, name: str) -> None:
    queues.delete_queue(tx, name, queues.active_jobs(tx, name))


def queue_view(queue: Queue) -> wire.Queue:
    return {
        "id": queue.id,
        "name": queue.name,
        "namespace": queue.namespace,
        "clusterName": queue.cluster,
        "otherClusters": list(queue.other_clusters),
        "quotaType": queue.quota_type,
        "minResources": amounts(queue.least),
        "maxResources": amounts(queue.most),
        "location": dict(queue.location),
        "nodeSelector": dict(queue.node_selector),
        "schedulingPolicy": list(queue.policies),
        "parent": queue.parent,
        "weight": queue.weight,
        "order": queue.order,
        "status": queue.status.value,
        "createTime": local_text(queue.created_at),
        "updateTime": local_text(queue.updated_at),
    }


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/queue",
        create_queue,
        "Make a queue",
        body=NewQueue,
        answer=wire.QueueMade,
        root=True,
        errors=(
            "QueueInvalidField",
            "400 ClusterNotFound",
            "400 NamespaceNotFound",
            "InvalidClusterStatus",
            "409 QueueNameDuplicated",
        ),
    ),
    Route(
        "GET",
        "/queue",
        list_queues,
        "List the queues that the caller may use: root all, others default-queue and those granted to them",
        query=QueueQuery,
        answer=wire.QueueList,
    ),
    Route(
        "GET",
        "/queue/{name}",
        show_queue,
        "Show a queue with what its jobs hold now",
        answer=wire.QueueUse,
        errors=("QueueNameNotFound", "AccessDenied"),
    ),
    Route(
        "PUT",
        "/queue/{name}",
        change_queue,
        "Change a queue's resources, place in the tree, order, location or policy, or open or close it (field status: open or closed)",
        body=QueueChange,
        answer=wire.Queue,
        root=True,
        errors=("QueueInvalidField", "QueueNameNotFound"),
    ),
    Route(
        "DELETE",
        "/queue/{name}",
        delete_queue,
        "Delete a queue that has no active jobs and no queues below it, with its grants",
        root=True,
        errors=("QueueNameNotFound", "QueueIsInUse", "ActionNotAllowed"),
    ),
)
