"""A store as a tree: what a worker takes over, and versions that change between a look and an open."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from paddleflow.errors import Invalid, NotFound, Unavailable
from paddleflow.fs import kernel
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.index import Index
from paddleflow.fs.journal import Journal
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.plain import mountable
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import HandleRecord, NodeTable, State, make_state_files
from paddleflow.fs.tree import NOW, Changes, Owner
from paddleflow.fs.uploads import Uploads
from paddleflow.fs.writer import STAGED, Staging
from paddleflow.objects.links import LinkedStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry, ObjectStore, not_supported, refuse_metadata
from tests.patience import eventually

ROOT = Owner(0, 0)


class Away(MemoryStore):
    """Takes nothing until it is back; a request that waits is answered as if it had been refused."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()
        self.readable = True

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        if not self.readable:
            raise Unavailable("away")
        return super().read(key, size=size, offset=offset, tag=tag)

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


class Plain(Away):
    """Keeps no metadata, as SFTP and HDFS."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = replace(self.capabilities, metadata=False)

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        refuse_metadata(self.name, metadata)
        return super().write(key, content, if_absent=if_absent, if_tag=if_tag)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        refuse_metadata(self.name, metadata)
        super().make_folder(key)

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        raise not_supported(self.name, "keep metadata")


class Scene:
    """A store, and workers of one mount that follow each other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Away()
        self._states = [State(make_state_files())]
        self._trees: list[RemoteTree] = []

    def tree(self, *, writeback: bool = False, store: ObjectStore | None = None, later: float = 0.0) -> RemoteTree:
        """Of the first worker, or of one that takes over."""
        if self._trees:
            self._states[-1].agreed.device = 0
            self._states[-1].save_agreed()
            self._states.append(State(self._states[-1].files))
        store, state, again = store or self.store, self._states[-1], bool(self._trees)
        cache = DataCache([self.folder / "data"], 2**30)
        staging = Staging([self.folder / "staging"], store, later=later)
        index = Index(self.folder / "names.db", again=again, keep=True)
        options = RemoteOptions(ttl=3600.0, writeback=writeback)
        self._trees.append(RemoteTree(store, cache, staging, Defaults(0, 0), options, state, index))
        return self._trees[-1]

    def kill(self) -> None:
        """The worker uploads nothing any more."""
        staging = self._trees[-1]._staging
        staging._ended.set()
        staging.pool.shutdown(wait=True)

    def content(self, store: MemoryStore | None = None) -> dict[str, bytes]:
        store = store or self.store
        return {entry.key: store.read(entry.key, size=1 << 20) for entry in store.list_entries()}

    def close(self) -> None:
        self.store.back.set()
        for tree in reversed(self._trees):
            tree.close()
        for state in self._states:
            state.unmap()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


LARGE = b"acknowledged" * 10_000  #: more than goes into the journal


def write(tree: RemoteTree, name: bytes, content: bytes) -> int:
    found, file = tree.create(kernel.ROOT, name, os.O_WRONLY, 0o644, ROOT)
    file.write(memoryview(content), 0)
    file.flush()
    file.release()
    return found.node


def wait_for_uploads(tree: RemoteTree) -> None:
    eventually(lambda: not tree.stats()["waiting"])


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


