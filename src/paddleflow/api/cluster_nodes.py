"""Routes that show what clusters have and what jobs hold of it now. All of them are for root, as they show all users' jobs.

``errMsg`` says why a cluster has no numbers, or why they may be old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.api.amounts import amounts, flat
from paddleflow.api.cluster_view import NodeUse, PodUse
from paddleflow.api.clusters import not_connected
from paddleflow.api.paging import listed
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.names import nearest
from paddleflow.base.quantity import total
from paddleflow.errors import Invalid
from paddleflow.queues import clusters, queues
from paddleflow.queues.model import Cluster
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.cluster import ClusterNames, NodeQuery, NodeSelection
from paddleflow.spec.pool import parse_labels
from paddleflow.store.database import Tx

#: words of nodeStatus → whether nodes that take jobs are meant
_STATUSES = {"schedulable": True, "ready": True, "unschedulable": False, "notready": False}


async def show_totals(platform: Platform, call: Call[NoBody, ClusterNames]) -> dict[str, wire.ClusterTotals]:
    chosen = await platform.database.read(_chosen, listed(call.query.cluster_names))
    return {cluster.name: _totals(*await _nodes(platform, cluster)) for cluster in chosen}


def _chosen(tx: Tx, names: Sequence[str]) -> list[Cluster]:
    """The clusters of these names, or all of them; `NotFound` for a name that there is not."""
    return [clusters.get_cluster(tx, name) for name in names or clusters.cluster_names(tx)]


async def _nodes(platform: Platform, cluster: Cluster) -> tuple[Sequence[NodeUse], str]:
    """The nodes of a cluster, and why there are none."""
    if not cluster.local and platform.check_cluster is None:
        return (), not_connected(cluster)
    if not cluster.local and not cluster.online:
        return (), f"cluster[{cluster.name}] is offline"
    compute = platform.compute
    nodes = await platform.clusters.nodes(cluster.name)
    return nodes, "" if compute is None else compute.engines.trouble(cluster.name)


def _totals(nodes: Sequence[NodeUse], why: str) -> wire.ClusterTotals:
    """Nodes that take no jobs are left out, as their capacity is of no use to anybody."""
    taking = [node for node in nodes if node.schedulable]
    return {
        "summary": {
            "total": amounts(total(node.capacity for node in taking)),
            "idle": amounts(total(node.idle for node in taking)),
        },
        "nodeList": [
            {
                "nodeName": node.name,
                "schedulable": node.schedulable,
                "total": amounts(node.capacity),
                "idle": amounts(node.idle),
            }
            for node in taking
        ],
        "errMsg": why,
    }


async def select_nodes(platform: Platform, call: Call[NodeSelection, NoQuery]) -> dict[str, wire.ClusterNodes]:
    """A page is counted within each cluster."""
    wanted = call.body
    chosen, labels = await platform.database.read(_selected, wanted)
    taking = _taking(wanted.node_status)
    answer: dict[str, wire.ClusterNodes] = {}
    first = (wanted.page_no - 1) * wanted.page_size
    for cluster in chosen:
        nodes, why = await _nodes(platform, cluster)
        matching = [node for node in nodes if _matches(node, labels, taking)]
        shown = matching[first : first + wanted.page_size]
        answer[cluster.name] = {
            "allocatable": {node.name: flat(node.idle) for node in shown},
            "capacity": {node.name: flat(node.capacity) for node in shown},
            "labels": {node.name: dict(node.labels) for node in shown},
            "clusterName": cluster.name,
            "clusterSource": cluster.source,
            "queueName": wanted.queue_name,
            "errMsg": why,
        }
    return answer


def _selected(tx: Tx, wanted: NodeSelection) -> tuple[list[Cluster], Mapping[str, str]]:
    """The clusters that are meant, and the labels that a node must carry."""
    labels = parse_labels(wanted.labels)
    if not wanted.queue_name:
        return _chosen(tx, wanted.cluster_names), labels
    queue = queues.get_queue(tx, wanted.queue_name)
    chosen = _chosen(tx, wanted.cluster_names or [queue.cluster])
    return [cluster for cluster in chosen if cluster.name == queue.cluster], labels | dict(queue.node_selector)


def _taking(word: str) -> bool | None:
    if word and word.lower() not in _STATUSES:
        raise Invalid(f"nodeStatus[{word[:40]}] is not known", hint=nearest(word.lower(), _STATUSES))
    return _STATUSES.get(word.lower())


def _matches(node: NodeUse, labels: Mapping[str, str], taking: bool | None) -> bool:
    return labels.items() <= dict(node.labels).items() and taking in (None, node.schedulable)


async def show_nodes(platform: Platform, call: Call[NoBody, NodeQuery]) -> wire.NodeInfos:
    cluster = await platform.database.read(clusters.get_cluster, call.path["name"])
    nodes, why = await _nodes(platform, cluster)
    first = (call.query.page_no - 1) * call.query.page_size
    shown = nodes[first : first + call.query.page_size]
    return {"totalCount": len(nodes), "nodeList": [_node(node) for node in shown], "errMsg": why}


def _node(node: NodeUse) -> wire.Node:
    return {
        "nodeName": node.name,
        "nodeIP": node.address,
        "podsCount": len(node.pods),
        "labels": dict(node.labels),
        "used": amounts(node.used),
        "usedByOthers": amounts(node.taken),
        "schedulable": node.schedulable,
        "version": node.version,
        "capacity": amounts(node.capacity),
        "pods": [_pod(pod) for pod in node.pods],
    }


def _pod(pod: PodUse) -> wire.Pod:
    return {
        "podName": pod.name,
        "status": pod.status,
        "labels": dict(pod.labels),
        "resources": amounts(pod.resources),
    }


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/cluster/resource",
        show_totals,
        "What clusters have and what is idle now, by cluster name",
        query=ClusterNames,
        answer=dict[str, wire.ClusterTotals],
        root=True,
        errors=("ClusterNotFound",),
    ),
    Route(
        "POST",
        "/cluster/resource",
        select_nodes,
        "Capacity, idle amounts and labels of chosen nodes, by cluster name",
        body=NodeSelection,
        answer=dict[str, wire.ClusterNodes],
        root=True,
        errors=("ClusterNotFound", "QueueNameNotFound", "InvalidURI"),
    ),
    Route(
        "GET",
        "/cluster/{name}/nodeInfos",
        show_nodes,
        "The nodes of a cluster with the members of jobs that run on them",
        query=NodeQuery,
        answer=wire.NodeInfos,
        root=True,
        errors=("ClusterNotFound",),
    ),
)
