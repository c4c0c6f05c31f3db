"""What would be, if: the recent past and the state of now played again with a change, beside the same without one.

The past is played cycle by cycle at the moments at which the scheduler really looked; from then on time goes from event to
event until nothing waits any more, or for `horizon` seconds. A job runs for as long as it ran; one whose end is not known
gets a length from outside, the same in both plays. Without a change every decision of the past comes out as it did: `first`
says where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace
from heapq import heappop, heappush
from itertools import zip_longest

from paddleflow.base.values import dataclass
from paddleflow.scheduling.classes import allocated_total
from paddleflow.scheduling.cluster_state import by_node
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Allocation, Node, Queue, Request, Snapshot, Start
from paddleflow.scheduling.playback import Outcome, Playback
from paddleflow.scheduling.record import Action, Allocated, Entry, Nodes, Queues, Submitted, Withdrawn, apply
from paddleflow.scheduling.replay import describe
from paddleflow.simulator.scenario import AttemptHistory, Scenario

_SLACK = 1e-6  #: seconds; sums of moments are not quite exact
_LAG = 1.0  #: seconds that going takes where nobody knows
_LONGER = 60.0  #: seconds that an attempt which was ended for another would have run on, at least
_MOST_MOMENTS = 100_000
Length = Callable[[Request, float], float]  #: seconds that a job runs in all, given that it ran for at least so many


@dataclass(frozen=True)
class Change:
    """What is different. Nothing, as it stands."""

    queues: Callable[[tuple[Queue, ...]], tuple[Queue, ...]] = lambda queues: queues
    nodes: Callable[[tuple[Node, ...]], tuple[Node, ...]] = lambda nodes: nodes
    rules: dict[str, object] = field(default_factory=dict)
    arrivals: tuple[tuple[Request, float], ...] = ()  #: jobs of a new team, and how long each runs


@dataclass(frozen=True, slots=True)
class Divergence:
    """A cycle that came out differently than it was recorded."""

    at: float
    cycle: int  #: counted from 1
    recorded: tuple[Action, ...]
    played: tuple[Action, ...]

    def __str__(self) -> str:
        both = zip_longest(self.recorded, self.played)
        then, now = next((then, now) for then, now in both if then != now)
        return f"cycle {self.cycle} decided {describe(then)}, the simulation {describe(now)}"


@dataclass(slots=True)
class Played:
    """How it came out."""

    begins: float
    now: float  #: where the past ends
    ends: float
    snapshot: Snapshot  #: as it was played
    outcomes: dict[str, Outcome]
    cycles: int
    first: Divergence | None  #: the first cycle of the past that came out differently


class _Play:
    """One play of a scenario."""

    def __init__(self, scenario: Scenario, change: Change, length: Length) -> None:
        self._scenario = scenario
        self._change = change
        self._unchanged = change == Change()
        self._length = length
        self._totals = {request.job: seconds for request, seconds in change.arrivals}
        self._ran = _ran_at_least(scenario)
        self._begun: dict[str, int] = {}  # the number of the attempt that runs, or ran last
        self._done: dict[str, int] = {}  # attempts that ended by themselves
        self._lags: dict[str, int] = {}
        self._changes: dict[str, int] = {}
        self._again: list[tuple[float, str]] = []  # heap: when jobs wait once more
        self._coming = sorted(change.arrivals, key=lambda pair: pair[0].submitted_at, reverse=True)
        self.snapshot = _changed(scenario.snapshot, change)
        self.playback = Playback(Core.of(self.snapshot), self._lasts, self._lag, self._change_lag, self._ended)
        self.playback.begin(self.snapshot.now)
        self.cycles = 0
        self.first: Divergence | None = None

    # --- what the playback asks -----------------------------------------------------------------------------------

    def _runs(self, job: str) -> AttemptHistory:
        return self._scenario.runs.get(job) or AttemptHistory()

    def _lasts(self, request: Request, elapsed: float) -> float:
        job = request.job
        number = self._begun[job] = self._begun.get(job, -1) + 1
        known = self._runs(job).lengths
        least = 0.0
        if number < len(known):
            least, by_itself = known[number]
            if by_itself:
                return max(0.0, least - elapsed)
        # Nobody knows how long this attempt would have run: as long as one that ended by itself, and longer than it did.
        if job not in self._totals:
            ends = [length for length, by_itself in known if by_itself]
            self._totals[job] = ends[-1] if ends else self._length(request, self._ran.get(job, 0.0))
        return max(0.0, self._totals[job] - elapsed, least + _LONGER - elapsed)

    def _lag(self, job: str, at: float) -> float:
        return self._nth(self._runs(job).lags, self._lags, job, at, job in self._scenario.going)

    def _change_lag(self, job: str, at: float) -> float:
        return self._nth(self._runs(job).changes, self._changes, job, at, job in self._scenario.changing)

    def _nth(self, values: list[float], used: dict[str, int], job: str, at: float, unfinished: bool) -> float:
        """The next of the values that are known; what was not finished goes on to the end of the past."""
        number = used[job] = used.get(job, -1) + 1
        if number < len(values):
            return values[number]
        return max(_LAG, self._scenario.ends - at + _LAG) if unfinished and number == len(values) else _LAG

    def _ended(self, outcome: Outcome, now: float) -> None:
        job = outcome.request.job
        number = self._done[job] = self._done.get(job, 0) + 1
        pauses = self._runs(job).pauses
        if number <= len(pauses):
            outcome.finished_at = None
            heappush(self._again, (now + pauses[number - 1], job))

    # --- the plays ----------------------------------------------------------------------------------------------

    def past(self) -> None:
        before = self.snapshot.now
        for number, cycle in enumerate(self._scenario.cycles):
            at = cycle.decided.at
            self._arrive(at)
            for entry in cycle.outside:
                self._outside(entry, at, before)
            self.playback.settle(at, _SLACK)  # a prefetched job may have ended before the cycle that saw it begin
            before = at
            actions = self.playback.decide(at, cycle.decided.limit)
            self.cycles += 1
            if self.first is None and actions != cycle.decided.actions:
                self.first = Divergence(at, number + 1, cycle.decided.actions, actions)

    def future(self, horizon: float) -> float:
        now = max(self.snapshot.now, self._scenario.ends)
        end = now + horizon
        for _ in range(_MOST_MOMENTS):
            self._arrive(now)
            self.playback.run_cycles(now)
            waiting = self.playback.core.pending or self._coming or self._again
            if not waiting and not self.playback.core.allocations:
                break
            soonest = [self.playback.next_moment(now)]
            soonest += [self._coming[-1][0].submitted_at] if self._coming else []
            soonest += [self._again[0][0]] if self._again else []
            now = max(now, min(soonest))
            if now >= end:
                return end
        return now

    def _arrive(self, now: float) -> None:
        self.playback.settle(now, _SLACK)
        while self._again and self._again[0][0] <= now + _SLACK:
            _, job = heappop(self._again)
            self.playback.core.submit(self.playback.outcomes[job].request)
        while self._coming and self._coming[-1][0].submitted_at <= now:
            self.playback.submit(self._coming.pop()[0])

    def _outside(self, entry: Entry, at: float, before: float) -> None:
        playback = self.playback
        match entry:
            case Submitted(request):
                # A step that was held back until another had ended has waited for the scheduler from then on only.
                playback.submit(request, max(request.submitted_at, before))
            case Allocated(allocation):
                self._allocated(allocation, at)
            case Withdrawn(job):
                if playback.core.withdraw(job):
                    playback.outcomes[job].withdrawn_at = at
                elif job in playback.core.allocations:
                    playback.finish(job, at)  # its user gave it up; here it had started already
            case Queues(queues):
                playback.core.set_queues(self._change.queues(queues))
            case Nodes(nodes):
                playback.core.set_nodes(self._change.nodes(nodes))
            case _:
                apply(playback.core, entry)

    def _allocated(self, allocation: Allocation, at: float) -> None:
        """A prefetched job took the slot of the one before it, if it can here; else it waits like any other."""
        playback, request = self.playback, allocation.request
        playback.settle(at, _SLACK)
        if self._unchanged or self._fits(allocation):
            playback.adopt(allocation, at)
        else:
            playback.submit(request, allocation.since)

    def _fits(self, allocation: Allocation) -> bool:
        core, request = self.playback.core, allocation.request
        if core.ledger(request.queue).over(allocated_total(allocation)) is not None:
            return False
        for name, members in by_node(allocation).items():
            node = core.cluster.states.get(name)
            if node is None or not all(node.shares(each) >= len(members) for each, _ in members):
                return False
        return True


def _ran_at_least(scenario: Scenario) -> dict[str, float]:
    """How long jobs that had not ended ran, at the end of the scenario."""
    since = {allocation.request.job: allocation.since for allocation in scenario.snapshot.allocations}
    for cycle in scenario.cycles:
        for entry in cycle.outside:
            if isinstance(entry, Allocated):
                since[entry.allocation.request.job] = cycle.decided.at
        for action in cycle.decided.actions:
            if isinstance(action, Start):
                since[action.job] = cycle.decided.at
    return {job: scenario.ends - at for job, at in since.items()}


def _changed(snapshot: Snapshot, change: Change) -> Snapshot:
    """The beginning as it would have been; jobs on nodes that are not there wait."""
    nodes = change.nodes(snapshot.nodes)
    names = {node.name for node in nodes}
    lost = {node.name for node in snapshot.nodes} - names
    homeless = [
        allocation for allocation in snapshot.allocations if any(a.node in lost for a in allocation.assignments)
    ]
    gone = {allocation.request.job for allocation in homeless}
    return replace(
        snapshot,
        nodes=nodes,
        queues=change.queues(snapshot.queues),
        pending=(*snapshot.pending, *[allocation.request for allocation in homeless]),
        allocations=tuple(allocation for allocation in snapshot.allocations if allocation.request.job not in gone),
        reservations=tuple(r for r in snapshot.reservations if all(row[0] in names for row in r.rows)),
        rules=replace(snapshot.rules, **change.rules),  # type: ignore[arg-type]  # names are checked by whoever asks
    )


def play(scenario: Scenario, change: Change, length: Length, horizon: float) -> Played:
    """The past with this change, and what follows from it."""
    this = _Play(scenario, change, length)
    this.past()
    ends = this.future(horizon)
    this.playback.close(ends)
    now = max(this.snapshot.now, scenario.ends)
    return Played(scenario.snapshot.now, now, ends, this.snapshot, this.playback.outcomes, this.cycles, this.first)


def queues_with(
    changed: Iterable[Queue], removed: Iterable[str] = ()
) -> Callable[[tuple[Queue, ...]], tuple[Queue, ...]]:
    """These queues instead of those of the same name, or beside them; without those that are removed."""
    wanted, gone = {queue.name: queue for queue in changed}, set(removed)

    def merge(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        known = {queue.name for queue in queues}
        return (
            *[wanted.get(queue.name, queue) for queue in queues if queue.name not in gone],
            *[queue for name, queue in wanted.items() if name not in known],
        )

    return merge
