"""Limits: where the groups are, version 1 and 2, and that the kernel really enforces them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.runtimes.local import cgroups
from paddleflow.runtimes.local.cgroups import Cgroups, Hierarchy, OwnGroup, locate, own_groups
from paddleflow.runtimes.local.keeper import keeper_id
from paddleflow.runtimes.runtime import Launch
from paddleflow.settings import LocalSettings
from tests.patience import soon
from tests.runtime_scene import Scene, is_free, open_local, opened

NAME = f"paddleflow-test-{os.getpid()}"


def writable() -> dict[str, Hierarchy]:
    """Where this machine lets us make groups; they are removed again at once."""
    places, _ = locate(NAME)
    cgroups.remove({place.base for place in places.values()})
    return places


PLACES = writable()
needs_memory = pytest.mark.skipif("memory" not in PLACES, reason="cgroups for memory are not writable here")
needs_cpu = pytest.mark.skipif("cpu" not in PLACES, reason="cgroups for cpu are not writable here")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(open_local, tmp_path) as made:
        yield made
    bases = [place.base.replace(NAME, f"paddleflow-{keeper_id(str(tmp_path / 'data'))}") for place in PLACES.values()]
    assert not any(Path(base).exists() for base in bases), "groups are left behind"


def limited(launch: Launch, *, cpu: int = 0, memory: int = 0) -> Launch:
    return replace(launch, limit=Resources(cpu, memory))


def python(scene: Scene, name: str, code: str) -> Launch:
    return scene.launch(name, sys.executable, "-S", "-c", code)


@needs_memory
async def test_more_memory_than_the_limit_is_killed_and_said(scene: Scene) -> None:
    launch = limited(python(scene, "one", "x = bytearray(200 << 20)\nprint(len(x))"), memory=64 << 20)
    end = await scene.run(launch)
    assert end.exit_code == 128 + signal.SIGKILL
    assert end.message == "memory limit of 64Mi exceeded"
    assert (await scene.run(limited(python(scene, "two", "print('fits')"), memory=64 << 20))).exit_code == 0


@needs_memory
async def test_the_limit_is_for_all_processes_of_an_attempt_together(scene: Scene) -> None:
    """Each takes 8 MiB and stays; the first that is killed ends it."""
    code = "import os, signal\nfor _ in range(16):\n  if not os.fork(): x = b'1' * (8 << 20); signal.pause()\n"
    end = await scene.run(limited(python(scene, "one", code + "os.wait(); raise SystemExit(3)"), memory=64 << 20))
    assert end.exit_code in {3, 128 + signal.SIGKILL}
    assert end.message == "memory limit of 64Mi exceeded"
    events = limited(scene.shell("two", "true"), memory=64 << 20)
    assert (await scene.run(events)).message == ""


@needs_memory
async def test_a_limit_too_small_for_any_process(scene: Scene) -> None:
    """The keeper must survive that, and say it."""
    end = await scene.run(limited(scene.shell("one", "sleep 1000"), memory=4096))
    assert end.exit_code == 128 + signal.SIGKILL
    assert end.message.startswith("memory limit of 4Ki exceeded")
    assert (await scene.run(scene.shell("two", "true"))).exit_code == 0


@needs_cpu
async def test_the_cpu_quota_is_enforced(scene: Scene) -> None:
    code = (
        "import time; start = time.monotonic()\nwhile time.process_time() < 0.2: pass\nprint(time.monotonic() - start)"
    )
    launch = limited(python(scene, "one", code), cpu=200)
    assert (await scene.run(launch)).exit_code == 0
    assert float(await scene.log_of(launch)) > 0.5  # a fifth of a core: about a second for 0.2 s of work


@needs_cpu
@needs_memory
async def test_every_process_is_born_inside(scene: Scene) -> None:
    launch = limited(scene.shell("one", "cat /proc/self/cgroup"), cpu=500, memory=1 << 30)
    await scene.run(launch)
    rows = (await scene.log_of(launch)).decode().splitlines()
    inside = [row for row in rows if f"paddleflow-{keeper_id(str(scene.folder / 'data'))}/" in row]
    assert len(inside) == len({place.base for place in PLACES.values()})


@needs_memory
async def test_what_escapes_the_session_is_killed_with_its_group(scene: Scene) -> None:
    script = "setsid sh -c 'echo $$ > pid; env -i sleep 1000' & while ! [ -s pid ]; do :; done"
    launch = limited(scene.shell("one", script), memory=1 << 30)
    assert (await scene.run(launch)).exit_code == 0
    pid = (Path(launch.working_dir) / "pid").read_text().strip()
    await soon(lambda: not Path(f"/proc/{pid}").exists())


@needs_memory
async def test_empty_groups_of_crashed_keepers_are_cleared_and_ours_is_made_again(scene: Scene) -> None:
    parent = Path(PLACES["memory"].base).parent
    ours = parent / f"paddleflow-{keeper_id(str(scene.folder / 'data'))}"
    await soon(ours.exists)
    ours.rmdir()
    assert (await scene.run(limited(scene.shell("one", "true"), memory=1 << 30))).exit_code == 0
    stale = parent / f"paddleflow-stale-{os.getpid()}"
    stale.mkdir()
    (stale / "999999999-1").mkdir()
    await scene.runtime.close()
    await soon(lambda: is_free(scene.folder / "data" / "keeper.lock"))  # it is the next keeper that clears
    await scene.open()
    await soon(lambda: not stale.exists())


async def test_limits_can_be_switched_off(tmp_path: Path) -> None:
    async with opened(partial(open_local, settings=LocalSettings(limits="off")), tmp_path) as scene:
        launch = limited(scene.shell("one", "cat /proc/self/cgroup"), memory=1 << 30)
        assert (await scene.run(launch)).exit_code == 0
        assert b"paddleflow-" not in await scene.log_of(launch)


V1 = """\
30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "33 30 0:29 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_own_groups_are_found_in_version_1_2_and_both() -> None:
    rows = "4:memory:/docker/abc/x\n2:cpu,cpuacct:/y\n0::/z\n"
    assert own_groups(V1, rows) == {
        "cpu": OwnGroup(1, "/sys/fs/cgroup/cpu,cpuacct/y"),
        "memory": OwnGroup(1, "/sys/fs/cgroup/memory/x"),
        "": OwnGroup(2, "/sys/fs/cgroup/unified/z"),
    }
    assert own_groups(V2, "0::/user.slice/s.scope\n") == {"": OwnGroup(2, "/sys/fs/cgroup/user.slice/s.scope")}
    assert own_groups("", "0::/\n") == {}


