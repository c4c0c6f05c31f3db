"""Routes of resource pools: records that root keeps. All of them are for root."""

from __future__ import annotations

from paddleflow.api.amounts import amounts
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.queues import pools
from paddleflow.queues.model import Pool
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.pool import NewPool, PoolChange, PoolQuery
from paddleflow.spec.wire import Name


async def create_pool(platform: Platform, call: Call[NewPool, NoQuery]) -> Name:
    pool = await platform.database.write(pools.create_pool, call.body, call.caller.name, platform.clock.now())
    return {"name": pool.name}


async def list_pools(platform: Platform, call: Call[NoBody, PoolQuery]) -> wire.PoolList:
    query = call.query
    found = await platform.database.read(
        pools.list_pools,
        query.after,
        query.limit,
        name=query.name,
        statuses=listed(query.status),
        labels=query.wanted_labels,
    )
    rows, truncated, marker = page(found, query)
    shown = [pool_answer(pools.pool_of(row)) for row in rows]
    return {**page_fields(query, truncated, marker), "resourcePoolList": shown}


async def show_pool(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Pool:
    return pool_answer(await platform.database.read(pools.get_pool, call.path["name"]))


async def change_pool(platform: Platform, call: Call[PoolChange, NoQuery]) -> wire.Pool:
    name, now = call.path["name"], platform.clock.now()
    return pool_answer(await platform.database.write(pools.change_pool, name, call.body, now))


async def delete_pool(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(pools.delete_pool, call.path["name"])


def pool_answer(pool: Pool) -> wire.Pool:
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


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/resourcepool",
        create_pool,
        "Record a resource pool; nothing is made in the cluster",
        body=NewPool,
        answer=Name,
        root=True,
        errors=("DuplicatedName", "400 ClusterNotFound", "InvalidClusterStatus"),
    ),
    Route(
        "GET",
        "/resourcepool",
        list_pools,
        "List resource pools",
        query=PoolQuery,
        answer=wire.PoolList,
        root=True,
    ),
    Route(
        "GET",
        "/resourcepool/{name}",
        show_pool,
        "Show a resource pool",
        answer=wire.Pool,
        root=True,
        errors=("ResourceNotFound",),
    ),
    Route(
        "PUT",
        "/resourcepool/{name}",
        change_pool,
        "Change a resource pool",
        body=PoolChange,
        answer=wire.Pool,
        root=True,
        errors=("ResourceNotFound",),
    ),
    Route(
        "DELETE",
        "/resourcepool/{name}",
        delete_pool,
        "Delete a resource pool",
        root=True,
        errors=("ResourceNotFound",),
    ),
)
