"""What a turn writes, on a real database."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.engine.changeset import JobUpdate, Writes, write_turn
from paddleflow.jobs.machine import JobState, Lifecycle, TaskState
from paddleflow.jobs.model import JobStatus, TaskStatus
from paddleflow.settings import JobSettings
from paddleflow.store import events, leases
from paddleflow.store.connection import open_database

LIFECYCLE = Lifecycle((("worker",),), frozenset({"worker"}))
NOW = 30.0


@pytest.mark.parametrize(("members", "moments"), [(1, [28.0]), (2, [NOW, NOW, NOW])])
async def test_events_go_forward_though_members_have_clocks_of_their_own(
    members: int, moments: list[float], tmp_path: Path
) -> None:
    ended = [TaskState("worker", n, TaskStatus.SUCCEEDED, exit_code=0, finished_at=28.0) for n in range(members)]
    state = JobState("job-1", LIFECYCLE, JobStatus.SUCCEEDED, tasks=tuple(ended), finished_at=28.0)
    update = JobUpdate(state, ended, None, [(28.0, JobStatus.SUCCEEDED, "")])
    database = await open_database("", tmp_path, durable=False)
    try:
        token = await database.write(leases.acquire, "engine", "test", NOW, 60)
        assert token is not None
        await database.write(write_turn, Writes(changes=[update]), ("engine", token), JobSettings(), NOW)
        told = await database.read(events.after, "job", "job-1", 0, 10)
    finally:
        await database.close()
    assert [event.at for event in told] == moments
