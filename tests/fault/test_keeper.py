"""``kill -9`` of the keeper and of the server, at every point: nothing runs twice, every end is told, nothing is left.

What ran is counted by the attempts themselves: each adds one line to a file of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.errors import NotFound, Unavailable
from paddleflow.runtimes.memory import task_of
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Mount, Ready, Started
from paddleflow.settings import LocalSettings
from tests.fault import doomed_server, dying_keeper
from tests.keeper_scene import check_each_ended_once, counted, keeper_of, kill_keeper, times_run
from tests.patience import PATIENCE, soon
from tests.runtime_scene import Scene, is_free, lives, open_local, opened


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(open_local, tmp_path) as made:
        yield made


async def runs_until_no_death(folder: Path, number: int, moment: str) -> bool:
    """One life with a death at this operation; whether it was reached."""
    folder.mkdir()
    (folder / "die-at").write_text(f"{number} {moment}")
    command = (sys.executable, "-S", dying_keeper.__file__, str(folder))
    async with opened(partial(open_local, keeper=command), folder) as scene:
        quick = [counted(scene, f"quick{i}", f"exit {i}") for i in range(2)]
        target = folder / "above" / "made" / "target"
        (folder / "above").mkdir()
        quick[1] = replace(
            quick[1],
            limit=Resources(500, 1 << 30),
            mounts=(Mount("fs-test", str(target), str(folder / "work")),),
            working_dir=str(target),
        )
        missing = scene.launch("missing", "no-such-command")
        long = counted(scene, "long", "trap '' TERM; sleep 1000 & wait; wait")
        await scene.runtime.start([*quick, missing, long])
        await scene.until(lambda: len(scene.reported(Ended)) >= 3 and bool(scene.reported(Started, long.attempt)))
        await soon(lambda: times_run(scene, "long") == 1)
        await scene.runtime.stop([long.attempt], 0.02)
        await scene.end_of(long)
        check_each_ended_once(scene, [*quick, missing, long])
        for i, launch in enumerate(quick):
            [end] = scene.reported(Ended, launch.attempt)
            assert times_run(scene, f"quick{i}") == 1
            assert end.exit_code in {i, None}
            assert end.exit_code is not None or "not known" in end.message
        assert times_run(scene, "long") == 1
        [end] = scene.reported(Ended, missing.attempt)
        assert end.exit_code is None
        assert not target.parent.exists()
        await scene.runtime.forget([launch.attempt for launch in (*quick, missing, long)])
        assert list(await scene.runtime.adopt()) == []
    return (folder / "died").read_bytes() == b"1"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.timeout(600)
async def test_killed_at_every_operation(tmp_path: Path, moment: str) -> None:
    number = 1
    while await runs_until_no_death(tmp_path / str(number), number, moment):
        number += 1
    assert number > 15


async def test_kills_at_random_moments(tmp_path: Path) -> None:
    """Fifty kills while four hundred attempts come and go."""
    chance = random.Random(7)
    async with opened(open_local, tmp_path) as scene:
        launches = [counted(scene, f"n{i}", "exit 3") for i in range(400)]
        waiting = list(launches)
        kills = 0
        async with asyncio.timeout(4 * PATIENCE):
            while kills < 50 or len(scene.reported(Ended)) < len(launches):
                if waiting:
                    await scene.runtime.start([waiting.pop() for _ in range(min(8, len(waiting)))])
                if kills < 50:
                    await asyncio.sleep(chance.random() * 0.05)
                    kills += kill_keeper(tmp_path)
                else:
                    await scene.until(lambda: len(scene.reported(Ended)) == len(launches))
        check_each_ended_once(scene, launches)
        assert [times_run(scene, f"n{i}") for i in range(400)] == [1] * 400
        codes = {end.exit_code for end in scene.reported(Ended)}
        assert codes <= {3, None}


async def test_the_exit_code_of_an_orphan_is_found_where_the_kernel_tells(scene: Scene) -> None:
    """The keeper that started it is dead; the next one is not its parent."""
    launch = counted(scene, "one", "while ! [ -e go ]; do sleep 0.005; done; exit 9")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    first = keeper_of(scene.folder)
    os.kill(first, signal.SIGKILL)
    assert [type(seen) for seen in await scene.runtime.adopt()] == [Started, Ready]
    assert keeper_of(scene.folder) != first
    (Path(launch.working_dir) / "go").touch()
    end = await scene.end_of(launch)
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert end.exit_code == 9 or (version < (6, 15) and "not known" in end.message)
    assert times_run(scene, "one") == 1


async def test_an_orphan_is_stopped_as_a_child_is(scene: Scene) -> None:
    launch = counted(scene, "one", "trap '' TERM; sleep 1000 & echo $! > pid; wait; wait")
    await scene.runtime.start([launch])
    pid = Path(launch.working_dir) / "pid"
    await soon(lambda: pid.exists() and pid.read_text().endswith("\n"))
    os.kill(keeper_of(scene.folder), signal.SIGKILL)
    await scene.runtime.stop([launch.attempt], 0.05)
    end = await scene.end_of(launch)
    assert end.exit_code in {128 + signal.SIGKILL, None}
    assert not lives(int(pid.read_text()))


async def test_sigkill_after_the_grace_comes_although_the_server_is_gone(scene: Scene) -> None:
    launch = counted(scene, "one", "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done")
    await scene.runtime.start([launch])
    pid = Path(launch.working_dir) / "pid"
    await soon(lambda: pid.exists() and pid.read_text().endswith("\n"))
    await scene.runtime.stop([launch.attempt], 0.3)
    await scene.runtime.close()
    await soon(lambda: not lives(int(pid.read_text())))
    await soon(lambda: is_free(scene.folder / "data" / "keeper.lock"))
    await scene.reopen()
    [end] = await scene.runtime.adopt()
    assert isinstance(end, Ended)
    assert end.exit_code == 128 + signal.SIGKILL


async def test_the_last_words_of_a_server_are_heard_although_it_does_not_hear_the_answer(scene: Scene) -> None:
    """The server says stop and is gone while the keeper is busy: its next news meet a closed socket."""
    first = counted(scene, "one", "echo $$ > pid; while :; do sleep 0.01; done")
    await scene.runtime.start([first])
    pid = Path(first.working_dir) / "pid"
    await soon(lambda: pid.exists() and pid.read_text().endswith("\n"))
    keeper = keeper_of(scene.folder)
    os.kill(keeper, signal.SIGSTOP)
    try:
        await scene.runtime.stop([first.attempt], 0.0)
        await scene.runtime.close()
    finally:
        os.kill(keeper, signal.SIGCONT)
    try:
        await soon(lambda: not lives(int(pid.read_text())))
    finally:
        await scene.reopen()


async def test_ends_told_while_both_were_dead(tmp_path: Path) -> None:
    """Server and keeper killed, the attempt ends, then a new server comes."""
    async with opened(open_local, tmp_path) as scene:
        launch = counted(scene, "one", "while ! [ -e go ]; do sleep 0.005; done; exit 9")
        await scene.runtime.start([launch])
        await scene.until(lambda: bool(scene.reported(Started)))
        pid = scene.reported(Started)[0].pid
        keeper = keeper_of(tmp_path)
        await scene.runtime.close()
        os.kill(keeper, signal.SIGKILL)
        (Path(launch.working_dir) / "go").touch()
        await soon(lambda: not lives(pid))
        await scene.reopen()
        scene.seen += await scene.runtime.adopt()
        end = await scene.end_of(launch)
        assert end.exit_code in {9, None}  # 9 where the first process of the machine is slow to bury it
        await scene.runtime.start([launch])
        await scene.run(scene.shell("two", "true"))
        assert times_run(scene, "one") == 1


async def test_after_a_restart_of_the_machine_all_is_lost_and_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "keeper.journal").write_text(
        '["keeper",1,"another-boot"]\n["try","job-a.w-0.1",{"log":"/tmp/a","word":"a"}]\n'
        f'["run","job-a.w-0.1",{os.getpid()},123,1700000000.0]\n["end","job-b.w-0.1",1700000001.0,4,"",1.0,0.1,1]\n'
        '["try","job-c.w-0.1",{"log":"/tmp/a'
    )
    async with opened(open_local, tmp_path) as scene:
        ends = {seen.attempt: seen for seen in await scene.runtime.adopt()}
        lost, kept = ends[AttemptId("job-a.w-0.1")], ends[AttemptId("job-b.w-0.1")]
        assert isinstance(lost, Ended)
        assert (lost.exit_code, lost.started_at) == (None, 1700000000.0)
        assert "lost with the machine" in lost.message
        assert isinstance(kept, Ended)
        assert kept.exit_code == 4
        assert len(ends) == 2
        await scene.runtime.forget(list(ends))


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.2])
async def test_a_killed_server_s_attempts_are_taken_up_by_the_next(tmp_path: Path, delay: float) -> None:
    (tmp_path / "data").mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable, doomed_server.__file__, str(tmp_path), stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await process.stdout.readline() == b"asked\n"
        await asyncio.sleep(delay)  # the moment of death varies; nothing waits for this
        process.kill()
        await process.wait()
    async with opened(open_local, tmp_path) as scene:
        launches = doomed_server.launches(tmp_path)
        names = [launch.attempt for launch in launches]
        scene.started += names
        scene.seen += await scene.runtime.adopt()
        known = {seen.attempt for seen in scene.seen}
        await scene.runtime.start([launch for launch in launches if launch.attempt not in known])
        await scene.until(lambda: {end.attempt for end in scene.reported(Ended)} >= set(names[::2]))
        assert {end.exit_code for end in scene.reported(Ended)} == {0}
        await soon(
            lambda: all((tmp_path / f"{i}.ran").exists() and (tmp_path / f"{i}.ran").stat().st_size for i in range(20))
        )
        await scene.runtime.stop(names, 1.0)
        await scene.until(lambda: len(scene.reported(Ended)) == 20)
        assert [len((tmp_path / f"{i}.ran").read_text()) for i in range(20)] == [2] * 20


async def test_two_keepers_never_work_at_once(tmp_path: Path) -> None:
    """A second runtime on the folder takes over the connection; the keeper stays one."""
    async with opened(open_local, tmp_path) as scene:
        await scene.run(scene.shell("one", "true"))
        keeper = keeper_of(tmp_path)
        other = await open_local(tmp_path / "data")
        seen: Sequence[AttemptObservation] = await other.adopt()
        assert [type(each) for each in seen] == [Ended]
        assert keeper_of(tmp_path) == keeper
        await other.close()


async def test_a_data_folder_with_a_very_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 20) / ("longer-" * 10)
    folder.mkdir(parents=True)
    async with opened(open_local, folder) as scene:
        assert (await scene.run(scene.shell("one", "exit 2"))).exit_code == 2


async def test_a_keeper_that_cannot_start_is_said(tmp_path: Path) -> None:
    broken = (sys.executable, "-c", "raise SystemExit('broken')")
    runtime = await open_local(tmp_path / "data", keeper=broken, patience=0.5)
    with pytest.raises(Exception, match="has not answered"):
        await runtime.adopt()
    log = tmp_path / "data" / "keeper.log"
    await soon(lambda: log.exists() and "broken" in log.read_text())
    await runtime.close()


async def test_the_work_folder_is_made_with_those_above(scene: Scene) -> None:
    launch = replace(scene.shell("one", 'echo here > file; echo "$PF_WORK_DIR"'), working_dir="")
    assert (await scene.run(launch)).exit_code == 0
    work = scene.log_path(launch).parent / "work"
    assert (work / "file").read_text() == "here\n"
    assert await scene.log_of(launch) == f"{work}\n".encode()


async def test_a_work_folder_that_cannot_be_made_is_named(scene: Scene) -> None:
    launch = scene.shell("one", "true")
    folder = scene.log_path(launch).parent
    folder.parent.mkdir(parents=True)
    folder.touch()
    end = await scene.run(launch)
    assert (end.exit_code, end.message) == (None, f"work folder {folder}/work: not a directory")


#: Few descriptors for keeper and server; more are in use here already, so another process tries it.
FEW = """
import asyncio, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
from tests.runtime_scene import Scene, open_local, opened

