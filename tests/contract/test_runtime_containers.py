"""Jobs with an image on this machine: real containers, with everything that a process of the runtime has."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.base.quantity import Resources
from paddleflow.errors import Invalid, Unavailable
from paddleflow.jobs.code import CodeStore
from paddleflow.objects.local import LocalStore
from paddleflow.runtimes.exec import STDOUT, Exec, ExecRequest, Output
from paddleflow.runtimes.local import container, procfs
from paddleflow.runtimes.local.containers import is_image
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.runtime import Ended, Launch, Mount, Started
from paddleflow.settings import LocalSettings
from paddleflow.spec.code import CodeFile, Manifest, Part
from tests.container_engine import IMAGE, ContainerEngine, container_engine
from tests.runtime_scene import Scene, open_local, opened


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    made = container_engine(tmp_path_factory.mktemp("containers"))
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
async def scene(engine: ContainerEngine, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(lambda data: open_local(data, engine.settings()), tmp_path) as made:
        yield made
    assert engine.names() == []  # nothing is left, however it ended


def contained(scene: Scene, name: str, script: str, **env: str) -> Launch:
    launch = scene.shell(name, script)
    return replace(launch, env={**launch.env, **env}, image=IMAGE, working_dir="")


def waits(scene: Scene, name: str) -> Launch:
    """Says that it runs, then waits for a stop."""
    return contained(scene, name, "trap 'echo told; exit 3' TERM; echo runs; while true; do sleep 0.05; done")


async def until_it_runs(scene: Scene, launch: Launch) -> None:
    async def says_so() -> None:
        while b"runs" not in await scene.log_of(launch):
            await asyncio.sleep(0.02)

    await scene.until(lambda: bool(scene.reported(Started, launch.attempt)))
    await asyncio.wait_for(says_so(), 60)


async def test_what_a_process_gets_a_container_gets(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "storage" / "sub").mkdir(parents=True)
    (tmp_path / "storage" / "sub" / "there").write_text("data")
    script = (
        "set -e; echo $FROM_IMAGE $GIVEN $SECRET $0; cat /mnt/data/there; echo made > /mnt/data/new; "
        "! touch /mnt/fixed/x 2>/dev/null; echo w > $PF_WORK_DIR/out; pwd; echo $PADDLEFLOW_MOUNT_MNT_DATA; "
        "echo err >&2; test ! -e /usr; exit 7"
    )
    launch = replace(
        contained(scene, "all", script, GIVEN="one two"),
        mounts=(
            Mount("s", "/mnt/data", str(tmp_path / "storage"), "sub"),
            Mount("s", "/mnt/fixed", str(tmp_path / "storage"), read_only=True),
        ),
        working_dir="/mnt/data",
        secret_env={"SECRET": "kept\nsecret"},
        request=Resources(cpu=500, memory=64 << 20),
        limit=Resources(cpu=500, memory=64 << 20),
    )
    end = await scene.run(launch)
    log = (await scene.log_of(launch)).decode()
    assert (end.exit_code, end.message) == (7, ""), log
    assert log.splitlines() == ["yes one two kept secret sh", "data/mnt/data", "/mnt/data", "err"]
    assert (tmp_path / "storage" / "sub" / "new").read_text() == "made\n"
    assert Path(scene.runtime.job_folder("job-all"), "work", "out").read_text() == "w\n"
    assert end.peak_memory is not None
    assert 0 < end.peak_memory <= 64 << 20


async def test_storages_and_code_of_an_isolated_job_are_its_user_s(scene: Scene, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir(mode=0o700)
    (storage / "there").write_text("data\n")
    script = (
        "id -u; cat main.sh /mnt/data/there; echo made > /mnt/data/new; echo own > out; cat out; "
        "! chmod 4755 /mnt/data/new; ! chmod 2755 /mnt/data/new; chmod 755 /mnt/data/new; "
        "! touch /mnt/fixed/x; ls $PF_WORK_DIR/../../../.."
    )
    content = b"code\n"
    name = hashlib.sha256(content).hexdigest()
    store = CodeStore(LocalStore(make_folder(tmp_path / "data" / "code")))
    store.put_chunk("alice", name, content)
    code = store.put_manifest("alice", Manifest((CodeFile("main.sh", 5, False, (Part(name, 0, 5),)),), ()))
    launch = replace(
        contained(scene, "own", f"exec 2>/dev/null; {script}"),
        user="alice",
        code=code,
        mounts=(Mount("s", "/mnt/data", str(storage)), Mount("s", "/mnt/fixed", str(storage), read_only=True)),
    )
    end = await scene.run(launch)
    log = (await scene.log_of(launch)).decode()
    assert (end.exit_code, end.message) == (0, ""), log
    uid, *rest = log.splitlines()
    assert int(uid) > 0
    assert rest == ["code", "data", "own", "jobs"]
    new = (storage / "new").stat()
    assert (new.st_uid, new.st_mode & 0o7777) == (0, 0o755)
    assert not list((tmp_path / "data" / "containers").iterdir())


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


async def test_no_variable_of_a_job_reaches_the_engine(scene: Scene, tmp_path: Path) -> None:
    launch = contained(scene, "vars", "echo $LD_PRELOAD-$PATH", LD_PRELOAD="/nothing.so", PATH="/bin:/mine")
    end = await scene.run(launch)
    assert (end.exit_code, (await scene.log_of(launch)).decode()) == (0, "/nothing.so-/bin:/mine\n")
    refused = replace(contained(scene, "lead", "true"), secret_env={"LD_PRELOAD": "x"})
    end = await scene.run(refused)
    assert end.exit_code is None
    assert "the variable LD_PRELOAD" in end.message


@pytest.mark.parametrize(
    "image",
    [
        "--rootfs",
        "--privileged",
        "--volume=/:/host",
        "oci:image",
        "dir:image",
        "oci-archive:/srv/image.tar",
        "../x",
        "a b",
    ],
)
async def test_an_image_is_a_name_and_nothing_else(scene: Scene, engine: ContainerEngine, image: str) -> None:
    """Neither an option of the engine, nor a file of the machine that the engine would read as root, and keep for all."""
    before = engine("images", "--quiet")
    end = await scene.run(replace(contained(scene, "image", "echo it ran"), image=image))
    assert end.exit_code is None
    assert end.message.startswith(f"image {image!r} is not the name of an image")
    assert engine("images", "--quiet") == before


@pytest.mark.parametrize(
    "image",
    ["python", "python:3.12", "docker:24", "localhost:5000/a/b_c:x", "r.io/a/b:1@sha256:" + "0" * 64, "0123abcd"],
)
def test_names_of_images(image: str) -> None:
    assert is_image(image)


async def test_a_link_that_comes_after_the_check_leads_nowhere(tmp_path: Path) -> None:
    """The engine opens volumes by path. Another job of the user makes a link of a part of that path as soon as it is checked."""
    storage, secret = make_folder(tmp_path / "storage"), make_folder(tmp_path / "secret")
    for folder, word in ((make_folder(storage / "a" / "b"), "own"), (make_folder(secret / "b"), "secret")):
        (folder / "file").write_text(word)
    for folder in (storage / "a" / "b", storage / "a" / "b" / "file"):
        os.chown(folder, 4711, 4711)
    engine = tmp_path / "podman"
    engine.write_text(
        "#!/bin/sh\n"
        f"if [ $1 = create ]; then mv {storage}/a {storage}/old; ln -s {secret} {storage}/a\n"
        f'while [ "$1" != --volume ]; do shift; done; echo "${{2%%:*}}" > {tmp_path}/volume\n'
        f'elif [ $1 = start ]; then cat "$(cat {tmp_path}/volume)/file"; fi\n'
    )
    engine.chmod(0o755)
    spec = container.Spec(
        [str(engine)], "podman", "name", str(tmp_path / "container"), IMAGE, "never",
        [[str(storage), "/mnt/data", False, "a/b"]], "/", "", [], "", 4711,
    )  # fmt: skip
    words = [sys.executable, "-m", "paddleflow.runtimes.local.container", json.dumps(spec), "--", "true"]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    assert done.stdout == "own", done.stderr


async def test_the_memory_limit_is_said_in_words(scene: Scene) -> None:
    launch = replace(
        contained(scene, "oom", "a=x; while true; do a=$a$a; done"), limit=Resources(cpu=1000, memory=32 << 20)
    )
    end = await scene.run(launch)
    assert (end.exit_code, end.message) == (137, "memory limit of 32Mi exceeded")


async def test_what_cannot_run_says_why(scene: Scene) -> None:
    missing = replace(contained(scene, "missing", "true"), image="localhost/nowhere:1")
    end = await scene.run(missing)
    assert end.exit_code == 125
    assert end.message.startswith(
        "image localhost/nowhere:1 is not on this machine, and local.pull is never (hint: podman pull"
    )
    absent = replace(contained(scene, "absent", ""), command=("nonesuch", "x"))
    end = await scene.run(absent)
    assert end.message == f"cannot execute nonesuch in image {IMAGE}: no such file or directory"
    lost = replace(contained(scene, "lost", "true"), mounts=(Mount("s", "/mnt/x", "/nowhere/at/all"),))
    assert (await scene.run(lost)).message == "mount source not found: /nowhere/at/all"
    wanting = replace(contained(scene, "wanting", "true"), requirements="numpy")
    assert "requirements are not installed into an image" in (await scene.run(wanting)).message


async def test_stop_tells_it_first_and_ends_all_of_it(scene: Scene, engine: ContainerEngine) -> None:
    polite, rude = (
        waits(scene, "polite"),
        contained(scene, "rude", "trap '' TERM; echo runs; (while true; do sleep 1; done)"),
    )
    await scene.runtime.start([polite, rude])
    for launch in (polite, rude):
        await until_it_runs(scene, launch)
    await scene.runtime.stop([polite.attempt], 60.0)
    await scene.runtime.stop([rude.attempt], 0.5)
    end = await scene.end_of(polite)
    assert (end.exit_code, end.message) == (3, "stopped")
    assert b"told" in await scene.log_of(polite)
    end = await scene.end_of(rude)
    assert (end.exit_code, end.message) == (137, "stopped, by SIGKILL")
    assert engine.names() == []


async def test_it_is_adopted_after_the_end_of_server_and_keeper(scene: Scene, tmp_path: Path) -> None:
    gate = "until [ -e $PF_WORK_DIR/gate ]; do sleep 0.02; done; echo seen; exit 9"
    launch = contained(scene, "kept", f"echo runs; {gate}")
    await scene.runtime.start([launch])
    await until_it_runs(scene, launch)
    os.kill(keeper_of(tmp_path / "data"), signal.SIGKILL)
    await scene.reopen()
    assert any(isinstance(seen, Started) for seen in await scene.runtime.adopt())
    Path(scene.runtime.job_folder("job-kept"), "work", "gate").touch()
    end = await scene.end_of(launch)
    assert b"seen" in await scene.log_of(launch)
    assert end.exit_code in (9, None)  # before Linux 6.15 the exit code of an orphan is not known


async def test_a_keeper_killed_before_the_removal_removes_it_later(
    scene: Scene, engine: ContainerEngine, tmp_path: Path
) -> None:
    launch = waits(scene, "left")
    await scene.runtime.start([launch])
    await until_it_runs(scene, launch)
    keeper = keeper_of(tmp_path / "data")
    os.kill(keeper, signal.SIGKILL)
    os.killpg(scene.reported(Started, launch.attempt)[0].pid, signal.SIGKILL)  # the engine's client, not the container
    assert engine.names() == [f"paddleflow-{launch.attempt}"]
    await scene.reopen()
    seen = await scene.runtime.adopt()
    if not any(isinstance(each, Ended) for each in seen):
        await scene.end_of(launch)
    assert engine.names() == []


async def test_exec_is_inside(scene: Scene) -> None:
    launch = waits(scene, "inside")
    await scene.runtime.start([launch])
    await until_it_runs(scene, launch)
    assert isinstance(scene.runtime, Exec)
    session = await scene.runtime.execute(ExecRequest(launch.attempt, ("sh", "-c", "echo $FROM_IMAGE; ls /; exit 4")))
    said, code = b"", None
    while code is None:
        found = await session.read()
        if isinstance(found, Output):
            said += found.data if found.stream == STDOUT else b""
        else:
            code = found
    await session.close()
    assert code == 4
    assert said.startswith(b"yes\n")
    assert b"usr" not in said
    usage = await scene.runtime.sample()
    assert usage[launch.attempt].memory < 32 << 20  # of the shell, not of the engine's client


async def test_a_job_with_an_image_is_told_once_that_it_is_ignored(tmp_path: Path) -> None:
    async with opened(open_local, tmp_path) as scene:
        first = replace(scene.shell("plain", "echo done"), image="some/image:1")
        second = replace(first, attempt=first.attempt.replace("worker-0", "worker-1"))  # type: ignore[arg-type]
        scene.started.append(second.attempt)
        await scene.runtime.start([first, second])
        for launch in (first, second):
            assert (await scene.end_of(launch)).exit_code == 0
        assert (await scene.log_of(first)).startswith(b"paddleflow: image some/image:1 is ignored: ")
        assert await scene.log_of(second) == b"done\n"


async def test_an_engine_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere/podman is not installed"):
        await open_local(tmp_path / "data", LocalSettings(containers="/nowhere/podman"))
    with pytest.raises(Invalid, match="neither off nor a command of podman or docker"):
        LocalRuntime(LocalSettings(containers="rkt"), tmp_path, SystemClock())
    with pytest.raises(Invalid, match=r"local\.pull"):
        LocalRuntime(LocalSettings(containers="podman", pull="often"), tmp_path, SystemClock())


def keeper_of(data: Path) -> int:
    """The keeper of a data folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (procfs.read(f"{entry}/comm") or b"").strip() == b"pf-keeper":
            words = procfs.read(f"{entry}/cmdline") or b""
            if str(data).encode() in words.split(b"\0"):
                return int(entry.name)
    raise AssertionError("no keeper")
