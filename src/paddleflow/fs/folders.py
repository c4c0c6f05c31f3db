"""Folders of a store as it lists them, taken into the index of names: thousands at a time, none of them held in memory.

What the store lists unchanged is confirmed, what is new or changed is written, and what it does not list is gone. Where listings carry no
attributes, those are asked for object by object, many at once. Called by `remote`.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from paddleflow.errors import NotFound
from paddleflow.fs.index import CHUNK, Row
from paddleflow.fs.meta import Defaults, Node, Nodes, row_of
from paddleflow.objects.store import Entry, Kind, ObjectStore


class Folders:
    """Lists folders. `known` makes or updates the node of an entry with all attributes."""

    def __init__(
        self,
        store: ObjectStore,
        nodes: Nodes,
        askers: ThreadPoolExecutor,
        known: Callable[[Node, str, Entry], Node],
        defaults: Defaults,
        *,
        plain: bool,
    ) -> None:
        self._store, self._nodes, self._index, self._askers = store, nodes, nodes.index, askers
        self._known, self._defaults, self._plain = known, defaults, plain
        self.asked = 0  #: objects whose attributes were asked for while a folder was listed

    def take_in(self, folder: Node, *, look_up: bool) -> None:
        """Ask the store for the entries of a folder, and where needed for their attributes, many at once."""
        round, began = self._index.new_round(), time.monotonic()
        entries = iter(self._store.list_entries(folder.key()))
        while chunk := list(islice(entries, CHUNK)):
            names = ((entry.key.rpartition("/")[2], entry) for entry in chunk)
            self._take_in_some(folder, {name: entry for name, entry in names if _is_text(name)}, look_up, round)
        gone = []
        for number in self._index.unseen(folder.id, round, began):
            node = self._nodes.live(number)
            if node is None:
                gone.append(number)
            elif not node.is_local and not node.handles:
                self._nodes.remove(node)
        if gone:
            self._index.remove(gone)
        folder.listed_at = time.monotonic()
        self._nodes.rewrite(folder)

    def rename(self, key: str, new_key: str) -> None:
        """Everything below, files many at once; the folder itself last, so that a crash leaves nothing unreachable."""
        self._store.make_folder(new_key, metadata=self._store.stat(key + "/").metadata)
        files: list[tuple[str, str]] = []
        for entry in list(self._store.list_entries(key)):
            target = new_key + entry.key.removeprefix(key)
            if entry.kind is Kind.FOLDER:
                self.rename(entry.key, target)
            else:
                files.append((entry.key, target))
        for _ in self._askers.map(lambda pair: self._store.rename(*pair), files):
            pass
        self._store.remove_folder(key)

    def _take_in_some(self, folder: Node, entries: Mapping[str, Entry], look_up: bool, round: int) -> None:
        """Some entries of a folder as the store lists them."""
        now, rows = time.monotonic(), self._index.find_many(folder.id, list(entries))
        seen: list[int] = []  #: as they are known
        fresh: list[Row] = []
        unknown: list[tuple[str, Entry]] = []
        for name, entry in entries.items():
            row = rows.get(name)
            node = self._nodes.live(row.id) if row is not None else self._nodes.child(folder, name)
            if entry.kind is Kind.OTHER:
                continue
            if node is not None and self._is_same(node, entry):
                node.checked_at = now
                seen.append(node.id)
            elif node is None and row is not None and self._is_same(row, entry):
                seen.append(row.id)
            elif self._plain and node is None:
                fresh.append(self._row(folder, name, entry, row, now))
            elif self._plain:
                seen.append(self._known(folder, name, entry).id)
            elif look_up:
                unknown.append((name, entry))
            elif node is not None:
                seen.append(node.id)  # attributes are asked for when their time has come
            else:
                fresh.append(self._row(folder, name, entry, row, 0.0))  # when somebody wants them
        for (name, _), found in zip(unknown, self._askers.map(self._ask, unknown), strict=True):
            if found is not None:
                seen.append(self._known(folder, name, found).id)
        if fresh:
            self._index.put(fresh, round)
        if seen:
            self._index.confirm(seen, round, now)

    @staticmethod
    def _is_same(known: Node | Row, entry: Entry) -> bool:
        """Whether what is known of a name is the version that the store lists."""
        if isinstance(known, Node) and known.is_local:
            return known.checked_at != 0
        same = known.tag == entry.tag and known.modified_at == entry.modified_at
        return same and known.checked_at != 0 and stat.S_ISDIR(known.mode) == (entry.kind is Kind.FOLDER)

    def _row(self, folder: Node, name: str, entry: Entry, before: Row | None, checked_at: float) -> Row:
        """What a listing says of a name that nobody uses."""
        kept = before is not None and stat.S_ISDIR(before.mode) == (entry.kind is Kind.FOLDER)
        number = before.id if before is not None and kept else self._index.new_number()
        node = Node(number, folder, name, stat.S_IFREG)
        node.apply(entry, self._defaults)
        node.checked_at = checked_at
        return row_of(node)

    def _ask(self, listed: tuple[str, Entry]) -> Entry | None:
        entry, self.asked = listed[1], self.asked + 1  # a lost update costs a figure, no more
        try:
            return self._store.stat(entry.key + "/" if entry.kind is Kind.FOLDER else entry.key)
        except NotFound:
            return None  # gone since it was listed


def _is_text(name: str) -> bool:
    """Whether a program can be told a name; those that are no UTF-8 are passed over."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False
