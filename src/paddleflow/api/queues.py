"""Routes of queues. Root makes and changes them; everybody sees those they may use (`queues.queues` has the rule)."""

from __future__ import annotations

from paddleflow.api.amounts import amounts, left_of
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.base.quantity import Resources
from paddleflow.queues import queues
from paddleflow.queues.model import COUNTER, Queue
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.queue import NewQueue, QueueChange, QueueQuery
from paddleflow.spec.wire import Name
from paddleflow.store.database import Tx


async def create_queue(platform: Platform, call: Call[NewQueue, NoQuery]) -> Name:
    queue = await platform.database.write(queues.create_queue, call.body, platform.clock.now())
    platform.bus.wake(COUNTER)
    return {"name": queue.name}


async def list_queues(platform: Platform, call: Call[NoBody, QueueQuery]) -> wire.QueueList:
    query, caller = call.query, call.caller
    found = await platform.database.read(
        queues.list_queues, query.after, query.limit, user=caller.name, root=caller.root, names=listed(query.name)
    )
    rows, truncated, marker = page(found, query)
    shown = [queue_answer(queues.queue_of(row)) for row in rows]
    return {**page_fields(query, truncated, marker), "queueList": shown}


async def show_queue(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.QueueUse:
    queue, used = await platform.database.read(_show, call.path["name"], call.caller.name, call.caller.root)
    return {
        **queue_answer(queue),
        "usedResources": amounts(used),
        "idleResources": amounts(left_of(queue.most, used)),
    }


def _show(tx: Tx, name: str, user: str, root: bool) -> tuple[Queue, Resources]:
    queue = queues.get_queue(tx, name, user=user, root=root)
    return queue, queues.used(tx, queue.name)


async def change_queue(platform: Platform, call: Call[QueueChange, NoQuery]) -> wire.Queue:
    queue = await platform.database.write(queues.change_queue, call.path["name"], call.body, platform.clock.now())
    platform.bus.wake(COUNTER)
    return queue_answer(queue)


async def delete_queue(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(_delete, call.path["name"])
    platform.bus.wake(COUNTER)


def _delete(tx: Tx, name: str) -> None:
    queues.delete_queue(tx, name, queues.active_jobs(tx, name))


def queue_answer(queue: Queue) -> wire.Queue:
    return {
        "id": queue.id,
        "name": queue.name,
        "namespace": queue.namespace,
        "clusterName": queue.cluster,
        "quotaType": queue.quota_type,
        "minResources": amounts(queue.least),
        "maxResources": amounts(queue.most),
        "location": dict(queue.location),
        "schedulingPolicy": list(queue.policies),
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
        answer=Name,
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
        "Change a queue's resources, location or policy, or open or close it (field status: open or closed)",
        body=QueueChange,
        answer=wire.Queue,
        root=True,
        errors=("QueueInvalidField", "QueueNameNotFound"),
    ),
    Route(
        "DELETE",
        "/queue/{name}",
        delete_queue,
        "Delete a queue that has no active jobs, with its grants",
        root=True,
        errors=("QueueNameNotFound", "QueueIsInUse", "ActionNotAllowed"),
    ),
)
