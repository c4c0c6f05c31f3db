"""A bucket mounted for real: attributes that survive, two cache levels, writes through crashes and outages."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddleflow.errors import PaddleFlowError
from paddleflow.objects.s3 import Bucket, S3Store
from paddleflow.objects.store import Part
from tests.e2e.test_fs_random import compare
from tests.fs_operations import Operation, operations
from tests.mounts import Mount, mounted_bucket, needs_fuse
from tests.patience import eventually
from tests.s3_servers import KEYS, S3Server
from tests.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [needs_fuse, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=["passthrough", "kept", "writeback"])
def shared(
    request: pytest.FixtureRequest, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mount]:
    options = {"passthrough": [], "kept": ["--no-passthrough"], "writeback": ["--writeback"]}[request.param]
    with mounted_bucket(s3_server.bucket(), tmp_path_factory.mktemp("cache"), *options) as made:
        yield made


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=operations(links=False))
def test_a_mounted_bucket_is_like_a_folder(shared: Mount, todo: list[Operation]) -> None:
    compare(shared.folder, todo)
    assert shared.stats()["internal_errors"] == 0


@pytest.fixture(scope="module")
def proxy(s3_server: S3Server) -> Iterator[TcpProxy]:
    with tcp_proxy(int(s3_server.endpoint.rpartition(":")[2])) as made:
        yield made


@pytest.fixture(scope="module", params=["passthrough", "writeback"])
def troubled(
    request: pytest.FixtureRequest, s3_server: S3Server, proxy: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mount]:
    """A mount behind a network that can be troubled."""
    options = ["--writeback"] if request.param == "writeback" else []
    bucket = replace(s3_server.bucket(), endpoint=f"http://127.0.0.1:{proxy.port}")
    with mounted_bucket(bucket, tmp_path_factory.mktemp("cache"), *options) as made:
        yield made


FAULTS = st.dictionaries(st.integers(0, 29), st.sampled_from(["cut", "short answer", "kill"]), max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(todo=operations(links=False), faults=FAULTS)
def test_faults_of_network_and_client_are_not_seen(
    troubled: Mount, proxy: TcpProxy, todo: list[Operation], faults: dict[int, str]
) -> None:
    """Connections are cut between requests and inside answers, and the client is killed: programs see what a folder shows."""

    def trouble(number: int) -> None:
        match faults.get(number):
            case "cut":
                proxy.cut()
            case "short answer":
                proxy.bytes_left = 50
            case "kill":
                with suppress(PaddleFlowError, ProcessLookupError):  # it is being replaced already
                    os.kill(troubled.stats()["worker"], signal.SIGKILL)

    try:
        compare(troubled.folder, todo, trouble)
    finally:
        proxy.bytes_left = -1


def test_what_a_store_cannot_express_is_refused(shared: Mount) -> None:
    top = shared.folder / "refused"
    top.mkdir()
    (top / "file").write_bytes(b"x")
    for call, name in ((partial(os.link, top / "file"), "hard"), (os.mkfifo, "fifo")):
        with pytest.raises(OSError) as raised:
            call(top / name)
        assert raised.value.errno == errno.ENOTSUP
    with pytest.raises(OSError) as raised:
        os.close(os.open(bytes(top) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert raised.value.errno == errno.EILSEQ
    with pytest.raises(OSError) as raised:
        os.setxattr(top / "file", "user.large", bytes(4000))
    assert raised.value.errno == errno.ENOSPC
    assert sorted(each.name for each in top.iterdir()) == ["file"]


def test_everything_survives_a_remount(bucket: Bucket, tmp_path: Path) -> None:
    with mounted_bucket(bucket, tmp_path) as mount:
        top = mount.folder
        (top / "deep" / "empty").mkdir(parents=True)
        (top / "deep").chmod(0o750)
        (top / "deep" / "new\nline").write_bytes(b"content")
        (top / "deep" / "new\nline").chmod(0o640)
        os.setxattr(top / "deep" / "new\nline", "user.colour", b"\x00blue")
        os.utime(top / "deep" / "new\nline", ns=(10**18 + 1, 10**18 + 2))
        if os.geteuid() == 0:
            os.chown(top / "deep" / "new\nline", 12, 34)
        (top / "link").symlink_to("deep/new\nline")
        (top / "far").touch()
        os.utime(top / "far", ns=(0, 2**64))
        large = os.urandom(20_000_000)
        (top / "large").write_bytes(large)
        mount.umount()
        shutil.rmtree(tmp_path)
        mount.mount(*mount.options)
        found = (top / "deep" / "new\nline").stat()
        assert stat.S_IMODE(found.st_mode) == 0o640
        assert stat.S_IMODE((top / "deep").stat().st_mode) == 0o750
        assert (found.st_atime_ns, found.st_mtime_ns) == (10**18 + 1, 10**18 + 2)
        assert os.geteuid() != 0 or (found.st_uid, found.st_gid) == (12, 34)
        assert (top / "far").stat().st_mtime_ns == 2**63 - 1, "the latest moment that there is"
        assert os.getxattr(top / "link", "user.colour") == b"\x00blue"
        assert (top / "link").read_bytes() == b"content"
        assert (top / "deep" / "empty").is_dir()
        assert (top / "large").read_bytes() == large


def test_content_is_fetched_once(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    large = os.urandom(10_000_000)
    store.write("large", large)
    store.write("small", b"small")
    with mounted_bucket(bucket, tmp_path) as mount:
        for _ in range(2):
            assert (mount.folder / "large").read_bytes() == large
            assert (mount.folder / "small").read_bytes() == b"small"
        assert mount.stats()["tree"]["bytes fetched"] == 10_000_005
        mount.umount()
        mount.mount(*mount.options)
        assert (mount.folder / "large").read_bytes() == large
        stats = mount.stats()
        assert stats["tree"]["bytes fetched"] == 0
        assert not stats["passthrough"] or stats["opens"] == {"passthrough": 1}


def test_a_part_of_a_large_object_costs_a_part(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    large = os.urandom(60_000_000)
    store.write("large", large)
    with mounted_bucket(bucket, tmp_path) as mount:
        with (mount.folder / "large").open("rb") as file:
            assert os.pread(file.fileno(), 1000, 50_000_000) == large[50_000_000:50_001_000]
        assert mount.stats()["tree"]["bytes fetched"] < 30_000_000


def test_a_damaged_cache_is_noticed(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    store.write("file", content)
    with mounted_bucket(bucket, tmp_path) as mount:
        assert (mount.folder / "file").read_bytes() == content
        mount.umount()
        (cached,) = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
        with cached.open("r+b") as file:
            file.seek(1000)
            file.write(b"damage")
        mount.mount(*mount.options)
        assert (mount.folder / "file").read_bytes() == content


def test_a_cache_that_is_cleared_under_the_mount(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    store.write("file", content)
    with mounted_bucket(bucket, tmp_path) as mount:
        assert (mount.folder / "file").read_bytes() == content
        shutil.rmtree(tmp_path / "data")
        assert (mount.folder / "file").read_bytes() == content


def test_the_cache_stays_within_its_size(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    for number in range(6):
        store.write(f"file{number}", bytes([number]) * 1_000_000)
    with mounted_bucket(bucket, tmp_path, "--cache-size", "3M") as mount:
        for number in range(6):
            assert (mount.folder / f"file{number}").read_bytes() == bytes([number]) * 1_000_000
        tree = mount.stats()["tree"]
        assert tree["evicted"] >= 3
        assert tree["bytes cached"] <= 3_000_000


@pytest.mark.parametrize("options", [["--ttl", "0.1"], ["--strict"]])
def test_changes_made_elsewhere(bucket: Bucket, store: S3Store, tmp_path: Path, options: list[str]) -> None:
    store.write("file", b"old" * 1000)
    with mounted_bucket(bucket, tmp_path, *options) as mount:
        file = mount.folder / "file"
        assert file.read_bytes() == b"old" * 1000
        with file.open("rb") as opened:
            store.write("file", b"newer" * 1000)
            assert opened.read() == b"old" * 1000  # whoever has it open reads one version
        if options == ["--strict"]:
            assert file.read_bytes() == b"newer" * 1000
        else:
            eventually(lambda: file.read_bytes() == b"newer" * 1000)
            store.remove("file")
            store.write("other", b"")
            eventually(lambda: [each.name for each in mount.folder.iterdir()] == ["other"])


def test_an_object_that_changes_while_it_is_read_is_never_mixed(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    store.write("large", b"a" * 60_000_000)
    with mounted_bucket(bucket, tmp_path) as mount, (mount.folder / "large").open("rb") as file:
        assert os.pread(file.fileno(), 4096, 0) == b"a" * 4096
        store.write("large", b"b" * 60_000_000)
        with pytest.raises(OSError) as raised:  # not read ahead, and gone
            os.pread(file.fileno(), 4096, 59_000_000)
        assert raised.value.errno == errno.ESTALE


def test_an_object_that_is_removed_while_it_is_read(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    """What was read ahead stays; the rest is an error, not an end of the file, and no zeros."""
    store.write("large", b"a" * 60_000_000)
    with mounted_bucket(bucket, tmp_path) as mount, (mount.folder / "large").open("rb") as file:
        assert os.pread(file.fileno(), 4096, 0) == b"a" * 4096
        store.remove("large")
        with pytest.raises(OSError) as raised:
            os.pread(file.fileno(), 4096, 59_000_000)
        assert raised.value.errno == errno.ESTALE
        assert os.pread(file.fileno(), 4096, 0) == b"a" * 4096


def test_two_mounts_write_one_file_and_the_last_close_wins_whole(
    bucket: Bucket, store: S3Store, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(mounted_bucket(bucket, tmp_path / name)) for name in ("one", "two"))
        with (one.folder / "file").open("wb") as first, (two.folder / "file").open("wb") as second:
            for _ in range(10):
                first.write(b"1" * 100_000)
                second.write(b"2" * 100_000)
        found = store.read("file", size=2_000_000)
        assert found == b"1" * 1_000_000  # a with statement closes its files last to first


def test_without_writeback_close_means_in_the_store(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    with mounted_bucket(bucket, tmp_path) as mount:
        with (mount.folder / "file").open("wb", buffering=0) as file:
            file.write(b"one")
            os.fsync(file.fileno())
            assert store.read("file", size=10) == b"one"
            file.write(b"two")
        assert store.read("file", size=10) == b"onetwo"
        mount.kill()
    assert store.read("file", size=10) == b"onetwo"


def test_a_killed_mount_finishes_what_it_acknowledged(
    s3_server: S3Server, bucket: Bucket, store: S3Store, tmp_path: Path
) -> None:
    store.write("changed", b"old")
    with mounted_bucket(bucket, tmp_path, "--writeback", "--ttl", "600") as mount:
        assert [each.name for each in mount.folder.iterdir()] == [
            "changed"
        ]  # known from now on: no questions to the store
        s3_server.process.send_signal(signal.SIGSTOP)  # the store is away
        try:
            pid = mount.stats()["worker"]
            for number in range(20):
                (mount.folder / f"file{number}").write_bytes(b"%d" % number * 1000)
            unsynced = (mount.folder / "open").open("wb", buffering=0)
            unsynced.write(b"not acknowledged")
            mount.kill()
            eventually(lambda: not Path(f"/proc/{pid}").exists())
            with pytest.raises(OSError):
                unsynced.close()
        finally:
            s3_server.process.send_signal(signal.SIGCONT)
        mount.umount()
        mount.mount(*mount.options)
        assert {entry.key for entry in store.list_entries()} == {"changed", *(f"file{number}" for number in range(20))}
        for number in range(20):
            assert (mount.folder / f"file{number}").read_bytes() == b"%d" % number * 1000
        assert list((tmp_path / "staging").iterdir()) == []


def test_a_killed_mount_goes_on_with_the_parts_that_have_arrived(
    bucket: Bucket, store: S3Store, proxy: TcpProxy, tmp_path: Path
) -> None:
    through = replace(bucket, endpoint=f"http://127.0.0.1:{proxy.port}")
    content = os.urandom(100_000_000)
    notes = tmp_path / "staging" / "parts"

    def arrived() -> tuple[str, set[Part]]:
        for note in notes.glob("*.json"):
            upload = json.loads(note.read_text())["upload"]
            return upload, set(store.list_parts("large", upload))
        return "", set()

    with mounted_bucket(through, tmp_path, "--writeback") as mount:
        pid = mount.stats()["worker"]
        (mount.folder / "large").write_bytes(content)
        eventually(lambda: len(arrived()[1]) >= 2)
        proxy.stall()
        mount.kill()
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        proxy.cut()
        upload, before = arrived()
        assert len(before) < 12
        mount.umount()
        proxy.go_on()
        mount.mount(*mount.options)
        assert (mount.folder / "large").read_bytes() == content
        assert store.stat("large").tag.endswith("-12")
        assert list((tmp_path / "staging").iterdir()) == []
    assert upload.encode() not in store._ask("GET", "", {"uploads": ""}).body


def test_a_store_that_is_away_for_a_while_loses_nothing(
    s3_server: S3Server, bucket: Bucket, store: S3Store, tmp_path: Path
) -> None:
    with mounted_bucket(bucket, tmp_path, "--writeback", "--ttl", "600") as mount:
        assert list(mount.folder.iterdir()) == []
        s3_server.process.send_signal(signal.SIGSTOP)
        try:
            (mount.folder / "file").write_bytes(b"content")
            assert (mount.folder / "file").read_bytes() == b"content"
            assert mount.stats()["tree"]["waiting"] == 1
        finally:
            s3_server.process.send_signal(signal.SIGCONT)
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        assert store.read("file", size=10) == b"content"


def test_wrong_keys_and_buckets_are_said(bucket: Bucket, tmp_path: Path) -> None:
    mount = Mount("", tmp_path, tmp_path)
    for url, options, words in (
        (f"s3://{bucket.name}", ("--access-key", "test-access", "--secret-key", "wrong"), "secret key"),
        ("s3://no-such-bucket", ("--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key), "does not exist"),
        (f"s3://{bucket.name}", ("--access-key", "only"), "secretKey"),
        ("s3://B", (), "is not a valid bucket name"),
    ):
        done = mount.run("mount", "--url", url, "--endpoint", bucket.endpoint, *options, str(tmp_path), check=False)
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr


def test_programs(bucket: Bucket, tmp_path: Path) -> None:
    with mounted_bucket(bucket, tmp_path) as mount:
        top = mount.folder
        git = ["git", "-c", "user.name=x", "-c", "user.email=x", "-c", "gc.auto=0"]
        subprocess.run([*git, "init", "-q", top / "repo"], check=True)
        for number in range(10):
            (top / "repo" / f"file{number}").write_text("line\n" * number)
        subprocess.run([*git, "-C", top / "repo", "add", "-A"], check=True)
        subprocess.run([*git, "-C", top / "repo", "commit", "-qm", "first"], check=True)
        subprocess.run([*git, "-C", top / "repo", "gc", "-q"], check=True)
        subprocess.run([*git, "-C", top / "repo", "fsck", "--strict"], check=True, capture_output=True)
        subprocess.run(["tar", "-cf", top / "a.tar", "-C", top, "repo"], check=True)
        (top / "again").mkdir()
        subprocess.run(["tar", "-xf", top / "a.tar", "-C", top / "again"], check=True)
        subprocess.run(["diff", "-r", top / "repo", top / "again" / "repo"], check=True)


def test_an_immutable_bucket(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    for number in range(30):
        store.write(f"f/file{number}", b"%d" % number)
    with mounted_bucket(bucket, tmp_path, "--immutable", "--plain") as mount:
        for _ in range(2):
            names = sorted(each.name for each in (mount.folder / "f").iterdir())
            assert [(mount.folder / "f" / name).read_bytes() for name in names] == [name[4:].encode() for name in names]
        assert mount.stats()["no_open"]
        # A read is counted when it is answered, which may be after the program went on.
        eventually(lambda: mount.stats()["requests"]["read"]["count"] >= 30)
        assert mount.stats()["requests"]["read"]["count"] == 30


def test_warmup(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    for number in range(40):
        store.write(f"f/deep/file{number}", b"x" * 1000)
    store.write("f/large", bytes(9_000_000))
    store.write("other", bytes(500_000))
    with mounted_bucket(bucket, tmp_path, "--ttl", "600") as mount:
        (mount.folder / "f" / "nowhere").symlink_to("absent")
        done = mount.run("warmup", "--json", "--threads", "4", str(mount.folder / "f"))
        assert json.loads(done.stdout) == [{"files": 41, "bytes": 9_040_000}]
        assert mount.stats()["tree"]["bytes fetched"] == 9_040_000
        assert {each.stat().st_size for each in mount.folder.iterdir() if each.is_file()} == {500_000}
        store.write("other", b"changed")  # unknown to the mount for a while
        done = mount.run("warmup", "--json", str(mount.folder), check=False)
        assert (done.returncode, "other: Stale" in done.stderr) == (1, True), done.stderr
        assert json.loads(done.stdout) == [{"files": 41, "bytes": 9_040_000}]  # one that fails does not stop the others
