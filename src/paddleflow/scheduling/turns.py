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

    __slots__ = ("account", "below", "entry", "lanes", "parent", "spots", "turn")

    def __init__(self, account: Account | None, parent: Spot | None) -> None:
        self.account = account
        self.parent = parent
        self.below: list[Entry] = []  # heap; an entry counts if the spot of that name still has it
        self.spots: dict[str, Spot] = {}
        self.lanes: list[Lane] = []  # of jobs in this queue itself
        self.entry: Entry | None = None
        self.turn = account  #: the queue that goes when it is this one's turn: itself, or one below

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
        self._priority = priority
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
            key, at.turn, at.entry = LAST, at.account, None
            below = at.top()
            if below is not None and below.entry is not None:
                key, at.turn = below.entry[1], below.turn
            for lane in at.lanes:  # its own jobs are like one more child
                if (mine := lane.key()) < key:
                    key, at.turn = mine, at.account
            if key is not LAST:
                at.entry = (at.account.rank(self._capacity), key, at.account.name)
                heappush(parent.below, at.entry)
            at, parent = parent, parent.parent

    def first(self) -> Account | None:
        """The queue whose turn it is."""
        spot = self._root.top()
        return None if spot is None else spot.turn

    def after(self, account: Account, started: bool) -> None:
        """The queue has had its turn; if it started nothing, that was its last in this cycle."""
        spot = self._spots[account.name]
        if not started:
            spot.lanes = []
        self._climb(spot)

    def candidates(self, account: Account) -> Iterator[Line]:
        """Its lines in order, from where the last turn ended, without those that are beyond a ceiling by themselves.

        A line that starts a job leaves its place by itself.
        """
        (most_cpu, most_memory), level = account.slack(), account.levels[self._priority]
        if level.least_cpu > most_cpu or level.least_memory > most_memory:
            return
        lanes = self._spots[account.name].lanes
        if len(lanes) > 1:
            ranks = {lane.user: account.user_rank(lane.user, self._capacity, self._now) for lane in lanes}
            lanes = sorted(lanes, key=lambda lane: (ranks[lane.user], lane.key(), lane.user))
        for lane in lanes:
            rows = lane.rows
            for at in range(lane.at, len(rows)):
                line = rows[at][2]
                cpu, memory, _ = line.total
                if cpu <= most_cpu and memory <= most_memory:
                    lane.at = at
                    yield line
            lane.at = len(rows)


def _lanes(account: Account, level: Level) -> list[Lane]:
    if account.policy == "fifo":
        return [Lane("", level.ages)]
    return [Lane(user, rows) for user, rows in level.lanes.items()]
