"""What nodes hold of storages: transactions. Reported by whoever mounts, read by the scheduler and by people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "node_caches.sql")
MOST_NODES = 1_000  #: of one storage that are told
MOST_REPORTS = 100_000  #: of all storages that placing jobs looks at


class NodeCache(NamedTuple):
    """How much of a storage the caches of one node hold."""

    node: str
    bytes: int
    seen_at: float


def report_caches(tx: Tx, node: str, held: Mapping[str, int], now: float) -> None:
    """By storage: bytes that are cached on a node; 0 when nothing is any more."""
    for storage, count in held.items():
        if count:
            tx.run(SQL["report_cache"], fs_id=storage, node=node, bytes=count, now=now)
        else:
            tx.run(SQL["forget_cache"], fs_id=storage, node=node)


def caches_of(tx: Tx, storage: str) -> list[NodeCache]:
    """Most first."""
    rows = tx.all(SQL["caches_of"], fs_id=storage, limit=MOST_NODES)
    return [NodeCache(row["node"], row["bytes"], row["seen_at"]) for row in rows]


def all_caches(tx: Tx) -> Iterator[tuple[str, NodeCache]]:
    """By storage; the newest reports first."""
    for row in tx.all(SQL["all_caches"], limit=MOST_REPORTS):
        yield row["fs_id"], NodeCache(row["node"], row["bytes"], row["seen_at"])


def storages_of(tx: Tx, jobs: Iterable[str]) -> dict[str, set[str]]:
    """Which storages jobs use of which some node holds something; jobs without such a storage are left out."""
    return _by_job(tx.all(SQL["storages_of_jobs"], ids=json.dumps([[job] for job in jobs])))


def storages_of_waiting(tx: Tx, cluster: str) -> dict[str, set[str]]:
    """The same of all jobs of a cluster that wait."""
    return _by_job(tx.all(SQL["storages_of_waiting"], cluster=cluster))


def _by_job(rows: Iterable[Row]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["job_id"], set()).add(row["fs_id"])
    return found


def held_for_job(tx: Tx, job: str) -> dict[str, int]:
    """By node: bytes of the storages that a job uses; those that hold most first."""
    rows = tx.all(SQL["held_for_job"], job_id=job, limit=MOST_NODES)
    return {row["node"]: int(row["bytes"]) for row in rows}


def used_storages(tx: Tx, storages: Iterable[str]) -> set[str]:
    """Those that a job uses which has not ended."""
    return {each for each in storages if tx.value(SQL["is_used"], fs_id=each) is not None}