def test_version_2_on_folders_that_stand_for_it(tmp_path: Path) -> None:
    """No machine at hand has both controllers in version 2: plain folders with the same files stand for the kernel."""
    own = tmp_path / "delegated" / "server"
    own.mkdir(parents=True)
    (own.parent / "cgroup.subtree_control").write_text("cpu memory")
    base = own.parent / "pf"
    base.mkdir()
    (base / "cgroup.subtree_control").write_text("cpu memory")
    place = cgroups._prepared("memory", OwnGroup(2, str(own)), "pf")
    assert place == Hierarchy(2, str(own), str(base))
    limits = Cgroups({"cpu": place, "memory": place})
    [folder] = limits.names(cpu=1500, memory=1 << 30)
    Path(folder).mkdir()
    for name in ("cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "cgroup.procs"):
        (Path(folder) / name).touch()
    (own / "cgroup.procs").touch()
    limits.enter([folder])
    limits.leave()
    limits.tighten([folder], cpu=1500, memory=1 << 30)
    written = {file.name: file.read_text() for file in Path(folder).iterdir()}
    assert written == {
        "cpu.max": "150000 100000",
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cgroup.procs": "0",
    }
    assert (own / "cgroup.procs").read_text() == "0"
    (Path(folder) / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert cgroups.out_of_memory([folder])


def test_version_2_without_delegation_says_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Delegate=yes"):
        cgroups._prepared("memory", OwnGroup(2, str(tmp_path / "own")), "pf")


def test_no_two_attempts_share_a_group() -> None:
    """Also not when the next server configures the same keeper."""
    place = Hierarchy(1, "/own", "/own/pf")
    names = [Cgroups({"memory": place}).names(cpu=0, memory=1)[0] for _ in range(50)]
    assert len(set(names)) == 50
    assert all(name.startswith(f"/own/pf/{os.getpid()}-") for name in names)
