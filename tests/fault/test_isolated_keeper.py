"""``kill -9`` of the keeper while isolated jobs come and go: nothing runs twice, every end is told, no sandbox is left."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.runtime import Ended
from tests.keeper_scene import check_each_ended_once, kill_keeper
from tests.ordinary_account import needs_root
from tests.patience import PATIENCE, soon
from tests.runtime_scene import open_local, opened


@needs_root
async def test_kills_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(7)
    async with opened(open_local, tmp_path) as scene:
        runtime = scene.runtime
        assert isinstance(runtime, LocalRuntime)
        await soon(lambda: bool(runtime.isolation))
        if not runtime.isolation.startswith("by user"):
            pytest.skip(runtime.isolation)
        launches = [
            replace(scene.shell(f"n{i}", "echo x >> times; exit 3"), user=f"user{i % 3}", working_dir="")
            for i in range(60)
        ]
        waiting, kills = list(launches), 0
        async with asyncio.timeout(4 * PATIENCE):
            while kills < 12 or len(scene.reported(Ended)) < len(launches):
                if waiting:
                    await runtime.start([waiting.pop() for _ in range(min(6, len(waiting)))])
                if kills < 12:
                    await asyncio.sleep(chance.random() * 0.1)
                    kills += kill_keeper(tmp_path)
                else:
                    await scene.until(lambda: len(scene.reported(Ended)) == len(launches))
        check_each_ended_once(scene, launches)
        times = [(scene.log_path(launch).parent / "work" / "times").read_text() for launch in launches]
        assert times == ["x\n"] * len(launches)
        assert {end.exit_code for end in scene.reported(Ended)} <= {3, None}
    data = (tmp_path / "data").stat()
    keeper = f"PADDLEFLOW_KEEPER={data.st_dev:x}-{data.st_ino:x}".encode()
    await soon(lambda: not [pid for pid in _pids() if keeper in _environment(pid)], "no process of it is left")


def _pids() -> list[str]:
    return [each.name for each in Path("/proc").glob("[0-9]*")]


def _environment(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
