"""Time comes from here and nowhere else.

Inside the platform a moment is a float of seconds since the epoch (UTC by definition) in a field ending in ``_at``;
``0.0`` never stands for "not yet", ``None`` does. Text for people is made at the edge, with the functions below.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

SET_BACK = 2.0  #: seconds; a wall clock that is set back by more is not followed


class Clock(Protocol):
    """What tells the time; injected, so that tests and the simulator bring their own."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; for durations only."""
        ...


class SystemClock:
    """The machine's clock, which goes on when somebody sets it back.

    Rests, leases and schedules are moments: a wall clock that is set back by an hour would freeze them for an hour. So what is set
    back by more than `SET_BACK` is not followed: time goes on at its own rate until the wall clock has caught up, or the process is
    started again. Small corrections, and a clock that is set forward, are followed.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._read_wall, self._read_steady = wall, steady
        self._offset = wall() - steady()  # one number: several threads read and write it

    def now(self) -> float:
        wall, steady = self._read_wall(), self._read_steady()
        expected = self._offset + steady
        if expected - wall > SET_BACK:
            return expected
        self._offset = wall - steady
        return wall

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


def local_text(at: float | None) -> str:
    """``YYYY-MM-DD HH:MM:SS`` in the server's time zone, the reference's format; empty for None."""
    return "" if at is None else _local_second(int(at))


@lru_cache(maxsize=4096)
def _local_second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


def rfc3339(at: float | None) -> str:
    """RFC 3339 in UTC with milliseconds; empty for None."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_local(text: str) -> float:
    """The moment of a ``YYYY-MM-DD HH:MM:SS`` in the server's time zone; ValueError otherwise."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").astimezone().timestamp()
