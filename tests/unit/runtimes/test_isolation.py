"""Users are isolated from each other when the server is root: real processes, hostile ones among them, as they see the machine."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Invalid, Unavailable
from paddleflow.jobs.code import CodeStore
from paddleflow.objects.local import LocalStore
from paddleflow.runtimes.exec import ExecRequest, Output
from paddleflow.runtimes.local import seccomp
from paddleflow.runtimes.local.capacity import uid_range
from paddleflow.runtimes.local.isolation import View
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.local.user_ids import UserIds
from paddleflow.runtimes.runtime import Launch, Mount, Started
from paddleflow.settings import LocalSettings
from paddleflow.spec.code import CodeFile, Manifest, Part
from tests.keeper_scene import keeper_of
from tests.ordinary_account import UID, needs_root
from tests.patience import soon
from tests.runtime_scene import Scene, lives, open_local, opened

PAUSE = "PADDLEFLOW_SANDBOX="
#: The number that the first user gets; another process that runs tests at the same time gives out others.
ALICE = 300_000 + os.getpid() % 100_000 * 10


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened(
        partial(open_local, settings=LocalSettings(processes=300, uids=f"{ALICE}-{ALICE + 9}")), tmp_path
    ) as made:
        await soon(lambda: bool(local(made).isolation))
        if not local(made).isolation.startswith("by user"):
            pytest.skip(local(made).isolation)
        yield made


def local(scene: Scene) -> LocalRuntime:
    assert isinstance(scene.runtime, LocalRuntime)
    return scene.runtime


def of(user: str, launch: Launch, **fields: object) -> Launch:
    return replace(launch, user=user, working_dir="", **fields)  # type: ignore[arg-type]


async def said(scene: Scene, launch: Launch) -> list[str]:
    end = await scene.run(launch)
    log = (await scene.log_of(launch)).decode() if end.exit_code is not None else ""
    assert end.exit_code == 0, f"{end.message}\n{log}"
    return log.splitlines()


def work_of(scene: Scene, launch: Launch) -> Path:
    return scene.log_path(launch).parent / "work"


def sandboxes(scene: Scene, uid: int = 0) -> list[int]:
    """The first processes of the sandboxes of this scene's keeper, for one user or for all."""
    data = (scene.folder / "data").stat()
    keeper = f"PADDLEFLOW_KEEPER={data.st_dev:x}-{data.st_ino:x}".encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            keeper in words
            and any(word.startswith(f"{PAUSE}{uid or ''}".encode()) for word in words)
            and lives(int(each.name))
        ):
            found.append(int(each.name))
    return found


@needs_root
async def test_each_user_has_a_number_of_their_own_and_root_stays_root(scene: Scene) -> None:
    alice = await said(scene, of("alice", scene.shell("a", "id -u; id -g; id -G")))
    again = await said(scene, of("alice", scene.shell("again", "id -u; id -g; id -G")))
    bob = await said(scene, of("bob", scene.shell("b", "id -u; id -g; id -G")))
    root = await said(scene, of("root", scene.shell("r", "id -u; grep NoNewPrivs /proc/self/status")))
    assert alice == again == [str(ALICE)] * 3
    assert bob == [str(ALICE + 1)] * 3
    assert [line.split() for line in root] == [["0"], ["NoNewPrivs:", "0"]]


@needs_root
async def test_the_data_folder_is_not_seen_but_the_job_s_own_is(scene: Scene) -> None:
    script = f'cd "$PF_WORK_DIR"; pwd; echo mine > file; cat file; ls -A {scene.folder}/data {scene.folder}/data/jobs/*; ls /home'
    launch = of("alice", scene.shell("one", script))
    lines = await said(scene, launch)
    job = scene.log_path(launch).parent
    assert lines[:2] == [f"{job}/work", "mine"]
    assert lines[2:] == [f"{scene.folder}/data:", "jobs", "", f"{scene.folder}/data/jobs/{job.parent.name}:", job.name]
    assert (job / "work" / "file").read_text() == "mine\n"
    assert (scene.log_path(launch).stat().st_mode & 0o777, (scene.folder / "data").stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )


