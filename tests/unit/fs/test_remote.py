"""A store as a tree: what a worker takes over, and versions that change between a look and an open."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from paddleflow.errors import Unavailable
from paddleflow.fs import kernel
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.index import Index
from paddleflow.fs.journal import Journal
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import HandleRecord, State, make_state_files
from paddleflow.fs.tree import Owner
from paddleflow.fs.uploads import Uploads
from paddleflow.fs.writer import STAGED, Staging
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry
from tests.patience import eventually

ROOT = Owner(0, 0)


class Gate(MemoryStore):
    """Holds writes up until it is opened; then they fail, as those of a worker that was killed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        self.opened.wait(60)
        raise RuntimeError("this worker was killed")


def make_tree(folder: Path, store: MemoryStore, state: State, options: RemoteOptions) -> RemoteTree:
    again = state.agreed.device >= 0
    cache, staging = DataCache([folder / "data"], 2**30), Staging([folder / "staging"], store)
    return RemoteTree(
        store, cache, staging, Defaults(0, 0), options, state, Index(folder / "names.db", again=again, keep=True)
    )


@pytest.fixture
def state() -> Iterator[State]:
    made = State(make_state_files())
    yield made
    made.unmap()


def test_a_worker_uploads_when_it_knows_who_has_the_file_open(tmp_path: Path, state: State) -> None:
    options, gate, store = RemoteOptions(ttl=3600.0, writeback=True), Gate(), MemoryStore()
    killed = make_tree(tmp_path, gate, state, options)
    try:
        found, file = killed.create(kernel.ROOT, b"name", os.O_WRONLY, 0o644, ROOT)
        file.write(memoryview(b"one"), 0)
        file.flush()
        state.agreed.device = 0  # mounted: whoever comes next takes over
        state.save_agreed()
        later = State(state.files)
        tree = make_tree(tmp_path, store, later, options)
        try:
            eventually(lambda: not tree.stats()["waiting"])
            taken = tree.reopen(HandleRecord(2, found.node, -1, os.O_WRONLY, 0, 0, 1))
            tree.settle()
            taken.write(memoryview(b"two"), 0)
            taken.flush()
            taken.release()
            eventually(lambda: not tree.stats()["waiting"])
            assert store.read("name", size=10) == b"two"
        finally:
            tree.close()
            later.unmap()
    finally:
        gate.opened.set()
        killed.close()


def test_an_object_that_was_replaced_since_it_was_listed_is_opened_as_it_is_now(tmp_path: Path, state: State) -> None:
    store = MemoryStore()
    store.write("name", b"old")
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0))
    try:
        found = tree.lookup(kernel.ROOT, b"name")
        store.write("name", b"as it is now")
        file = tree.open(found.node, os.O_RDONLY)
        assert file.read(100, 0) == b"as it is now"
        assert file.changed, "the kernel knows the old size"
        file.release()
        store.remove("name")
        assert tree.open(found.node, os.O_RDONLY).read(100, 0) == b"as it is now", "this version is cached"
    finally:
        tree.close()


def test_an_object_that_cannot_be_fetched_is_not_opened(tmp_path: Path, state: State) -> None:
    class Away(MemoryStore):
        away = False

        def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
            if self.away:
                raise Unavailable("no answer")
            return super().read(key, size=size, offset=offset, tag=tag)

    store = Away()
    store.write("name", b"content")
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0))
    try:
        found, store.away = tree.lookup(kernel.ROOT, b"name"), True
        with pytest.raises(Unavailable):
            tree.open(found.node, os.O_RDONLY)
        store.away = False
        file = tree.open(found.node, os.O_RDONLY)
        assert file.read(100, 0) == b"content"
        assert file.backing() is not None
    finally:
        tree.close()


class Away(MemoryStore):
    """Takes nothing until it is back; a request that waits is answered as if it had been refused."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        if not self.back.is_set():
            raise Unavailable("away")
        return super().write(key, content, metadata=metadata, if_absent=if_absent, if_tag=if_tag)


LARGE = b"acknowledged" * 10_000  #: more than goes into the journal


def write(tree: RemoteTree, name: bytes, content: bytes) -> int:
    found, file = tree.create(kernel.ROOT, name, os.O_WRONLY, 0o644, ROOT)
    file.write(memoryview(content), 0)
    file.flush()
    file.release()
    return found.node


def recovered(folder: Path) -> dict[str, bytes]:
    """What the next mount brings into an empty store, if everything is killed now."""
    copied, store = folder / "copied", MemoryStore()
    shutil.rmtree(copied, ignore_errors=True)
    copied.mkdir()
    for file in (folder / "staging").iterdir():
        with suppress(FileNotFoundError):  # not wanted any more
            shutil.copy(file, copied)
    Staging([copied], store).recover()
    return {entry.key: store.read(entry.key, size=1 << 20) for entry in store.list_entries()}


@pytest.mark.parametrize("still_open", [False, True])
@pytest.mark.parametrize("content", [b"acknowledged", LARGE])
def test_what_was_acknowledged_outlasts_a_file_that_is_written_again(
    tmp_path: Path, state: State, content: bytes, still_open: bool
) -> None:
    store = Away()
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0, writeback=True))
    try:
        node = write(tree, b"name", content)
        reader = tree.open(node, os.O_RDONLY) if still_open else None
        file = tree.open(node, os.O_WRONLY | os.O_TRUNC)
        file.write(memoryview(b"half of"), 0)
        assert recovered(tmp_path) == {"name": content}
        store.back.set()
        if not still_open or content == LARGE:  # a small one that is open waits for the commit
            eventually(lambda: not tree.stats()["waiting"])
            assert store.read("name", size=1 << 20) == content, "never half of a version"
        assert reader is None or reader.read(100, 0) == b"half of", "programs of this machine see it at once"
        store.back.clear()
        file.write(memoryview(b" the next"), 7)
        file.flush()
        assert recovered(tmp_path)["name"] == b"half of the next"
        store.back.set()
        for each in (file, reader):
            if each is not None:
                each.release()
        eventually(lambda: not tree.stats()["waiting"] and store.read("name", size=1 << 20) == b"half of the next")
        eventually(lambda: [each.name for each in (tmp_path / "staging").iterdir()] in (["journal"], []))
    finally:
        store.back.set()
        tree.close()


def test_all_versions_of_a_staged_file_have_one_name_in_the_store(tmp_path: Path, state: State) -> None:
    """So that after a crash none of them is taken for somebody else's."""
    store = Away()
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0, writeback=True))
    try:
        node = write(tree, b"name", LARGE)
        file = tree.open(node, os.O_WRONLY | os.O_TRUNC)
        file.write(memoryview(b"next"), 0)
        file.flush()
        (note,) = (tmp_path / "staging").glob("*.1.note")
        store.back.set()
        eventually(lambda: not tree.stats()["waiting"])
        assert store.stat("name").metadata[STAGED] == note.name.partition(".")[0]
        file.release()
    finally:
        store.back.set()
        tree.close()