class Killed(BaseException):
    """What a worker was doing is not done."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def test_a_worker_uploads_when_it_knows_who_has_the_file_open(scene: Scene) -> None:
    found, file = scene.tree(writeback=True).create(kernel.ROOT, b"name", os.O_WRONLY, 0o644, ROOT)
    file.write(memoryview(b"one"), 0)
    file.flush()
    store = MemoryStore()
    tree = scene.tree(writeback=True, store=store)
    wait_for_uploads(tree)
    taken = tree.reopen(HandleRecord(2, found.node, -1, os.O_WRONLY, 0, 0, 1))
    tree.settle()
    taken.write(memoryview(b"two"), 0)
    taken.flush()
    taken.release()
    wait_for_uploads(tree)
    assert scene.content(store) == {"name": b"two"}


def test_an_object_that_was_replaced_since_it_was_listed_is_opened_as_it_is_now(scene: Scene) -> None:
    store, tree = scene.store, scene.tree()
    store.back.set()
    store.write("name", b"old")
    found = tree.lookup(kernel.ROOT, b"name")
    store.write("name", b"as it is now")
    file = tree.open(found.node, os.O_RDONLY)
    assert file.read(100, 0) == b"as it is now"
    assert file.changed, "the kernel knows the old size"
    file.release()
    store.remove("name")
    assert tree.open(found.node, os.O_RDONLY).read(100, 0) == b"as it is now", "this version is cached"


def test_an_object_that_cannot_be_fetched_is_not_opened(scene: Scene) -> None:
    store, tree = scene.store, scene.tree()
    store.back.set()
    store.write("name", b"content")
    found, store.readable = tree.lookup(kernel.ROOT, b"name"), False
    with pytest.raises(Unavailable):
        tree.open(found.node, os.O_RDONLY)
    store.readable = True
    file = tree.open(found.node, os.O_RDONLY)
    assert file.read(100, 0) == b"content"
    assert file.backing() is not None


@pytest.mark.parametrize("still_open", [False, True])
@pytest.mark.parametrize("content", [b"acknowledged", LARGE])
def test_what_was_acknowledged_outlasts_a_file_that_is_written_again(
    scene: Scene, content: bytes, still_open: bool
) -> None:
    store, tree, folder = scene.store, scene.tree(writeback=True), scene.folder
    node = write(tree, b"name", content)
    reader = tree.open(node, os.O_RDONLY) if still_open else None
    file = tree.open(node, os.O_WRONLY | os.O_TRUNC)
    file.write(memoryview(b"half of"), 0)
    assert recovered(folder) == {"name": content}
    store.back.set()
    if not still_open or content == LARGE:  # a small one that is open waits for the commit
        wait_for_uploads(tree)
        assert scene.content() == {"name": content}, "never half of a version"
    assert reader is None or reader.read(100, 0) == b"half of", "programs of this machine see it at once"
    store.back.clear()
    file.write(memoryview(b" the next"), 7)
    file.flush()
    assert recovered(folder)["name"] == b"half of the next"
    store.back.set()
    for each in (file, reader):
        if each is not None:
            each.release()
    eventually(lambda: not tree.stats()["waiting"] and scene.content() == {"name": b"half of the next"})
    eventually(lambda: [each.name for each in (folder / "staging").iterdir()] in (["journal"], []))


def test_all_versions_of_a_staged_file_have_one_name_in_the_store(scene: Scene) -> None:
    """So that after a crash none of them is taken for somebody else's."""
    tree = scene.tree(writeback=True)
    node = write(tree, b"name", LARGE)
    file = tree.open(node, os.O_WRONLY | os.O_TRUNC)
    file.write(memoryview(b"next"), 0)
    file.flush()
    (note,) = (scene.folder / "staging").glob("*.1.note")
    scene.store.back.set()
    wait_for_uploads(tree)
    assert scene.store.stat("name").metadata[STAGED] == note.name.partition(".")[0]
    file.release()


def test_a_worker_that_was_killed_is_followed_by_one_that_knows_both_files(scene: Scene) -> None:
    killed = scene.tree(writeback=True)
    node = write(killed, b"name", LARGE)
    file = killed.open(node, os.O_WRONLY | os.O_TRUNC)
    file.write(memoryview(b"next"), 0)
    store = MemoryStore()
    tree = scene.tree(writeback=True, store=store)
    taken = tree.reopen(HandleRecord(2, node, -1, os.O_WRONLY, 0, 0, 1))
    tree.settle()
    wait_for_uploads(tree)
    assert scene.content(store) == {"name": LARGE}
    taken.flush()
    taken.release()
    wait_for_uploads(tree)
    assert scene.content(store) == {"name": b"next"}


