"""Routes of resource pools: records that root keeps. All of them are for root."""

from __future__ import annotations

from paddleflow.api.amounts import amounts
from paddleflow.api.paging import listed
from paddleflow.api.records import RecordKind, record_routes
from paddleflow.api.routing import Route
from paddleflow.base.clock import local_text
from paddleflow.queues import pools
from paddleflow.queues.model import Pool
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.pool import NewPool, PoolChange, PoolQuery
from paddleflow.spec.wire import Name
from paddleflow.store.database import Tx


def pool_view(pool: Pool) -> wire.Pool:
    return {
        "id": pool.id,
        "name": pool.name,
        "namespace": pool.namespace,
        "type": pool.pool_type,
        "provider": pool.provider,
        "orgID": pool.org_id,
        "creator": pool.creator,
        "description": pool.description,
        "clusterName": pool.cluster,
        "quotaType": pool.quota_type,
        "minResources": amounts(pool.least),
        "totalResources": amounts(pool.total),
        "labels": dict(pool.labels),
        "annotations": dict(pool.annotations),
        "status": pool.status,
        "isHybrid": int(pool.hybrid),
        "createTime": local_text(pool.created_at),
        "updateTime": local_text(pool.updated_at),
    }


def select(tx: Tx, query: PoolQuery) -> list[Pool]:
    statuses, labels = listed(query.status), query.wanted_labels
    return pools.list_pools(tx, query.after, query.limit, name=query.name, statuses=statuses, labels=labels)


ROUTES: tuple[Route, ...] = record_routes(
    RecordKind(
        name="pool",
        path="/resourcepool",
        summaries={
            "create": "Record a resource pool; nothing is made in the cluster",
            "list": "List resource pools",
            "show": "Show a resource pool",
            "change": "Change a resource pool",
            "delete": "Delete a resource pool",
        },
        list_field="resourcePoolList",
        new=NewPool,
        changes=PoolChange,
        query=PoolQuery,
        create=lambda tx, document, caller, now: pools.create_pool(tx, document, caller.name, now),
        select=select,
        get=pools.get_pool,
        change=pools.change_pool,
        delete=pools.delete_pool,
        view=pool_view,
        created_view=lambda pool: {"name": pool.name},
        created_answer=Name,
        answer=wire.Pool,
        list_answer=wire.PoolList,
        missing="ResourceNotFound",
        create_errors=("DuplicatedName", "400 ClusterNotFound", "InvalidClusterStatus"),
    )
)
