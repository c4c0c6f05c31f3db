"""Whose turn it is: the queue with the least share, down the tree, and inside it the next line by its policy.

Siblings are compared by `Account.rank`, then by the age of what they would start, then by name. A node of the tree stands
in its parent's heap with the rank it had when it was last changed; a start changes those on the path only, so a turn
costs the depth of the tree, not the number of queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.accounts import Account, Level
from paddleflow.scheduling.classes import LAST, Key, Line

Entry = tuple[tuple[int, float], Key, str]


class Lane:
    """The lines of one user (of all users, if the policy does not ask), and how far this cycle has come."""

    __slots__ = ("at", "rows", "user")

    def __init__(
        self, user: str, rows: list[tuple[Key, int, Line]] | list[tuple[tuple[float, Key], int, Line]]
    ) -> None:
        self.user, self.rows, self.at = user, rows, 0

    def key(self) -> Key:
        return self.rows[self.at][2].key if self.at < len(self.rows) else LAST


class Spot:
    """A queue in this cycle's tree."""

    __slots__ = ("account", "below", "entry", "lanes", "parent", "spots")

    def __init__(self, account: Account | None, parent: Spot | None) -> None:
        self.account = account
        self.parent = parent
        self.below: list[Entry] = []  # heap; an entry counts if the spot of that name still has it
        self.spots: dict[str, Spot] = {}
        self.lanes: list[Lane] = []  # of jobs in this queue itself
        self.entry: Entry | None = None

    def top(self) -> Spot | None:
        """The child whose turn it is."""
        below = self.below
        while below:
            spot = self.spots[below[0][2]]
            if spot.entry is below[0]:
                return spot
            heappop(below)
        return None


class Turns:
    """The queues that have jobs of one priority."""

    def __init__(self, accounts: list[Account], priority: int, capacity: Resources, now: float) -> None:
        self._capacity = capacity
        self._now = now
        self._root = Spot(None, None)
        self._spots: dict[str, Spot] = {}
        for account in accounts:
            level = account.levels.get(priority)
            if level is not None:
                self._spot(account).lanes = _lanes(account, level)
        for account in accounts:
            if account.name in self._spots:
                self._climb(self._spots[account.name])

    def _spot(self, account: Account) -> Spot:
        """The place of a queue, made with those of all above it."""
        parent = self._root
        for above in reversed(account.path):
            spot = self._spots.get(above.name)
            if spot is None:
                spot = self._spots[above.name] = parent.spots[above.name] = Spot(above, parent)
            parent = spot
        return parent

    def _climb(self, spot: Spot) -> None:
        """Something changed in a queue: it and all above it stand elsewhere now."""
        at, parent = spot, spot.parent
        while parent is not None and at.account is not None:
            below, key = at.top(), LAST
            if below is not None and below.entry is not None:
                key = below.entry[1]
            for lane in at.lanes:
                key = min(key, lane.key())
            at.entry = None
            if key is not LAST:
                at.entry = (at.account.rank(self._capacity), key, at.account.name)
                heappush(parent.below, at.entry)
            at, parent = parent, parent.parent

    def first(self) -> Account | None:
        """The queue whose turn it is."""
        spot = self._root.top()
        while spot is not None:
            below = spot.top()
            mine = min([lane.key() for lane in spot.lanes], default=LAST)
            if below is None or below.entry is None or mine < below.entry[1]:  # its own jobs are like one more child
                return spot.account
            spot = below
        return None

    def after(self, account: Account, started: bool) -> None:
        """The queue has had its turn; if it started nothing, that was its last in this cycle."""
        spot = self._spots[account.name]
        if not started:
            spot.lanes = []
        self._climb(spot)

    def candidates(self, account: Account) -> Iterator[Line]:
        """Its lines in order, from where the last turn ended. A line that starts a job leaves its place by itself."""
        lanes = self._spots[account.name].lanes
        if len(lanes) > 1:
            ranks = {lane.user: account.user_rank(lane.user, self._capacity, self._now) for lane in lanes}
            lanes = sorted(lanes, key=lambda lane: (ranks[lane.user], lane.key(), lane.user))
        for lane in lanes:
            rows = lane.rows
            while lane.at < len(rows):
                line = rows[lane.at][2]
                yield line
                lane.at += 1


def _lanes(account: Account, level: Level) -> list[Lane]:
    if account.policy == "fifo":
        return [Lane("", level.ages)]
    return [Lane(user, rows) for user, rows in level.lanes.items()]
