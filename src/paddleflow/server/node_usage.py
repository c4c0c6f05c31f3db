"""The nodes of the clusters that this server runs jobs on, and what jobs hold of them (the `ClusterView` of a server)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence

from paddleflow.api.cluster_view import NodeUse, PodUse
from paddleflow.base.ids import task_id
from paddleflow.base.quantity import total
from paddleflow.jobs.queries import PlacedTask, tasks_on_nodes
from paddleflow.jobs.rows import member_sets_of
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.store.database import Database


class ClusterNodes:
    """Implements `ClusterView` from the runtime's nodes and the rows of members that hold resources."""

    def __init__(self, database: Database, nodes: Callable[[str], Sequence[NodeInfo]]) -> None:
        self._database = database
        self._nodes = nodes

    async def nodes(self, cluster: str) -> Sequence[NodeUse]:
        pods: dict[str, list[PodUse]] = defaultdict(list)
        for row in await self._database.read(tasks_on_nodes, cluster):
            pods[row.node].append(_pod(row))
        return [
            NodeUse(
                name=node.name,
                address=node.address,
                schedulable=node.schedulable,
                labels=node.labels,
                capacity=node.capacity,
                used=total(pod.resources for pod in pods[node.name]),
                pods=pods[node.name],
                taken=node.taken,
                version=node.version,
            )
            for node in self._nodes(cluster)
        ]


def _pod(row: PlacedTask) -> PodUse:
    each = next(need.each for need in member_sets_of(row.member_sets) if need.role == row.role)
    return PodUse(task_id(row.job_id, row.role, row.idx), row.status, json.loads(row.labels), each)
