"""Users are isolated from each other when the server is root: real processes, as they see the machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.errors import Invalid, Unavailable
from paddleflow.runtimes.local.capacity import uid_range
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.local.user_ids import UserIds
from paddleflow.runtimes.runtime import Launch, Mount
from paddleflow.settings import LocalSettings
from tests.ordinary_account import needs_root
from tests.patience import soon
from tests.runtime_scene import Scene, open_local, opened


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(partial(open_local, settings=LocalSettings(isolation="auto")), tmp_path) as made:
        runtime = made.runtime
        assert isinstance(runtime, LocalRuntime)
        await soon(lambda: bool(runtime.isolation))
        if not runtime.isolation.startswith("by user"):
            pytest.skip(runtime.isolation)
        yield made


def of(user: str, launch: Launch, **fields: object) -> Launch:
    return replace(launch, user=user, working_dir="", **fields)  # type: ignore[arg-type]


async def said(scene: Scene, launch: Launch) -> list[str]:
    end = await scene.run(launch)
    log = (await scene.log_of(launch)).decode() if end.exit_code is not None else ""
    assert end.exit_code == 0, f"{end.message}\n{log}"
    return log.splitlines()


@needs_root
async def test_each_user_has_a_number_of_their_own_and_root_stays_root(scene: Scene) -> None:
    alice = await said(scene, of("alice", scene.shell("a", "id -u; id -g; id -G")))
    again = await said(scene, of("alice", scene.shell("again", "id -u; id -g; id -G")))
    bob = await said(scene, of("bob", scene.shell("b", "id -u; id -g; id -G")))
    root = await said(scene, of("root", scene.shell("r", "id -u")))
    assert alice == again == ["200000"] * 3
    assert bob == ["200001"] * 3
    assert root == ["0"]


@needs_root
async def test_the_data_folder_is_not_seen_but_the_job_s_own_is(scene: Scene) -> None:
    script = f'cd "$PF_WORK_DIR"; pwd; echo mine > file; cat file; ls -A {scene.folder}/data {scene.folder}/data/jobs/*; ls /home'
    launch = of("alice", scene.shell("one", script))
    lines = await said(scene, launch)
    job = scene.log_path(launch).parent
    assert lines[:2] == [f"{job}/work", "mine"]
    assert lines[2:] == [f"{scene.folder}/data:", "jobs", "", f"{scene.folder}/data/jobs/{job.parent.name}:", job.name]
    assert (job / "work" / "file").read_text() == "mine\n"


@needs_root
async def test_tmp_and_shared_memory_are_its_own_and_home_is_its_work_folder(scene: Scene) -> None:
    one = of(
        "alice", scene.shell("one", "echo x > /tmp/secret; echo x > /dev/shm/secret; ls /tmp/secret; echo $HOME $USER")
    )
    one = replace(one, env={**one.env, **{name: os.environ[name] for name in ("HOME",) if name in os.environ}})
    assert await said(scene, one) == ["/tmp/secret", f"{scene.log_path(one).parent}/work alice"]
    two = of("bob", scene.shell("two", "ls -A /tmp /dev/shm"))
    assert "secret" not in await said(scene, two)
    assert not Path("/dev/shm/secret").exists()


@needs_root
async def test_it_cannot_gain_privileges_nor_see_others_processes(scene: Scene) -> None:
    script = "grep NoNewPrivs /proc/self/status; ls -d /proc/1 2>&1; kill -0 1 2>&1; grep CapEff /proc/self/status; ulimit -u"
    lines = await said(scene, of("alice", scene.shell("one", f"{script}; true")))
    assert lines[0].split() == ["NoNewPrivs:", "1"]
    assert "No such file" in lines[1]
    assert lines[-2].split() == ["CapEff:", "0000000000000000"]


@needs_root
async def test_files_of_a_storage_keep_their_owner_on_the_disk_and_are_the_user_s_inside(scene: Scene) -> None:
    storage = scene.folder / "storage"
    storage.mkdir(mode=0o700)
    (storage / "there").write_text("content\n")
    (storage / "there").chmod(0o600)
    mount = Mount("fs-alice", "/home/paddleflow/storage/mnt/fs-alice", str(storage))
    script = "cat there; stat -c %u there; echo new > made; stat -c %u made"
    launch = replace(of("alice", scene.shell("one", script), mounts=(mount,)), working_dir=mount.target)
    assert await said(scene, launch) == ["content", "200000", "200000"]
    assert ((storage / "made").read_text(), (storage / "made").stat().st_uid) == ("new\n", 0)
    assert not Path(mount.target).exists()


@needs_root
async def test_a_log_cannot_be_read_by_others_and_a_missing_command_is_named(scene: Scene) -> None:
    end = await scene.run(of("alice", scene.launch("none", "no-such-command")))
    assert (end.exit_code, end.message) == (None, "command not found: no-such-command")
    first = of("alice", scene.shell("one", "echo secret"))
    await said(scene, first)
    second = of("bob", scene.shell("two", f"cat {scene.log_path(first)} 2>&1; true"))
    assert "secret" not in await said(scene, second)


@needs_root
async def test_off_means_off(tmp_path: Path) -> None:
    async with opened(open_local, tmp_path) as scene:
        assert await said(scene, of("alice", scene.shell("one", "id -u"))) == ["0"]


@needs_root
async def test_a_snapshot_of_code_is_refused_with_words(scene: Scene) -> None:
    end = await scene.run(of("alice", scene.shell("one", "true"), code="snapshot-1"))
    assert end.exit_code is None
    assert "put the code on a storage" in end.message


def test_numbers_are_given_once_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "uids.json"
    users = UserIds(file, range(10, 12))
    assert (users.get("alice"), users.get("bob"), users.get("alice")) == (10, 11, 10)
    assert UserIds(file, range(10, 12)).get("bob") == 11
    with pytest.raises(Unavailable, match="10-11"):
        users.get("carol")


@pytest.mark.parametrize("text", ["", "5", "0-10", "9-3", "a-b"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"local\.uids"):
        uid_range(LocalSettings(uids=text))
