"""Jobs of queues that have several clusters and start on none of them now: each waits where it probably starts first.

Every few seconds the engine of a cluster forecasts the starts of the jobs that have waited longest in the queues that it shares: of its
own as they stand in its queue, of those that wait elsewhere as if each came alone (they end in a second, and delay nobody). It writes
down what it found, and brings at most one job of each queue here. The comparison is `jobs.expected_starts`; what starts at once is
the matter of `cluster_choice`, which needs no forecast and so is right where forecasts are wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from paddleflow.base.log import Log
from paddleflow.engine.cluster_choice import read_shared_queues
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.durations import DurationHistory
from paddleflow.jobs.expected_starts import ExpectedStart, expected_start, move_one, tell
from paddleflow.jobs.forecaster import FUTURES, solve_aside
from paddleflow.jobs.queries import movable_jobs
from paddleflow.jobs.rows import ChangedJob, request_of
from paddleflow.queues.model import Queue
from paddleflow.scheduling.forecast import Estimate
from paddleflow.simulator.forecast_worker import Problem
from paddleflow.store.bus import EVENTS, JOBS
from paddleflow.store.database import Tx

EVERY = 10.0  #: seconds between two forecasts
SHARE = 9.0  #: or so many times the seconds that the last one took: a tenth of a processor at most
SETTLED = 5.0  #: seconds for which a job has waited before anything is forecast for it
HEADS = 8  #: jobs of one queue and cluster that are forecast: those that have waited longest
_PASSING = Estimate((1.0,), known=True)  #: of jobs that wait elsewhere: each is looked at as if the others did not come

log = Log("engine")


class StartChoice:
    """What one cluster says about starts, and what it takes over for that."""

    def __init__(self, engine: ClusterEngine, parts: Parts, *, settled: float = SETTLED) -> None:
        self._engine, self._parts, self._settled = engine, parts, settled
        self._history = DurationHistory()
        self._version = -1
        self._queues: Sequence[Queue] = ()
        self._wrote = True  # a server before this one may have left something

    async def run(self) -> None:
        pause = EVERY
        while True:
            await asyncio.sleep(pause)
            began = self._parts.clock.monotonic()
            try:
                await self.compare()
            except (PaddleFlowError, OSError) as error:
                log.warning(
                    "starts are not compared with other clusters", cluster=self._engine.cluster, reason=str(error)
                )
            pause = max(EVERY, SHARE * (self._parts.clock.monotonic() - began))

    async def compare(self) -> list[str]:
        """One forecast of all that waits in shared queues; the jobs that were moved here."""
        here, parts = self._engine.cluster, self._parts
        if self._engine.scheduler is None:
            return []
        version, queues = await parts.database.read(read_shared_queues, here, self._version)
        if queues is not None:
            self._version, self._queues = version, queues
        now = parts.clock.now()
        own, guests = await parts.database.read(_read_heads, self._queues, here, now - self._settled, now)
        starts = await self._forecast(own, guests, now) if own or guests else []
        if not starts and not self._wrote:
            return []
        self._wrote = bool(starts)
        moved = await parts.database.write(_tell_and_move, here, starts, self._queues, now)
        if moved:
            log.info("jobs moved to where they start earlier", cluster=here, jobs=len(moved))
            parts.bus.wake(JOBS)
            parts.bus.wake(EVENTS)
        return moved

    async def _forecast(
        self, own: Sequence[ChangedJob], guests: Sequence[ChangedJob], now: float
    ) -> list[ExpectedStart]:
        here, parts = self._engine.cluster, self._parts
        snapshot = await self._engine.snapshot(now)
        if snapshot is None:
            return []
        rows = (
            *own,
            *guests,
        )  # those the core knows already it takes once; one moved here a moment ago it may not know yet
        snapshot = replace(snapshot, pending=(*snapshot.pending, *map(request_of, rows)))
        profiles = await parts.database.read(self._history.update)
        estimates = self._history.estimates(snapshot, profiles)
        estimates |= {row.id: _PASSING for row in guests}
        seconds = parts.settings.scheduling.forecast_seconds
        found = await solve_aside(Problem(snapshot, estimates, FUTURES, seconds))
        return [expected_start(row.id, here, row.queue, now, found[row.id]) for row in rows if row.id in found]


def _read_heads(
    tx: Tx, queues: Sequence[Queue], here: str, before: float, now: float
) -> tuple[list[ChangedJob], list[ChangedJob]]:
    """The jobs that have waited longest, of each queue and cluster: those that wait here, and the others."""
    own: list[ChangedJob] = []
    guests: list[ChangedJob] = []
    for queue in queues:
        for cluster in queue.clusters:
            (own if cluster == here else guests).extend(movable_jobs(tx, cluster, queue.name, 0, before, now, HEADS))
    return own, guests


def _tell_and_move(
    tx: Tx, here: str, starts: Sequence[ExpectedStart], queues: Sequence[Queue], now: float
) -> list[str]:
    tell(tx, here, starts)
    named = {start.queue for start in starts}
    return [
        job for queue in queues if queue.name in named for job in move_one(tx, queue.name, queue.clusters, here, now)
    ]
