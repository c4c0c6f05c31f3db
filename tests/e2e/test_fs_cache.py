"""The cache of a mounted bucket: several disks, pins, what an attack on its folders costs, and the tools that look into it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from paddleflow.fs.inventory import cached_objects
from paddleflow.objects.s3 import Bucket, S3Store
from tests.mounts import Mount, access, mounted_bucket, needs_fuse
from tests.patience import eventually

pytestmark = [needs_fuse, pytest.mark.timeout(180)]


def mount_of(bucket: Bucket, *folders: Path, options: tuple[str, ...] = ()) -> AbstractContextManager[Mount]:
    """A bucket whose cache lies in several folders."""
    more = [word for folder in folders[1:] for word in ("--cache-dir", str(folder))]
    return mounted_bucket(bucket, folders[0], *more, *options)


def tool(mount: Mount, *words: str) -> Any:
    return json.loads(mount.run(*words, "--json").stdout)


def test_several_disks_share_the_content(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    """Objects lie on both; written ones too, and they are found again by the next mount."""
    disks = (tmp_path / "one", tmp_path / "two")
    for number in range(24):
        store.write(f"read/{number}", b"%d" % number)
    with mount_of(bucket, *disks) as mount:
        for number in range(24):
            assert (mount.folder / "read" / str(number)).read_bytes() == b"%d" % number
            (mount.folder / f"made-{number}").write_bytes(b"%d" % number)
        with (mount.folder / "read" / "3").open("r+b") as file:
            file.write(b"x")
        (mount.folder / "read" / "4").rename(mount.folder / "moved")
        mount.umount()
        assert all(list(cached_objects([disk / "data"])) for disk in disks)
        mount.mount(*mount.options)
        for number in range(24):
            assert (mount.folder / f"made-{number}").read_bytes() == b"%d" % number
        assert (mount.folder / "read" / "3").read_bytes() == b"x"
        assert (mount.folder / "moved").read_bytes() == b"4"
        assert mount.stats()["tree"]["misses"] == 0
    assert store.read("read/3", size=9) == b"x"


def test_what_is_pinned_stays(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    for folder in ("kept", "other"):
        for number in range(4):
            store.write(f"{folder}/{number}", os.urandom(100_000))
    with mount_of(bucket, tmp_path / "cache", options=("--cache-size", "500Ki")) as mount:
        assert tool(mount, "cache", "pin", str(mount.folder), "--path", "/kept/") == {"pinned": ["kept"]}
        for folder in ("kept", "other", "other"):
            for number in range(4):
                (mount.folder / folder / str(number)).read_bytes()
        listed = tool(mount, "cache", "ls", str(mount.folder))
        assert {row["name"] for row in listed if row["pinned"] == "yes"} == {f"kept/{number}" for number in range(4)}
        assert mount.stats()["tree"]["evicted"] > 0
        assert "not pinned" in mount.run("cache", "unpin", str(mount.folder), "--path", "x", check=False).stderr
        tool(mount, "cache", "unpin", str(mount.folder), "--path", "kept")
        for number in range(4):
            (mount.folder / "other" / str(number)).read_bytes()
        assert not {row["pinned"] for row in tool(mount, "cache", "ls", str(mount.folder))} & {"yes"}


def test_cleared_and_removed_under_the_mount(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    """By the command, and by somebody who removes the whole folder: the content comes again, and writes go on."""
    cache = tmp_path / "cache"
    for name in ("a/1", "a/2", "b/1"):
        store.write(name, name.encode())
    with mount_of(bucket, cache) as mount:

        def read_all() -> list[bytes]:
            return [(mount.folder / name).read_bytes() for name in ("a/1", "a/2", "b/1")]

        assert read_all() == [b"a/1", b"a/2", b"b/1"]
        assert tool(mount, "cache", "clear", str(mount.folder), "--path", "a") == {"files": 2, "bytes": 6}
        assert [row["name"] for row in tool(mount, "cache", "ls", str(mount.folder))] == ["b/1"]
        assert read_all() == [b"a/1", b"a/2", b"b/1"]
        shutil.rmtree(cache / "data")
        assert read_all() == [b"a/1", b"a/2", b"b/1"]
        (mount.folder / "new").write_bytes(b"new")
        assert store.read("new", size=9) == b"new"
        shutil.rmtree(cache)
        assert read_all() == [b"a/1", b"a/2", b"b/1"]
        (mount.folder / "newer").write_bytes(b"newer")
        with (mount.folder / "a" / "1").open("ab") as file:
            file.write(b"+")
        assert (store.read("newer", size=9), store.read("a/1", size=9)) == (b"newer", b"a/1+")
        assert mount.stats()["internal_errors"] == 0
        shutil.rmtree(cache)
        mount.umount()
        assert not [line for line in mount.logs() if "Traceback" in line]


def test_check_finds_what_is_wrong(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in ("fine", "damaged", "old", "gone"):
        store.write(name, name.encode() * 1000)
    words = ("check", f"s3://{bucket.name}/{bucket.prefix}", "--cache-dir", str(cache), *access(bucket))
    with mount_of(bucket, cache) as mount:
        for name in ("fine", "damaged", "old", "gone"):
            (mount.folder / name).read_bytes()
        mount.umount()
        assert tool(mount, *words) == []
        files = {each.key: each.path for each in cached_objects([cache / "data"])}
        files["damaged"].write_bytes(b"DAMAGED" * 1000)
        store.write("old", b"new")
        store.remove("gone")
        staged = cache / "staging" / "0123.data"
        staged.write_bytes(b"acknowledged")
        staged.with_suffix(".note").write_text(json.dumps({"key": "late", "metadata": {}, "replaces": ""}))
        (cache / "staging" / "4567.note").write_text("{")
        done = mount.run(*words, "--json", check=False)
        assert done.returncode == 1
        found = {(row["state"], row["name"]) for row in json.loads(done.stdout)}
        expected = {("damaged", "damaged"), ("old", "old"), ("gone", "gone"), ("waiting", "late")}
        assert found == expected | {("damaged", "4567.data")}
        mount.run(*words, "--repair")
        assert {each.key for each in cached_objects([cache / "data"])} == {"fine"}
        mount.mount(*mount.options)
        assert (mount.folder / "damaged").read_bytes() == b"damaged" * 1000
        assert store.read("late", size=99) == b"acknowledged"


def test_damaged_content_is_never_served(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    store.write("file", b"right" * 1000)
    with mount_of(bucket, tmp_path) as mount:
        (mount.folder / "file").read_bytes()
        mount.umount()
        (cached,) = cached_objects([tmp_path / "data"])
        with cached.path.open("r+b") as file:
            file.write(b"wrong")
        mount.mount(*mount.options)
        assert (mount.folder / "file").read_bytes() == b"right" * 1000


def test_a_restart_is_warm(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    """One listing instead of a question for each object; what was changed meanwhile is seen."""
    with mount_of(bucket, tmp_path) as mount:
        for number in range(50):
            (mount.folder / f"{number:02}").write_bytes(b"x" * number)
            (mount.folder / f"{number:02}").chmod(0o600 + number % 8)
        (mount.folder / "folder").mkdir()
        mount.umount()
        store.remove("07")
        store.write("08", b"from elsewhere", metadata={})
        store.write("new", b"n")
        mount.mount(*mount.options)
        found = {entry.name: entry.stat() for entry in os.scandir(mount.folder)}
        assert set(found) == {"folder", "new"} | {f"{number:02}" for number in range(50) if number != 7}
        assert found["09"].st_mode & 0o777 == 0o601
        assert (found["08"].st_size, found["08"].st_mode & 0o777) == (14, 0o644)
        assert mount.stats()["tree"]["attributes asked"] <= 5
        mount.umount()
        names = (tmp_path / "names.db").read_bytes()
        (tmp_path / "names.db").write_bytes(names[:4096] + bytes(len(names) - 4096))
        mount.mount(*mount.options)
        assert (mount.folder / "09").stat().st_size == 9


def test_a_mount_without_kept_metadata_writes_none(bucket: Bucket, tmp_path: Path) -> None:
    with mount_of(bucket, tmp_path, options=("--meta", "memory")) as mount:
        (mount.folder / "a").write_bytes(b"x")
        mount.umount()
        assert not (tmp_path / "names.db").exists()


def test_many_readers_of_one_block_cost_one_fetch(bucket: Bucket, store: S3Store, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    content = os.urandom(3 * 2**20)
    store.write("file", content)
    with mount_of(bucket, tmp_path) as mount:
        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(lambda _: (mount.folder / "file").read_bytes(), range(16))) == {content}
        eventually(lambda: mount.stats()["tree"]["blocks fetched"] == 1)
