"""What can go wrong and is worth a sentence: one error with a hint, and the lines that say how far we are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ClusterError(Exception):
    """The tool cannot do what was asked; `hint` says what would help."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def say(line: str) -> None:
    """A line about the progress; what is data goes to stdout instead."""
    print(line, file=sys.stderr, flush=True)


def eventually(look: Callable[[], T], what: str, seconds: float, hint: str = "") -> T:
    """What `look` returns once it is true; a `ClusterError` that names `what` when the time is over."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise ClusterError(f"not within {seconds:g} s: {what}", hint)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.2)
