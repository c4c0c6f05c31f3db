"""Folders that the kernel lists a few entries at a time, with their attributes or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from paddleflow.fs import kernel, vfs
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.device import Device
from paddleflow.fs.index import Index
from paddleflow.fs.kernel import Op, Request
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.posix import PosixTree
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import State, make_state_files
from paddleflow.fs.tree import Tree
from paddleflow.fs.vfs import Vfs
from paddleflow.fs.writer import Staging
from paddleflow.objects.memory import MemoryStore

COUNT = 300
PAGE = 4096
NAMES = [b"%03d" % number for number in range(COUNT)]


class Kernel:
    """Lists as the kernel does."""

    def __init__(self, answers: Vfs) -> None:
        self.vfs = answers
        self.handle = 0 if answers.no_open else kernel.OPEN_OUT.unpack(self.ask(Op.OPENDIR, bytes(8)))[0]

    def ask(self, op: Op, body: bytes) -> bytes:
        answer = self.vfs.handle(Request(op, 2, kernel.ROOT, 0, 0, 1), memoryview(body))
        return b"".join(answer) if isinstance(answer, tuple) else bytes(answer)

    def page(self, offset: int, *, look_up: bool = True) -> list[tuple[int, bytes, int]]:
        """Offset of the next entry, name, and number of the node, 0 without attributes."""
        op = Op.READDIRPLUS if look_up else Op.READDIR
        answer, at = self.ask(op, kernel.READ_IN.pack(self.handle, offset, PAGE, 0, 0, 0, 0)), 0
        found = []
        while at < len(answer):
            node = 0
            if look_up:
                node, at = kernel.ENTRY.unpack_from(answer, at)[0], at + kernel.ENTRY.size
            _, after, length, _ = kernel.DIRENT.unpack_from(answer, at)
            name = answer[at + kernel.DIRENT.size :][:length]
            at += kernel.DIRENT.size + (length + 7) // 8 * 8
            found.append((after, name, node))
        return found

    def rest(self, offset: int = 0, *, look_up: bool = True) -> list[tuple[int, bytes, int]]:
        found: list[tuple[int, bytes, int]] = []
        while page := self.page(found[-1][0] if found else offset, look_up=look_up):
            found += page
        return found


@contextmanager
def immutable_bucket(folder: Path) -> Iterator[Vfs]:
    store, state = MemoryStore(), State(make_state_files())
    for name in NAMES:
        store.write(name.decode(), b"")
    parts = DataCache([folder / "data"], 2**20), Staging([folder / "staging"], store)
    index = Index(folder / "names.db", again=False, keep=True)
    tree = RemoteTree(store, *parts, Defaults(0, 0), RemoteOptions(ttl=3600.0, immutable=True), state, index)
    yield Vfs(tree, Device(-1), state, read_only=True)
    tree.close()
    state.unmap()


@contextmanager
def local_folder(folder: Path) -> Iterator[tuple[Vfs, Tree]]:
    state = State(make_state_files())
    for name in NAMES:
        (folder / name.decode()).touch()
    tree = PosixTree(folder, state, seconds=1.0, immutable=False)
    yield Vfs(tree, Device(-1), state, read_only=False), tree
    tree.close()
    state.unmap()


def test_every_part_of_a_listing_without_opendir_has_attributes(tmp_path: Path) -> None:
    with immutable_bucket(tmp_path) as answers:
        found = Kernel(answers).rest()
        assert [name for _, name, _ in found] == [b".", b"..", *NAMES]
        assert all(node for _, _, node in found[2:])
        assert not answers._listings, "one that has ended is given up"


def test_a_listing_that_a_worker_does_not_know_goes_on_with_attributes(tmp_path: Path) -> None:
    with immutable_bucket(tmp_path) as answers:
        one = Kernel(answers)
        one.page(0)
        found = one.rest(102)
        assert [name for _, name, _ in found] == NAMES[100:]
        assert all(node for _, _, node in found)


def test_listings_of_one_folder_at_once_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vfs, "MOST_LISTINGS", 2)
    with immutable_bucket(tmp_path) as answers:
        one = Kernel(answers)
        begun = [one.page(offset) for offset in (0, 0, 50, 100)]
        assert len(answers._listings) == 2
        for page in begun:
            names = [name for _, name, _ in page + one.rest(page[-1][0])]
            assert names == [b".", b"..", *NAMES][-len(names) :]


def test_a_listing_counts_the_lookups_that_the_kernel_is_told(tmp_path: Path) -> None:
    """It changes its mind in the middle: a node that it does not know is never given back."""
    with local_folder(tmp_path) as (answers, tree):
        one = Kernel(answers)
        first = one.page(0)
        rest = one.rest(first[-1][0], look_up=False)
        assert sorted(name for _, name, _ in first + rest) == sorted([b".", b"..", *NAMES])
        assert all(one <= other for (one, _, _), (other, _, _) in pairwise(first + rest))
        assert tree.stats()["nodes"] == 1 + len([node for _, _, node in first if node])
