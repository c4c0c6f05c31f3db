"""Transactions on clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence

from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, NotFound
from paddleflow.queues import credentials, rules
from paddleflow.queues.model import COUNTER, DEFAULT_CLUSTER, Cluster
from paddleflow.spec.cluster import ClusterChange, NewCluster
from paddleflow.store.counters import bump
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.encryption import Keyring
from paddleflow.store.statements import load

SQL = load("paddleflow.queues", "clusters.sql")


def find_cluster(tx: Tx, name: str) -> Cluster | None:
    """The cluster of this name; the default one for an empty name."""
    row = tx.one(SQL["cluster_by_name"], name=name or DEFAULT_CLUSTER)
    return _cluster(row) if row else None


def get_cluster(tx: Tx, name: str) -> Cluster:
    """The cluster of this name, or `NotFound` that names the nearest."""
    cluster = find_cluster(tx, name)
    if cluster is None:
        hint = nearest(name, cluster_names(tx))
        raise NotFound(f"cluster[{name[:80]}] does not exist", code="ClusterNotFound", hint=hint)
    return cluster


def cluster_names(tx: Tx) -> list[str]:
    return [row["name"] for row in tx.all(SQL["cluster_names"])]


def every_cluster(tx: Tx) -> list[Cluster]:
    """All clusters, oldest first."""
    return [_cluster(row) for row in tx.all(SQL["every_cluster"])]


def claim_cluster(tx: Tx, name: str, owner: str) -> None:
    """Note whose machine a cluster is."""
    if tx.run(SQL["claim_cluster"], name=name, owner=owner):
        bump(tx, COUNTER)


def encrypt_credentials(tx: Tx, keyring: Keyring) -> None:
    """Encrypt those that an earlier version kept as they were sent."""
    for row in tx.all(SQL["plain_credentials"]):
        token = credentials.encrypt(keyring, row["name"], row["credential"])
        tx.run(SQL["replace_encrypted"], id=row["name"], old=row["credential"], token=token)


def list_clusters(tx: Tx, after: int, limit: int, names: Sequence[str] = (), status: str = "") -> list[Cluster]:
    """Those behind the position `after`, oldest first."""
    rows = tx.all(SQL["list_clusters"], after=after, limit=limit, names=among(names), status=status)
    return [_cluster(row) for row in rows]


def create_cluster(tx: Tx, document: NewCluster, now: float) -> Cluster:
    cluster = rules.new_cluster(document, now)
    insert_cluster(tx, cluster)
    return cluster


def insert_cluster(tx: Tx, cluster: Cluster) -> None:
    if not tx.run(SQL["insert_cluster"], **_columns(cluster), created_at=cluster.created_at):
        raise Conflict(
            f"cluster[{cluster.name}] exists already", code="DuplicatedName", hint="choose another name, or update it"
        )
    bump(tx, COUNTER)


def change_cluster(tx: Tx, name: str, document: ClusterChange, now: float) -> Cluster:
    cluster = get_cluster(tx, name)
    changed = rules.changed_cluster(cluster, document, now, queues=dependents(tx, name)["queues"])
    row = _columns(changed)
    row.pop("id")
    tx.run(SQL["update_cluster"], **row)
    bump(tx, COUNTER)
    return changed


def delete_cluster(tx: Tx, name: str) -> None:
    cluster = get_cluster(tx, name)
    if cluster.name == DEFAULT_CLUSTER:
        raise Conflict(
            f"cluster[{name}] is this machine and cannot be deleted", hint="set it offline to keep jobs from it"
        )
    counts = {what: count for what, count in dependents(tx, name).items() if count}
    if counts:
        used = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise Conflict(f"cluster[{name}] is in use: {used}", hint="delete these first")
    tx.run(SQL["delete_cluster"], name=name)
    bump(tx, COUNTER)


def dependents(tx: Tx, name: str) -> dict[str, int]:
    """How many ``queues``, ``flavours`` and ``pools`` name this cluster."""
    return tx.one(SQL["count_dependents"], name=name, pattern=f'%"{name}"%') or {}


def among(names: Sequence[str]) -> str:
    """Names as the filter of a list statement: ``,a,b,``; empty for no filter."""
    return f",{','.join(names)}," if names else ""


def _cluster(row: Row) -> Cluster:
    return Cluster(
        seq=row["seq"],
        id=row["id"],
        name=row["name"],
        description=row["description"],
        endpoint=row["endpoint"],
        source=row["source"],
        cluster_type=row["cluster_type"],
        version=row["version"],
        status=row["status"],
        credential=row["credential"],
        setting=row["setting"],
        namespaces=tuple(json.loads(row["namespaces"])),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        owner=row["owner"],
    )


def _columns(cluster: Cluster) -> dict[str, Value]:
    """All columns but ``created_at``, which never changes."""
    return {
        "id": cluster.id,
        "name": cluster.name,
        "description": cluster.description,
        "endpoint": cluster.endpoint,
        "source": cluster.source,
        "cluster_type": cluster.cluster_type,
        "version": cluster.version,
        "status": cluster.status,
        "credential": cluster.credential,
        "setting": cluster.setting,
        "namespaces": json.dumps(cluster.namespaces),
        "updated_at": cluster.updated_at,
    }
