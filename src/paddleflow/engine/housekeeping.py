"""What happens beside the turns: samples of what jobs use, and the end of jobs whose time to live is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from paddleflow.base.ids import AttemptId
from paddleflow.base.log import Log
from paddleflow.engine.launching import parse_attempt
from paddleflow.engine.mover import EVENTS, Parts
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.changes import delete_job, due_for_deletion
from paddleflow.jobs.folders import remove_folder, stats_file
from paddleflow.runtimes.local import statistics
from paddleflow.runtimes.runtime import Sample

DELETE_EVERY = 5.0
DELETIONS_AT_ONCE = 200

log = Log("engine")


async def sample_for_ever(parts: Parts) -> None:
    """Keep what the running members use, beside their logs."""
    while True:
        await asyncio.sleep(parts.settings.local.sample_every)
        try:
            samples = await parts.runtime.sample()
            await asyncio.to_thread(_keep, parts.data, samples)
        except (PaddleFlowError, OSError) as error:
            log.warning("no samples this time", reason=str(error))


def _keep(data: Path, samples: Mapping[AttemptId, Sample]) -> None:
    for attempt, sample in samples.items():
        job, (role, index), _ = parse_attempt(attempt)
        statistics.append(str(stats_file(data, job, role, index)), sample)


async def delete_for_ever(parts: Parts) -> None:
    """Delete jobs whose time to live is over, with their folders."""
    while True:
        await asyncio.sleep(DELETE_EVERY)
        try:
            due = await parts.database.read(due_for_deletion, parts.clock.now(), DELETIONS_AT_ONCE)
            for job in due:
                await parts.database.write(delete_job, job)
                await asyncio.to_thread(remove_folder, parts.data, job)
            if due:
                parts.bus.wake(EVENTS)
        except (PaddleFlowError, OSError) as error:
            log.warning("could not delete ended jobs", reason=str(error))
