"""Folders that are being listed, between requests of the kernel, which takes their entries a few at a time.

Called by `vfs`.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator

from paddleflow.fs.tree import Listed, Tree


class Listing:
    """An open folder: entries come from the tree as they are asked for, and again from the start after rewinddir()."""

    def __init__(self, tree: Tree, node: int) -> None:
        self._tree, self.node = tree, node
        self._lock = threading.Lock()
        self._look_up = False  #: what the kernel asks for now: it may change its mind with each request
        self._rewind()

    def _rewind(self) -> None:
        self._entries = self._all()
        self.position = 0  #: offset of `_pending`, or of the next entry
        self._pending: Listed | None = None

    def _all(self) -> Iterator[Listed]:
        folder = stat.S_IFDIR >> 12
        yield Listed(b".", self.node, folder)
        yield Listed(b"..", self.node, folder)
        yield from self._tree.listdir(self.node, look_up=lambda: self._look_up)

    def read(self, offset: int, size: int, look_up: bool, pack: Callable[[Listed, int], bytes]) -> bytes:
        with self._lock:
            if offset != self.position:
                self._skip_to(offset)
            self._look_up = look_up
            packed: list[bytes] = []
            room = size
            while (entry := self._next()) is not None:
                piece = pack(entry, self.position + 1)
                if len(piece) > room:
                    self._pending = entry
                    break
                packed.append(piece)
                room -= len(piece)
                self.position += 1
            return b"".join(packed)

    def _skip_to(self, offset: int) -> None:
        self._look_up = False  # nobody is told of what is passed over
        self._drop_pending()
        self._rewind()
        while self.position < offset and self._next() is not None:
            self.position += 1
        self.position = offset

    def _next(self) -> Listed | None:
        entry = self._pending
        if entry is None:
            return next(self._entries, None)
        if self._look_up:
            self._pending = None
        else:
            self._drop_pending()
        return entry

    def _drop_pending(self) -> None:
        if self._pending is not None and self._pending.found is not None:
            self._tree.forget(self._pending.found.node, 1)  # looked up, but never told to the kernel
        self._pending = None

    def close(self) -> None:
        with self._lock:
            self._drop_pending()
            self._entries = iter(())
