"""``kill -9`` of the keeper at every point while cgroup folders go from one attempt to the next.

The journal then names one folder for several attempts: whoever lives in it must not be taken for a rest of those before.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.runtimes.local import cgroups
from paddleflow.runtimes.local.keeper import keeper_id
from paddleflow.runtimes.runtime import Ended, Launch
from tests.fault import dying_keeper
from tests.keeper_scene import check_each_ended_once, counted, kill_keeper, times_run
from tests.patience import PATIENCE
from tests.runtime_scene import Scene, open_local, opened


async def lives_one_after_the_other(folder: Path, number: int, moment: str) -> bool:
    """One life with a death at this operation; whether it was reached."""
    folder.mkdir()
    (folder / "die-at").write_text(f"{number} {moment}")
    command = (sys.executable, "-S", dying_keeper.__file__, str(folder))
    async with opened(partial(open_local, keeper=command), folder) as scene:
        short = [limited(scene, f"short{i}", "exit 0") for i in range(3)]
        long = limited(scene, "long", "while ! [ -e go ]; do sleep 0.005; done; echo lived; exit 5")
        scene.log_path(short[1]).parent.mkdir(parents=True)
        scene.log_path(short[1]).touch()  # so that it is the marker that says whether it began
        for launch in short[:2]:
            assert (await scene.run(launch)).exit_code in {0, None}
        await scene.runtime.start([long])
        assert (await scene.run(short[2])).exit_code in {0, None}
        (folder / "work" / "go").touch()
        assert (await scene.end_of(long)).exit_code in {5, None}
        assert await scene.log_of(long) == b"lived\n"
        check_each_ended_once(scene, [*short, long])
        assert [times_run(scene, name) for name in ("short0", "short1", "short2", "long")] == [1, 1, 1, 1]
    async with opened(open_local, folder):
        pass  # a keeper that was killed while it left needs a next one to clear up behind it
    assert groups(folder) == []
    return (folder / "died").read_bytes() == b"1"


def limited(scene: Scene, name: str, script: str) -> Launch:
    return replace(counted(scene, name, script), limit=Resources(500, 1 << 30))


def groups(folder: Path) -> list[str]:
    """What is left of the keepers of this folder; the last one removed its base."""
    places, _ = cgroups.locate(f"paddleflow-{keeper_id(str(folder / 'data'))}")
    found = cgroups.left_over(places)
    cgroups.remove({place.base for place in places.values()})
    return found


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.timeout(600)
async def test_killed_at_every_operation(tmp_path: Path, moment: str) -> None:
    number = 1
    while await lives_one_after_the_other(tmp_path / str(number), number, moment):
        number += 1
    assert number > 40


async def test_kills_at_random_moments(tmp_path: Path) -> None:
    """Thirty kills while three hundred attempts go through the same few groups, and one lives in one of them."""
    chance = random.Random(11)
    async with opened(open_local, tmp_path) as scene:
        await scene.run(limited(scene, "first", "true"))
        long = limited(scene, "long", "while ! [ -e go ]; do sleep 0.005; done; echo lived")
        await scene.runtime.start([long])
        launches = [limited(scene, f"n{i}", "exit 3") for i in range(300)]
        waiting, kills = list(launches), 0
        async with asyncio.timeout(4 * PATIENCE):
            while waiting or kills < 30:
                await scene.runtime.start([waiting.pop() for _ in range(min(6, len(waiting)))])
                await asyncio.sleep(chance.random() * 0.05)
                if kills < 30:
                    kills += kill_keeper(tmp_path)
            await scene.until(lambda: len(scene.reported(Ended)) == len(launches) + 1)
        (tmp_path / "work" / "go").touch()
        await scene.end_of(long)
        assert await scene.log_of(long) == b"lived\n"
        check_each_ended_once(scene, [*launches, long])
        assert [times_run(scene, f"n{i}") for i in range(300)] == [1] * 300
    assert groups(tmp_path) == []