@needs_root
async def test_tmp_and_shared_memory_are_its_own_and_home_is_its_work_folder(scene: Scene) -> None:
    script = "for each in /tmp /var/tmp /dev/shm; do echo x > $each/secret; done; ls /tmp/secret; echo $HOME $USER"
    one = of("alice", scene.shell("one", script))
    one = replace(one, env={**one.env, **{name: os.environ[name] for name in ("HOME",) if name in os.environ}})
    assert await said(scene, one) == ["/tmp/secret", f"{work_of(scene, one)} alice"]
    for user in ("alice", "bob"):
        assert "secret" not in await said(scene, of(user, scene.shell(f"two-{user}", "ls -A /tmp /var/tmp /dev/shm")))
    assert not Path("/dev/shm/secret").exists()


@needs_root
async def test_what_it_keeps_in_memory_is_bounded(scene: Scene) -> None:
    """It is no process's: a machine without memory would end everybody else's before."""
    folders = "/tmp /var/tmp /dev/shm"
    sizes = await said(scene, of("alice", scene.shell("size", f"stat -f -c '%S-%b-%c' {folders}")))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert len(sizes) == 3
    for line in sizes:
        block, blocks, files = map(int, line.split("-"))
        assert block * blocks <= total / 9
        assert files <= 300_000


async def test_members_of_one_job_share_memory_and_tmp(scene: Scene) -> None:
    first = of(
        "alice", scene.shell("one", "echo x > /dev/shm/ours; echo y > /tmp/ours; until [ -e go ]; do sleep 0.02; done")
    )
    await scene.runtime.start([first])
    await scene.until(lambda: bool(scene.reported(Started)))
    script = (
        "until [ -s /tmp/ours ]; do sleep 0.02; done; cat /dev/shm/ours /tmp/ours; kill -0 2 && echo seen; touch go"
    )
    second = replace(of("alice", scene.shell("two", script)), attempt=AttemptId("job-one.worker-1.1"))
    scene.started.append(second.attempt)
    assert await said(scene, second) == ["x", "y", "seen"]
    assert (await scene.end_of(first)).exit_code == 0


@needs_root
async def test_what_a_member_leaves_ends_although_another_goes_on(scene: Scene) -> None:
    first = of("alice", scene.shell("one", "until [ -e go ]; do sleep 0.02; done"))
    await scene.runtime.start([first])
    script = "setsid sleep 4242 & sleep 0.1; pgrep -x sleep -a | grep -c 4242"
    second = replace(of("alice", scene.shell("two", script)), attempt=AttemptId("job-one.worker-1.1"))
    scene.started.append(second.attempt)
    assert await said(scene, second) == ["1"]
    [pause] = sandboxes(scene)
    await soon(lambda: not [pid for pid in children(pause) if b"4242" in Path(f"/proc/{pid}/cmdline").read_bytes()])
    assert lives(pause)
    (work_of(scene, first) / "go").touch()
    await scene.end_of(first)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@needs_root
async def test_a_hostile_job_learns_nothing(scene: Scene) -> None:
    """It tries to read what is root's and others', and to get out."""
    others = of(
        "bob",
        scene.shell("bobs", "echo bobs-secret > file; export SECRET=bobs-secret; until [ -e go ]; do sleep 0.02; done"),
    )
    await scene.runtime.start([others])
    await scene.until(lambda: bool(scene.reported(Started)))
    theirs = work_of(scene, others)
    await soon(lambda: (theirs / "file").exists())
    (scene.folder / "data" / "token").write_text("server-secret")
    pid = next(seen.pid for seen in scene.reported(Started))
    data = scene.folder / "data"
    script = f"""
    cat {data}/token {data}/keeper.journal {data}/uids/* {theirs}/file {theirs.parent}/*.log
    ls {theirs} {data}/jobs/*/* /home/* /root/*
    ln -s {data}/token link; cat link
    ls -l /proc/1/root/ /proc/1/cwd/ /proc/1/fd/; cat /proc/1/environ /proc/1/mem
    cat /proc/{pid}/environ /proc/{os.getpid()}/environ /proc/{keeper_of(scene.folder)}/environ
    cat /proc/[0-9]*/root{data}/token
    kill -9 1 {pid} {os.getpid()}
    mount -t tmpfs none /mnt; umount {data}; umount -l /home; mount --bind / /mnt
    unshare -rm sh -c 'umount -l {data}; umount /home; umount /root; umount /tmp; cat {data}/token'
    nsenter -t 1 -m cat {data}/token; nsenter -t 1 -a cat {data}/token
    chroot / true; mknod disk b 254 0; dmesg | head -1; su -c id; sudo -n id; newgrp root < /dev/null
    cat /dev/vda /dev/mem /etc/shadow | head -c 10
    env | grep -i secret; find / -xdev -name token 2>/dev/null | xargs cat; find / -xdev -user root -name 'pause*' -newer /nothing
    exit 0
    """
    launch = of("alice", scene.shell("one", f"exec 2>&1; {script}"))
    text = "\n".join(await said(scene, launch))
    assert "bobs-secret" not in text
    assert "server-secret" not in text
    assert "uid=0" not in text
    assert lives(pid)
    assert lives(keeper_of(scene.folder))
    (theirs / "go").touch()
    assert (await scene.end_of(others)).exit_code == 0


