"""Keeps the record of what the scheduler saw and decided, beside the turns: a turn only appends to a list.

A crash loses the last half second of it; the next engine begins with a snapshot of its own.
"""

from __future__ import annotations

import asyncio

from paddleflow.base.log import Log
from paddleflow.base.quantity import parse_quantity
from paddleflow.engine.cluster_engine import ClusterEngine, Parts
from paddleflow.queues.decision_log import DecisionLog, folder_of
from paddleflow.scheduling.record import Recorded

KEEP_EVERY = 0.5

log = Log("engine")


async def keep_for_ever(parts: Parts, engine: ClusterEngine) -> None:
    """Write down what the engine's scheduler does, as long as the settings leave room for it."""
    most = parse_quantity(parts.settings.scheduling.log_size)
    if not most:
        return
    kept = DecisionLog(folder_of(parts.data), most)
    scheduler: Recorded | None = None
    while True:
        await asyncio.sleep(KEEP_EVERY)
        entries = [] if scheduler is None else scheduler.take()
        if engine.scheduler is not scheduler:
            scheduler = engine.scheduler
        if scheduler is not None and (not scheduler.recording or kept.long):
            scheduler.begin()
            entries += scheduler.take()
        if entries:
            try:
                await asyncio.to_thread(kept.append, entries, parts.clock.now())
            except OSError as error:
                log.warning("decisions are not kept", reason=str(error))
