"""Groups that are used again: by whom, when not, and that none is left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.runtimes.local import cgroups
from paddleflow.runtimes.local.attempt import Attempt
from paddleflow.runtimes.local.cgroups import Cgroups, Hierarchy
from paddleflow.runtimes.local.group_pool import MOST, GroupPool
from paddleflow.runtimes.local.keeper import keeper_id
from paddleflow.runtimes.local.launcher import Launcher
from paddleflow.runtimes.runtime import Launch, Started
from tests.keeper_scene import keeper_of
from tests.patience import soon
from tests.runtime_scene import Scene, is_free, lives, open_local, opened

#: A keeper to which no attempt is too long and no group idle for too long: a test holds however slow the machine is.
PATIENT = (
    sys.executable, "-I", "-S", "-c",
    "import sys; sys.path.append(sys.argv[1]); from paddleflow.runtimes.local import group_pool, keeper, launcher; "
    "launcher.SHORT = group_pool.IDLE = 1e6; keeper.main(sys.argv[2], int(sys.argv[3]))",
)  # fmt: skip
NAME = f"paddleflow-pool-test-{os.getpid()}"
LIMITS = Resources(500, 1 << 30)
WHERE = "grep paddleflow /proc/self/cgroup"


def writable() -> dict[str, Hierarchy]:
    """Where this machine lets us make groups; they are removed again at once."""
    places, _ = cgroups.locate(NAME)
    cgroups.remove({place.base for place in places.values()})
    return places


PLACES = writable()
needs_groups = pytest.mark.skipif(len(PLACES) < 2, reason="cgroups for cpu and memory are not writable here")


def bases(scene: Scene) -> list[Path]:
    name = f"paddleflow-{keeper_id(str(scene.folder / 'data'))}"
    return [Path(place.base).parent / name for place in PLACES.values()]


def groups(scene: Scene) -> list[Path]:
    return [path for base in bases(scene) if base.exists() for path in base.iterdir() if path.is_dir()]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(partial(open_local, keeper=PATIENT), tmp_path) as made:
        yield made
    assert not any(base.exists() for base in bases(made)), "groups are left behind"


def limited(launch: Launch, limit: Resources = LIMITS) -> Launch:
    return replace(launch, limit=limit)


async def group_of(scene: Scene, name: str, script: str = "true", limit: Resources = LIMITS) -> bytes:
    """Run this; where it ran."""
    launch = limited(scene.shell(name, f"{WHERE}; {script}"), limit)
    assert (await scene.run(launch)).exit_code == 0
    return (await scene.log_of(launch)).split(b"\n\n")[0].strip()


@needs_groups
async def test_the_next_attempt_with_the_same_limits_gets_the_same_group(scene: Scene) -> None:
    first = await group_of(scene, "one")
    assert first.count(b"\n") >= len(bases(scene)) - 1
    assert await group_of(scene, "two") == first
    other = await group_of(scene, "three", limit=Resources(600, 1 << 30))
    assert other != first
    assert await group_of(scene, "four", limit=Resources(600, 1 << 30)) == other
    assert await group_of(scene, "five") == first


@needs_groups
async def test_those_at_the_same_time_have_groups_of_their_own(scene: Scene) -> None:
    launches = [limited(scene.shell(f"n{i}", f"{WHERE}; while ! [ -e go ]; do sleep 0.005; done")) for i in range(3)]
    await group_of(scene, "first")
    await scene.runtime.start(launches)
    await soon(
        lambda: all(scene.log_path(launch).exists() and scene.log_path(launch).read_bytes() for launch in launches)
    )
    assert len({scene.log_path(launch).read_bytes() for launch in launches}) == 3
    (Path(launches[0].working_dir) / "go").touch()
    for launch in launches:
        await scene.end_of(launch)


@needs_groups
async def test_limits_hold_in_a_group_that_is_used_again(scene: Scene) -> None:
    limit = Resources(0, 256 << 20)
    first = await group_of(scene, "one", limit=limit)
    code = "print(open('/proc/self/cgroup').read(), flush=True); x = bytearray(400 << 20)"
    launch = limited(scene.launch("two", sys.executable, "-S", "-c", code), limit)
    end = await scene.run(launch)
    assert first in await scene.log_of(launch)
    assert (end.exit_code, end.message) == (128 + signal.SIGKILL, "memory limit of 256Mi exceeded")


@needs_groups
async def test_a_group_in_which_memory_ran_out_is_not_used_again(scene: Scene) -> None:
    """The attempt itself ends well: it was a child of its that took too much."""
    limit = Resources(0, 64 << 20)
    child = f'"{sys.executable}" -S -c "x = bytearray(200 << 20)" || true'
    first = await group_of(scene, "one", f"echo; {child}", limit)
    launch = limited(scene.shell("two", f"{WHERE}; exit 3"), limit)
    end = await scene.run(launch)
    assert (end.exit_code, end.message) == (3, "")
    assert first not in await scene.log_of(launch)


@needs_groups
async def test_a_group_that_is_not_empty_is_not_used_again(scene: Scene) -> None:
    script = "setsid sh -c 'echo $$ > pid; exec env -i sleep 1000' & while ! [ -s pid ]; do :; done"
    first = await group_of(scene, "one", script)
    assert await group_of(scene, "two") != first
    pid = int((scene.folder / "work" / "pid").read_text())
    await soon(lambda: not lives(pid))


@needs_groups
async def test_a_group_that_holds_files_in_memory_is_not_used_again(scene: Scene) -> None:
    """What lies in /dev/shm counts against the group in which it was written."""
    file = Path("/dev/shm") / NAME
    limit = Resources(0, 256 << 20)
    try:
        first = await group_of(scene, "one", f"head -c 32M /dev/zero > {file}", limit)
        assert await group_of(scene, "two", limit=limit) != first
    finally:
        file.unlink(missing_ok=True)


@needs_groups
@pytest.mark.parametrize("limit", [Resources(0, 32 << 20), Resources(50, 1 << 30)])
async def test_small_limits_are_for_one_attempt(scene: Scene, limit: Resources) -> None:
    """The keeper, too, would be inside."""
    assert await group_of(scene, "one", limit=limit) != await group_of(scene, "two", limit=limit)


@needs_groups
async def test_an_idle_group_that_somebody_removed_is_made_again(scene: Scene) -> None:
    first = await group_of(scene, "one")
    await soon(lambda: len(groups(scene)) == len(bases(scene)))
    for folder in groups(scene):
        folder.rmdir()
    assert await group_of(scene, "two") == first


@needs_groups
async def test_what_cannot_start_leaves_the_idle_group_as_it_is(scene: Scene) -> None:
    first = await group_of(scene, "one")
    end = await scene.run(limited(scene.launch("two", "no-such-command")))
    assert end.exit_code is None
    assert await group_of(scene, "three") == first


@needs_groups
async def test_idle_groups_go_with_the_keeper(scene: Scene) -> None:
    await group_of(scene, "one")
    assert groups(scene)
    await scene.runtime.close()
    await soon(lambda: is_free(scene.folder / "data" / "keeper.lock"))
    assert not groups(scene)
    await scene.open()


@needs_groups
@pytest.mark.parametrize("forgotten", [False, True])
async def test_idle_groups_of_a_killed_keeper_are_removed_by_the_next(scene: Scene, forgotten: bool) -> None:
    await group_of(scene, "one")
    await group_of(scene, "two")
    left = groups(scene)
    assert len(left) == len(bases(scene))
    if forgotten:
        await scene.runtime.forget(scene.started)
        assert not await scene.runtime.adopt()
    os.kill(keeper_of(scene.folder), signal.SIGKILL)
    await soon(lambda: not any(folder.exists() for folder in left))


@needs_groups
async def test_who_lives_in_a_group_survives_that_the_keeper_of_those_before_is_killed(scene: Scene) -> None:
    """The journal names the folder three times; two of those have ended, and nothing of theirs is to be killed."""
    first = await group_of(scene, "one")
    assert await group_of(scene, "two") == first
    script = f"{WHERE}; while ! [ -e go ]; do sleep 0.005; done; echo; echo lived"
    launch = limited(scene.shell("three", script))
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started, launch.attempt)))
    left = groups(scene)
    keeper = keeper_of(scene.folder)
    os.kill(keeper, signal.SIGKILL)
    await scene.runtime.adopt()
    assert keeper_of(scene.folder) != keeper
    assert [folder for folder in left if folder.exists()] == left
    # By now the next keeper has looked at all that the journal names.
    assert await group_of(scene, "four") != first
    (Path(launch.working_dir) / "go").touch()
    await scene.end_of(launch)
    where, _, rest = (await scene.log_of(launch)).partition(b"\n\n")
    assert (where, rest) == (first, b"lived\n")
    await soon(lambda: not any(folder.exists() for folder in left))


class Stage:
    """A pool over plain folders that stand for version 2, with the keeper's timer in the test's hand."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        base = folder / "base"
        base.mkdir()
        (folder / "cgroup.procs").touch()
        place = Hierarchy(2, str(folder), str(base))
        self.timers: list[Callable[[], None]] = []
        cgroups = Cgroups({"cpu": place, "memory": place})
        self.pool = GroupPool(cgroups, lambda _, call: self.timers.append(call), most=most)

    def new(self, cpu: int = 500, memory: int = 1 << 30) -> Path:
        """A group with its limits set, as after a first spawn."""
        [folder] = self.pool.names(cpu=cpu, memory=memory)
        path = Path(folder)
        path.mkdir()
        for name in ("cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "cgroup.procs"):
            (path / name).touch()
        (path / "memory.events").write_text("oom 0\noom_kill 0\n")
        (path / "memory.current").write_text("4096\n")
        self.pool.tighten([folder], cpu=cpu, memory=memory)
        return path

    def back(self, path: Path, *, clean: bool = True) -> bool:
        return self.pool.take_back([str(path)], clean=clean)

    def next(self, cpu: int = 500, memory: int = 1 << 30) -> Path:
        return Path(self.pool.names(cpu=cpu, memory=memory)[0])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_limits_are_written_again_before_the_keeper_steps_in(stage: Stage) -> None:
    """To write the quota fills it again."""
    path = stage.new()
    assert stage.back(path)
    for name in ("cpu.max", "memory.max"):
        (path / name).write_text("")
    [folder] = stage.pool.names(cpu=500, memory=1 << 30)
    stage.pool.enter([folder])
    stage.pool.leave()
    assert Path(folder) == path
    assert (path / "cpu.max").read_text().endswith("50000 100000")
    assert (path / "memory.max").read_text().endswith(str(1 << 30))
    assert (path / "cgroup.procs").read_text() == "0"
    assert stage.next() != path  # it is taken


@pytest.mark.parametrize("why", ["unclean", "inside", "memory", "killed", "gone"])
def test_what_is_not_as_new_is_not_taken_back(stage: Stage, why: str) -> None:
    path = stage.new()
    if why == "inside":
        (path / "inner").mkdir()
    elif why == "memory":
        (path / "memory.current").write_text(f"{1 << 27}\n")
    elif why == "killed":
        (path / "memory.events").write_text("oom 1\noom_kill 1\n")
    elif why == "gone":
        (path / "memory.current").unlink()
    assert not stage.back(path, clean=why != "unclean")
    assert stage.next() != path
    assert not stage.back(path), "it is for one attempt only from then on"


def test_what_was_never_entered_stays(stage: Stage) -> None:
    path = stage.new()
    assert stage.back(path)
    assert stage.back(path, clean=False)
    assert stage.next() == path


def test_the_pool_is_bounded(tmp_path: Path) -> None:
    stage = Stage(tmp_path, most=3)
    paths = [stage.new() for _ in range(5)]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert [stage.back(path) for path in paths] == [True] * 3 + [False] * 2
    stage.pool.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_nobody_wants_goes_and_the_timer_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(cgroups, "remove", removed.extend)
    idle, out, wanted = stage.new(), stage.new(), stage.new()
    assert stage.back(idle)
    assert stage.back(wanted)
    stage.timers.pop()()
    stage.pool.enter([str(wanted)])
    assert stage.back(wanted)
    stage.timers.pop()()
    assert removed == [str(idle)]
    assert not stage.back(out), "an attempt that has it for so long is not short"
    assert stage.next() == wanted
    stage.timers.pop()()
    assert removed == [str(idle), str(wanted)]
    assert not stage.timers


@pytest.mark.parametrize(("seconds", "deserted", "kept"), [(0.5, True, True), (1.5, True, False), (0.5, False, False)])
def test_only_short_attempts_that_left_nobody(stage: Stage, seconds: float, deserted: bool, kept: bool) -> None:
    launcher = Launcher("/marker", "keeper")
    launcher.limits = stage.pool
    attempt = Attempt("one", {"groups": [str(stage.new())]}, "")
    attempt.run(123, 1, 1000.0)
    attempt.end = [1000.0 + seconds, 0, "", 1000.0, None, None]
    attempt.empty = deserted
    assert launcher.keeps(attempt) is kept
