"""Parts of logs by lines and bytes, as the log routes promise them. Pure.

When the text is larger than the size limit, the line limit becomes ``floor(size limit x lines / bytes)``: whole lines
only, about as many as fit, and never more bytes than asked for. A log is fed in pieces, so that one of any size takes
no more memory than the part that is shown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


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
