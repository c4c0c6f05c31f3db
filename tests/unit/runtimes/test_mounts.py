"""Folders at another place: mounted where the machine allows it, and otherwise replaced in the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.runtimes.local import mounts
from paddleflow.runtimes.local.mounts import variable
from paddleflow.runtimes.local.namespaces import can_fork_into
from paddleflow.runtimes.runtime import Launch, Mount, Started
from tests.keeper_scene import keeper_of
from tests.ordinary_account import UID
from tests.patience import PATIENCE, soon
from tests.runtime_scene import Scene, open_local, opened
from tests.unprivileged_runtime import TARGET

ROOT = os.geteuid() == 0  #: then the keeper makes namespaces itself
needs_root = pytest.mark.skipif(not ROOT, reason="the keeper makes namespaces itself only as root")
needs_namespaces = pytest.mark.skipif(
    not can_fork_into(users=not ROOT), reason="this machine allows no mount namespaces"
)


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


async def output_of(scene: Scene, launch: Launch) -> bytes:
    """What it wrote, without the line about the folder of the scene, in which the target is missing."""
    lines = (await scene.log_of(launch)).splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"paddleflow: no files can be made directly in"))


@needs_namespaces
async def test_a_mount_appears_at_its_target_for_the_attempt_alone(scene: Scene) -> None:
    target = scene.folder / "a" / "b" / "target"
    launch = mounted(scene, scene.shell("one", 'pwd; cat there; echo new > made; ls "$PADDLEFLOW_MOUNT_X"'), target)
    launch = replace(launch, env={**launch.env, "PADDLEFLOW_MOUNT_X": str(target)})
    await scene.runtime.start([launch])
    end = await scene.end_of(launch)
    assert end.exit_code == 0, await scene.log_of(launch)
    assert (await output_of(scene, launch)).decode() == f"{target}\ncontent\nmade\nthere\n"
    assert (scene.folder / "source" / "made").read_text() == "new\n"
    assert not (scene.folder / "a").exists()


@needs_namespaces
async def test_read_only_is_honoured(scene: Scene) -> None:
    launch = mounted(scene, scene.shell("one", "cat there; echo no > made"), scene.folder / "target", read_only=True)
    end = await scene.run(launch)
    assert end.exit_code not in {0, None}
    log = (await output_of(scene, launch)).decode()
    assert log.startswith("content\n")
    assert "Read-only" in log
    assert not (scene.folder / "source" / "made").exists()


@needs_namespaces
async def test_the_exit_code_and_the_pid_are_the_command_s_own(scene: Scene) -> None:
    gate = scene.folder / "work" / "gate"
    script = f"echo $$; until [ -e {gate} ]; do sleep 0.01; done; exit 7"
    launch = mounted(scene, scene.shell("one", script), scene.folder / "target")
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    gate.touch()
    assert (await scene.end_of(launch)).exit_code == 7
    assert (await output_of(scene, launch)).split() == [str(scene.reported(Started)[0].pid).encode()]


@needs_namespaces
async def test_nothing_is_made_on_the_host_and_what_was_there_stays_to_be_seen(scene: Scene) -> None:
    above = scene.folder / "above"
    (above / "kept").mkdir(parents=True)
    (above / "kept" / "file").write_text("kept\n")
    (above / "link").symlink_to("kept")
    (above / "plain").write_text("plain\n")
    gate = scene.folder / "work" / "gate"
    script = f"cd {above}; ls; cat link/file plain kept/file; echo more > kept/new; touch beside; "
    script += f"until [ -e {gate} ]; do sleep 0.01; done; ls deep/target"
    launch = mounted(scene, scene.shell("one", script), above / "deep" / "target")
    await scene.runtime.start([launch])
    await soon((above / "kept" / "new").exists)
    assert not (above / "deep").exists()
    gate.touch()
    assert (await scene.end_of(launch)).exit_code == 0
    log = (await output_of(scene, launch)).decode()
    assert log.startswith("deep\nkept\nlink\nplain\nkept\nplain\nkept\n")
    assert "Read-only" in log
    assert log.endswith("there\n")
    assert sorted(each.name for each in above.iterdir()) == ["kept", "link", "plain"]


@needs_namespaces
async def test_a_folder_that_is_read_only_for_a_missing_target_is_named_in_the_log(scene: Scene) -> None:
    above, there = scene.folder / "above", scene.folder / "there"
    above.mkdir()
    there.mkdir()
    launch = mounted(scene, scene.shell("one", f"touch {above}/beside || exit 3"), above / "deep" / "target")
    assert (await scene.run(launch)).exit_code == 3
    assert (await scene.log_of(launch)).startswith(
        b"paddleflow: no files can be made directly in %s, because the mount target %s is not there: make that folder on this machine first\n"
        % (bytes(above), bytes(above / "deep" / "target"))
    )
    assert (await scene.run(mounted(scene, scene.shell("two", "true"), there))).exit_code == 0
    assert await scene.log_of(scene.shell("two", "true")) == b""


@needs_namespaces
async def test_a_folder_for_temporary_files_with_a_missing_target_stays_writable(scene: Scene) -> None:
    """What is made there is the attempt's own; what was there is the machine's, as before."""
    temporary = scene.folder / "temporary"
    (temporary / "kept").mkdir(parents=True)
    temporary.chmod(0o1777)
    (temporary / "file").write_text("was\n")
    script = f"cd {temporary}; mktemp -p . > name && cat name file deep/target/there; echo more >> file; touch kept/new deep/x"
    launch = mounted(scene, scene.shell("one", script), temporary / "deep" / "target")
    assert (await scene.run(launch)).exit_code == 0, await scene.log_of(launch)
    name, *others = (await scene.log_of(launch)).decode().splitlines()
    assert (name[:6], others) == ("./tmp.", ["was", "content"])
    assert sorted(each.name for each in temporary.iterdir()) == ["file", "kept"]
    assert (temporary / "file").read_text() == "was\nmore\n"
    assert (temporary / "kept" / "new").exists()


@needs_namespaces
async def test_a_target_may_be_at_the_top_where_nothing_is(scene: Scene) -> None:
    target = Path("/paddleflow-test-of-mounts/deep")
    launch = mounted(scene, scene.shell("one", "cat there; ls -d /usr /proc/self/fd/1 /tmp"), target)
    end = await scene.run(launch)
    assert (end.exit_code, end.message) == (0, "")
    assert await scene.log_of(launch) == b"content\n/proc/self/fd/1\n/tmp\n/usr\n"
    assert not target.parent.exists()
    keeper = Path(f"/proc/{keeper_of(scene.folder)}")
    assert (keeper / "root").readlink() == Path("/")
    assert (await scene.run(scene.shell("two", "test -d /tmp && test ! -e /paddleflow-test-of-mounts"))).exit_code == 0


@needs_namespaces
async def test_two_targets_below_one_folder_and_one_inside_the_other(scene: Scene) -> None:
    one, two, outer = (scene.folder / name for name in ("s-one", "s-two", "outer"))
    for source in (one, two):
        source.mkdir()
        (source / source.name).touch()
    mounts_of = (Mount("fs-1", str(outer / "a"), str(one)), Mount("fs-2", str(outer / "b" / "c"), str(two)))
    inner = Mount("fs-3", str(outer / "a" / "inner"), str(two))
    launch = replace(scene.shell("x", f"cd {outer}; ls a b/c a/inner"), mounts=(*mounts_of, inner))
    assert (await scene.run(launch)).exit_code == 0, await scene.log_of(launch)
    assert (await output_of(scene, launch)).split() == b"a: inner s-one a/inner: s-two b/c: s-two".split()
    assert sorted(each.name for each in one.iterdir()) == ["inner", "s-one"]


@needs_namespaces
async def test_a_storage_with_a_mount_inside_can_be_written_to(scene: Scene) -> None:
    """Its target is made in the storage, as in a volume; of a storage that is read-only, or where a link is in the way, it is not."""
    sources = {name: scene.folder / name for name in ("outer", "inner", "fixed", "led")}
    for source in sources.values():
        source.mkdir()
    elsewhere = scene.folder / "elsewhere"
    elsewhere.mkdir()
    (sources["led"] / "deep").symlink_to(elsewhere)
    target = scene.folder / "target"
    outer = {
        name: Mount(f"fs-{name}", str(target / name), str(sources[name]), read_only=name == "fixed")
        for name in ("outer", "fixed", "led")
    }
    inner = [Mount("fs-inner", str(target / name / "deep" / "inner"), str(sources["inner"])) for name in outer]
    script = f"cd {target}; touch outer/new outer/deep/inner/seen; touch fixed/new; ls fixed/deep/inner"
    launch = replace(scene.shell("x", script), mounts=(*outer.values(), *inner[:2]))
    assert (await scene.run(launch)).exit_code == 0, await scene.log_of(launch)
    assert {each.name for each in sources["outer"].iterdir()} == {"new", "deep"}
    assert {each.name for each in (sources["outer"] / "deep" / "inner").iterdir()} == set()
    assert b"Read-only file system" in await scene.log_of(launch)
    assert not any(sources["fixed"].iterdir())
    await scene.run(replace(scene.shell("y", "true"), mounts=(outer["led"], inner[2])))
    assert not any(elsewhere.iterdir())


@needs_namespaces
async def test_a_sub_path_is_below_its_storage_and_follows_no_link(scene: Scene) -> None:
    source = scene.folder / "storage"
    (source / "real" / "deep").mkdir(parents=True)
    (source / "real" / "deep" / "file").touch()
    (source / "link").symlink_to("/etc")

    def with_sub_path(name: str, sub_path: str) -> Launch:
        mount = Mount("fs-test", str(scene.folder / "target"), str(source), sub_path)
        return replace(scene.shell(name, f"ls {scene.folder}/target"), mounts=(mount,))

    good = with_sub_path("good", "real/./deep/")
    assert (await scene.run(good)).exit_code == 0
    assert await output_of(scene, good) == b"file\n"
    paths = {"linked": "link/cron.d", "above": "real/../../x", "missing": "real/none"}
    linked, above, missing = [await scene.run(with_sub_path(name, path)) for name, path in paths.items()]
    assert (linked.exit_code, "link is a link" in linked.message) == (None, True)
    assert (above.exit_code, "leads out" in above.message) == (None, True)
    assert (missing.exit_code, missing.message) == (None, f"mount source not found: {source}/real/none")


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
    assert (end.exit_code, end.message) == (None, "command not found: no-such")
    launch = mounted(scene, scene.shell("nowhere", "true"), scene.folder / "target", inside="/no/such")
    end = await scene.run(launch)
    assert end.exit_code is None
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
    assert (end.exit_code, end.message) == (None, f"mount target {scene.folder / 'file'}: not a directory")
    launch = mounted(scene, scene.shell("good", "readlink /proc/self/ns/mnt"), scene.folder / "target")
    assert (await scene.run(launch)).exit_code == 0
    keeper = Path(f"/proc/{keeper_of(scene.folder)}")
    assert (keeper / "ns" / "mnt").readlink() == here != Path((await scene.log_of(launch)).decode().strip())
    assert (keeper / "root").readlink() == (keeper / "cwd").readlink() == Path("/")


@needs_root
@needs_namespaces
@pytest.mark.parametrize(("script", "expected"), [("cat there; exit 3", 3), ("no-such", 127)])
async def test_where_a_mount_covers_the_keeper_s_own_files_a_child_makes_it(
    scene: Scene, script: str, expected: int
) -> None:
    launch = mounted(scene, scene.shell("one", script), scene.folder)
    assert (await scene.run(launch)).exit_code == expected
    assert (b"content\n" in await scene.log_of(launch)) == (expected == 3)


def as_ordinary_account(*options: str) -> dict[str, object]:
    """What an account that is not root gets from a runtime of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").mkdir()
        (folder / "source" / "there").write_text("content\n")
        for each in (folder, folder / "source", folder / "source" / "there"):
            os.chown(each, UID, UID)
        account = [sys.executable, "-m", "tests.ordinary_account", name]
        done = subprocess.run(
            [*account, sys.executable, "-m", "tests.unprivileged_runtime", name, *options],
            capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        made: dict[str, object] = json.loads(done.stdout)
        return {**made, "source": f"{folder}/source", "new": (folder / "source" / "new").read_text()}


@needs_root
def test_an_ordinary_account_has_its_mounts_where_it_could_make_no_folder() -> None:
    if not can_fork_into(users=True):
        pytest.skip("this machine allows no user namespaces")
    found = as_ordinary_account()
    names = sorted([*(str(each) for each in Path("/opt").iterdir()), "/opt/paddleflow-test"])
    assert found["log"] == "\n".join(["65534", "content", *names, f"{TARGET}/there", TARGET, ""])
    assert (found["code"], found["message"], found["new"]) == (0, "", "made\n")


@needs_root
def test_where_namespaces_are_forbidden_paths_are_replaced() -> None:
    found = as_ordinary_account("--rewrite")
    assert (found["code"], found["new"]) == (0, "made\n")
    lines = str(found["log"]).splitlines()
    assert "this machine allows no private mounts" in lines[0]
    assert lines[1:3] == ["65534", "content"]
    assert lines[-2:] == [f"{found['source']}/there", found["source"]]


def test_paths_are_replaced_as_wholes() -> None:
    two = [mounts.Mount("/data/one", "/mnt/one", False), mounts.Mount("/data/two", "/mnt/one/two", True, "sub")]
    argv = ["run", "--in=/mnt/one/two/x", "/mnt/one:/mnt/onemore", "cat '/mnt/one'; /other/mnt/one /mnt/one.d"]
    made = mounts.rewritten(two, argv, {"A": "/mnt/one/a", "B": "x"}, "/mnt/one/two/deep")
    assert made.argv == [
        "run", "--in=/data/two/sub/x", "/data/one:/mnt/onemore", "cat '/data/one'; /other/mnt/one /mnt/one.d"
    ]  # fmt: skip
    assert made.cwd == "/data/two/sub/deep"
    assert made.env == {
        "A": "/data/one/a", "B": "x", "PADDLEFLOW_MOUNT_MNT_ONE": "/data/one", "PADDLEFLOW_MOUNT_MNT_ONE_TWO": "/data/two/sub",
    }  # fmt: skip
    assert "/mnt/one is /data/one" in made.note


def test_what_leads_into_a_mount_is_covered() -> None:
    assert mounts.covered("/data/jobs/log", ["/mnt", "/data/"])
    assert mounts.covered("/data", ["/data"])
    assert not mounts.covered("/data2/log", ["/data", "/data2/logs"])


def test_variables_name_the_targets() -> None:
    made = mounts.mounted([mounts.Mount("/data", "/mnt/my-data", True)], ["run", "it"], {}, "/mnt/my-data")
    assert made == (["run", "it"], {"PADDLEFLOW_MOUNT_MNT_MY_DATA": "/mnt/my-data"}, "/mnt/my-data", "")


def test_names_of_variables() -> None:
    assert variable("/home/paddleflow/storage/mnt/") == "PADDLEFLOW_MOUNT_HOME_PADDLEFLOW_STORAGE_MNT"
