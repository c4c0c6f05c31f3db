"""One cycle: who starts now. The steps have the numbers of docs/internals/scheduling.md.

  1. ledger for what was freed since the last cycle: `SlotIndex.wake`, and the past of users;
  2. take the priorities from the highest to the lowest, and in each:
  3. the aged jobs: the oldest job of each queue that has waited longer than the patience, the oldest of all first. One that
     cannot start claims what it takes of each ceiling above it, and nodes are kept for it;
  4. the fair_share: the queue with the least share goes, again and again; on its turn it starts its first job that can start;
  5. where it is asked for: the first job of each queue that still waits may claim its place from others;
  6. what is idle goes to the jobs that may have more members: to those just started, and if asked for to all.

Within a cycle what is used only grows and what is free only shrinks, so whoever failed need not be asked again; only the
end of a reservation opens something.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from paddleflow.scheduling.classes import JobClass
from paddleflow.scheduling.cluster_state import ClusterState
from paddleflow.scheduling.elastic import balance, grow, headroom
from paddleflow.scheduling.fair_share import FairShare
from paddleflow.scheduling.ledgers import Claim, QueueLedger
from paddleflow.scheduling.model import Decision, Eviction, Resize, Start
from paddleflow.scheduling.preemption import preempt
from paddleflow.scheduling.reservations import choose
from paddleflow.scheduling.shares import dominant


class Cycle:
    """Lives for one `decide`."""

    def __init__(self, state: ClusterState, limit: int | None) -> None:
        self._state = state
        self._limit = limit
        self._preemption = state.rules.preemption
        self._elastic = state.rules.elastic
        self.decisions: list[Decision] = []

    def full(self) -> bool:
        """Whether as many were started as were asked for."""
        return self._limit is not None and len(self.decisions) >= self._limit

    def run(self) -> None:
        """Fill `decisions`. The past of users is counted up to now, and goes on from here with what they then hold."""
        self._state.slots.wake()
        self._walk()
        if not self.full():
            waiting = self._preempt() if self._preemption or self._elastic else False
            self._grow(waiting)
        for ledger in self._state.ledgers.values():
            if ledger.order == "fair":
                capacity = self._state.cluster.capacity
                rates = {user: dominant(used, capacity) for user, used in ledger.users.items()}
                ledger.history.settle(rates, self._state.now)

    def _walk(self) -> None:
        state = self._state
        bands: dict[int, list[QueueLedger]] = {}
        for ledger in state.ledgers.values():
            ledger.claim = None
            if ledger.open:
                for priority in ledger.bands:
                    bands.setdefault(priority, []).append(ledger)
        for priority in sorted(bands, reverse=True):
            if self.full():
                return
            self._serve_aged(priority, bands[priority])
            fair_share = FairShare(bands[priority], priority, state.cluster.capacity, state.now)
            while not self.full() and (mine := fair_share.first()) is not None:
                fair_share.after(mine, self._turn(mine, fair_share, priority))

    # --- step 3 -------------------------------------------------------------------------------------------------

    def _serve_aged(self, priority: int, ledgers: list[QueueLedger]) -> None:
        for claimant in sorted(self._claimants(priority), key=lambda job_class: job_class.key):
            self._try_aged(self._state.ledgers[claimant.queue], claimant)
        heap = [
            (job_class.key, ledger.name, ledger)
            for ledger in ledgers
            if (job_class := self._oldest_aged(ledger, priority))
        ]
        heapify(heap)
        while heap and not self.full():
            _, _, ledger = heappop(heap)
            job_class = self._oldest_aged(ledger, priority)
            assert job_class is not None
            if self._try_aged(ledger, job_class) and (following := self._oldest_aged(ledger, priority)) is not None:
                heappush(heap, (following.key, ledger.name, ledger))

    def _try_aged(self, ledger: QueueLedger, job_class: JobClass) -> bool:
        """Start it, or claim quota and nodes for it."""
        job = job_class.key[3]
        within = ledger.over(job_class.total) is None
        if within and ledger.claimed(job_class.total, -job_class.key[0], job) is None:
            started = self._state.start(job_class)
            if started is not None:
                self.decisions.append(started)
                return True
        for above in ledger.path:
            if above.claim is None:
                above.claim = Claim(job_class)
        constraint = job_class.gang.constraint
        by_room = constraint is None or constraint.by_room(self._state.cluster)  # else room kept may be of no use to it
        if within and by_room and job not in self._state.reservations:
            self._reserve(job_class)
        return False

    def _claimants(self, priority: int) -> list[JobClass]:
        """Jobs for which others make way or have made way: first in their class, so that nobody takes the place."""
        state = self._state
        gone = [*state.evictions.values(), *state.shrinks.values()]
        jobs = {eviction.by for eviction in gone} & state.reservations.keys()
        classes = [state.pending[job] for job in jobs if state.pending[job].key[3] == job]
        return [
            job_class for job_class in classes if -job_class.key[0] == priority and state.ledgers[job_class.queue].open
        ]

    def _oldest_aged(self, ledger: QueueLedger, priority: int) -> JobClass | None:
        """The oldest job of a queue, if it has waited long enough and could ever start."""
        state = self._state
        return next(
            (
                job_class
                for job_class in ledger.aged_classes(priority, state.now - state.rules.patience)
                if state.possible(job_class)
            ),
            None,
        )

    def _reserve(self, job_class: JobClass) -> None:
        """Keep nodes for an aged job; those that come later in order make way if there are too many."""
        state, kept = self._state, self._state.reservations
        pool = state.cluster.pool(job_class.gang.selector)
        claimants = {eviction.by for eviction in [*state.evictions.values(), *state.shrinks.values()]}
        later = sorted(
            (other.key, job) for job in kept.keys() - claimants if (other := state.pending[job]).key > job_class.key
        )
        while True:
            chosen = None
            if len(kept.keys() - claimants) < state.rules.reservations:
                chosen = choose(state.cluster, pool, job_class.key[3], job_class.gang.sizes)
            if chosen is not None:
                state.reserve(chosen, job_class)
                return
            if not later:
                return
            state.unreserve(later.pop()[1])
            state.slots.wake()

    # --- step 4 -------------------------------------------------------------------------------------------------

    def _turn(self, ledger: QueueLedger, fair_share: FairShare, priority: int) -> bool:
        """Start the first job of a queue that can start; False when there is none."""
        state = self._state
        for job_class in fair_share.candidates(ledger):
            if job_class.gang.waits and job_class.key[3] not in state.reservations:
                continue
            if (
                job_class.fault
                or ledger.over(job_class.total)
                or ledger.claimed(job_class.total, priority, job_class.key[3])
            ):
                continue
            started = state.start(job_class)
            if started is not None:
                self.decisions.append(started)
                return True
        return False

    # --- steps 5 and 6 ------------------------------------------------------------------------------------------

    def _preempt(self) -> bool:
        """Whether somebody who could start waits for room; others make way, in the order of the claimants."""
        state = self._state
        old = [
            job
            for job, e in state.evictions.items()
            if not state.leaving(job) and state.now >= e.at + state.rules.window
        ]
        for job in old:
            del state.evictions[job]
        claimants = []
        for ledger in state.ledgers.values():
            if ledger.open and ledger.bands:
                by_age = ledger.bands[max(ledger.bands)].by_age
                job_class = next((row[2] for row in by_age if state.possible(row[2])), None)
                if (
                    job_class is not None
                    and job_class.sample.preempts
                    and ledger.claimed(job_class.total, -job_class.key[0], job_class.key[3]) is None
                ):
                    claimants.append(job_class)
        claimants.sort(key=lambda job_class: job_class.key)
        waiting = any(state.ledgers[job_class.queue].over(job_class.total) is None for job_class in claimants)
        for job_class in claimants:
            self.decisions.extend(preempt(state, job_class, shrink=self._elastic, evict=self._preemption))
        return waiting

    def _grow(self, waiting: bool) -> None:
        """More members for those just started, and for all who may change unless somebody waits for room."""
        state, decisions = self._state, self.decisions
        fresh = {
            d.job: at for at, d in enumerate(decisions) if isinstance(d, Start) and headroom(state.allocations[d.job])
        }
        if waiting or not (fresh or self._elastic):
            return
        jobs = set(fresh)
        if self._elastic:
            jobs |= {
                allocation.request.job
                for allocation in state.elastic_allocations()
                if headroom(allocation) and state.may_change(allocation, grow=True)
            }
        for job, added in grow(state, sorted(jobs)).items():
            if job in fresh:
                decisions[fresh[job]] = Start(job, state.allocations[job].assignments)
            else:
                decisions.append(Resize(job, added, ()))
        if self._elastic:
            for resize in balance(state):
                members = tuple((a.role, a.index) for a in resize.removed)
                state.shrinks[resize.job] = Eviction(resize.job, resize.by, state.now, members)
                decisions.append(resize)
