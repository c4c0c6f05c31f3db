"""A folder mounted for real: what programs rely on, how files are opened, how a mount begins and ends."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddleflow
from tests.mounts import Mount, mounted, needs_fuse
from tests.patience import eventually

pytestmark = needs_fuse
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module", params=["passthrough", "kept"])
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    source = tmp_path_factory.mktemp("source")
    source.chmod(0o755)
    options = [] if request.param == "passthrough" else ["--no-passthrough"]
    with mounted(f"file://{source}", *options) as made:
        yield made


@pytest.fixture
def top(mount: Mount, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own on the mount."""
    made = mount.folder / str(abs(hash(request.node.nodeid)))
    made.mkdir()
    return made


def test_bytes(top: Path) -> None:
    file = top / "file"
    content = os.urandom(3_000_001)
    file.write_bytes(content)
    assert file.read_bytes() == content
    with file.open("r+b") as opened:
        opened.seek(1_000_000)
        opened.write(b"changed")
        opened.flush()
        assert (
            os.pread(opened.fileno(), 9, 999_999)
            == content[999_999:1_000_000] + b"changed" + content[1_000_007:1_000_008]
        )
        os.ftruncate(opened.fileno(), 1_000_003)
    assert file.read_bytes() == content[:1_000_000] + b"cha"
    with file.open("ab") as opened:
        opened.write(b"end")
    assert file.stat().st_size == 1_000_006
    os.truncate(file, 0)
    assert file.read_bytes() == b""


def test_two_appenders_lose_nothing(top: Path) -> None:
    with (top / "log").open("ab", buffering=0) as one, (top / "log").open("ab", buffering=0) as two:
        for _ in range(20):
            one.write(b"1")
            two.write(b"2")
    assert (top / "log").read_bytes() == b"12" * 20


def test_a_file_lives_while_it_is_open(top: Path) -> None:
    with (top / "file").open("w+b") as opened:
        opened.write(b"content")
        opened.flush()
        (top / "file").unlink()
        assert list(top.iterdir()) == []
        opened.write(b" more")
        opened.seek(0)
        assert opened.read() == b"content more"
        assert os.fstat(opened.fileno()).st_nlink == 0


def test_rename_replaces_in_one_step(top: Path) -> None:
    (top / "old").write_bytes(b"old")
    (top / "new").write_bytes(b"new")
    with (top / "new").open("rb") as before:
        (top / "old").rename(top / "new")
        assert before.read() == b"new"
    assert (top / "new").read_bytes() == b"old"
    assert [each.name for each in top.iterdir()] == ["new"]
    (top / "folder" / "deep").mkdir(parents=True)
    (top / "folder" / "deep" / "x").touch()
    (top / "folder").rename(top / "moved")
    assert (top / "moved" / "deep" / "x").exists()
    (top / "full").mkdir()
    (top / "full" / "y").touch()
    with pytest.raises(OSError) as raised:
        (top / "moved").rename(top / "full")
    assert raised.value.errno == errno.ENOTEMPTY


def test_links(top: Path) -> None:
    (top / "file").write_bytes(b"x")
    (top / "hard").hardlink_to(top / "file")
    (top / "soft").symlink_to("file")
    assert (top / "file").stat().st_nlink == 2
    assert (top / "hard").stat().st_ino == (top / "file").stat().st_ino
    (top / "hard").write_bytes(b"changed")
    assert (top / "soft").read_bytes() == b"changed"
    assert (top / "soft").readlink() == Path("file")
    (top / "file").unlink()
    assert (top / "hard").stat().st_nlink == 1
    with pytest.raises(FileNotFoundError):
        (top / "soft").read_bytes()