async def main():
    async with opened(open_local, Path(sys.argv[1])) as scene:
        print((await scene.run(scene.shell("one", "exit 3"))).exit_code)

asyncio.run(main())
"""


@pytest.mark.parametrize(("limit", "works"), [(64, True), (200, True), (40, False)])
def test_a_keeper_needs_few_descriptors_and_says_how_many(tmp_path: Path, limit: int, works: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(tmp_path), str(limit)],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    if works:
        assert done.stdout == "3\n", done.stderr
    else:
        assert "may open 40 files at once, and at least 64 are needed" in done.stderr


async def test_the_data_folder_and_logs_are_the_server_s_alone(scene: Scene) -> None:
    launch = scene.shell("one", "true")
    await scene.run(launch)
    assert (scene.folder / "data").stat().st_mode & 0o777 == 0o700
    assert scene.log_path(launch).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("swap", ["rm $LOG", "mv $LOG $LOG.away", "rm $LOG; mkfifo $LOG", "ln -sf /etc/passwd $LOG"])
async def test_a_job_may_do_what_it_likes_to_its_log(tmp_path: Path, swap: str) -> None:
    """It is not ended for it, nobody waits for it, and nobody else's file is read."""
    settings = LocalSettings(log_limit="64Ki")
    async with opened(partial(open_local, settings=settings), tmp_path) as scene:
        launch = scene.shell("one", f"echo first; {swap}; until [ -e go ]; do sleep 0.01; done; exit 4")
        log = scene.log_path(launch)
        launch = replace(launch, env={**launch.env, "LOG": str(log)})
        await scene.runtime.start([launch])
        await soon(lambda: log.parent.exists() and (not log.exists() or not log.is_file() or log.is_symlink()))
        assert (await scene.run(scene.shell("other", "true"))).exit_code == 0
        with pytest.raises((NotFound, Unavailable)):
            await scene.runtime.logs.read(task_of(launch.attempt), 0, 100)
        (tmp_path / "work" / "go").touch()
        end = await scene.end_of(launch)
        assert (end.exit_code, end.message) == (4, "")
        # The next attempt of the member finds what was left there.
        again = replace(launch, attempt=AttemptId("job-one.worker-0.2"))
        scene.started.append(again.attempt)
        end = await scene.run(again)
        assert end.exit_code in {4, None}
        assert end.exit_code == 4 or f"log {log}:" in end.message
