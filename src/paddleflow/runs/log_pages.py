"""Pages of a log as `GET /log/run` has them: of the last 5,000 lines, the newest page first, or of the first 500,000 bytes."""

from __future__ import annotations

from typing import Protocol

from paddleflow.jobs.log_pages import LogPage

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
