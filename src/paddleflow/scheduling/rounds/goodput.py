"""Our elastic policy: GPUs go where they add most progress a second, those first who have had least so far.

For every job the policy knows its rate of progress for each number of GPUs (throughput × statistical efficiency, at the
job's present stage), never how long it has still to go. Four thoughts:

1. Short jobs make the mean. Lengths are unknown but heavy-tailed, so who has had little service is likely to be short:
   a job's speed-up weighs `1 / (served + grace) ** lean`.
2. One GPU more goes to the job with the steepest weighted speed-up, over whole steps (1, 2, 3, 4 GPUs of one node, then
   whole nodes), so that rings do not straddle half nodes.
3. A restart costs. Every number but the one a job holds counts for less, by the share that the restart takes of `horizon`.
4. Weights only fall with service, so whoever has had none is among the first. A stream of new jobs as large as the
   cluster could still hold up old ones: there is no bound on waiting here, as there is in `Core`.

Guarantees: no node gives more than it has; no job more than `most`; the answer depends on the arguments only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from paddleflow.base.values import dataclass
from paddleflow.scheduling.rounds.model import RoundJob, Spread, free_after, gpus, take_emptiest

RESTART = 30.0  #: seconds that a start or move costs


@dataclass(frozen=True, slots=True)
class Goodput:
    """The policy. Its numbers were chosen on two of the eight workloads that are reported (2 and 6)."""

    grace: float = 20_000.0  #: GPU seconds that everybody has before weights fall
    lean: float = 0.7  #: how much weights fall with service: 0 not at all
    horizon: float = 200.0  #: seconds over which a restart must pay

    def allot(self, now: float, jobs: Sequence[RoundJob], nodes: Mapping[str, int]) -> dict[str, Spread]:
        wanted = self._numbers(jobs, nodes)
        spreads = {job.job: job.held for job in jobs if job.held and gpus(job.held) == wanted[job.job]}
        free = free_after(nodes, spreads)
        each = max(nodes.values(), default=0)
        for job in sorted(jobs, key=lambda job: -wanted[job.job]):
            if wanted[job.job] and job.job not in spreads:
                spread = _place(job, wanted[job.job], free, each)
                if spread:
                    spreads[job.job] = spread
        return spreads

    def _numbers(self, jobs: Sequence[RoundJob], nodes: Mapping[str, int]) -> dict[str, int]:
        """How many GPUs each job shall have."""
        each, room = max(nodes.values(), default=0), sum(nodes.values())
        wanted = dict.fromkeys([job.job for job in jobs], 0)
        worths = [self._worths(job, each, room) for job in jobs]
        todo = [row for at, worth in enumerate(worths) if (row := _steepest(worth, 0, room, at)) is not None]
        heapify(todo)
        while todo and room:
            _, at, count = heappop(todo)
            job = jobs[at].job
            if count - wanted[job] <= room:
                room -= count - wanted[job]
                wanted[job] = count
            row = _steepest(worths[at], wanted[job], room, at)
            if row is not None:
                heappush(todo, row)
        return wanted

    def _worths(self, job: RoundJob, each: int, room: int) -> list[tuple[int, float]]:
        """What each possible number of GPUs is worth, weight included."""
        most = min(job.most, room)
        counts = [count for count in range(1, each + 1) if count <= most] + list(range(2 * each, most + 1, each))
        held, base = gpus(job.held), job.rate(1, 1)
        weight = (job.served + self.grace) ** -self.lean / base
        moved = weight * self.horizon / (self.horizon + RESTART)
        return [(n, job.rate(-(-n // each), n) * (weight if n == held else moved)) for n in counts]


def _steepest(worth: list[tuple[int, float]], has: int, room: int, at: int) -> tuple[float, int, int] | None:
    """The next number of GPUs with most gain for each GPU; None when no more would help or fit."""
    base = next((value for count, value in worth if count == has), 0.0)
    best: tuple[float, int, int] | None = None
    for count, value in worth:
        if has < count <= has + room:
            slope = (value - base) / (count - has)
            if slope > 0 and (best is None or -slope < best[0]):
                best = (-slope, at, count)
    return best


def _place(job: RoundJob, count: int, free: dict[str, int], each: int) -> Spread:
    """On as few nodes as possible; fewer GPUs if they would only be found in pieces that make the job slower."""
    if count < each:
        fitting = [node for node, left in free.items() if left >= count]
        if fitting:
            node = min(fitting, key=free.__getitem__)
            free[node] -= count
            return ((node, count),)
    empty = [node for node, left in free.items() if left >= each][: count // each]
    whole = len(empty) * each
    if whole < count:
        left = min(count, sum(free.values()))
        pieces = take_emptiest(dict(free), left) if left else ()
        roomiest = max(free.values())
        options = [(job.rate(len(pieces), left), pieces)] if left else []
        if whole:
            options.append((job.rate(len(empty), whole), tuple((node, each) for node in empty)))
        if roomiest:
            options.append((job.rate(1, min(roomiest, count)), take_emptiest(dict(free), min(roomiest, count))))
        spread = max(options, default=(0.0, ()), key=lambda option: option[0])[1]
    else:
        spread = tuple((node, each) for node in empty)
    for node, taken in spread:
        free[node] -= taken
    return spread
