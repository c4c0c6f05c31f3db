"""Parts of logs by lines and bytes, as the log routes promise them. Pure.

When the text is larger than the size limit, the line limit becomes ``floor(size limit x lines / bytes)``: whole lines
only, about as many as fit, and never more bytes than asked for. A log is fed in pieces, so that one of any size takes
no more memory than the part that is shown.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from paddleflow.base.values import dataclass


@dataclass(frozen=True, slots=True)
class LogPage:
    content: str
    has_next_page: bool
    truncated: bool  #: the size limit left something out


class Window:
    """The first or last lines of a log that is fed from its beginning to its end. Lines end at a newline only."""

    def __init__(self, line_limit: int, size_limit: int, from_tail: bool) -> None:
        self._line_limit = line_limit
        self._size_limit = size_limit
        self._from_tail = from_tail
        self._kept: deque[bytes] = deque()
        self._kept_size = 0
        self._full = False  #: of the first lines, no more are kept
        self._partial: list[bytes] = []
        self._lines = 0
        self._size = 0

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(b"".join((*self._partial, line, b"\n")))
            self._partial.clear()
        if rest:
            self._partial.append(rest)

    def _add(self, line: bytes) -> None:
        self._lines += 1
        if self._full:
            return
        if not self._from_tail and self._over(len(self._kept) + 1, self._kept_size + len(line)):
            self._full = True
            return
        self._kept.append(line)
        self._kept_size += len(line)
        while self._over(len(self._kept), self._kept_size):
            self._kept_size -= len(self._kept.popleft())

    def _over(self, lines: int, size: int) -> bool:
        return lines > self._line_limit or size > self._size_limit

    def page(self) -> LogPage:
        """What is shown, once everything has been fed."""
        if self._partial:
            self._add(b"".join(self._partial))
            self._partial.clear()
        truncated = self._size > self._size_limit
        most = min(self._line_limit, self._size_limit * self._lines // self._size) if truncated else self._line_limit
        kept = list(self._kept)
        shown = kept[max(len(kept) - most, 0) :] if self._from_tail else kept[:most]
        return LogPage(b"".join(shown).decode("utf-8", "replace"), len(shown) < self._lines, truncated)


def limited(data: bytes, line_limit: int, size_limit: int, from_tail: bool) -> LogPage:
    """The first or last lines of a whole log within both limits."""
    window = Window(line_limit, size_limit, from_tail)
    window.feed(data)
    return window.page()


MOST_LINES = 5000  #: from the end
MOST_BYTES = 500_000  #: from the beginning
_LINE = 2000  #: bytes that a line is reckoned to have at most, on average, when the end is looked for


class Chunk(Protocol):
    """A part of a log, as `LogStore.read` gives it."""

    @property
    def data(self) -> bytes: ...

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...


def log_range(from_end: bool) -> tuple[int, int]:
    """Offset and limit of the part that pages are made of."""
    return (-MOST_LINES * _LINE, MOST_LINES * _LINE) if from_end else (0, MOST_BYTES)


def log_page(chunk: Chunk, number: int, size: int, *, from_end: bool) -> LogPage:
    """Page `number` (from 1) of `size` lines; one beyond the end is empty."""
    lines = chunk.data.splitlines(keepends=True)
    if not from_end:
        return _page(lines, number, size, chunk.size > MOST_BYTES)
    lines = lines[1 if chunk.offset else 0 :]  # the first is not whole
    return _newest(lines[-MOST_LINES:], number, size, chunk.offset > 0 or len(lines) > MOST_LINES)


def _page(lines: list[bytes], number: int, size: int, cut: bool) -> LogPage:
    begin = (number - 1) * size
    shown = lines[begin : begin + size]
    last = begin + size >= len(lines)
    return LogPage(_text(shown), not last, cut and last and bool(shown))


def _newest(lines: list[bytes], number: int, size: int, cut: bool) -> LogPage:
    end = len(lines) - (number - 1) * size
    if end <= 0:
        return LogPage("", False, False)
    begin = max(end - size, 0)
    return LogPage(_text(lines[begin:end]), begin > 0, cut and begin == 0)


def _text(lines: list[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace")
