"""Not too often: a few times as quickly as one likes, and then no more than so many times a second. Pure."""

from __future__ import annotations


class Pace:
    """Says how long to wait before something is done once more."""

    def __init__(self, burst: int, every: float) -> None:
        """`burst` times are free, further ones are `every` seconds apart; who pauses earns free ones again."""
        self._credit = burst * every
        self._every = every
        self._next = float("-inf")

    def pause(self, now: float) -> float:
        """Seconds to wait from `now` until the next time, which is counted; 0 while some are free."""
        self._next = max(self._next, now - self._credit) + self._every
        return max(0.0, self._next - now)
