"""A stretch of the recent past that can be played again: what came from outside, when cycles ran, how long jobs ran.

Built from a scheduler's record by `scenario_of`. What the scheduler itself caused (starts, evictions, and what follows from
them) is not in it: a play causes that anew. What began without a decision is: a prefetched step takes the slot of the one
before it, and the scheduler is only told (`Allocated`). Times are counted from cycle to cycle, so that a play that changes
nothing ends every job before the very cycle before which it ended then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Preempt, Request, Resize, Snapshot, Start
from paddleflow.scheduling.record import (
    Allocated,
    Checkpoint,
    Decided,
    Entry,
    Released,
    Resized,
    Restarted,
    Submitted,
    apply,
)


@dataclass(slots=True)
class AttemptHistory:
    """How one job ran: its attempts, and what others made of it."""

    lengths: list[tuple[float, bool]] = field(default_factory=list)  #: of each attempt, and whether it ended by itself
    pauses: list[float] = field(
        default_factory=list
    )  #: after each that did, until it waited again; none after the last
    lags: list[float] = field(default_factory=list)  #: until it had made way, each time
    changes: list[float] = field(default_factory=list)  #: until its members had changed, each time


@dataclass(slots=True)
class RecordedCycle:
    """One cycle, and what came from outside since the one before."""

    decided: Decided  #: what happened then
    outside: list[Entry]


@dataclass(slots=True)
class Scenario:
    """A stretch of the past."""

    snapshot: Snapshot
    cycles: list[RecordedCycle] = field(default_factory=list)
    runs: dict[str, AttemptHistory] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)  #: jobs that were still on their way out at its end
    changing: set[str] = field(default_factory=set)  #: and those whose members were

    @property
    def ends(self) -> float:
        return self.cycles[-1].decided.at if self.cycles else self.snapshot.now


class _Reader:
    """Sorts what happened into what came from outside and what followed from decisions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.scenario = Scenario(snapshot)
        self._outside: list[Entry] = []
        #: since when it runs; None: since the next cycle
        self._started: dict[str, float | None] = {a.request.job: a.since for a in snapshot.allocations}
        self._evicted_at = {e.job: e.at for e in snapshot.evictions if e.job in self._started and not e.gone}
        self._changing = {shrink.job: shrink.at for shrink in snapshot.shrinks}
        self._idle: dict[str, float] = {}  # jobs that ended by themselves, and when
        self._left: list[tuple[str, float | None]] = []  # since the last cycle: released, and since when it ran
        self._left_jobs: set[str] = set()
        self._again: list[str] = []  # and submitted once more
        self._changed: set[str] = set()  # and changed in their members
        for request in (*snapshot.pending, *[allocation.request for allocation in snapshot.allocations]):
            self.scenario.requests[request.job] = request

    def read(self, entry: Entry) -> None:
        match entry:
            case Decided():
                self._cycle(entry)
            case Released(job):
                self._left.append((job, self._started.pop(job, None)))
                self._left_jobs.add(job)
            case Allocated(allocation):
                job = allocation.request.job
                self.scenario.requests[job] = allocation.request
                self._started[job] = None
                self._idle.pop(job, None)
                self._outside.append(entry)
            case Submitted(request) if self._comes_back(request.job):
                self._again.append(request.job)
            case Resized(job, _) | Restarted(job, _) if job in self._changing:
                self._changed.add(job)
            case Checkpoint():
                pass  # the same things once more
            case _:
                if isinstance(entry, Submitted):
                    self.scenario.requests[entry.request.job] = entry.request
                self._outside.append(entry)

    def done(self) -> Scenario:
        self.scenario.going, self.scenario.changing = set(self._evicted_at), set(self._changing)
        return self.scenario

    def _runs(self, job: str) -> AttemptHistory:
        return self.scenario.runs.setdefault(job, AttemptHistory())

    def _comes_back(self, job: str) -> bool:
        """Whether it waits once more by itself; if it does so already, somebody took it back and changed it."""
        return (job in self._idle or job in self._left_jobs) and job not in self._again

    def _cycle(self, decided: Decided) -> None:
        at = decided.at
        for job in self._changed & self._changing.keys():
            self._runs(job).changes.append(at - self._changing.pop(job))
        made_way = set()
        for job, began in self._left:
            since = at if began is None else began
            if job in self._changing:  # it went before its members had changed
                self._runs(job).changes.append(at - self._changing.pop(job))
            if job in self._evicted_at:
                made_way.add(job)
                self._runs(job).lengths.append((at - since, False))
                self._runs(job).lags.append(at - self._evicted_at.pop(job))
            else:
                self._runs(job).lengths.append((at - since, True))
                self._idle[job] = at
        for job in self._again:
            if job not in made_way:
                self._runs(job).pauses.append(at - self._idle.pop(job))
        self.scenario.cycles.append(RecordedCycle(decided, self._outside))
        self._outside, self._left, self._again, self._changed = [], [], [], set()
        self._left_jobs = set()
        for job, began in self._started.items():
            if began is None:
                self._started[job] = at
        for action in decided.actions:
            match action:
                case Start(job):
                    self._started[job] = at
                case Preempt(job):
                    self._evicted_at[job] = at
                case Resize(job, _, removed) if removed or self.scenario.requests[job].restarts:
                    self._changing[job] = at


def scenario_of(entries: Iterable[Entry], since: float = float("-inf")) -> Scenario | None:
    """The stretch from `since` on, or from the first checkpoint after it, with no break in it; None: nothing is recorded.

    Checkpoints are rare, so the record from the last one before `since` is executed up to there, and the stretch begins with
    what the scheduler then knew.
    """
    reader: _Reader | None = None
    core: Core | None = None  # follows the record up to `since`
    for entry in entries:
        if isinstance(entry, Checkpoint) and (entry.fresh or (reader is None and core is None)):
            if entry.snapshot.now >= since:
                reader, core = _Reader(entry.snapshot), None
            else:
                reader, core = None, Core.of(entry.snapshot)
        elif core is not None:
            if isinstance(entry, Decided):
                if entry.at >= since:
                    reader = _Reader(core.snapshot(entry.at))
                    reader.read(entry)
                    core = None
                else:
                    core.decide(entry.at, entry.limit)
            else:
                apply(core, entry)
        elif reader is not None:
            reader.read(entry)
    if reader is None and core is not None:
        reader = _Reader(core.snapshot(max(core.now, since)))
    return None if reader is None else reader.done()
