"""Records which files programs open, in which order, for `fs profile`.

Recording starts with the first request for it and stops when there was none for a while, so a mount that is not profiled pays
one comparison per open. The record is bounded: the oldest entries are dropped.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

MOST_NOTED = 100_000  #: opens between two questions
FORGOTTEN_AFTER = 60.0  #: seconds without a question, after which nothing is noted


class Opened(NamedTuple):
    """A file that was opened."""

    at: float  #: seconds of the epoch
    name: str
    cached: bool  #: the whole content was on this machine before


class Trace:
    """What was opened since the last question."""

    def __init__(self) -> None:
        self._noted: deque[Opened] = deque(maxlen=MOST_NOTED)
        self._wanted_until = 0.0

    @property
    def wanted(self) -> bool:
        return self._wanted_until > 0 and time.monotonic() < self._wanted_until

    def note(self, name: str, cached: bool) -> None:
        self._noted.append(Opened(time.time(), name, cached))

    def take(self) -> list[Opened]:
        """What was recorded since the last call."""
        self._wanted_until = time.monotonic() + FORGOTTEN_AFTER
        noted, self._noted = self._noted, deque(maxlen=MOST_NOTED)
        return list(noted)
