"""Parts of logs by lines and bytes, as the log routes promise them. Pure.

When the text is larger than the size limit, the line limit becomes ``floor(size limit x lines / bytes)``: whole lines
only, about as many as fit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogPage:
    content: str
    has_next_page: bool
    truncated: bool  #: the size limit left something out


def limited(data: bytes, line_limit: int, size_limit: int, from_tail: bool) -> LogPage:
    """The first or last lines of a log within both limits."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    truncated = len(data) > size_limit
    most = min(line_limit, size_limit * len(lines) // len(data)) if truncated else line_limit
    shown = lines[len(lines) - min(most, len(lines)) :] if from_tail else lines[:most]
    return LogPage("".join(shown), len(shown) < len(lines), truncated)