def test_a_file_that_is_renamed_over_one_that_is_on_its_way(scene: Scene) -> None:
    tree = scene.tree(writeback=True)
    write(tree, b"name", b"old")
    write(tree, b"name.new", b"new")
    tree.rename(kernel.ROOT, b"name.new", kernel.ROOT, b"name", 0)
    assert recovered(scene.folder) == {"name": b"new"}
    scene.store.back.set()
    wait_for_uploads(tree)
    assert scene.content() == {"name": b"new"}


def test_what_is_changed_soon_is_uploaded_once(scene: Scene) -> None:
    scene.store.back.set()
    tree = scene.tree(writeback=True, later=3600.0)
    for content in (b"one", b"two", b"three"):
        write(tree, b"draft", content)
        tree.rename(kernel.ROOT, b"draft", kernel.ROOT, b"name", 0)
    write(tree, b"temporary", b"x")
    tree.unlink(kernel.ROOT, b"temporary")
    assert scene.content() == {}
    tree._staging.drain()
    assert scene.content() == {"name": b"three"}
    assert tree.stats()["uploads"] == 1


def test_a_target_is_in_the_store_until_what_replaces_it_is(scene: Scene) -> None:
    scene.store.back.set()
    scene.store.write("name", b"old")
    scene.store.back.clear()
    tree = scene.tree(writeback=True)
    write(tree, b"name.new", b"new")
    tree.rename(kernel.ROOT, b"name.new", kernel.ROOT, b"name", 0)
    assert scene.content() == {"name": b"old"}
    scene.store.back.set()
    wait_for_uploads(tree)
    assert scene.content() == {"name": b"new"}


@pytest.mark.parametrize(
    "moment",
    [(MemoryStore, "remove"), (NodeTable, "set_name"), (Uploads, "commit_name"), (Uploads, "forget")],
    ids=lambda moment: f"{moment[0].__name__}.{moment[1]}",
)
def test_a_rename_of_what_is_on_its_way_is_finished_by_the_next_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, moment: tuple[type, str]
) -> None:
    """Wherever it was killed; an earlier version of the file that the store has is not taken for it."""
    root, killed = kernel.ROOT, scene.tree(writeback=True)
    scene.store.back.set()
    write(killed, b"name", b"replaced")
    node = write(killed, b"name.new", b"earlier")
    wait_for_uploads(killed)
    scene.store.back.clear()
    file = killed.open(node, os.O_WRONLY | os.O_TRUNC)
    file.write(memoryview(b"acknowledged"), 0)
    file.flush()
    file.release()
    with monkeypatch.context() as patched:
        patched.setattr(*moment, kill)
        with pytest.raises(Killed):
            killed.rename(root, b"name.new", root, b"name", 0)
    scene.kill()
    tree = scene.tree(writeback=True)
    tree.settle()
    with suppress(FileNotFoundError, NotFound):  # done before
        tree.rename(root, b"name.new", root, b"name", 0, repeated=True)
    assert recovered(scene.folder) == {"name": b"acknowledged"}
    scene.store.back.set()
    wait_for_uploads(tree)
    assert scene.content() == {"name": b"acknowledged"}


