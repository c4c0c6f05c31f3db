"""One cycle: who starts now. The steps have the numbers of docs/internals/scheduling.md.

  1. account for what was freed since the last cycle: `Rooms.wake`, and the past of users;
  2. take the priorities from the highest to the lowest, and in each:
  3. the elders: the oldest job of each queue that has waited longer than the patience, the oldest of all first. One that
     cannot start claims what it takes of each ceiling above it, and nodes are kept for it;
  4. the turns: the queue with the least share goes, again and again; on its turn it starts its first job that can start.

Within a cycle what is used only grows and what is free only shrinks, so whoever failed need not be asked again; only the
end of a reservation opens something.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from paddleflow.scheduling import policy
from paddleflow.scheduling.accounts import Account, Claim
from paddleflow.scheduling.classes import Line
from paddleflow.scheduling.model import Decision
from paddleflow.scheduling.reservations import choose
from paddleflow.scheduling.shares import dominant
from paddleflow.scheduling.table import Table
from paddleflow.scheduling.turns import Turns


class Cycle:
    """Lives for one `decide`."""

    def __init__(self, table: Table, limit: int | None) -> None:
        self._table = table
        self._limit = limit
        self.decisions: list[Decision] = []

    def full(self) -> bool:
        """Whether as many were started as were asked for."""
        return self._limit is not None and len(self.decisions) >= self._limit

    def run(self) -> None:
        """Fill `decisions`. The past of users is counted up to now, and goes on from here with what they then hold."""
        self._table.rooms.wake()
        self._walk()
        for account in self._table.accounts.values():
            if account.policy == "fair":
                capacity = self._table.cluster.capacity
                rates = {user: dominant(used, capacity) for user, used in account.users.items()}
                account.history.settle(rates, self._table.now)

    def _walk(self) -> None:
        table = self._table
        levels: dict[int, list[Account]] = {}
        for account in table.accounts.values():
            account.claim = None
            if account.open:
                for priority in account.levels:
                    levels.setdefault(priority, []).append(account)
        for priority in sorted(levels, reverse=True):
            if self.full():
                return
            self._elders(priority, levels[priority])
            turns = Turns(levels[priority], priority, table.cluster.capacity, table.now)
            while not self.full() and (mine := turns.first()) is not None:
                turns.after(mine, self._turn(mine, turns, priority))

    # --- step 3 -------------------------------------------------------------------------------------------------

    def _elders(self, priority: int, accounts: list[Account]) -> None:
        heap = [(line.key, account.name, account) for account in accounts if (line := self._elder(account, priority))]
        heapify(heap)
        while heap and not self.full():
            _, _, account = heappop(heap)
            line = self._elder(account, priority)
            assert line is not None
            job = line.key[3]
            within = account.over(line.total) is None
            if within and account.claimed(line.total, priority, job) is None:
                started = self._table.start(line)
                if started is not None:
                    self.decisions.append(started)
                    if (following := self._elder(account, priority)) is not None:
                        heappush(heap, (following.key, account.name, account))
                    continue
            for above in account.path:
                if above.claim is None:
                    above.claim = Claim(line)
            if within and job not in self._table.reservations:
                self._reserve(line)

    def _elder(self, account: Account, priority: int) -> Line | None:
        """The oldest job of a queue, if it has waited long enough and could ever start."""
        table = self._table
        return next(
            (line for line in account.elders(priority, table.now - policy.PATIENCE) if table.possible(line)), None
        )

    def _reserve(self, line: Line) -> None:
        """Keep nodes for an elder; those that come later in order make way if there are too many."""
        table, kept = self._table, self._table.reservations
        pool = table.cluster.pool(line.shape.labels)
        later = sorted((other.key, job) for job in kept if (other := table.pending[job]).key > line.key)
        while True:
            chosen = None
            if len(kept) < policy.MOST_RESERVATIONS:
                chosen = choose(table.cluster, pool, line.key[3], line.shape.parts)
            if chosen is not None:
                table.reserve(chosen, line)
                return
            if not later:
                return
            table.unreserve(later.pop()[1])
            table.rooms.wake()

    # --- step 4 -------------------------------------------------------------------------------------------------

    def _turn(self, account: Account, turns: Turns, priority: int) -> bool:
        """Start the first job of a queue that can start; False when there is none."""
        table = self._table
        for line in turns.candidates(account):
            if line.shape.waits and line.key[3] not in table.reservations:
                continue
            if line.fault or account.over(line.total) or account.claimed(line.total, priority, line.key[3]):
                continue
            started = table.start(line)
            if started is not None:
                self.decisions.append(started)
                return True
        return False