def test_mode_times_and_attributes(top: Path) -> None:
    file = top / "file"
    file.write_bytes(b"x")
    file.chmod(0o640)
    os.utime(file, ns=(1_000_000_000_123_456_789, -5_000_000_001))
    os.setxattr(file, "user.colour", b"blue")
    found = file.stat()
    assert stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_000_123_456_789, -5_000_000_001)
    assert os.getxattr(file, "user.colour") == b"blue"
    assert os.listxattr(file) == ["user.colour"]
    os.removexattr(file, "user.colour")
    with pytest.raises(OSError) as raised:
        os.getxattr(file, "user.colour")
    assert raised.value.errno == errno.ENODATA
    with pytest.raises(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


@as_root
def test_owners(top: Path) -> None:
    (top / "file").touch()
    os.chown(top / "file", 12, 34)
    assert ((top / "file").stat().st_uid, (top / "file").stat().st_gid) == (12, 34)
    (top / "file").chmod(0o4755)
    with (top / "file").open("wb") as opened:
        opened.write(b"x")
    os.chown(top / "file", 56, 78)
    assert stat.S_IMODE((top / "file").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as somebody else")
@pytest.mark.parametrize("mode", [0o4777, 0o2777])
def test_a_write_of_somebody_else_clears_set_uid_bits(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(0o777)
    with mounted(f"file://{tmp_path}", "--allow-other") as mount:
        (mount.folder / "file").touch()
        (mount.folder / "file").chmod(mode)
        script = (
            "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
            "os.write(os.open(sys.argv[1], os.O_WRONLY), b'x')"
        )
        subprocess.run([sys.executable, "-c", script, str(mount.folder / "file")], check=True)
        assert stat.S_IMODE((mount.folder / "file").stat().st_mode) == 0o777
        assert (tmp_path / "file").read_bytes() == b"x"


def test_mmap(top: Path) -> None:
    with (top / "file").open("w+b") as opened:
        opened.truncate(300_000)
        with mmap.mmap(opened.fileno(), 300_000) as mapped:
            mapped[200_000:200_005] = b"hello"
            mapped.flush()
            assert os.pread(opened.fileno(), 7, 199_999) == b"\0hello\0"
    assert (top / "file").read_bytes()[200_000:200_005] == b"hello"


def test_sparse_files(top: Path) -> None:
    with (top / "file").open("w+b") as opened:
        opened.seek(50_000_000)
        opened.write(b"end")
        opened.flush()
        assert os.lseek(opened.fileno(), 0, os.SEEK_DATA) >= 49_000_000
        assert os.lseek(opened.fileno(), 0, os.SEEK_HOLE) == 0
        os.posix_fallocate(opened.fileno(), 0, 4096)
    assert (top / "file").stat().st_blocks * 512 < 1_000_000


def test_locks(top: Path) -> None:
    with (top / "file").open("w+b") as one, (top / "file").open("r+b") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_renames_with_flags(top: Path) -> None:
    (top / "a").write_bytes(b"a")
    (top / "b").write_bytes(b"b")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(-100, bytes(top / "a"), -100, bytes(top / "b"), 1) == -1
    assert ctypes.get_errno() == errno.EEXIST
    assert libc.renameat2(-100, bytes(top / "a"), -100, bytes(top / "b"), 2) == 0
    assert (top / "a").read_bytes() == b"b"


def test_names(top: Path) -> None:
    names = [b"new\nline", b"\xff\xfe", "ünïcode".encode(), b"x" * 255, b" ", b"-rf"]
    for name in names:
        os.close(os.open(bytes(top) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    assert sorted(os.listdir(bytes(top))) == sorted(names)  # noqa: PTH208 names that are no text
    with pytest.raises(OSError) as raised:
        (top / ("x" * 256)).touch()
    assert raised.value.errno == errno.ENAMETOOLONG


def test_a_large_folder_is_listed_whole_while_it_shrinks(top: Path) -> None:
    for number in range(3000):
        (top / f"file{number}").touch()
    seen = set()
    with os.scandir(top) as entries:
        for entry in entries:
            seen.add(entry.name)
            Path(entry.path).unlink()
    assert len(seen) == 3000
    assert list(top.iterdir()) == []


def test_a_change_behind_the_mount_is_seen(mount: Mount, top: Path) -> None:
    source = Path(mount.url.removeprefix("file://")) / top.name
    (top / "file").write_bytes(b"mine" * 1000)
    assert (top / "file").read_bytes() == b"mine" * 1000
    (source / "file").write_bytes(b"theirs" * 1000)
    eventually(lambda: (top / "file").read_bytes() == b"theirs" * 1000)
    (source / "file").unlink()
    eventually(lambda: not (top / "file").exists())


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git(top: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x", "-c", "gc.auto=0"]
    origin = top / "origin"
    subprocess.run([*git, "init", "-q", origin], check=True)
    for number in range(30):
        (origin / f"file{number}").write_text("line\n" * number)
    subprocess.run([*git, "-C", origin, "add", "-A"], check=True)
    subprocess.run([*git, "-C", origin, "commit", "-qm", "first"], check=True)
    subprocess.run([*git, "clone", "-q", "--no-local", origin, top / "clone"], check=True)
    subprocess.run([*git, "-C", top / "clone", "gc", "-q"], check=True)
    subprocess.run([*git, "-C", top / "clone", "fsck", "--strict"], check=True, capture_output=True)
    done = subprocess.run([*git, "-C", top / "clone", "status", "--short"], check=True, capture_output=True)
    assert done.stdout == b""


@pytest.mark.skipif(shutil.which("make") is None or shutil.which("cc") is None, reason="make or cc is not installed")
def test_a_build(top: Path) -> None:
    (top / "Makefile").write_text("all: prog\nprog: a.o b.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\n")
    (top / "a.c").write_text("int b(void); int main(void) { return b(); }")
    (top / "b.c").write_text("int b(void) { return 7; }")
    subprocess.run(["make", "-s", "-j2", "-C", top], check=True)
    assert subprocess.run([top / "prog"], check=False).returncode == 7
    assert subprocess.run(["make", "-q", "-C", top], check=False).returncode == 0  # times are in order: nothing to do


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_with_its_locks(top: Path, journal: str) -> None:
    def add(count: int) -> None:
        connection = sqlite3.connect(top / "db", timeout=60)
        try:
            for _ in range(count):
                with connection:
                    connection.execute("update counter set value = value + 1")
        finally:
            connection.close()

    connection = sqlite3.connect(top / "db")
    connection.execute(f"pragma journal_mode={journal}")
    connection.execute("pragma synchronous=off")
    connection.execute("create table counter (value)")
    connection.execute("insert into counter values (0)")
    connection.commit()
    threads = [threading.Thread(target=add, args=(25,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connection.execute("select value from counter").fetchone() == (75,)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def test_tar_and_rsync(top: Path, tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(os.urandom(300_000))
    (tmp_path / "tree" / "link").symlink_to("deep/file")
    os.utime(tmp_path / "tree" / "deep" / "file", ns=(10**18, 10**18))
    subprocess.run(["tar", "-cf", top / "a.tar", "-C", tmp_path, "tree"], check=True)
    subprocess.run(["tar", "-xf", top / "a.tar", "-C", top], check=True)
    subprocess.run(["diff", "-r", tmp_path / "tree", top / "tree"], check=True)
    assert (top / "tree" / "deep" / "file").stat().st_mtime_ns == 10**18
    if shutil.which("rsync"):
        subprocess.run(["rsync", "-a", f"{tmp_path}/tree/", f"{top}/again/"], check=True)
        left = subprocess.run(["rsync", "-ain", f"{tmp_path}/tree/", f"{top}/again/"], check=True, capture_output=True)
        assert left.stdout == b""


# ---- mounts of their own ----


def test_ways_of_opening_are_chosen_and_shown(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1_000_000))
    (tmp_path / "small").write_bytes(b"x" * 1000)
    with mounted(f"file://{tmp_path}") as mount:
        for _ in range(2):
            for name in ("large", "small"):
                (mount.folder / name).read_bytes()
        stats = mount.stats()
    assert stats["internal_errors"] == 0
    assert "flush" not in stats["requests"]  # nothing was written
    wanted = {"passthrough": 2, "fresh": 1, "kept": 1} if stats["passthrough"] else {"fresh": 2, "kept": 2}
    assert stats["opens"] == wanted


def test_an_immutable_mount_is_opened_without_asking(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"file{number}").write_bytes(b"%d" % number)
    (tmp_path / "deep").mkdir()
    with mounted(f"file://{tmp_path}", "--immutable") as mount:
        for _ in range(3):
            for number in range(20):
                assert (mount.folder / f"file{number}").read_bytes() == b"%d" % number
        assert len(list(mount.folder.iterdir())) == len(list(mount.folder.iterdir())) == 21
        stats = mount.stats()
        assert stats["no_open"]
        assert stats["requests"]["open"]["count"] == 1
        assert stats["requests"]["read"]["count"] == 20
        assert stats["requests"]["flush"]["count"] == 1
        with pytest.raises(OSError) as raised:
            (mount.folder / "file0").write_bytes(b"")
        assert raised.value.errno == errno.EROFS


def test_a_read_only_mount_refuses_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with mounted(f"file://{tmp_path}", "--read-only") as mount:
        for call in (
            lambda: (mount.folder / "new").touch(),
            lambda: (mount.folder / "file").unlink(),
            lambda: (mount.folder / "file").chmod(0),
            lambda: (mount.folder / "file").write_bytes(b""),
        ):
            with pytest.raises(OSError) as raised:
                call()
            assert raised.value.errno == errno.EROFS


def test_a_mount_can_forbid_programs(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with mounted(f"file://{tmp_path}", "--noexec") as mount, pytest.raises(PermissionError):
        subprocess.run([str(mount.folder / "program")], check=True)


def test_a_busy_mount_is_unmounted_by_force_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with mounted(f"file://{tmp_path}") as mount, (mount.folder / "file").open("rb") as opened:
        refused = mount.run("umount", str(mount.folder), check=False)
        assert refused.returncode == 1
        assert "in use" in refused.stderr or "busy" in refused.stderr
        mount.umount("-f")
        assert opened.read() == b"x"
        assert list(mount.folder.iterdir()) == []


def test_a_killed_mount_can_be_mounted_again(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        (mount.folder / "file").write_bytes(b"before")
        mount.kill()

        def dead() -> bool:
            try:
                list(mount.folder.iterdir())
            except OSError as error:
                return error.errno == errno.ENOTCONN
            return False

        eventually(dead)
        refused = mount.run("mount", "--url", mount.url, str(mount.folder), check=False)
        assert refused.returncode == 1
        assert "hint: paddleflow fs umount" in refused.stderr
        mount.umount()
        mount.mount()
        assert (mount.folder / "file").read_bytes() == b"before"


def test_a_signal_unmounts(tmp_path: Path) -> None:
    with mounted(f"file://{tmp_path}") as mount:
        os.kill(mount.stats()["pid"], signal.SIGTERM)
        eventually(lambda: str(mount.folder) not in Path("/proc/self/mounts").read_text())


def test_refusals_in_words(tmp_path: Path) -> None:
    mount = Mount("", tmp_path / "mnt", tmp_path)
    (tmp_path / "mnt").mkdir()
    for url, word in {
        f"file://{tmp_path}/nowhere": "does not exist",
        "nonsense": "is not the URL of a store",
        "floppy://a": "no store of type",
        f"file://{tmp_path}/mnt": "on itself",
    }.items():
        done = mount.run("mount", "--url", url, str(tmp_path / "mnt"), check=False)
        assert (done.returncode, word in done.stderr) == (1, True), done.stderr
    done = mount.run("mount", "--url", f"file://{tmp_path}", str(tmp_path / "absent"), check=False)
    assert "hint: mkdir -p" in done.stderr
    assert "nothing of PaddleFlow" in mount.run("umount", str(tmp_path / "mnt"), check=False).stderr


_AS_USER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from paddleflow.fs.device import unmount
from paddleflow.fs.background import start_mount
from paddleflow.fs.options import MountOptions
source, folder = Path(sys.argv[2]), Path(sys.argv[3])
start_mount(MountOptions(url=f"file://{source}", folder=folder))
(folder / "file").write_bytes(b"mine")
assert (source / "file").read_bytes() == b"mine"
assert (folder / "file").stat().st_uid == 65534
unmount(folder)
assert list(folder.iterdir()) == []
"""
_IN_NAMESPACE = """
set -e
mknod -m 666 "$1/fuse" c 10 229
mount --bind "$1/fuse" /dev/fuse
exec setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$1" "$2" -c "$3" "$4" "$1/source" "$1/mnt"
"""


@as_root
@pytest.mark.skipif(shutil.which("fusermount3") is None, reason="fusermount3 is not installed")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_an_ordinary_user_mounts() -> None:
    """In a mount namespace of its own, whose /dev/fuse everybody may open, as on most machines."""
    package = Path(paddleflow.__file__).parent.parent
    with tempfile.TemporaryDirectory(prefix="pf-user-") as place:
        Path(place).chmod(0o777)
        shutil.copytree(package / "paddleflow", f"{place}/package/paddleflow")  # the user may not see the repository
        subprocess.run(["chmod", "-R", "a+rX", f"{place}/package"], check=True)
        for name in ("source", "mnt"):
            Path(place, name).mkdir()
            os.chown(Path(place, name), 65534, 65534)
        python = next(
            (each for each in (sys.executable, "/usr/bin/python3") if runs_as_nobody(each)),
            "",
        )
        if not python:
            pytest.skip("no Python of version 3.11 or newer that everybody may run")
        subprocess.run(
            ["unshare", "-m", "bash", "-c", _IN_NAMESPACE, "bash", place, python, _AS_USER, f"{place}/package"],
            check=True,
            timeout=60,
        )


def runs_as_nobody(python: str) -> bool:
    words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "env",
        python,
        "-c",
        "import sys; sys.exit(sys.version_info < (3, 11))",
    ]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
