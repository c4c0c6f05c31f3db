"""What happens beside the turns: samples of what jobs use, and the end of jobs whose time to live is over."""

from __future__ import annotations

import asyncio

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.log import Log
from paddleflow.engine.cluster_engine import Parts
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.changes import any_due, delete_due
from paddleflow.runtimes.log_store import TaskAddress
from paddleflow.runtimes.runtime import Runtime
from paddleflow.store.bus import EVENTS

DELETE_EVERY = 5.0
DELETIONS_AT_ONCE = 200

log = Log("engine")


async def sample_for_ever(runtime: Runtime, parts: Parts) -> None:
    """Keep what the running members use, beside their logs."""
    while True:
        await asyncio.sleep(parts.settings.local.sample_every)
        try:
            samples = await runtime.sample()
            await runtime.samples.append({_task(attempt): sample for attempt, sample in samples.items()})
        except (PaddleFlowError, OSError) as error:
            log.warning("no samples this time", reason=str(error))


def _task(attempt: AttemptId) -> TaskAddress:
    job, key, _ = parse_attempt(attempt)
    return TaskAddress(job, *key)


async def delete_for_ever(runtime: Runtime, cluster: str, parts: Parts, every: float = DELETE_EVERY) -> None:
    """Delete jobs of a cluster whose time to live is over, with their files."""
    while True:
        await asyncio.sleep(every)
        try:
            while await delete_some(runtime, cluster, parts) == DELETIONS_AT_ONCE:
                pass
        except (PaddleFlowError, OSError) as error:
            log.warning("could not delete ended jobs", reason=str(error))


async def delete_some(runtime: Runtime, cluster: str, parts: Parts) -> int:
    """Delete up to `DELETIONS_AT_ONCE` jobs whose time has come; how many there were."""
    if not await parts.database.read(any_due, cluster, parts.clock.now()):
        return 0
    gone = await parts.database.write(delete_due, cluster, parts.clock.now(), DELETIONS_AT_ONCE)
    parts.bus.wake(EVENTS)
    await runtime.logs.remove(gone)
    return len(gone)
