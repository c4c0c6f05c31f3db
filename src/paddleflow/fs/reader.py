"""Read-ahead of one open file: sequential readers find the next blocks already on their way, others cost nothing extra."""

from __future__ import annotations

from paddleflow.fs.blocks import BLOCK, BlockFile

MOST_AHEAD = 8  #: blocks; 32 MiB in flight keep a fast store busy


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