@pytest.mark.parametrize("moment", [(Uploads, "forget"), (Journal, "forget")])
@pytest.mark.parametrize("content", [b"acknowledged", LARGE])
@pytest.mark.parametrize("other", [False, True])
def test_a_file_that_lost_its_name_while_its_worker_was_killed_leaves_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, other: bool, content: bytes, moment: tuple[type, str]
) -> None:
    """Neither here, nor as a conflict in the store."""
    root, killed = kernel.ROOT, scene.tree(writeback=True)
    write(killed, b"name", content)
    if other:
        write(killed, b"other", content)
    with monkeypatch.context() as patched:
        patched.setattr(*moment, kill)
        act = (
            partial(killed.rename, root, b"other", root, b"name", 0) if other else partial(killed.unlink, root, b"name")
        )
        with pytest.raises(Killed):
            act()
    scene.kill()
    store = MemoryStore()
    tree = scene.tree(writeback=True, store=store)
    tree.settle()
    wait_for_uploads(tree)
    assert [entry.key for entry in store.list_entries()] == ["name"] * other
    tree.close()
    assert list((scene.folder / "staging").iterdir()) == []


DROPPED = [Changes(mode=0o755), Changes(uid=7), Changes(gid=7), Changes(mtime=10**9), Changes(atime=10**9)]


@pytest.mark.parametrize("writeback", [False, True])
@pytest.mark.parametrize("still_open", [False, True])
def test_a_store_without_metadata_refuses_attributes_of_what_is_not_sent_yet(
    scene: Scene, writeback: bool, still_open: bool
) -> None:
    store = scene.store = Plain()
    if not writeback:
        store.back.set()
    tree = scene.tree(writeback=writeback, store=mountable(store))
    found, file = tree.create(kernel.ROOT, b"name", os.O_WRONLY, 0o600, Owner(5, 5))
    file.write(memoryview(b"content"), 0)
    if not still_open:
        file.flush()
        file.release()
    before = tree.getattr(found.node)
    assert (stat.S_IMODE(before.mode), before.uid, before.gid) == (0o644, 0, 0), "as others will see it"
    for changes in DROPPED:
        with pytest.raises((OSError, Invalid)) as raised:
            tree.setattr(found.node, changes, None)
        assert isinstance(raised.value, OSError), "refused before it is tried"
        assert raised.value.errno == errno.ENOTSUP
    with pytest.raises(OSError, match="extended attributes"):
        tree.setxattr(found.node, b"user.word", b"value", 0)
    assert tree.getattr(found.node) == before
    assert tree.listxattr(found.node) == []
    same = Changes(mode=0o644, uid=0, gid=0, atime=before.atime, mtime=before.mtime)
    after = tree.setattr(found.node, same, None)
    assert (after.mode, after.uid, after.gid, after.mtime) == (before.mode, 0, 0, before.mtime), "nothing changes"
    if still_open:
        tree.setattr(found.node, Changes(atime=NOW, mtime=NOW), None)  # `touch` of a new file
        file.flush()
        file.release()
    store.back.set()
    wait_for_uploads(tree)
    assert scene.content(store) == {"name": b"content"}


def test_a_store_without_metadata_refuses_attributes_of_folders(scene: Scene) -> None:
    tree = scene.tree(store=mountable(Plain()))
    found = tree.mkdir(kernel.ROOT, b"folder", 0o700, Owner(5, 5))
    for changes in (*DROPPED[1:], Changes(mode=0o700), Changes(mtime=NOW)):
        with pytest.raises(OSError, match="the store keeps no modes"):
            tree.setattr(found.node, changes, None)
    assert stat.S_IMODE(tree.setattr(found.node, Changes(mode=0o755), None).mode) == 0o755


def test_a_linked_store_answers_for_its_own_files(scene: Scene) -> None:
    host, plain = scene.store, Plain()
    for each in (host, plain):
        each.back.set()
    tree = scene.tree(store=LinkedStore(host, {"link": mountable(plain)}))
    node = write(tree, b"name", b"content")
    assert stat.S_IMODE(tree.setattr(node, Changes(mode=0o600), None).mode) == 0o600
    found, file = tree.create(tree.lookup(kernel.ROOT, b"link").node, b"name", os.O_WRONLY, 0o600, ROOT)
    with pytest.raises(OSError, match="the store keeps no modes"):
        tree.setattr(found.node, Changes(mode=0o600), None)
    file.release()
