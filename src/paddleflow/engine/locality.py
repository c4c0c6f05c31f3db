"""Which nodes hold most of the storages that a job mounts: of nodes with room, the scheduler tries these first.

Mounts report what their caches hold (`storage.node_caches`). The reports are read at most every `REFRESH` seconds, and not at all for
a cluster of one node. Called by `cluster_engine` with every row before the scheduler gets it, and by `run_engine`
for the jobs of steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from paddleflow.base.clock import Clock
from paddleflow.jobs.model import NewJob
from paddleflow.jobs.rows import ChangedJob, WaitingClass
from paddleflow.runtimes.runtime import NodeInfo
from paddleflow.storage.node_caches import all_caches, storages_of, storages_of_waiting
from paddleflow.store.database import Database, Tx

REFRESH = 10.0  #: seconds; mounts report about as often
MOST_NODES = 8  #: that are tried before all others

Job = tuple[int, str, float]


class Locality:
    """What the nodes of one cluster hold, as it was last reported."""

    def __init__(self, database: Database, clock: Clock, cluster: str) -> None:
        self._database, self._clock, self._cluster = database, clock, cluster
        self._held: Mapping[str, Mapping[str, int]] = {}  #: by storage, by node: bytes
        self._read_at = float("-inf")

    async def fill(self, rows: list[ChangedJob], nodes: Sequence[NodeInfo]) -> list[ChangedJob]:
        """The rows, each with the nodes of the cluster that hold its data."""
        await self._refresh(nodes)
        if not self._held or not rows:
            return rows
        found = await self._database.read(storages_of, [row.id for row in rows])
        return [row._replace(data=self._nodes(found[row.id])) if row.id in found else row for row in rows]

    async def spread(self, classes: list[WaitingClass], nodes: Sequence[NodeInfo]) -> list[WaitingClass]:
        """The waiting jobs of a board that is rebuilt; jobs with data on different nodes become different classes."""
        await self._refresh(nodes)
        if not self._held:
            return classes
        found = await self._database.read(storages_of_waiting, self._cluster)
        spread: list[WaitingClass] = []
        for each in classes:
            alike: dict[tuple[str, ...], list[Job]] = {}
            for job in each.jobs:
                alike.setdefault(self._nodes(found.get(job[1], ())), []).append(job)
            spread += [each._replace(jobs=jobs, data=data) for data, jobs in alike.items()]
        return spread

    def near(self, job: NewJob) -> tuple[str, ...]:
        """The nodes that hold the data of a job whose row is not written yet."""
        return self._nodes({each.id for member in job.members for each in member.storages}) if self._held else ()

    def _nodes(self, storages: Iterable[str]) -> tuple[str, ...]:
        """Those that hold most first."""
        held: dict[str, int] = {}
        for storage in storages:
            for node, count in self._held.get(storage, {}).items():
                held[node] = held.get(node, 0) + count
        return tuple(sorted(held, key=lambda node: (-held[node], node))[:MOST_NODES])

    async def _refresh(self, nodes: Sequence[NodeInfo]) -> None:
        now = self._clock.monotonic()
        if len(nodes) < 2:
            self._held, self._read_at = {}, float("-inf")
        elif now >= self._read_at + REFRESH:
            self._held, self._read_at = await self._database.read(_held_by, {node.name for node in nodes}), now


def _held_by(tx: Tx, nodes: Collection[str]) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {}
    for storage, cache in all_caches(tx):
        if cache.node in nodes:
            held.setdefault(storage, {})[cache.node] = cache.bytes
    return held
