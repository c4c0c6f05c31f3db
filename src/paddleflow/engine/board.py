"""What the engine remembers between two turns. Disposable: `recovery` rebuilds it from the database and the runtime."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paddleflow.base.ids import AttemptId
from paddleflow.engine.launch import PlacedJob, PreparedLaunch, attempt_of
from paddleflow.engine.ports import Ports
from paddleflow.engine.prefetch import Prefetch, lane_of
from paddleflow.jobs.facts import Key
from paddleflow.jobs.machine import JobState
from paddleflow.jobs.model import UNTIL_TOLD
from paddleflow.scheduling.model import Request
from paddleflow.scheduling.record import Recorded


class Waiting(NamedTuple):
    """A job that waits for its place."""

    request: Request
    framework: str
    touched: int  #: of the row that was read
    attempt: int  #: how often it was placed before


@dataclass(slots=True)
class Active:
    """A job that has its place."""

    job: PlacedJob
    request: Request
    state: JobState
    prepared: Mapping[Key, PreparedLaunch]
    ttl: float | None
    touched: int  #: of the row that was read

    def attempts(self, keys: tuple[Key, ...]) -> list[AttemptId]:
        return [attempt_of(self.job, key) for key in keys if not self.prepared[key].passive]

    @property
    def ports(self) -> list[int]:
        return [port for place in self.job.places for port in place.ports]

    @property
    def lane(self) -> str:
        return lane_of(self.request, self.job.framework)


@dataclass(slots=True)
class Board:
    """All jobs that have not ended, by where they are."""

    core: Recorded
    ports: Ports
    queue_version: int = -1
    waiting: dict[str, Waiting] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    told: list[tuple[str, Sequence[str]]] = field(default_factory=list)  #: reasons that rows give, each with equal jobs
    anew: dict[str, Waiting] = field(default_factory=dict)  #: ended to start again at the places that they hold
    held_back: set[str] = field(
        default_factory=set
    )  #: waiting jobs that the scheduler does not know until they are due
    prefetch: Prefetch = field(default_factory=Prefetch)
    _later: list[tuple[float, str]] = field(default_factory=list)  #: heap of restarts that must not come too early

    def enqueue(self, waiting: Waiting, not_before: float | None, now: float) -> None:
        """Let the scheduler know a job, now or when its time has come."""
        self.enqueue_all([(waiting, not_before)], now)

    def enqueue_all(self, items: Iterable[tuple[Waiting, float | None]], now: float) -> None:
        """The same for many at once: equal ones that follow each other go into line together."""
        ready = []
        for waiting, not_before in items:
            request = waiting.request
            self.waiting[request.job] = waiting
            if not_before == UNTIL_TOLD:
                self.held_back.add(request.job)
            elif not_before is not None and not_before > now:
                heapq.heappush(self._later, (not_before, request.job))
            else:
                ready.append(request)
        self.core.submit_many(ready)

    def due(self, job: str) -> None:
        """A job that was held back is held back no longer; one that has begun meanwhile need not be."""
        if job in self.held_back:
            self.held_back.discard(job)
            self.core.submit(self.waiting[job].request)

    def forget_waiting(self, job: str) -> list[AttemptId]:
        """It does not wait any more; what the runtime might start of it by itself."""
        if self.waiting.pop(job, None) is not None:
            self.core.withdraw(job)
        if self.anew.pop(job, None) is not None:
            self.core.release(job)
        self.held_back.discard(job)
        active = self.prefetch.forget(job)
        return [] if active is None else active.attempts(tuple(active.prepared))

    def take_anew(self) -> dict[str, Waiting]:
        """Jobs that are to be placed where the scheduler has them; they count as waiting until that is written."""
        taken, self.anew = self.anew, {}
        self.waiting.update(taken)
        return taken

    def wake_due(self, now: float) -> None:
        """Hand the scheduler the restarts whose time has come."""
        while self._later and self._later[0][0] <= now:
            _, job = heapq.heappop(self._later)
            if job in self.waiting:
                self.core.submit(self.waiting[job].request)

    def next_due(self) -> float | None:
        return self._later[0][0] if self._later else None

    def release(self, active: Active) -> None:
        """The job's resources are free again."""
        state = active.state
        ran = state.finished_at - state.started_at if state.finished_at and state.started_at else None
        self.prefetch.ended(active.job.id, active.lane, ran)
        self.active.pop(active.job.id, None)
        self.core.release(active.job.id)
        self.ports.release(active.ports)
