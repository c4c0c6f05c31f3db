"""Folders at another place: planned as a command line, and really mounted where the machine allows it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.runtimes.local import mounts
from paddleflow.runtimes.local.mounts import MountPoints, plan, probe, variable
from paddleflow.runtimes.local.process import Refused
from paddleflow.runtimes.runtime import Launch, Mount, Started
from tests.keeper_scene import keeper_of
from tests.patience import PATIENCE, soon
from tests.runtime_scene import PATH, Scene, open_local, opened

ROOT = os.geteuid() == 0  #: then the keeper makes namespaces itself
needs_root = pytest.mark.skipif(not ROOT, reason="the keeper makes namespaces itself only as root")
needs_namespaces = pytest.mark.skipif(probe() == "none", reason="this machine allows no mount namespaces")


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(open_local, tmp_path) as made:
        yield made


def mounted(scene: Scene, launch: Launch, target: Path, *, read_only: bool = False, inside: str = "") -> Launch:
    source = scene.folder / "source"
    source.mkdir(exist_ok=True)
    (source / "there").write_text("content\n")
    mount = Mount("fs-test", str(target), str(source), read_only=read_only)
    return replace(launch, mounts=(mount,), working_dir=str(target) + inside)


@needs_namespaces
async def test_a_mount_appears_at_its_target_for_the_attempt_alone(scene: Scene) -> None:
    target = scene.folder / "a" / "b" / "target"
    launch = mounted(scene, scene.shell("one", 'pwd; cat there; echo new > made; ls "$PADDLEFLOW_MOUNT_X"'), target)
    launch = replace(launch, env={**launch.env, "PADDLEFLOW_MOUNT_X": str(target)})
    await scene.runtime.start([launch])
    end = await scene.end_of(launch)
    assert end.exit_code == 0, await scene.log_of(launch)
    assert (await scene.log_of(launch)).decode() == f"{target}\ncontent\nmade\nthere\n"
    assert (scene.folder / "source" / "made").read_text() == "new\n"
    assert not (scene.folder / "a").exists()


@needs_namespaces
async def test_read_only_is_honoured(scene: Scene) -> None:
    launch = mounted(scene, scene.shell("one", "cat there; echo no > made"), scene.folder / "target", read_only=True)
    end = await scene.run(launch)
    assert end.exit_code not in {0, None}
    log = (await scene.log_of(launch)).decode()
    assert log.startswith("content\n")
    assert "Read-only" in log
    assert not (scene.folder / "source" / "made").exists()


@needs_namespaces
async def test_the_exit_code_and_the_pid_are_the_command_s_own(scene: Scene) -> None:
    gate = scene.folder / "gate"
    script = f"echo $$; until [ -e {gate} ]; do sleep 0.01; done; exit 7"
    launch = mounted(scene, scene.shell("one", script), scene.folder / "target")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    gate.touch()
    assert (await scene.end_of(launch)).exit_code == 7
    assert (await scene.log_of(launch)).split() == [str(scene.reported(Started)[0].pid).encode()]


@needs_namespaces
async def test_a_target_that_others_still_use_stays(scene: Scene) -> None:
    target = scene.folder / "target"
    script = "echo up; while ! [ -e go-$N ]; do sleep 0.005; done; cat there"
    first, second = (mounted(scene, scene.shell(f"n{n}", script, N=str(n)), target) for n in (1, 2))
    await scene.runtime.start([first, second])
    await soon(
        lambda: all(scene.log_path(each).exists() and scene.log_path(each).read_bytes() for each in (first, second))
    )
    (scene.folder / "source" / "go-1").touch()
    assert (await scene.end_of(first)).exit_code == 0
    assert target.exists()
    (scene.folder / "source" / "go-2").touch()
    assert (await scene.end_of(second)).exit_code == 0
    assert not target.exists()


@needs_namespaces
async def test_a_folder_that_was_there_is_left_as_it_was(scene: Scene) -> None:
    target = scene.folder / "target"
    target.mkdir()
    (target / "own").touch()
    launch = mounted(scene, scene.shell("one", "ls"), target)
    assert (await scene.run(launch)).exit_code == 0
    assert await scene.log_of(launch) == b"there\n"
    assert [file.name for file in target.iterdir()] == ["own"]


@needs_namespaces
async def test_what_goes_wrong_is_said(scene: Scene) -> None:
    launch = mounted(scene, scene.launch("missing", "no-such"), scene.folder / "target")
    end = await scene.run(launch)
    assert (end.exit_code, end.message) == (None if ROOT else 127, "command not found: no-such")
    launch = mounted(scene, scene.shell("nowhere", "true"), scene.folder / "target", inside="/no/such")
    end = await scene.run(launch)
    assert end.exit_code == (None if ROOT else mounts.FAILED)
    assert "working directory" in end.message
    launch = replace(scene.shell("source", "true"), mounts=(Mount("fs-test", "/tmp/x", "/no/such/source"),))
    assert (await scene.run(launch)).message == "mount source not found: /no/such/source"
    launch = replace(scene.shell("target", "true"), mounts=(Mount("fs-test", "relative", "/usr"),))
    assert (await scene.run(launch)).message.startswith("mount target 'relative'")


@needs_root
@needs_namespaces
async def test_a_mount_that_cannot_be_made_is_named_and_the_keeper_is_where_it_was(scene: Scene) -> None:
    (scene.folder / "file").touch()
    here = Path("/proc/self/ns/mnt").readlink()
    end = await scene.run(mounted(scene, scene.shell("bad", "true"), scene.folder / "file"))
    source = scene.folder / "source"
    assert (end.exit_code, end.message) == (None, f"cannot mount {source} at {scene.folder / 'file'}: not a directory")
    launch = mounted(scene, scene.shell("good", "readlink /proc/self/ns/mnt"), scene.folder / "target")
    assert (await scene.run(launch)).exit_code == 0
    keeper = Path(f"/proc/{keeper_of(scene.folder)}")
    assert (keeper / "ns" / "mnt").readlink() == here != Path((await scene.log_of(launch)).decode().strip())
    assert (keeper / "root").readlink() == (keeper / "cwd").readlink() == Path("/")


@needs_root
@needs_namespaces
@pytest.mark.parametrize(("script", "expected"), [("cat there; exit 3", 3), ("no-such", 127)])
async def test_where_a_mount_covers_the_keeper_s_own_files_other_programs_make_it(
    scene: Scene, script: str, expected: int
) -> None:
    launch = mounted(scene, scene.shell("one", script), scene.folder)
    assert (await scene.run(launch)).exit_code == expected
    assert (b"content\n" in await scene.log_of(launch)) == (expected == 3)


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
async def test_without_root_a_user_namespace_does_it_and_the_user_stays_the_user() -> None:
    with tempfile.TemporaryDirectory() as name:
        await _as_another_user(Path(name))


async def _as_another_user(folder: Path) -> None:
    source, target = folder / "source", folder / "target"
    for each in (source, target):
        each.mkdir()
    for each in (folder, source, target):
        each.chmod(0o777)
    (source / "there").touch()
    made = plan(
        [mounts.Mount(str(source), str(target), True)], "user", ["sh", "-c", "id -u; ls; echo > new"], {}, str(target)
    )
    argv = [word.replace(f"={os.getuid()}", "=65534") if word.startswith("--map-") else word for word in made.argv]
    process = await asyncio.create_subprocess_exec(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv,
        env={"PATH": PATH, **made.env}, cwd="/", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert out.split() == [b"65534", b"there"], err
    assert b"Read-only" in err


def test_without_namespaces_cwd_and_variables_point_to_the_source() -> None:
    two = [mounts.Mount("/data/one", "/mnt/one", False), mounts.Mount("/data/two", "/mnt/one/two", True)]
    made = plan(two, "none", ["run"], {"A": "1"}, "/mnt/one/two/deep")
    assert made.cwd == "/data/two/deep"
    assert made.argv == ["run"]
    expected = {"A": "1", "PADDLEFLOW_MOUNT_MNT_ONE": "/data/one", "PADDLEFLOW_MOUNT_MNT_ONE_TWO": "/data/two"}
    assert made.env == expected
    assert "no private mounts" in made.note
    assert plan(two, "none", ["run"], {}, "/mnt/onetwo").cwd == "/mnt/onetwo"


def test_what_leads_into_a_mount_is_covered() -> None:
    assert mounts.covered("/data/jobs/log", ["/mnt", "/data/"])
    assert mounts.covered("/data", ["/data"])
    assert not mounts.covered("/data2/log", ["/data", "/data2/logs"])


@pytest.mark.parametrize("kind", ["root", "user"])
def test_with_namespaces_variables_name_the_target(kind: str) -> None:
    made = plan([mounts.Mount("/data", "/mnt/my-data", True)], kind, ["run", "it"], {}, "/mnt/my-data")
    assert made.argv[-2:] == ["run", "it"]
    assert made.cwd == "/"
    assert made.env == {"PADDLEFLOW_MOUNT_MNT_MY_DATA": "/mnt/my-data"}


def test_names_of_variables() -> None:
    assert variable("/home/paddleflow/storage/mnt/") == "PADDLEFLOW_MOUNT_HOME_PADDLEFLOW_STORAGE_MNT"


def test_only_what_is_missing_is_made_and_only_that_is_removed(tmp_path: Path) -> None:
    points = MountPoints()
    (tmp_path / "there").mkdir()
    deep = tmp_path / "there" / "x" / "y"
    needed = points.needed("one", [str(deep)])
    assert needed == [str(deep.parent), str(deep)]
    points.make(needed)
    assert points.needed("two", [str(deep)]) == needed
    points.release("one", needed)
    assert deep.exists()
    points.release("two", needed)
    assert not deep.parent.exists()
    assert (tmp_path / "there").exists()


def test_what_holds_files_is_not_removed(tmp_path: Path) -> None:
    points = MountPoints()
    target = tmp_path / "target"
    points.make(points.needed("one", [str(target)]))
    (target / "file").touch()
    points.release("one", [str(target)])
    assert (target / "file").exists()


def test_only_targets_that_may_be_made_are_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def access(path: str, mode: int) -> bool:
        asked.append((path, mode))
        return False

    monkeypatch.setattr(os, "access", access)
    assert mounts.makeable([str(tmp_path)])
    assert not mounts.makeable([str(tmp_path / "a" / "b")])
    assert asked == [(str(tmp_path), os.W_OK)]


def test_a_target_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    points = MountPoints()
    (tmp_path / "file").touch()
    target = str(tmp_path / "file" / "below")
    with pytest.raises(Refused, match="mount target"):
        points.make(points.needed("one", [target]))


def test_a_folder_that_another_server_mounted_on_is_left_alone(tmp_path: Path) -> None:
    """Removing it would take the mount away from a job of that server."""
    if mounts.probe() != "root":
        pytest.skip("private mounts need root here")
    target, source = tmp_path / "target", tmp_path / "source"
    source.mkdir()
    points = mounts.MountPoints()
    made = points.needed("mine", [str(target)])
    points.make(made)
    script = f"mount --bind {source} {target} && echo mounted && exec sleep 60"
    other = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"mounted\n"
        points.release("mine", made)
        assert target.is_dir()
    finally:
        other.kill()
        other.communicate()
    points.hold("mine", made)
    points.release("mine", made)
    assert not target.exists()