@needs_root
async def test_it_cannot_gain_privileges(scene: Scene) -> None:
    script = (
        "grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status; cp /bin/true own; chmod 4755 own && echo made;"
        " python3 -c 'import os; os.open(\"o\", os.O_CREAT | os.O_WRONLY, 0o4755)' && echo opened; find . -perm /6000; ps -o user= -p 1"
    )
    lines = await said(scene, of("alice", scene.shell("one", f"{script} 2>/dev/null; true")))
    found = [line.split() for line in lines if ":" in line and line.startswith(("No", "Cap", "Sec"))]
    assert found == [["CapEff:", "0000000000000000"], ["NoNewPrivs:", "1"], ["Seccomp:", "2"]]
    assert not {"made", "opened", "./own", "./o"} & set(lines)


@needs_root
async def test_processes_of_a_user_are_limited_and_the_limit_cannot_be_raised(scene: Scene) -> None:
    script = """
import os, resource, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
try:
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
    print("raised", soft, hard)
except (ValueError, OSError):
    print("refused", soft)
made = 0
try:
    for made in range(1000):
        if os.fork() == 0:
            import time; time.sleep(100); os._exit(0)
except BlockingIOError:
    pass
print(made < 300)
"""
    launch = of("alice", scene.launch("one", "python3", "-c", script))
    assert await said(scene, launch) == ["refused 300", "True"]
    await soon(lambda: not owned(ALICE), "all of them have ended")
    assert await said(scene, of("alice", scene.shell("two", "echo fine"))) == ["fine"]


def owned(uid: int) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.stat().st_uid == uid:
                found.append(each.name)
        except OSError:
            continue
    return found


@needs_root
async def test_what_a_job_leaves_ends_with_it_however_well_it_hides(scene: Scene) -> None:
    script = "env -i setsid sh -c 'sleep 4711 & exec sleep 4711' & sleep 0.2; echo done"
    assert await said(scene, of("alice", scene.shell("one", script))) == ["done"]
    assert not [pid for pid in owned(ALICE) if lives(int(pid))]


