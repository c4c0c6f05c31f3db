"""A local store in the hands of hostile users: links, FIFOs, devices, permissions, crashes in the middle of a write."""

from __future__ import annotations

import errno
import io
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Forbidden, NotFound, OverQuota, Unavailable
from paddleflow.objects import local
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import TEMPORARY, Kind


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    return tmp_path / "outside"


@pytest.fixture(params=[True, False], ids=["openat2", "by parts"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    if not request.param:
        monkeypatch.setattr(local, "open_beneath", local._open_by_parts)
    (tmp_path / "root").mkdir()
    return LocalStore(tmp_path / "root")


@pytest.mark.parametrize("absolute", [True, False])
def test_links_do_not_lead_out(store: LocalStore, tmp_path: Path, outside: Path, absolute: bool) -> None:
    (tmp_path / "root" / "link").symlink_to(outside if absolute else "../outside")
    for call in (
        lambda: store.read("link/secret", size=10),
        lambda: store.stat("link/secret"),
        lambda: store.write("link/new", b"x"),
        lambda: store.make_folder("link/folder"),
        lambda: store.rename("link/secret", "mine"),
    ):
        with pytest.raises((Forbidden, NotFound, Conflict)):
            call()
    with suppress(Forbidden):  # or it counts as absent, which is fine for a removal
        store.remove("link/secret")
    assert names(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert [entry.kind for entry in store.list_entries()] == [Kind.OTHER]
    assert list(store.list_entries(recursive=True)) == [next(store.list_entries())]


def test_a_write_replaces_a_link_and_not_what_it_names(store: LocalStore, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "root" / "link").symlink_to(outside / "secret")
    store.write("link", b"mine")
    assert (outside / "secret").read_bytes() == b"secret"
    assert store.read("link", size=10) == b"mine"


def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.write("f/a", b"x")
    (tmp_path / "link").symlink_to("f/a")
    assert store.read("link", size=10) == b"x"
    assert {entry.key: entry.kind for entry in store.list_entries()} == {"f": Kind.FOLDER, "link": Kind.FILE}


def test_only_regular_files_are_read(store: LocalStore, tmp_path: Path) -> None:
    root = tmp_path / "root"
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        for name, word in {"fifo": "a FIFO", "socket": "a socket"}.items():
            with pytest.raises(Conflict, match=word):
                store.read(name, size=1)
            assert store.stat(name).kind is Kind.OTHER
            with pytest.raises(Conflict):
                store.rename(name, "mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node needs root")
def test_devices_are_refused(store: LocalStore, tmp_path: Path) -> None:
    os.mknod(tmp_path / "root" / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with pytest.raises(Conflict, match="a character device"):
        store.read("zero", size=1)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().read(4)

    store = LocalStore(tmp_path)
    store.write("a", b"old")
    with pytest.raises(Unavailable):
        store.write("a", Breaking(b"new content"))
    assert names(tmp_path) == ["a"]
    assert store.read("a", size=10) == b"old"


def test_temporary_files_of_a_crash_are_not_listed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / f"{TEMPORARY}1234").write_bytes(b"half")
    assert list(store.list_entries()) == []


def test_a_full_disk_is_over_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(opened: int, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local, "_write_all", full)
    with pytest.raises(OverQuota, match="no space left"):
        LocalStore(tmp_path).write("a", b"x")
    assert names(tmp_path) == []


def test_an_absent_root_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        LocalStore(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotFound):
        LocalStore(tmp_path / "file")


def test_a_file_swapped_for_a_device_between_look_and_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = LocalStore(tmp_path), local.open_beneath
    store.write("a", b"x")

    def swap(root: int, path: str, flags: int, mode: int = 0) -> int:
        if flags & os.O_NONBLOCK:
            (tmp_path / "a").unlink()
            os.mkfifo(tmp_path / "a")
        return opened(root, path, flags, mode)

    monkeypatch.setattr(local, "open_beneath", swap)
    with pytest.raises(Conflict, match="a FIFO"):
        store.read("a", size=1)
