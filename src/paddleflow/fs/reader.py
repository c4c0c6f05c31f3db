"""Read-ahead of one open file, and of folders: sequential readers find what comes next already on its way, others cost nothing extra."""

from __future__ import annotations

import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from paddleflow.errors import PaddleFlowError
from paddleflow.fs.blocks import BLOCK, SMALL, BlockFile, DataCache, Fetch
from paddleflow.fs.index import Row
from paddleflow.fs.meta import Nodes

MOST_AHEAD = 8  #: blocks; 32 MiB in flight keep a fast store busy
NEAR = 16  #: names that readers of one folder may be apart: several read side by side
LEAST_FILES_AHEAD, MOST_FILES_AHEAD = 4, 32
REST = 64  #: files that are opened, after some that were in memory, until it is looked again
MOST_FOLDERS = 64  #: that are read at once; of others nothing is remembered


class Reader:
    """Reads for one handle; `ahead` doubles while reads follow each other, and starts over when they do not."""

    def __init__(self, file: BlockFile) -> None:
        self._file = file
        self._expected = 0
        self._ahead = 0

    def read(self, size: int, offset: int) -> bytes | bytearray:
        if not self._file.whole:
            # The kernel reads ahead by itself, in pieces that may arrive out of order: near is sequential enough.
            if abs(offset - self._expected) <= 2 * BLOCK:
                self._ahead = min(MOST_AHEAD, max(1, self._ahead * 2))
                self._file.prefetch(offset // BLOCK, self._ahead + 1)
            else:
                self._ahead = 0
        self._expected = offset + size
        return self._file.read(size, offset)


class _Run:
    """How far a folder was read, in numbers of its rows, which follow the listing."""

    __slots__ = ("ahead", "last", "near", "prepared")

    def __init__(self, last: int) -> None:
        self.last, self.prepared = last, last
        self.near = 0  #: opens that followed each other
        self.ahead = LEAST_FILES_AHEAD


class FolderReader:
    """Small files of a folder that are opened in the order of its listing: the next ones are brought into memory.

    `fetcher` makes what fetches the object of a key and a tag.
    """

    def __init__(self, nodes: Nodes, cache: DataCache, fetcher: Callable[[str, str], Fetch]) -> None:
        self._nodes, self._cache, self._fetcher = nodes, cache, fetcher
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, _Run] = OrderedDict()  #: by folder
        self._pool = ThreadPoolExecutor(2, "ahead")

    def opened(self, folder: int, number: int) -> None:
        """A small file was opened to be read."""
        with self._lock:
            run = self._runs.get(folder)
            if run is None or abs(number - run.last) > NEAR:
                self._runs[folder] = _Run(number)
                if len(self._runs) > MOST_FOLDERS:
                    self._runs.popitem(last=False)
                return
            run.last = max(run.last, number)
            run.near += 1
            if run.near < 2 or run.last + run.ahead // 2 < run.prepared:
                return
            first = max(run.last, run.prepared) + 1
            run.prepared = run.last + run.ahead
            run.ahead = min(run.ahead * 2, MOST_FILES_AHEAD)
        self._pool.submit(self._prepare, run, folder, first, run.prepared)

    def _prepare(self, run: _Run, folder: int, first: int, last: int) -> None:
        needed = False
        for row in self._nodes.index.between(folder, first, last):
            if stat.S_ISREG(row.mode) and row.tag and 0 < row.size <= SMALL:
                with suppress(OSError, PaddleFlowError):  # who opens it is told
                    needed |= self._bring(row)
        if not needed:
            run.prepared, run.ahead = run.prepared + REST, LEAST_FILES_AHEAD

    def _bring(self, row: Row) -> bool:
        """Before it is opened; whether that was needed."""
        folder = self._nodes.get(row.parent)
        key = f"{folder.key()}/{row.name}" if folder.parent else row.name
        return self._cache.bring(key, row.tag, row.size, self._fetcher(key, row.tag))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
