"""Jobs of queues that have several clusters: each cluster takes over what waits elsewhere and would start there now.

A job begins on the first cluster of its queue. If it has to wait there, the others look at it in the order of preference, each a
second later than the one before, and the first that has room takes it: so it starts where it can start first, and that does
not depend on a forecast. `start_choice` decides where it waits while no cluster has room. A job is moved in one transaction and only
while it waits; what the other engine does with it meanwhile fails its check of `touched`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paddleflow.base.log import Log
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.changes import move_jobs
from paddleflow.jobs.queries import movable_jobs
from paddleflow.jobs.rows import request_of
from paddleflow.queues.model import COUNTER, Queue
from paddleflow.queues.queues import cluster_queues
from paddleflow.store import counters
from paddleflow.store.bus import EVENTS, JOBS
from paddleflow.store.database import Tx

EVERY = 1.0  #: seconds between two looks
STEP = 1.0  #: seconds by which a cluster waits longer than the one before it in the order of preference
MOST = 200  #: jobs of one queue and cluster that are looked at at a time

log = Log("engine")


class ClusterChoice:
    """What one cluster takes over."""

    def __init__(self, engine: ClusterEngine, parts: Parts, *, step: float = STEP) -> None:
        self._engine, self._parts, self._step = engine, parts, step
        self._version = -1
        self._queues: Sequence[Queue] = ()
        self._seen: dict[tuple[str, str], int] = {}  # position up to which jobs were looked at, by queue and cluster

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.take_over()
            except (PaddleFlowError, OSError) as error:
                log.warning("jobs of other clusters are not looked at", cluster=self._engine.cluster, reason=str(error))

    async def take_over(self) -> list[str]:
        """One look at all that waits elsewhere; the jobs that were moved here."""
        if self._engine.scheduler is None:
            return []
        version, queues = await self._parts.database.read(read_shared_queues, self._engine.cluster, self._version)
        if queues is not None:
            self._version, self._queues = version, queues
        moved: list[str] = []
        for queue in self._queues:
            for source in queue.clusters:
                if source != self._engine.cluster:
                    moved += await self._take_from(queue, source)
        if moved:
            log.info("jobs taken over", cluster=self._engine.cluster, jobs=len(moved))
            self._parts.bus.wake(JOBS)
            self._parts.bus.wake(EVENTS)
        return moved

    async def _take_from(self, queue: Queue, source: str) -> list[str]:
        here, parts, key = self._engine.cluster, self._parts, (queue.name, source)
        now = parts.clock.now()
        before = now - self._step * queue.clusters.index(here)
        after = self._seen.get(key, 0)
        rows = await parts.database.read(movable_jobs, source, queue.name, after, before, now, MOST)
        self._seen[key] = rows[-1].seq if len(rows) == MOST else 0
        found = {request.job for request in await self._engine.fitting([request_of(row) for row in rows])}
        wanted = [row for row in rows if row.id in found]
        return await parts.database.write(move_jobs, wanted, source, here, now) if wanted else []


def read_shared_queues(tx: Tx, cluster: str, known: int) -> tuple[int, Sequence[Queue] | None]:
    """The queues that share their jobs between this cluster and others, if anything has changed."""
    version = counters.value(tx, COUNTER)
    if version == known:
        return version, None
    return version, [queue for queue in cluster_queues(tx, cluster) if queue.other_clusters and queue.open]
