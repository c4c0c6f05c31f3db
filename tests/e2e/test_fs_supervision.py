"""A worker behind a mount is killed at any moment, again and again: programs that use the mount see no error and no loss."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

import paddleflow
from paddleflow.errors import PaddleFlowError
from paddleflow.objects.s3 import Bucket, S3Store
from scripts.lib.mounts import Mount, mounted, why_not
from scripts.lib.s3_servers import KEYS, S3Server, seaweedfs
from tests.patience import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
KILLS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs() as started:
        yield started


@contextmanager
def store_mount(server: S3Server, cache: Path, *options: str) -> Iterator[tuple[Mount, S3Store]]:
    bucket: Bucket = server.bucket()
    access = ["--endpoint", bucket.endpoint, "--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
    url = f"s3://{bucket.name}/{bucket.prefix}"
    options = (*access, "--cache-dir", str(cache), "--ttl", "600", *options)
    with mounted(url, *options) as mount, closing(S3Store(bucket)) as store:
        yield mount, store


class Load:
    """Programs that use the mount, each in a thread, until they are told to end; the first error of each is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors: list[BaseException] = []
        self.rounds: dict[str, int] = {}
        self.opened: list[IO[bytes]] = []
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, action: Callable[[int], None]) -> None:
        def run() -> None:
            number = 0
            try:
                while not self._ended.is_set():
                    action(number)
                    number += 1
                    self.rounds[name] = number
            except BaseException as error:
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run, name=name))
        self._threads[-1].start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), f"{thread.name} hangs"
        for file in self.opened:
            file.close()
        if self.errors:
            raise self.errors[0]


def programs(load: Load) -> None:
    """Readers and writers whose every step is checked."""
    top = load.folder
    content = random.Random(5).randbytes(300_000)
    (top / "data").write_bytes(content)
    (top / "small").write_bytes(content[:1000])
    kept = (top / "data").open("rb", buffering=0)
    unlinked = (top / "unlinked").open("w+b", buffering=0)
    unlinked.write(b"still here")
    load.opened += [kept, unlinked]
    (top / "unlinked").unlink()

    def read(number: int) -> None:
        at = number * 4096 % 299_000
        assert os.pread(kept.fileno(), 1000, at) == content[at : at + 1000]
        assert (top / "small").read_bytes() == content[:1000]
        assert os.pread(unlinked.fileno(), 20, 0) == b"still here"

    def write(number: int) -> None:
        folder = top / f"folder{number}"
        folder.mkdir()
        with (folder / "new").open("xb") as file:
            file.write(b"%d" % number)
        (folder / "new").rename(folder / "moved")
        (folder / "link").symlink_to("moved")
        assert (folder / "link").read_bytes() == b"%d" % number
        assert sorted(each.name for each in folder.iterdir()) == ["link", "moved"]
        (folder / "moved").unlink()
        (folder / "link").unlink()
        folder.rmdir()

    with (top / "log").open("wb", buffering=0):
        pass

    def append(number: int) -> None:
        with (top / "log").open("ab", buffering=0) as file:
            file.write(b"%08d\n" % number)

    load.start("reader", read)
    load.start("writer", write)
    load.start("appender", append)


def kill_worker(mount: Mount) -> None:
    """Kill it while it works, and wait until the next one serves."""
    before = mount.stats()
    os.kill(before["worker"], signal.SIGKILL)
    eventually(lambda: _worker(mount) not in (None, before["worker"]))


def _worker(mount: Mount) -> int | None:
    try:
        worker: int = mount.stats()["worker"]
    except PaddleFlowError:
        return None
    return worker


def check_programs(load: Load, mount: Mount, kills: int) -> None:
    load.end()
    assert all(load.rounds.get(name, 0) > 0 for name in ("reader", "writer", "appender"))
    lines = (mount.folder / "log").read_bytes().split()
    assert [int(line) for line in lines] == list(range(load.rounds["appender"]))
    assert sorted(each.name for each in mount.folder.iterdir()) == ["data", "log", "small"]
    assert mount.stats()["restarts"] == kills


@pytest.mark.parametrize("options", [[], ["--no-passthrough"]])
def test_a_killed_worker_of_a_folder_is_replaced(tmp_path: Path, options: list[str]) -> None:
    with mounted(f"file://{tmp_path}", *options) as mount:
        load = Load(mount.folder)
        programs(load)
        try:
            for _ in range(KILLS):
                kill_worker(mount)
        finally:
            load.end()
        check_programs(load, mount, KILLS)


