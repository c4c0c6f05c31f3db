"""Whose turn it is: the queue with the least share, down the tree, and inside it the next class in its order.

Siblings are compared by `QueueLedger.rank`, then by the age of what they would start, then by name. A node of the tree stands
in its parent's heap with the rank it had when it was last changed; a start changes those on the path only, so a turn
costs the depth of the tree, not the number of queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import LAST, JobClass, Key
from paddleflow.scheduling.ledgers import PriorityBand, QueueLedger

Entry = tuple[tuple[int, float], Key, str]


class Cursor:
    """The classes of one user (of all users, if the order does not ask), and how far this cycle has come."""

    __slots__ = ("at", "rows", "user")

    def __init__(
        self, user: str, rows: list[tuple[Key, int, JobClass]] | list[tuple[tuple[float, Key], int, JobClass]]
    ) -> None:
        self.user, self.rows, self.at = user, rows, 0

    def key(self) -> Key:
        return self.rows[self.at][2].key if self.at < len(self.rows) else LAST


class Contender:
    """A queue in this cycle's tree."""

    __slots__ = ("below", "contenders", "cursors", "entry", "ledger", "parent", "turn")

    def __init__(self, ledger: QueueLedger | None, parent: Contender | None) -> None:
        self.ledger = ledger
        self.parent = parent
        self.below: list[Entry] = []  # heap; an entry counts if the contender of that name still has it
        self.contenders: dict[str, Contender] = {}
        self.cursors: list[Cursor] = []  # of jobs in this queue itself
        self.entry: Entry | None = None
        self.turn = ledger  #: the queue that goes when it is this one's turn: itself, or one below

    def top(self) -> Contender | None:
        """The child whose turn it is."""
        below = self.below
        while below:
            contender = self.contenders[below[0][2]]
            if contender.entry is below[0]:
                return contender
            heappop(below)
        return None


class FairShare:
    """The queues that have jobs of one priority."""

    def __init__(self, ledgers: list[QueueLedger], priority: int, capacity: Resources, now: float) -> None:
        self._priority = priority
        self._capacity = capacity
        self._now = now
        self._root = Contender(None, None)
        self._contenders: dict[str, Contender] = {}
        for ledger in ledgers:
            band = ledger.bands.get(priority)
            if band is not None:
                self._contender(ledger).cursors = _cursors(ledger, band)
        for ledger in ledgers:
            if ledger.name in self._contenders:
                self._climb(self._contenders[ledger.name])

    def _contender(self, ledger: QueueLedger) -> Contender:
        """The place of a queue, made with those of all above it."""
        parent = self._root
        for above in reversed(ledger.path):
            contender = self._contenders.get(above.name)
            if contender is None:
                contender = self._contenders[above.name] = parent.contenders[above.name] = Contender(above, parent)
            parent = contender
        return parent

    def _climb(self, contender: Contender) -> None:
        """Something changed in a queue: it and all above it stand elsewhere now."""
        at, parent = contender, contender.parent
        while parent is not None and at.ledger is not None:
            key, at.turn, at.entry = LAST, at.ledger, None
            below = at.top()
            if below is not None and below.entry is not None:
                key, at.turn = below.entry[1], below.turn
            for cursor in at.cursors:  # its own jobs are like one more child
                if (mine := cursor.key()) < key:
                    key, at.turn = mine, at.ledger
            if key is not LAST:
                at.entry = (at.ledger.rank(self._capacity), key, at.ledger.name)
                heappush(parent.below, at.entry)
            at, parent = parent, parent.parent

    def first(self) -> QueueLedger | None:
        """The queue whose turn it is."""
        contender = self._root.top()
        return None if contender is None else contender.turn

    def after(self, ledger: QueueLedger, started: bool) -> None:
        """The queue has had its turn; if it started nothing, that was its last in this cycle."""
        contender = self._contenders[ledger.name]
        if not started:
            contender.cursors = []
        self._climb(contender)

    def candidates(self, ledger: QueueLedger) -> Iterator[JobClass]:
        """Its classes in order, from where the last turn ended, without those that are beyond a ceiling by themselves.

        A class that starts a job leaves its place by itself.
        """
        (most_cpu, most_memory), band = ledger.slack(), ledger.bands[self._priority]
        if band.least_cpu > most_cpu or band.least_memory > most_memory:
            return
        cursors = self._contenders[ledger.name].cursors
        if len(cursors) > 1:
            ranks = {cursor.user: ledger.user_rank(cursor.user, self._capacity, self._now) for cursor in cursors}
            cursors = sorted(cursors, key=lambda cursor: (ranks[cursor.user], cursor.key(), cursor.user))
        for cursor in cursors:
            rows = cursor.rows
            for at in range(cursor.at, len(rows)):
                job_class = rows[at][2]
                cpu, memory, _ = job_class.total
                if cpu <= most_cpu and memory <= most_memory:
                    cursor.at = at
                    yield job_class
            cursor.at = len(rows)


def _cursors(ledger: QueueLedger, band: PriorityBand) -> list[Cursor]:
    if ledger.order == "fifo":
        return [Cursor("", band.by_age)]
    return [Cursor(user, rows) for user, rows in band.by_user.items()]