@needs_root
async def test_signals_and_codes_are_as_without(scene: Scene) -> None:
    assert (await scene.run(of("alice", scene.shell("code", "exit 7")))).exit_code == 7
    end = await scene.run(of("alice", scene.shell("kill", "kill -9 $$")))
    assert (end.exit_code, end.message) == (137, "ended by SIGKILL")
    end = await scene.run(of("alice", scene.launch("none", "no-such-command")))
    assert (end.exit_code, end.message) == (None, "command not found: no-such-command")
    polite = of("alice", scene.shell("polite", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.02; done"))
    plain = of("alice", scene.launch("plain", "sleep", "1000"))
    await scene.runtime.start([polite, plain])
    await soon(lambda: scene.log_path(polite).exists() and scene.log_path(polite).read_text() == "up\n")
    await scene.until(lambda: len(scene.reported(Started)) >= 2)
    await scene.runtime.stop([polite.attempt, plain.attempt], 60.0)
    assert (await scene.end_of(polite)).exit_code == 5
    assert (await scene.end_of(plain)).exit_code == 128 + signal.SIGTERM


@needs_root
async def test_a_sandbox_is_used_again_only_when_nothing_was_left(scene: Scene) -> None:
    async def after(name: str, script: str, user: str = "alice") -> list[int]:
        await said(scene, of(user, scene.shell(name, script)))
        return sandboxes(scene, ALICE)

    [first] = await after("one", "true")
    assert await after("two", "true") == [first]
    assert await after("three", "true", "bob") == [first]
    assert await after("four", "echo x > /tmp/left") == []
    [second] = await after("five", "true")
    assert await after("six", "ipcmk -M 4096 > /dev/null && ipcs -m | grep -q 4096") == []
    [third] = await after("seven", "true")
    assert await after("eight", "setsid sleep 1000 & sleep 0.1") == []
    assert len({first, second, third}) == 3


@needs_root
async def test_files_of_a_storage_keep_their_owner_on_the_disk_and_are_the_user_s_inside(scene: Scene) -> None:
    storage = scene.folder / "storage"
    storage.mkdir(mode=0o700)
    (storage / "there").write_text("content\n")
    (storage / "there").chmod(0o600)
    mount = Mount("fs-alice", "/home/paddleflow/storage/mnt/fs-alice", str(storage))
    reading = Mount("fs-alice", "/mnt/only/read", str(storage), read_only=True)
    script = "cat there; stat -c %u there; echo new > made; stat -c %u made; cat /mnt/only/read/there; touch /mnt/only/read/x 2>/dev/null || echo no"
    launch = replace(of("alice", scene.shell("one", script), mounts=(mount, reading)), working_dir=mount.target)
    assert await said(scene, launch) == ["content", str(ALICE), str(ALICE), "content", "no"]
    assert ((storage / "made").read_text(), (storage / "made").stat().st_uid) == ("new\n", 0)
    assert not Path(mount.target).exists()
    assert not Path(reading.target).exists()


@needs_root
async def test_storages_of_others_are_not_seen_at_their_own_place(tmp_path: Path) -> None:
    outside = Path("/srv/paddleflow-test-storage")
    outside.mkdir(exist_ok=True)
    try:
        (outside / "file").write_text("theirs")
        async with opened(partial(open_local, settings=LocalSettings()), tmp_path) as scene:
            await soon(lambda: bool(local(scene).isolation))
            local(scene).hide([str(outside), "/", "/usr", f"{scene.folder}/data/storage/of/bob", "/no/such/folder"])
            script = of("alice", scene.shell("one", f"cat {outside}/file 2>/dev/null; ls -A {outside}; echo looked"))
            assert await said(scene, script) == ["looked"]
            mount = Mount("fs", str(outside), str(outside))
            assert await said(scene, of("alice", scene.shell("two", f"cat {outside}/file"), mounts=(mount,))) == [
                "theirs"
            ]
    finally:
        subprocess.run(["rm", "-r", str(outside)], check=True)


@needs_root
async def test_code_packages_and_files_reach_an_isolated_job(scene: Scene) -> None:
    content = b"print('from the snapshot')\n"
    name = hashlib.sha256(content).hexdigest()
    folder = scene.folder / "data" / "code"
    folder.mkdir()
    store = CodeStore(LocalStore(folder))
    ids = {}
    for user in ("alice", "bob"):
        store.put_chunk(user, name, content)
        ids[user] = store.put_manifest(
            user, Manifest((CodeFile("main.py", len(content), False, (Part(name, 0, len(content)),)),), ())
        )
    launch = of("alice", scene.launch("one", "sh", "-c", f"{sys.executable} main.py; ls {folder}; cat ../given"))
    launch = replace(launch, code=ids["alice"], files={"given": "a file\n"})
    assert await said(scene, launch) == ["from the snapshot", "alice", "a file"]
    job = scene.log_path(launch).parent
    (job / "given").unlink()
    (job / "given").symlink_to(scene.folder / "target")  # as the job could
    again = replace(launch, attempt=AttemptId("job-one.worker-0.2"))
    assert (await said(scene, again))[-1] == "a file"
    assert not (scene.folder / "target").exists()
    packages = of("alice", scene.shell("packages", "echo $VIRTUAL_ENV; python -c 'import sys; print(sys.prefix)'"))
    lines = await said(scene, replace(packages, requirements="# none\n"))
    assert lines[-2:] == [lines[-1]] * 2
    assert lines[-1].startswith(f"{scene.folder}/data/environments/alice/")


@needs_root
async def test_a_further_command_runs_inside_with_the_same_restrictions(scene: Scene) -> None:
    launch = of("alice", scene.shell("one", "echo x > /tmp/mine; until [ -e go ]; do sleep 0.02; done", MINE="yes"))
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    await soon(lambda: scene.log_path(launch).exists())
    script = "id -u; echo $MINE; ls /proc | grep -c '^[0-9]*$'; grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status; cat /tmp/mine; ls /root"
    session = await local(scene).execute(ExecRequest(launch.attempt, ("sh", "-c", script)))
    output = b""
    while not isinstance(found := await session.read(), int):
        assert isinstance(found, Output)
        output += found.data
    await session.close()
    lines = output.decode().splitlines()
    assert lines[:2] == [str(ALICE), "yes"], output
    assert int(lines[2]) < 10
    assert [line.split()[1] for line in lines[3:6]] == ["0000000000000000", "1", "2"]
    assert lines[6:] == ["x"]
    (work_of(scene, launch) / "go").touch()
    await scene.end_of(launch)


@needs_root
async def test_a_session_that_is_left_open_ends_with_the_job(scene: Scene) -> None:
    launch = of("alice", scene.shell("one", "until [ -e go ]; do sleep 0.02; done"))
    await scene.runtime.start([launch])
    await scene.until(lambda: bool(scene.reported(Started)))
    session = await local(scene).execute(ExecRequest(launch.attempt, ("sh", "-c", "echo up; exec sleep 1000")))
    assert isinstance(await session.read(), Output)
    (work_of(scene, launch) / "go").touch()
    await scene.end_of(launch)
    while not isinstance(found := await session.read(), int):
        pass
    assert found == 137
    await session.close()


@needs_root
async def test_the_next_keeper_takes_isolated_jobs_over(scene: Scene) -> None:
    script = "env -i setsid sleep 4713 & until [ -e go ]; do sleep 0.02; done; exit 9"
    launch, idle = of("alice", scene.shell("one", script)), of("bob", scene.shell("two", "true"))
    await scene.runtime.start([launch, idle])
    await scene.end_of(idle)
    await soon(lambda: len(owned(ALICE)) >= 2)
    assert len(sandboxes(scene)) == 2
    os.kill(keeper_of(scene.folder), signal.SIGKILL)
    await scene.runtime.adopt()
    await soon(lambda: len(sandboxes(scene)) == 1, "the one that nobody lives in is gone")
    (work_of(scene, launch) / "go").touch()
    end = await scene.end_of(launch)
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    assert end.exit_code == 9 or (version < (6, 15) and "not known" in end.message)
    await soon(lambda: not sandboxes(scene))
    assert not [pid for pid in owned(ALICE) if lives(int(pid))]
    assert await said(scene, of("alice", scene.shell("after", "id -u"))) == [str(ALICE)]


@needs_root
async def test_a_job_that_is_tried_again_keeps_its_log(scene: Scene) -> None:
    first = of("alice", scene.shell("one", "echo first; exit 1"))
    await scene.run(first)
    second = replace(of("alice", scene.shell("one", "echo second")), attempt=AttemptId("job-one.worker-0.2"))
    scene.started.append(second.attempt)
    assert await said(scene, second) == ["first", "second"]
    assert not list(scene.log_path(first).parent.glob("*.began"))


@needs_root
async def test_off_means_off(tmp_path: Path) -> None:
    async with opened(partial(open_local, settings=LocalSettings(isolation="off")), tmp_path) as scene:
        assert await said(scene, of("alice", scene.shell("one", "id -u"))) == ["0"]
        assert local(scene).isolation.startswith("off")


@needs_root
async def test_idle_sandboxes_go_with_the_keeper(tmp_path: Path) -> None:
    async with opened(open_local, tmp_path) as scene:
        await said(scene, of("alice", scene.shell("one", "true")))
        assert len(sandboxes(scene)) == 1
    await soon(lambda: not sandboxes(scene))


def test_a_view_hides_storages_but_nothing_that_the_machine_needs(tmp_path: Path) -> None:
    view = View.of(str(tmp_path), ["/opt", "/", "/usr", "/etc", "/no/such", "/opt/below"], [sys.base_prefix])
    assert "/opt" in view.hidden
    assert not {"/no/such", "/opt/below"} & set(view.hidden)
    assert not {"/", "/usr", "/etc", "/tmp"} & set(view.hidden)
    many = View.of(str(tmp_path), [f"/opt/{number}" for number in range(1000)], [])
    assert "/opt" in many.hidden
    assert len(many.hidden) < 20


def test_the_filter_refuses_bits_and_limits_and_nothing_else() -> None:
    """By reading the program as the kernel does."""
    numbers = seccomp.ARCHITECTURES["x86_64"]
    program = seccomp.program(numbers)
    own, narrow = (calls.audit for calls in numbers.filtered)

    def answer(call: int, *words: int, audit: int = own) -> int:
        data = {0: call, 4: audit} | {16 + 4 * place: word for place, word in enumerate(words)}
        value, place = 0, 0
        while True:
            code, yes, no, k = program[place]
            place += 1
            if code == 0x20:
                value = data.get(k, 0)
            elif code == 0x06:
                return k & 0xFFFF if k >> 16 == 5 else 0
            else:
                holds = {0x15: value == k, 0x45: bool(value & k), 0x35: value >= k}[code]
                place += yes if holds else no

    assert answer(90, 0, 0, 0o4755) == errno.EPERM
    assert answer(90, 0, 0, 0o755) == 0
    assert answer(257, 0, 0, 0, 0, os.O_CREAT, 0, 0o2755) == errno.EPERM
    assert answer(257, 0, 0, 0, 0, os.O_RDONLY, 0, 0o4755) == 0
    assert answer(302, 0, 0, 6, 0, 0, 1) == errno.EPERM
    assert answer(302, 0, 0, 6, 0, 0, 0) == 0
    assert answer(302, 0, 0, 7, 0, 1, 1) == 0
    assert answer(425) == answer(425, audit=narrow) == errno.ENOSYS
    assert answer(0x40000000 + 1) == errno.ENOSYS
    assert answer(1) == answer(437) == 0
    assert (
        answer(15, 0, 0, 0o4755, audit=narrow) == answer(295, *(0, 0, 0, 0, os.O_CREAT, 0, 0o2755), audit=narrow) == 1
    )
    assert answer(340, 0, 0, 6, 0, 1, audit=narrow) == answer(75, 6, audit=narrow) == errno.EPERM
    assert answer(90, 0, 0, 0o4755, audit=narrow) == answer(15, 0, 0, 0o755, audit=narrow) == 0
    assert answer(1, audit=0xC00000B7) == errno.ENOSYS
    assert all(len(seccomp.program(each)) < 256 for each in seccomp.ARCHITECTURES.values()), "jumps have 8 bits"


OPENAT2 = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
how = struct.pack("QQQ", os.O_RDWR | os.O_CREAT, 0o6755, 0)
fd = libc.syscall(437, -100, sys.argv[1].encode(), how, len(how))
assert fd >= 0, os.strerror(ctypes.get_errno())
way = sys.argv[2]
if way == "write":
    os.write(fd, b"program")
elif way == "truncate":
    os.ftruncate(fd, 7)
elif way == "allocate":
    os.posix_fallocate(fd, 0, 7)
elif way == "copy":
    os.write((source := os.open("source", os.O_RDWR | os.O_CREAT)), b"program")
    os.lseek(source, 0, 0)
    os.copy_file_range(source, fd, 7)
print(os.fstat(fd).st_size)
"""


@needs_root
@pytest.mark.parametrize("way", ["write", "truncate", "allocate", "copy"])
async def test_a_file_with_bits_of_openat2_loses_them_with_its_first_byte(scene: Scene, way: str) -> None:
    """Whose mode no filter can see. Also in a user namespace, in which the job has every capability."""
    python = f'"{sys.executable}" -c "$SCRIPT"'
    launch = of(
        "alice", scene.shell("one", f'cd "$PF_WORK_DIR"; {python} plain {way}; unshare -Ur {python} inside {way}')
    )
    assert await said(scene, replace(launch, env={**launch.env, "SCRIPT": OPENAT2})) == ["7", "7"]
    for name in ("plain", "inside"):
        assert (work_of(scene, launch) / name).stat().st_mode & 0o7777 in (0o755, 0o777 & ~0o022)


def program_of_32_bits(mode: int) -> bytes:
    """An x86 program that sets the mode of the file ``f`` and exits with the error that this gave."""
    base, head = 0x08048000, 84
    name = base + head + 26
    code = b"\xb8" + struct.pack("<I", 15) + b"\xbb" + struct.pack("<I", name) + b"\xb9" + struct.pack("<I", mode)
    code += b"\xcd\x80" + b"\xf7\xd8\x89\xc3" + b"\x31\xc0\x40" + b"\xcd\x80" + b"f\0"  # call; exit(-result)
    size = head + len(code)
    elf = b"\x7fELF\1\1\1" + bytes(9)
    elf += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + head, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    return elf + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096) + code


def runs_32_bits() -> bool:
    if os.uname().machine != "x86_64":
        return False
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        program.write_bytes(program_of_32_bits(0o755))
        program.chmod(0o755)
        try:
            return subprocess.run([program], cwd=folder).returncode == errno.ENOENT
        except OSError:
            return False


@needs_root
@pytest.mark.skipif(not runs_32_bits(), reason="this kernel runs no 32-bit programs")
async def test_programs_of_32_bits_run_and_are_refused_the_same(scene: Scene) -> None:
    launch = of("alice", scene.shell("one", 'cd "$PF_WORK_DIR"; touch f; ./good; echo $?; ./bad; echo $?'))
    for name, mode in (("good", 0o711), ("bad", 0o4755)):
        program = work_of(scene, launch) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(program_of_32_bits(mode))
        program.chmod(0o755)
    assert await said(scene, launch) == ["0", str(errno.EPERM)]
    assert (work_of(scene, launch) / "f").stat().st_mode & 0o7777 == 0o711


def test_numbers_are_given_once_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "uids"
    users = UserIds(folder, range(10, 12))
    assert (users.get("alice"), users.get("bob"), users.get("alice")) == (10, 11, 10)
    assert UserIds(folder, range(10, 12)).get("bob") == 11
    with pytest.raises(Unavailable, match="10-11"):
        users.get("carol")


def test_a_later_user_of_the_same_name_gets_another_number(tmp_path: Path) -> None:
    users = UserIds(tmp_path / "uids", range(10, 12))
    assert users.get("alice") == 10
    (tmp_path / "uids" / "alice").rename(tmp_path / "uids" / "alice~1")  # as `user_folders` does when she is deleted
    assert users.get("alice") == 11


@pytest.mark.parametrize("text", ["", "5", "0-10", "9-3", "a-b"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"local\.uids"):
        uid_range(LocalSettings(uids=text))


@needs_root
def test_an_ordinary_account_isolates_its_users_by_namespaces() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, UID, UID)
        command = [
            sys.executable,
            "-m",
            "tests.ordinary_account",
            name,
            sys.executable,
            "-m",
            "tests.user_sandboxes",
            name,
        ]
        done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        if found["isolation"].startswith("single user"):
            pytest.skip(found["isolation"])
        assert found["isolation"].startswith("by namespace")
        code, _, text = found["hostile"]
        assert code == 0
        assert "secret" not in text.replace(f"{folder}/secret", "")
        assert "own" not in text.split()[-1:]
        assert not any(Path(place, "changed").exists() for place in ("/usr", "/opt", folder))
        code, message, text = found["sees"]
        assert (code, text.splitlines()) == (0, ["2", "1", "x", "NoNewPrivs:\t1"]), message
        assert (folder / "source" / "new").stat().st_uid == UID
        assert found["leaves"][0] == 0
        assert found["fails"][0] == 4
        assert found["dies"][:2] == [137, "ended by SIGKILL"]
        assert found["missing"][:2] == [None, "command not found: no-such-command"]
        assert found["own"] == [0, "", "home-secret"]
        assert not [pid for pid in owned(UID) if b"4711" in Path(f"/proc/{pid}/cmdline").read_bytes()]
