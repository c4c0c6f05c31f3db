"""What tells the next keeper that a child was made: its log if it had none before, the marker otherwise.

Each journal here ends with the try line of an attempt, as if the keeper had been killed right behind it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.local import procfs
from paddleflow.runtimes.local.keeper import keeper_id
from paddleflow.runtimes.runtime import Ended, Launch, Ready, Started
from tests.fault import dying_keeper
from tests.keeper_scene import check_each_ended_once, counted, times_run
from tests.patience import soon
from tests.runtime_scene import Scene, open_local, opened


def log_of(folder: Path, launch: Launch) -> Path:
    return Scene(open_local, folder).log_path(launch)


def tried(folder: Path, *, fresh: bool) -> Launch:
    """The attempt that the journal of this folder has tried to start."""
    data = folder / "data"
    data.mkdir()
    scene = Scene(open_local, folder)
    launch = counted(scene, "one", "exit 4")
    log_of(folder, launch).parent.mkdir(parents=True)
    plan = {"log": str(log_of(folder, launch)), "word": "sh", **({"fresh": True} if fresh else {})}
    lines = [["keeper", 1, procfs.boot_id()], ["try", launch.attempt, plan]]
    (data / "keeper.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return launch


@pytest.mark.parametrize("fresh", [True, False])
async def test_without_a_trace_it_never_began_and_may_be_started(tmp_path: Path, fresh: bool) -> None:
    launch = tried(tmp_path, fresh=fresh)
    if not fresh:
        log_of(tmp_path, launch).write_text("of an earlier life\n")
    async with opened(open_local, tmp_path) as scene:
        scene.started.append(launch.attempt)
        assert list(await scene.runtime.adopt()) == []
        assert (await scene.run(launch)).exit_code == 4
        assert times_run(scene, "one") == 1


@pytest.mark.parametrize("fresh", [True, False])
async def test_with_one_it_began_and_is_never_started_again(tmp_path: Path, fresh: bool) -> None:
    launch = tried(tmp_path, fresh=fresh)
    (log_of(tmp_path, launch) if fresh else tmp_path / "data" / "keeper.began").touch()
    async with opened(open_local, tmp_path) as scene:
        scene.started.append(launch.attempt)
        [end] = await scene.runtime.adopt()
        assert isinstance(end, Ended)
        assert end.exit_code is None
        assert "not known" in end.message
        await scene.runtime.start([launch])
        await scene.run(scene.shell("two", "true"))
        assert times_run(scene, "one") == 0
        assert not (tmp_path / "data" / "keeper.began").exists()


@contextmanager
def running(folder: Path, launch: Launch) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PADDLEFLOW_ATTEMPT": launch.attempt, "PADDLEFLOW_KEEPER": keeper_id(str(folder / "data"))}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_one_that_removed_its_log_is_found_by_its_name(tmp_path: Path) -> None:
    launch = tried(tmp_path, fresh=True)
    with running(tmp_path, launch) as process:
        await soon(lambda: procfs.attempt_of(process.pid, keeper_id(str(tmp_path / "data"))) is not None)
        async with opened(open_local, tmp_path) as scene:
            scene.started.append(launch.attempt)
            known = await scene.runtime.adopt()
            assert [type(seen) for seen in known] == [Started, Ready]
            assert isinstance(known[0], Started)
            assert known[0].pid == process.pid


async def test_the_plan_says_which_of_the_two(tmp_path: Path) -> None:
    async with opened(open_local, tmp_path) as scene:
        first = scene.shell("first", "true")
        await scene.run(first)
        await scene.run(replace(scene.shell("second", "true"), attempt=AttemptId("job-first.worker-0.2")))
        scene.started.append(AttemptId("job-first.worker-0.2"))
        lines = [json.loads(row) for row in (tmp_path / "data" / "keeper.journal").read_text().splitlines()]
        assert [line[2].get("fresh") for line in lines if line[0] == "try"] == [True, None]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.timeout(600)
async def test_the_marker_of_one_does_not_speak_for_the_next(tmp_path: Path, moment: str) -> None:
    """Both are asked for at once and have a log: the second is tried as soon as the first is spawned."""
    number, died = 0, True
    while died:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "die-at").write_text(f"{number} {moment}")
        command = (sys.executable, "-S", dying_keeper.__file__, str(folder))
        async with opened(partial(open_local, keeper=command), folder) as scene:
            launches = [counted(scene, f"n{i}", "exit 4") for i in range(2)]
            for launch in launches:
                scene.log_path(launch).parent.mkdir(parents=True)
                scene.log_path(launch).touch()
            await scene.runtime.start(launches)
            for launch in launches:
                assert (await scene.end_of(launch)).exit_code in {4, None}
            check_each_ended_once(scene, launches)
            assert [times_run(scene, f"n{i}") for i in range(2)] == [1, 1]
        died = (folder / "died").read_bytes() == b"1"
    assert number > 10
