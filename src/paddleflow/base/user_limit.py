"""How much of something each user may have at once: whoever starts many of them takes nobody else's places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from paddleflow.errors import TooMany


class UserLimit:
    """At most `each` for one user, and `all` for everybody together. Not for threads: one per event loop."""

    def __init__(self, what: str, each: int, all: int = 0, *, code: str = "TooManyRequests") -> None:
        """`what` is a plural; `all` 0: any number."""
        self._what, self._each, self._all, self._code = what, each, all, code
        self._open: Counter[str] = Counter()

    def __getitem__(self, user: str) -> int:
        return self._open[user]

    @contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """One more, for the length of the ``with``; `TooMany` names the limit that it would be over."""
        whose = f"of user[{user}]" if self._open[user] >= self._each else ""
        if not whose and self._all and self._open.total() >= self._all:
            whose = "of this server"
        if whose:
            most = self._all if whose == "of this server" else self._each
            raise TooMany(
                f"{most} {self._what} {whose} are in work already",
                code=self._code,
                hint="wait until one of them has ended",
            )
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]
