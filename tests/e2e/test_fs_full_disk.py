"""A mounted bucket whose cache disk takes no more: reads go on, writes are refused in time, nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddleflow.objects.s3 import Bucket, S3Store
from tests.mounts import mounted_bucket, needs_fuse
from tests.patience import eventually

pytestmark = [
    needs_fuse,
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk"),
]
Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Makes a disk in memory with the given options."""
    with ExitStack() as stack:

        def make(options: str) -> Path:
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], check=True)
            stack.callback(lambda: subprocess.run(["umount", "-l", tmp_path], check=True))
            return tmp_path

        yield make


def take_all_files(folder: Path) -> list[Path]:
    """Make files until the disk takes no more of them."""
    made: list[Path] = []
    while True:
        try:
            (folder / f"ballast{len(made)}").touch()
        except OSError:
            return made
        made.append(folder / f"ballast{len(made)}")


def test_reads_go_past_a_full_disk(bucket: Bucket, store: S3Store, disk: Disk) -> None:
    large = os.urandom(30_000_000)
    store.write("large", large)
    store.write("small", b"small")
    cache = disk("size=6m")
    with mounted_bucket(bucket, cache) as mount:
        assert (mount.folder / "large").read_bytes() == large
        with (mount.folder / "large").open("rb") as file:
            for offset in (25_000_000, 4_190_000, 100):
                assert os.pread(file.fileno(), 100_000, offset) == large[offset : offset + 100_000]
        found = mount.stats()["tree"]
        assert found["blocks not stored"] > 0
        assert found["bytes fetched"] < 4 * len(large)  # a block is not fetched for every piece that is read of it
        with (cache / "ballast").open("wb") as ballast, pytest.raises(OSError):
            ballast.write(bytes(7 * 2**20))
        assert (mount.folder / "small").read_bytes() == b"small"
        subprocess.run(["cp", mount.folder / "large", cache.parent / "copy"], check=True)
        assert (cache.parent / "copy").read_bytes() == large
        with pytest.raises(OSError) as raised:
            (mount.folder / "large").open("r+b")  # writing needs the whole file here
        assert raised.value.errno == errno.ENOSPC
        (cache / "ballast").unlink()
        assert (mount.folder / "small").read_bytes() == b"small"
        assert mount.stats()["internal_errors"] == 0
    (cache.parent / "copy").unlink()


def test_files_that_were_not_used_for_long_make_place(bucket: Bucket, store: S3Store, disk: Disk) -> None:
    for number in range(6):
        store.write(f"file{number}", bytes([number]) * 3_000_000)
    with mounted_bucket(bucket, disk("size=8m")) as mount:
        for number in range(6):
            assert (mount.folder / f"file{number}").read_bytes() == bytes([number]) * 3_000_000
        found = mount.stats()["tree"]
        assert (found["blocks not stored"], found["evicted"]) == (0, 4)


@pytest.mark.parametrize("options", [[], ["--no-passthrough"], ["--writeback"]])
def test_writes_are_refused_and_nothing_is_lost(bucket: Bucket, store: S3Store, disk: Disk, options: list[str]) -> None:
    cache = disk("size=8m")
    with mounted_bucket(bucket, cache, *options) as mount:
        (mount.folder / "before").write_bytes(b"before" * 100_000)
        with pytest.raises(OSError) as raised:
            (mount.folder / "large").write_bytes(bytes(20_000_000))
        assert raised.value.errno == errno.ENOSPC
        # The kernel says that a file is no longer open some time after `close`; then its place may be used
        eventually(lambda: not list((cache / "staging").iterdir()) and mount.stats()["tree"]["evicted"])
        (mount.folder / "after").write_bytes(b"after" * 100_000)
        assert (mount.folder / "before").read_bytes() == b"before" * 100_000
        eventually(lambda: mount.stats()["tree"]["waiting"] == 0)
        assert store.read("before", size=1_000_000) == b"before" * 100_000
        assert store.read("after", size=1_000_000) == b"after" * 100_000
        assert mount.stats()["internal_errors"] == 0


def test_cached_content_gives_way_to_what_is_written(bucket: Bucket, store: S3Store, disk: Disk) -> None:
    for number in range(2):
        store.write(f"file{number}", bytes(3_000_000))
    with mounted_bucket(bucket, disk("size=8m"), "--no-passthrough") as mount:
        for number in range(2):
            (mount.folder / f"file{number}").read_bytes()
        (mount.folder / "written").write_bytes(b"x" * 7_000_000)
        assert store.read("written", size=8_000_000) == b"x" * 7_000_000


def test_a_disk_that_takes_no_more_files(bucket: Bucket, store: S3Store, disk: Disk) -> None:
    content = os.urandom(5_000_000)
    store.write("file", content)
    store.write("empty", b"")
    cache = disk("size=20m,nr_inodes=40")
    with mounted_bucket(bucket, cache) as mount:
        take_all_files(cache)
        assert (mount.folder / "file").read_bytes() == content
        assert (mount.folder / "empty").read_bytes() == b""
        for name, mode in (("file", "r+b"), ("empty", "r+b"), ("file", "wb"), ("new", "wb")):
            with pytest.raises(OSError) as raised:
                (mount.folder / name).open(mode)
            assert raised.value.errno == errno.ENOSPC, name
        assert sorted(each.name for each in mount.folder.iterdir()) == ["empty", "file"]
        assert store.read("file", size=6_000_000) == content
        assert mount.stats()["internal_errors"] == 0


def test_without_place_for_a_note_a_file_goes_to_the_store_at_once(bucket: Bucket, store: S3Store, disk: Disk) -> None:
    cache = disk("size=20m,nr_inodes=40")
    with mounted_bucket(bucket, cache, "--writeback") as mount:
        take_all_files(cache)[-1].unlink()  # one for the file, none for its note
        (mount.folder / "file").write_bytes(b"content")
        assert store.read("file", size=10) == b"content"
        assert mount.stats()["tree"]["waiting"] == 0
        assert (mount.folder / "file").read_bytes() == b"content"
        assert mount.stats()["internal_errors"] == 0
