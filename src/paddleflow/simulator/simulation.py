"""Drives the scheduling core through virtual time: arrivals and ends in a heap, the core (or a discipline) decides after each.

`Simulation.run` is the whole loop. The core is the server's own, and so is its ledger; how long a job runs is the
executor's to say. After every step the touched nodes, queues and jobs are held against a second count, and at the end
(and every `_FULL` steps) everything is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from heapq import heappop, heappush
from typing import Protocol

from paddleflow.base.values import dataclass
from paddleflow.scheduling.baselines.model import Discipline, Waiting
from paddleflow.scheduling.classes import total_of
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Allocation, Node, Queue, Request, Start
from paddleflow.simulator.checks import Broken, check, check_gang, check_node

_FULL = 20_000


class Executor(Protocol):
    """Says how long what was started runs."""

    def start(self, allocation: Allocation, now: float) -> float:
        """When the job will end if nobody stops it."""
        ...

    def stop(self, job: str, now: float) -> None:
        """The job was evicted; it will be started again."""
        ...

    def remaining(self, job: str) -> float:
        """What is left of it; for oracles."""
        ...


class FixedDurations:
    """Every job runs for the seconds that are known of it; an eviction loses nothing."""

    def __init__(self, durations: dict[str, float]) -> None:
        self._left = dict(durations)
        self._since: dict[str, float] = {}

    def start(self, allocation: Allocation, now: float) -> float:
        self._since[allocation.request.job] = now
        return now + self._left[allocation.request.job]

    def stop(self, job: str, now: float) -> None:
        self._left[job] -= now - self._since.pop(job)

    def remaining(self, job: str) -> float:
        return self._left[job]


class Watcher(Protocol):
    """Is told what happens, when it happens; must change nothing."""

    def waits(self, simulation: Simulation, request: Request) -> None:
        """A job has arrived and did not start at once."""
        ...

    def started(self, simulation: Simulation, request: Request) -> None: ...

    def ended(self, simulation: Simulation, request: Request) -> None: ...


@dataclass(slots=True)
class SimulatedJob:
    """What became of one job."""

    request: Request
    size: int
    started_at: float | None = None
    finished_at: float | None = None
    evictions: int = 0


@dataclass
class Simulation:
    """A core with its virtual clock, what is to come, and what the simulation believes about every job."""

    nodes: Sequence[Node]
    queues: Sequence[Queue]
    executor: Executor
    resource: str  #: the resource that sizes are counted in
    discipline: Discipline | None = None  #: who is tried next; None: the core decides by itself
    watcher: Watcher | None = None
    now: float = 0.0
    free: int = 0  #: whole units of `resource`
    core: Core = field(default_factory=Core)
    records: dict[str, SimulatedJob] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    running: dict[str, int] = field(default_factory=dict)  #: and which start it was
    finished: set[str] = field(default_factory=set)
    steps: int = 0
    _events: list[tuple[float, int, str, int]] = field(default_factory=list)
    _serial: int = 0

    def __post_init__(self) -> None:
        self.core.set_nodes(self.nodes)
        self.core.set_queues(self.queues)
        self.free = sum(node.capacity.amount(self.resource) // 1000 for node in self.nodes)

    # --- what lines may ask for ---------------------------------------------------------------------------------

    def start(self, job: str) -> bool:
        """Try one job on the core; it is pending there only while it is tried."""
        self.core.submit(self.records[job].request)
        if self._decided():
            return True
        self.core.withdraw(job)
        return False

    def evict(self, job: str) -> None:
        record = self.records[job]
        self._stopped(job)
        self.executor.stop(job, self.now)
        record.evictions += 1
        self.pending.add(job)
        self._arrive(record)

    # --- the loop -----------------------------------------------------------------------------------------------

    def run(self, arrivals: Iterable[Request]) -> dict[str, SimulatedJob]:
        """Everything until the last job has ended, or waits for ever."""
        coming = iter(sorted(arrivals, key=lambda request: (request.submitted_at, request.seq)))
        request = next(coming, None)
        while request is not None or self._events:
            soonest = self._events[0][0] if self._events else math.inf
            self.now = soonest if request is None else min(soonest, request.submitted_at)
            while self._events and self._events[0][0] <= self.now:
                _, _, job, start = heappop(self._events)
                if self.running.get(job) == start:
                    self._end(job)
            fresh: list[Request] = []
            while request is not None and request.submitted_at <= self.now:
                self._submit(request)
                fresh.append(request)
                request = next(coming, None)
            self._serve()
            if self.watcher is not None:
                for one in fresh:
                    if one.job in self.pending:
                        self.watcher.waits(self, one)
            self.steps += 1
            if self.steps % _FULL == 0:
                self.check()
        self.check()
        return self.records

    def check(self) -> None:
        check(self.core, self.pending, self.running, self.finished, self.now)

    def _submit(self, request: Request) -> None:
        record = SimulatedJob(request, total_of(request).amount(self.resource) // 1000)
        self.records[request.job] = record
        self.pending.add(request.job)
        self._arrive(record)

    def _arrive(self, record: SimulatedJob) -> None:
        request = record.request
        if self.discipline is None:
            self.core.submit(request)
        else:
            left = self.executor.remaining(request.job)
            self.discipline.arrive(Waiting(request.job, request.queue, record.size, left))

    def _serve(self) -> None:
        if self.discipline is None:
            self._decided()
        else:
            self.discipline.serve(self.now, self)

    def _decided(self) -> bool:
        """Ask the core, and start what it starts; whether it was any."""
        found = False
        for decision in self.core.decide(self.now):
            if isinstance(decision, Start):
                self._started(decision)
                found = True
        return found

    def _started(self, decision: Start) -> None:
        job = decision.job
        record, allocation = self.records[job], self.core.allocations[job]
        if job not in self.pending or job in self.running:
            raise Broken(f"at {self.now:.0f} s {job} was started but does not wait")
        self.pending.discard(job)
        self._serial += 1
        self.running[job] = self._serial
        self.free -= record.size
        record.started_at = self.now if record.started_at is None else record.started_at
        heappush(self._events, (self.executor.start(allocation, self.now), self._serial, job, self._serial))
        if self.watcher is not None:
            self.watcher.started(self, record.request)
        check_gang(allocation, self.now)
        for name in {assignment.node for assignment in allocation.assignments}:
            check_node(self.core.cluster.states[name], self.now)

    def _stopped(self, job: str) -> None:
        if not self.core.release(job):
            raise Broken(f"at {self.now:.0f} s {job} runs but holds nothing")
        del self.running[job]
        self.free += self.records[job].size
        if self.discipline is not None:
            self.discipline.leave(job)

    def _end(self, job: str) -> None:
        self._stopped(job)
        self.finished.add(job)
        self.records[job].finished_at = self.now
        if self.watcher is not None:
            self.watcher.ended(self, self.records[job].request)
