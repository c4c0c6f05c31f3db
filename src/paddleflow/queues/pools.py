"""Transactions on resource pools. A pool is a record for people and programs; the scheduler does not use it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice

from paddleflow.errors import Conflict, NotFound
from paddleflow.queues import rules
from paddleflow.queues.clusters import among, cluster_names, find_cluster
from paddleflow.queues.model import Pool, amounts, columns
from paddleflow.spec.pool import NewPool, PoolChange
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.queues", "pools.sql")


def get_pool(tx: Tx, name: str) -> Pool:
    row = tx.one(SQL["pool_by_name"], name=name)
    if row is None:
        raise NotFound(f"resource pool[{name[:80]}] does not exist", code="ResourceNotFound")
    return _pool(row)


def list_pools(
    tx: Tx,
    after: int,
    limit: int,
    *,
    name: str = "",
    statuses: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> list[Pool]:
    """Those that carry all of `labels`, behind the position `after`, oldest first."""
    wanted = (labels or {}).items()
    rows = tx.all(SQL["list_pools"], after=after, name=name, statuses=among(statuses))
    return list(islice((_pool(row) for row in rows if wanted <= json.loads(row["labels"]).items()), limit))


def create_pool(tx: Tx, document: NewPool, creator: str, now: float) -> Pool:
    cluster = find_cluster(tx, document.cluster_name)
    pool = rules.new_pool(document, cluster, cluster_names(tx), creator, now)
    made = tx.run(
        SQL["insert_pool"],
        id=pool.id,
        name=pool.name,
        namespace=pool.namespace,
        pool_type=pool.pool_type,
        provider=pool.provider,
        org_id=pool.org_id,
        creator=pool.creator,
        description=pool.description,
        cluster=pool.cluster,
        quota_type=pool.quota_type,
        **columns("total_", pool.total),
        **columns("min_", pool.least),
        labels=json.dumps(pool.labels),
        annotations=json.dumps(pool.annotations),
        status=pool.status,
        is_hybrid=int(pool.hybrid),
        created_at=pool.created_at,
        updated_at=pool.updated_at,
    )
    if not made:
        raise Conflict(
            f"resource pool[{pool.name}] exists already",
            code="DuplicatedName",
            hint="choose another name, or update it",
        )
    return pool


def change_pool(tx: Tx, name: str, document: PoolChange, now: float) -> Pool:
    changed = rules.changed_pool(get_pool(tx, name), document, now)
    tx.run(
        SQL["update_pool"],
        name=changed.name,
        **columns("total_", changed.total),
        annotations=json.dumps(changed.annotations),
        status=changed.status,
        updated_at=changed.updated_at,
    )
    return changed


def delete_pool(tx: Tx, name: str) -> None:
    get_pool(tx, name)
    tx.run(SQL["delete_pool"], name=name)


def _pool(row: Row) -> Pool:
    return Pool(
        seq=row["seq"],
        id=row["id"],
        name=row["name"],
        namespace=row["namespace"],
        pool_type=row["pool_type"],
        provider=row["provider"],
        org_id=row["org_id"],
        creator=row["creator"],
        description=row["description"],
        cluster=row["cluster"],
        quota_type=row["quota_type"],
        total=amounts(row, "total_"),
        least=amounts(row, "min_"),
        labels=json.loads(row["labels"]),
        annotations=json.loads(row["annotations"]),
        status=row["status"],
        hybrid=bool(row["is_hybrid"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
