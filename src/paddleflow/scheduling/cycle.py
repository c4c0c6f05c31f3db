"""One cycle: who starts now. The steps have the numbers of docs/internals/scheduling.md.

  1. account for what was freed since the last cycle: `Rooms.wake`, and the past of users;
  2. take the priorities from the highest to the lowest, and in each:
  3. the elders: the oldest job of each queue that has waited longer than the patience, the oldest of all first. One that
     cannot start claims what it takes of each ceiling above it, and nodes are kept for it;
  4. the turns: the queue with the least share goes, again and again; on its turn it starts its first job that can start;
  5. where it is asked for: the first job of each queue that still waits may claim its place from others;
  6. what is idle goes to the jobs that may have more members: to those just started, and if asked for to all.

Within a cycle what is used only grows and what is free only shrinks, so whoever failed need not be asked again; only the
end of a reservation opens something.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from paddleflow.scheduling.accounts import Account, Claim
from paddleflow.scheduling.classes import Line
from paddleflow.scheduling.elastic import balance, grow, room
from paddleflow.scheduling.model import Decision, Eviction, Resize, Start
from paddleflow.scheduling.preemption import make_way
from paddleflow.scheduling.reservations import choose
from paddleflow.scheduling.shares import dominant
from paddleflow.scheduling.table import Table
from paddleflow.scheduling.turns import Turns


class Cycle:
    """Lives for one `decide`."""

    def __init__(self, table: Table, limit: int | None) -> None:
        self._table = table
        self._limit = limit
        self._preemption = table.rules.preemption
        self._elastic = table.rules.elastic
        self.decisions: list[Decision] = []

    def full(self) -> bool:
        """Whether as many were started as were asked for."""
        return self._limit is not None and len(self.decisions) >= self._limit

    def run(self) -> None:
        """Fill `decisions`. The past of users is counted up to now, and goes on from here with what they then hold."""
        self._table.rooms.wake()
        self._walk()
        if not self.full():
            waiting = self._make_way() if self._preemption or self._elastic else False
            self._grow(waiting)
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
        for claimant in sorted(self._claimants(priority), key=lambda line: line.key):
            self._try_elder(self._table.accounts[claimant.queue], claimant)
        heap = [(line.key, account.name, account) for account in accounts if (line := self._elder(account, priority))]
        heapify(heap)
        while heap and not self.full():
            _, _, account = heappop(heap)
            line = self._elder(account, priority)
            assert line is not None
            if self._try_elder(account, line) and (following := self._elder(account, priority)) is not None:
                heappush(heap, (following.key, account.name, account))

    def _try_elder(self, account: Account, line: Line) -> bool:
        """Start it, or claim quota and nodes for it."""
        job = line.key[3]
        within = account.over(line.total) is None
        if within and account.claimed(line.total, -line.key[0], job) is None:
            started = self._table.start(line)
            if started is not None:
                self.decisions.append(started)
                return True
        for above in account.path:
            if above.claim is None:
                above.claim = Claim(line)
        if within and job not in self._table.reservations:
            self._reserve(line)
        return False

    def _claimants(self, priority: int) -> list[Line]:
        """Jobs for which others make way or have made way: first in their line, so that nobody takes the place."""
        table = self._table
        gone = [*table.evictions.values(), *table.shrinks.values()]
        jobs = {eviction.by for eviction in gone} & table.reservations.keys()
        lines = [table.pending[job] for job in jobs if table.pending[job].key[3] == job]
        return [line for line in lines if -line.key[0] == priority and table.accounts[line.queue].open]

    def _elder(self, account: Account, priority: int) -> Line | None:
        """The oldest job of a queue, if it has waited long enough and could ever start."""
        table = self._table
        return next(
            (line for line in account.elders(priority, table.now - table.rules.patience) if table.possible(line)), None
        )

    def _reserve(self, line: Line) -> None:
        """Keep nodes for an elder; those that come later in order make way if there are too many."""
        table, kept = self._table, self._table.reservations
        pool = table.cluster.pool(line.shape.choice)
        claimants = {eviction.by for eviction in [*table.evictions.values(), *table.shrinks.values()]}
        later = sorted(
            (other.key, job) for job in kept.keys() - claimants if (other := table.pending[job]).key > line.key
        )
        while True:
            chosen = None
            if len(kept.keys() - claimants) < table.rules.reservations:
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

    # --- steps 5 and 6 ------------------------------------------------------------------------------------------

    def _make_way(self) -> bool:
        """Whether somebody who could start waits for room; others make way, in the order of the claimants."""
        table = self._table
        old = [
            job
            for job, e in table.evictions.items()
            if not table.leaving(job) and table.now >= e.at + table.rules.window
        ]
        for job in old:
            del table.evictions[job]
        claimants = []
        for account in table.accounts.values():
            if account.open and account.levels:
                ages = account.levels[max(account.levels)].ages
                line = next((row[2] for row in ages if table.possible(row[2])), None)
                if line is not None and account.claimed(line.total, -line.key[0], line.key[3]) is None:
                    claimants.append(line)
        claimants.sort(key=lambda line: line.key)
        waiting = any(table.accounts[line.queue].over(line.total) is None for line in claimants)
        for line in claimants:
            self.decisions.extend(make_way(table, line, shrink=self._elastic, evict=self._preemption))
        return waiting

    def _grow(self, waiting: bool) -> None:
        """More members for those just started, and for all who may change unless somebody waits for room."""
        table, decisions = self._table, self.decisions
        fresh = {d.job: at for at, d in enumerate(decisions) if isinstance(d, Start) and room(table.held[d.job])}
        if waiting or not (fresh or self._elastic):
            return
        jobs = set(fresh)
        if self._elastic:
            jobs |= {job for job, held in table.held.items() if room(held) and table.may_change(held, grow=True)}
        for job, added in grow(table, sorted(jobs)).items():
            if job in fresh:
                decisions[fresh[job]] = Start(job, table.held[job].assignments)
            else:
                decisions.append(Resize(job, added, ()))
        if self._elastic:
            for resize in balance(table):
                members = tuple((a.role, a.index) for a in resize.removed)
                table.shrinks[resize.job] = Eviction(resize.job, resize.by, table.now, members)
                decisions.append(resize)
