"""What happens beside the turns: samples of what jobs use, and the end of jobs whose time to live is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from paddleflow.base.ids import AttemptId
from paddleflow.base.log import Log
from paddleflow.engine.cluster_engine import Parts
from paddleflow.engine.launch import parse_attempt
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.changes import any_due, delete_due
from paddleflow.jobs.folders import empty_bin, remove_folder, stats_file
from paddleflow.runtimes import sample_history
from paddleflow.runtimes.runtime import Runtime, Sample
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
            await asyncio.to_thread(_keep, parts.data, samples)
        except (PaddleFlowError, OSError) as error:
            log.warning("no samples this time", reason=str(error))


def _keep(data: Path, samples: Mapping[AttemptId, Sample]) -> None:
    for attempt, sample in samples.items():
        job, (role, index), _ = parse_attempt(attempt)
        with suppress(FileNotFoundError):  # it ended and was deleted just now
            sample_history.append(str(stats_file(data, job, role, index)), sample)


async def delete_for_ever(parts: Parts) -> None:
    """Delete jobs whose time to live is over, with their folders."""
    await asyncio.to_thread(empty_bin, parts.data)
    while True:
        await asyncio.sleep(DELETE_EVERY)
        try:
            while await delete_some(parts) == DELETIONS_AT_ONCE:
                pass
        except (PaddleFlowError, OSError) as error:
            log.warning("could not delete ended jobs", reason=str(error))


async def delete_some(parts: Parts) -> int:
    """Delete up to `DELETIONS_AT_ONCE` jobs whose time has come; how many there were."""
    if not await parts.database.read(any_due, parts.clock.now()):
        return 0
    gone = await parts.database.write(delete_due, parts.clock.now(), DELETIONS_AT_ONCE)
    parts.bus.wake(EVENTS)
    await asyncio.to_thread(_remove_folders, parts.data, gone)
    return len(gone)


def _remove_folders(data: Path, jobs: Sequence[str]) -> None:
    for job in jobs:
        remove_folder(data, job)