@pytest.mark.parametrize("options", [[], ["--writeback"], ["--no-passthrough"]])
def test_a_killed_worker_of_a_bucket_is_replaced(server: S3Server, tmp_path: Path, options: list[str]) -> None:
    with store_mount(server, tmp_path, *options) as (mount, store):
        load = Load(mount.folder)
        programs(load)
        try:
            for _ in range(KILLS):
                kill_worker(mount)
        finally:
            load.end()
        check_programs(load, mount, KILLS)
        mount.umount()
        lines = store.read("log", size=1 << 24).split()
        assert [int(line) for line in lines] == list(range(load.rounds["appender"]))
        assert list((tmp_path / "staging").iterdir()) == []


def test_unsaved_writes_and_descriptors_survive(server: S3Server, tmp_path: Path) -> None:
    with store_mount(server, tmp_path) as (mount, store), (mount.folder / "file").open("w+b", buffering=0) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(b"not closed yet")
        kill_worker(mount)
        assert os.pread(file.fileno(), 20, 0) == b"not closed yet"
        file.write(b", and more")
        assert (mount.folder / "file").stat().st_mode & 0o777 == 0o600
        file.close()
        assert store.read("file", size=100) == b"not closed yet, and more"


def test_what_waits_for_the_store_is_seen_and_sent(server: S3Server, tmp_path: Path) -> None:
    with store_mount(server, tmp_path, "--writeback") as (mount, store):
        (mount.folder / "folder").mkdir()
        server.process.send_signal(signal.SIGSTOP)
        try:
            (mount.folder / "folder" / "file").write_bytes(b"acknowledged")
            kill_worker(mount)
            assert (mount.folder / "folder" / "file").read_bytes() == b"acknowledged"
        finally:
            server.process.send_signal(signal.SIGCONT)
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        assert store.read("folder/file", size=100) == b"acknowledged"


def test_a_mount_survives_an_upgrade(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        load = Load(mount.folder)
        programs(load)
        try:
            for _ in range(3):
                before = mount.stats()
                mount.run("reload", str(mount.folder))
                eventually(lambda before=before: _worker(mount) not in (None, before["worker"]))  # type: ignore[misc]  # mypy does not infer the default's type
                assert mount.stats()["pid"] == before["pid"]
        finally:
            load.end()
        check_programs(load, mount, 3)


def test_a_worker_that_dies_after_an_upgrade_is_replaced_by_the_program_that_mounted(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed meanwhile is another program: the supervisor has all of its own in memory."""
    installed = tmp_path / "installed"
    shutil.copytree(Path(paddleflow.__path__[0]), installed / "paddleflow")
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with store_mount(server, tmp_path / "cache") as (mount, store):
        store.write("file", b"content")
        for module in installed.rglob("*.py"):
            module.write_text("raise ImportError('another program')")
        mount.environment["PYTHONPATH"] = ""
        for _ in range(2):
            kill_worker(mount)
            assert (mount.folder / "file").read_bytes() == b"content"
        (mount.folder / "new").write_bytes(b"made")
        assert store.read("new", size=9) == b"made"


def test_a_supervisor_that_is_killed_leaves_a_mount_that_works(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        found = mount.stats()
        os.kill(found["pid"], signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{found['pid']}/exe").exists())
        (mount.folder / "file").write_bytes(b"x")
        assert (tmp_path / "file").read_bytes() == b"x"
        mount.umount()


def test_a_signal_asks_for_the_stacks(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        found = mount.stats()
        for pid in (found["pid"], found["worker"]):
            os.kill(pid, signal.SIGUSR1)
        eventually(lambda: {"_run_worker", "_serve"} <= {line.rpartition(" ")[2] for line in mount.logs()})


def test_a_listing_goes_on_with_the_next_worker(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:04}").touch()
    with mounted(f"file://{tmp_path}") as mount:
        with os.scandir(mount.folder) as entries:
            names = [next(entries).name for _ in range(10)]
            kill_worker(mount)
            names += [entry.name for entry in entries]
        assert sorted(names) == [f"{number:04}" for number in range(3000)]


def test_random_kills(tmp_path: Path) -> None:
    """At any moment, also while the next worker starts."""
    with mounted(f"file://{tmp_path}") as mount:
        load = Load(mount.folder)
        programs(load)
        found, chosen = mount.stats(), random.Random(11)
        try:
            for _ in range(30):
                time.sleep(chosen.random() / 20)  # the moment is the point of this test
                children = Path(f"/proc/{found['pid']}/task/{found['pid']}/children").read_text().split()
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
            eventually(lambda: _worker(mount) is not None)
        finally:
            load.end()
        assert not load.errors
        lines = (mount.folder / "log").read_bytes().split()
        assert [int(line) for line in lines] == list(range(load.rounds["appender"]))
