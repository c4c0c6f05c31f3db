"""Routes of cached results of steps."""

from __future__ import annotations

from paddleflow.access.callers import Caller, require_owner
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.pipelines import filtered_users
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.runs.caches import CacheFilter, CacheRow, find_caches, get_cache, remove_cache
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import RunCacheListQuery
from paddleflow.store.database import Tx


def _owned(tx: Tx, caller: Caller, cache: str) -> CacheRow:
    row = get_cache(tx, cache)
    require_owner(caller, row.user, f"run cache[{cache}]")
    return row


async def list_run_caches(platform: Platform, call: Call[NoBody, RunCacheListQuery]) -> wire.RunCacheList:
    query = call.query
    wanted = CacheFilter(
        filtered_users(call.caller, query.user_filter), listed(query.fs_filter), listed(query.run_filter)
    )
    rows = await platform.database.read(find_caches, wanted, query.after, query.limit)
    shown, truncated, marker = page(rows, query)
    return {**page_fields(query, truncated, marker), "runCacheList": [_answer(row) for row in shown]}


async def show_run_cache(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.RunCache:
    return _answer(await platform.database.read(_owned, call.caller, call.path["id"]))


async def remove_run_cache(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    def remove(tx: Tx) -> None:
        _owned(tx, call.caller, call.path["id"])
        remove_cache(tx, call.path["id"])

    await platform.database.write(remove)


def _answer(row: CacheRow) -> wire.RunCache:
    return {
        "cacheID": row.id,
        "firstFp": row.first_fp,
        "secondFp": row.second_fp,
        "runID": row.run_id,
        "source": row.source,
        "step": row.step,
        "jobID": row.job_id,
        "fsname": row.fs_name,
        "username": row.user,
        "expiredTime": str(row.expired_time),
        "strategy": "conservative",
        "custom": "",
        "createTime": local_text(row.created_at),
        "updateTime": local_text(row.updated_at),
    }


_REFUSED = ("404 RunCacheNotFound", "403 AccessDenied")

ROUTES = (
    Route(
        "GET", "/runCache", list_run_caches, "Results that may be used again, newest first.",
        query=RunCacheListQuery, answer=wire.RunCacheList, errors=("403 OnlyRootAllowed",),
    ),
    Route("GET", "/runCache/{id}", show_run_cache, "One of them.", answer=wire.RunCache, errors=_REFUSED),
    Route("DELETE", "/runCache/{id}", remove_run_cache, "Use it no more; the run's files stay.", errors=_REFUSED),
)  # fmt: skip