def test_a_worker_that_was_killed_is_followed_by_one_that_knows_both_files(tmp_path: Path, state: State) -> None:
    store, options = Away(), RemoteOptions(ttl=3600.0, writeback=True)
    killed = make_tree(tmp_path, store, state, options)
    node = write(killed, b"name", LARGE)
    file = killed.open(node, os.O_WRONLY | os.O_TRUNC)
    file.write(memoryview(b"next"), 0)
    state.agreed.device = 0
    state.save_agreed()
    later = State(state.files)
    back = MemoryStore()
    tree = make_tree(tmp_path, back, later, options)
    try:
        taken = tree.reopen(HandleRecord(2, node, -1, os.O_WRONLY, 0, 0, 1))
        tree.settle()
        eventually(lambda: not tree.stats()["waiting"])
        assert back.read("name", size=1 << 20) == LARGE
        taken.flush()
        taken.release()
        eventually(lambda: not tree.stats()["waiting"])
        assert back.read("name", size=1 << 20) == b"next"
    finally:
        tree.close()
        later.unmap()
        store.back.set()
        killed.close()


def test_a_file_that_is_renamed_over_one_that_is_on_its_way(tmp_path: Path, state: State) -> None:
    store = Away()
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0, writeback=True))
    try:
        write(tree, b"name", b"old")
        write(tree, b"name.new", b"new")
        tree.rename(kernel.ROOT, b"name.new", kernel.ROOT, b"name", 0)
        assert recovered(tmp_path) == {"name": b"new"}
        store.back.set()
        eventually(lambda: not tree.stats()["waiting"])
        assert {entry.key: store.read(entry.key, size=10) for entry in store.list_entries()} == {"name": b"new"}
    finally:
        store.back.set()
        tree.close()


def test_a_target_is_in_the_store_until_what_replaces_it_is(tmp_path: Path, state: State) -> None:
    store = Away()
    store.back.set()
    store.write("name", b"old")
    store.back.clear()
    tree = make_tree(tmp_path, store, state, RemoteOptions(ttl=3600.0, writeback=True))
    try:
        write(tree, b"name.new", b"new")
        tree.rename(kernel.ROOT, b"name.new", kernel.ROOT, b"name", 0)
        assert store.read("name", size=10) == b"old"
        store.back.set()
        eventually(lambda: not tree.stats()["waiting"])
        assert {entry.key: store.read(entry.key, size=10) for entry in store.list_entries()} == {"name": b"new"}
    finally:
        store.back.set()
        tree.close()


class Killed(BaseException):
    """What a worker was doing is not done."""


@pytest.mark.parametrize("moment", [(Uploads, "forget"), (Journal, "forget")])
@pytest.mark.parametrize("content", [b"acknowledged", LARGE])
@pytest.mark.parametrize("other", [False, True])
def test_a_file_that_lost_its_name_while_its_worker_was_killed_leaves_nothing(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch, other: bool, content: bytes, moment: tuple[type, str]
) -> None:
    """Neither here, nor as a conflict in the store."""

    def kill(*_: object, **__: object) -> None:
        raise Killed

    store, options = Away(), RemoteOptions(ttl=3600.0, writeback=True)
    killed = make_tree(tmp_path, store, state, options)
    write(killed, b"name", content)
    if other:
        write(killed, b"other", content)
    with monkeypatch.context() as patched:
        patched.setattr(*moment, kill)
        root = kernel.ROOT
        act = (
            partial(killed.rename, root, b"other", root, b"name", 0) if other else partial(killed.unlink, root, b"name")
        )
        with pytest.raises(Killed):
            act()
    killed._staging._ended.set()
    killed._staging.pool.shutdown(wait=True)
    state.agreed.device = 0
    state.save_agreed()
    later, back = State(state.files), MemoryStore()
    tree = make_tree(tmp_path, back, later, options)
    try:
        tree.settle()
        eventually(lambda: not tree.stats()["waiting"])
        assert [entry.key for entry in back.list_entries()] == ["name"] * other
        tree.close()
        assert list((tmp_path / "staging").iterdir()) == []
    finally:
        later.unmap()
        store.back.set()
        killed.close()
