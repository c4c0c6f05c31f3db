"""A core carried through virtual time: what it decides is done, and jobs run for as long as somebody says.

Forecasts and what-ifs are made of it. Members that are told to go are gone, and evicted jobs wait again, after `lag` seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from heapq import heappop, heappush

from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Allocation, Preempt, Request, Resize, Start
from paddleflow.scheduling.record import Action, actions_of

_END, _GONE, _CHANGED = "end", "gone", "changed"
_Event = tuple[float, int, str, str, int]  # at, serial, what, job, which start
Lasts = Callable[[Request, float], float]  #: seconds that a job still runs after so many
_TICK = 1.0  #: seconds after which it looks again where it cannot tell
_AT_ONCE = 1000  #: cycles at one moment before it is left


@dataclass(slots=True)
class Outcome:
    """What became of one job."""

    request: Request
    started_at: float | None = None  #: first
    eligible_at: float = 0.0  #: since when it waited for the scheduler
    finished_at: float | None = None
    withdrawn_at: float | None = None  #: its user gave it up while it waited
    evictions: int = 0
    lost: float = 0.0  #: seconds of running
    intervals: list[tuple[float, float]] = field(default_factory=list)  #: from when to when it held its place
    since: float | None = None


@dataclass(slots=True)
class Playback:
    """A core and its virtual clock."""

    core: Core
    lasts: Lasts
    lag: Callable[[str, float], float] = lambda job, at: 0.0  #: seconds until a job that was told to go then has gone
    change_lag: Callable[[str, float], float] = lambda job, at: 0.0  #: until it has only the members that it keeps
    ended: Callable[[Outcome, float], None] = lambda outcome, now: None  #: told when a job ends by itself
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _events: list[_Event] = field(default_factory=list)
    _starts: dict[str, int] = field(default_factory=dict)  # which start of each job counts
    _serial: int = 0

    def begin(self, now: float) -> None:
        """Take over what runs in the core."""
        for job, job_class in self.core.pending.items():
            request = job_class.jobs[job]
            self.outcomes[job] = Outcome(request, eligible_at=request.submitted_at)
        for job, allocation in self.core.allocations.items():
            self.outcomes[job] = Outcome(
                allocation.request, allocation.since, allocation.request.submitted_at, since=allocation.since
            )
            self._run(job, now + self.lasts(allocation.request, max(0.0, now - allocation.since)))
            if self.core.leaving(job):
                self._depart(job, self.core.evictions[job].at)
            if job in self.core.shrinks:
                self._later(_CHANGED, job, (at := self.core.shrinks[job].at) + self.change_lag(job, at))

    def submit(self, request: Request, eligible_at: float | None = None) -> None:
        """A job waits from now on; it may have been known before."""
        at = request.submitted_at if eligible_at is None else eligible_at
        self.outcomes.setdefault(request.job, Outcome(request, eligible_at=at)).request = request
        self.core.submit(request)

    def adopt(self, allocation: Allocation, now: float) -> None:
        """A job holds its resources without a decision."""
        request = allocation.request
        outcome = self.outcomes.setdefault(request.job, Outcome(request, eligible_at=allocation.since))
        outcome.started_at = allocation.since if outcome.started_at is None else outcome.started_at
        outcome.since = now
        self.core.allocate(allocation)
        self._run(request.job, now + self.lasts(request, 0.0))

    def next_moment(self, now: float) -> float:
        """When something ends, or time alone lets something happen; later than now."""
        quiet = self.core.quiet_until
        soonest = self._events[0][0] if self._events else float("inf")
        return min(max(now, soonest), quiet if quiet > now else now + _TICK)

    def settle(self, now: float, slack: float = 0.0) -> None:
        """Everything that ends or has gone until now; `slack` makes up for sums of moments that are not quite exact."""
        while self._events and self._events[0][0] <= now + slack:
            _, _, what, job, start = heappop(self._events)
            if self._starts.get(job) != start:
                continue
            if what == _END:
                self.finish(job, now)
            elif what == _GONE:
                self._gone(job, now)
            else:
                self._changed(job, now)

    def decide(self, now: float, limit: int | None = None) -> tuple[Action, ...]:
        """One cycle, carried out."""
        actions = actions_of(self.core.decide(now, limit))
        for action in actions:
            match action:
                case Start(job):
                    outcome = self.outcomes[job]
                    outcome.started_at = now if outcome.started_at is None else outcome.started_at
                    outcome.since = now
                    self._run(job, now + self.lasts(outcome.request, 0.0))
                case Preempt(job):
                    self.outcomes[job].evictions += 1
                    self._depart(job, now)
                case Resize(job, _, removed):
                    if removed or self.outcomes[job].request.restarts:
                        self._later(_CHANGED, job, now + self.change_lag(job, now))
        return actions

    def run_cycles(self, now: float) -> list[Action]:
        """Everything that happens at this moment, until nothing more does; what was decided."""
        done: list[Action] = []
        for _ in range(_AT_ONCE):
            self.settle(now)
            actions = self.decide(now)
            if not actions:
                break
            done += actions
        return done

    def finish(self, job: str, now: float) -> None:
        """A running job has come to its end."""
        outcome = self.outcomes[job]
        self._release(job, now)
        outcome.finished_at = now
        self.ended(outcome, now)

    def close(self, until: float) -> None:
        """Count what still runs up to this moment."""
        for outcome in self.outcomes.values():
            if outcome.since is not None and outcome.since < until:
                outcome.intervals.append((outcome.since, until))

    def _later(self, what: str, job: str, at: float) -> None:
        self._serial += 1
        heappush(self._events, (at, self._serial, what, job, self._starts.get(job, 0)))

    def _run(self, job: str, end: float) -> None:
        self._starts[job] = self._serial + 1
        self._later(_END, job, end)

    def _depart(self, job: str, now: float) -> None:
        self._starts[job] = self._serial + 1  # its end by itself counts no more
        self._later(_GONE, job, now + self.lag(job, now))

    def _release(self, job: str, now: float) -> None:
        outcome = self.outcomes[job]
        if outcome.since is not None and now > outcome.since:
            outcome.intervals.append((outcome.since, now))
        outcome.since = None
        self._starts.pop(job, None)
        self.core.release(job)

    def _gone(self, job: str, now: float) -> None:
        outcome = self.outcomes[job]
        outcome.lost += now - outcome.since if outcome.since is not None else 0.0
        self._release(job, now)
        self.core.submit(outcome.request)

    def _changed(self, job: str, now: float) -> None:
        """Members have gone, or all have gone and begin anew."""
        allocation, shrink = self.core.allocations.get(job), self.core.shrinks.get(job)
        if allocation is not None and shrink is not None:
            gone = set(shrink.members)
            self.core.resized(job, [a for a in allocation.assignments if (a.role, a.index) not in gone])
        if self.outcomes[job].request.restarts:
            self.core.restarted(job, now)
