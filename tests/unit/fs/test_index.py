"""The index of names: what the next worker and the next mount find, and what happens when its file is no good."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.fs import kernel
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.index import CHUNK, UNCONFIRMED, Index, Row
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import State, make_state_files
from paddleflow.fs.writer import Staging
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry, Kind


def row(index: Index, name: str, parent: int = kernel.ROOT, checked_at: float = 5.0) -> Row:
    mode = stat.S_IFREG | 0o644
    return Row(index.new_number(), parent, name, mode, 1, 2, 3, 4, 5, 6, 7.0, checked_at, 9.0, "tag", b"", 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "names.db"


def test_a_worker_that_takes_over_knows_the_same(file: Path) -> None:
    first = Index(file, again=False, keep=True)
    made = row(first, "new\nline")
    first.put([made])
    second = Index(file, again=True, keep=True)  # the first was killed: it closed nothing
    assert second.get(made.id) == second.find(kernel.ROOT, "new\nline") == made
    assert second.new_number() > made.id
    second.close()
    first._connection.close()


def test_the_next_mount_asks_the_store_before_it_believes(file: Path) -> None:
    first = Index(file, again=False, keep=True)
    made = row(first, "a")
    first.put([made, row(first, "not asked", checked_at=0.0)])
    first.close()
    second = Index(file, again=False, keep=True)
    assert second.get(made.id) == made._replace(checked_at=UNCONFIRMED, listed_at=0.0, kept=0)
    assert second.has_unasked(kernel.ROOT)
    second.confirm([made.id], second.new_round(), 11.0)
    found = second.get(made.id)
    assert found is not None
    assert (found.checked_at, found.listed_at) == (11.0, 0.0)
    second.close()
    third = Index(file, again=False, keep=False)
    assert len(third) == 0
    third.close()


@pytest.mark.parametrize("content", [b"", b"no database at all", b"SQLite format 3\0" + bytes(500)])
def test_a_damaged_file_is_begun_anew(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    index = Index(file, again=False, keep=True)
    made = row(index, "a")
    index.put([made])
    assert index.get(made.id) == made
    index.close()


def test_a_file_that_is_damaged_inside_is_left(file: Path) -> None:
    first = Index(file, again=False, keep=True)
    first.put([row(first, f"{number:05}") for number in range(3000)])
    first.close()
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) // 2))
    second = Index(file, again=False, keep=True)
    found = {name for name in (f"{number:05}" for number in range(3000)) if second.find(kernel.ROOT, name)}
    assert len(found) < 3000
    made = row(second, "a")
    second.put([made])
    assert second.get(made.id) == made
    second.close()


def test_after_a_crash_of_the_machine_it_is_begun_anew(file: Path) -> None:
    first = Index(file, again=False, keep=True)
    first.put([row(first, "a")])
    with sqlite3.connect(file) as other:
        other.execute("update about set boot = 'an earlier one'")
    other.close()
    second = Index(file, again=False, keep=True)
    assert second.find(kernel.ROOT, "a") is None
    second.close()
    first._connection.close()


def test_where_the_disk_takes_nothing_it_goes_on_in_memory(file: Path) -> None:
    index = Index(file, again=False, keep=True)
    first = row(index, "first")
    index.put([first])
    index._connection.execute("pragma max_page_count = 1")  # "database or disk is full"
    more = [row(index, f"{number:05}") for number in range(3000)]
    index.put(more)
    assert index.get(first.id) == first
    assert sum(1 for _ in index.children(kernel.ROOT)) == 3001
    index.close()
    nowhere = Index(file.parent / "gone" / "names.db", again=False, keep=True)
    nowhere.put([row(nowhere, "a")])
    assert nowhere.find(kernel.ROOT, "a") is not None
    nowhere.close()


def test_what_a_listing_does_not_see_is_gone_unless_it_is_younger(file: Path) -> None:
    index = Index(file, again=False, keep=True)
    old, kept, made = (row(index, name, checked_at=at) for name, at in (("old", 5.0), ("kept", 5.0), ("made", 12.0)))
    index.put([old, kept, made])
    round = index.new_round()
    index.confirm([kept.id], round, 10.0)
    assert index.unseen(kernel.ROOT, round, began=10.0) == [old.id]
    index.remove([old.id])
    assert [each.name for each in index.children(kernel.ROOT)] == ["kept", "made"]
    index.close()


class Wide(MemoryStore):
    """One folder with very many files, as a listing says."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        for number in range(self.count):
            yield Entry(f"{number:07}", Kind.FILE, number, 1e9, f"tag-{number}")


def test_what_others_wrote_as_attributes_costs_nobody_the_listing(tmp_path: Path) -> None:
    store, state = MemoryStore(), State(make_state_files())
    for name, value in (("huge", "9" * 40), ("negative", "-5"), ("fine", "7"), ("word", "x")):
        store.write(name, b"", metadata={"pf-uid": value, "pf-mtime": value, "pf-mode": value})
    (tmp_path / "staging").mkdir()
    index = Index(tmp_path / "names.db", again=False, keep=True)
    parts = DataCache([tmp_path / "data"], 2**20), Staging([tmp_path / "staging"], store)
    tree = RemoteTree(store, *parts, Defaults(1, 1), RemoteOptions(ttl=3600.0), state, index)
    try:
        found = {
            each.name: each.found.attributes for each in tree.listdir(kernel.ROOT, look_up=lambda: True) if each.found
        }
        assert {name: each.uid for name, each in found.items()} == {b"huge": 1, b"negative": 1, b"fine": 7, b"word": 1}
        for attributes in found.values():
            kernel.pack_attributes(attributes)
    finally:
        tree.close()
        state.unmap()


def test_a_wide_folder_is_listed_without_holding_it(tmp_path: Path) -> None:
    store, state = Wide(5 * CHUNK + 7), State(make_state_files())
    (tmp_path / "staging").mkdir()
    index = Index(tmp_path / "names.db", again=False, keep=True)
    parts = DataCache([tmp_path / "data"], 2**20), Staging([tmp_path / "staging"], store)
    tree = RemoteTree(store, *parts, Defaults(1, 1), RemoteOptions(ttl=3600.0, plain=True), state, index)
    try:
        found = list(tree.listdir(kernel.ROOT, look_up=lambda: True))
        assert [each.name for each in found] == [b"%07d" % number for number in range(store.count)]
        assert [each.found.attributes.size for each in found if each.found] == list(range(store.count))
        assert tree.lookup(kernel.ROOT, b"0000100").node == found[100].ino
        assert len(tree._nodes._live) < 10, "names are rows, not objects"
        store.count = 3
        tree._nodes.root.listed_at = 0.0
        assert [each.ino for each in tree.listdir(kernel.ROOT, look_up=lambda: False)] == [
            each.ino for each in found[:3]
        ]
        assert len(index) == 3
    finally:
        tree.close()
        state.unmap()
