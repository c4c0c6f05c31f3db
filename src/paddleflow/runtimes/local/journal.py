"""The keeper's journal: what it started and how that ended, readable by the next keeper.

Append-only, no fsync: the page cache survives ``kill -9``, and after a power cut all processes are gone anyway (the
boot id in the file tells). A line is in the file whole or not at all: after a write that did not fit, the file is cut
back, the lines stay in memory, and `flush` tries again. Only the keeper that holds the lock writes.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH104

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from paddleflow.runtimes.local import frames
from paddleflow.runtimes.local.attempt import VERSION, Attempt, parse, replay

COMPACT_AT = 20_000  #: lines (about 3 MB) before it is worth writing the file anew


class Journal:
    """An open journal."""

    def __init__(self, path: str, boot: str, *, compact_at: int = COMPACT_AT) -> None:
        self._compact_at = compact_at
        self._path = path
        self.boot = boot
        self._unwritten = bytearray()
        self._lines = 0
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._fd).st_size

    def load(self) -> dict[str, Attempt]:
        """What earlier keepers left; a line of this keeper follows theirs."""
        with open(self._path, "rb") as file:
            text = file.read()
        lines = parse(text)
        self._lines = len(lines)
        if text and not text.endswith(b"\n"):
            self._unwritten += b"\n"
        self.add(["keeper", VERSION, self.boot])
        self.flush()
        return replay(lines)

    def add(self, line: list[Any]) -> None:
        """Write this with the next flush."""
        self._unwritten += frames.line(line)
        self._lines += 1

    def write(self, line: list[Any]) -> None:
        """Write this now, with all that waited; OSError when it is not in the file, and then it is as if never added."""
        waited = len(self._unwritten)
        self.add(line)
        if not self.flush():
            del self._unwritten[waited:]
            self._lines -= 1
            raise OSError(28, "no space left for the journal")

    def flush(self) -> bool:
        """Whether everything added is in the file."""
        if not self._unwritten:
            return True
        try:
            done = os.write(self._fd, self._unwritten)
        except OSError:
            done = 0
        if done < len(self._unwritten):
            os.ftruncate(self._fd, self._size)
            return False
        self._size += done
        self._unwritten.clear()
        return True

    def compact(self, attempts: Iterable[Attempt], *, force: bool = False) -> None:
        """Write the file anew with what is still needed, when most of it is not."""
        if not force and self._lines < self._compact_at:
            return
        lines = [["keeper", VERSION, self.boot], *(line for attempt in attempts for line in attempt.lines())]
        if not force and self._lines < 4 * len(lines):
            return
        fresh = self._path + ".new"
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(b"".join(map(frames.line, lines)))
            os.rename(fresh, self._path)
        except OSError:
            return  # a full disk: the long journal is still right
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size
        self._lines = len(lines)
        self._unwritten.clear()

    def close(self) -> None:
        os.close(self._fd)
