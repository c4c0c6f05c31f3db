"""Pages of a log as `GET /log/run` has them: of the last 5,000 lines, the newest page first, or of the first 500,000 bytes."""

from __future__ import annotations

from pathlib import Path

from paddleflow.jobs.log_pages import LogPage

MOST_LINES = 5000  #: from the end
MOST_BYTES = 500_000  #: from the beginning
_LINE = 2000  #: bytes that a line is reckoned to have at most, on average, when the end is looked for


def read_page(file: Path, number: int, size: int, *, from_end: bool) -> LogPage:
    """Page `number` (from 1) of `size` lines; one beyond the end is empty. Blocks on the disk."""
    try:
        with file.open("rb") as opened:
            if not from_end:
                data = opened.read(MOST_BYTES + 1)
                return _page(data[:MOST_BYTES].splitlines(keepends=True), number, size, len(data) > MOST_BYTES)
            length = opened.seek(0, 2)
            begin = max(length - MOST_LINES * _LINE, 0)
            opened.seek(begin)
            lines = opened.read().splitlines(keepends=True)[1 if begin else 0 :]
    except OSError:
        return LogPage("", False, False)
    cut = begin > 0 or len(lines) > MOST_LINES
    return _newest(lines[-MOST_LINES:], number, size, cut)


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
