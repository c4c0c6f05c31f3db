"""What the engine remembers between two turns. Disposable: `recovery` rebuilds it from the database and the runtime."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from paddleflow.base.ids import AttemptId
from paddleflow.base.values import dataclass
from paddleflow.engine.launch import (
    LaunchContext,
    MemberPlacement,
    PlacedJob,
    PreparedLaunch,
    attempt_of,
    port_counts,
    prepare,
)
from paddleflow.engine.ports import Ports
from paddleflow.jobs.facts import Key
from paddleflow.jobs.machine import JobState
from paddleflow.jobs.model import Member
from paddleflow.jobs.rows import JobRow, TaskRow, lifecycle_of, state_of
from paddleflow.runtimes.foreign_pods import ForeignPods
from paddleflow.scheduling.model import Assignment, Request
from paddleflow.scheduling.record import Recorded

if TYPE_CHECKING:
    from paddleflow.engine.changeset import JobUpdate
    from paddleflow.engine.prefetch import Prefetcher


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
    slot_class: str  #: where it may have a successor (`prefetch`); empty: it has none
    last_event_at: (
        float  #: moment of its newest event: others' clocks say when members start and end, and events go forward
    )

    def attempts(self, keys: tuple[Key, ...]) -> list[AttemptId]:
        return [attempt_of(self.job, key) for key in keys if not self.prepared[key].passive]

    @property
    def ports(self) -> list[int]:
        return [port for place in self.job.places for port in place.ports]


def activate(
    row: JobRow,
    request: Request,
    members: tuple[Member, ...],
    tasks: Iterable[TaskRow],
    attempt: int,
    places: tuple[MemberPlacement, ...],
    context: LaunchContext,
    prefetch: Prefetcher,
    after: tuple[AttemptId, ...] | None = None,
) -> Active:
    """A placed job, ready to be launched; with `after` it waits for a slot, and for these attempts."""
    state = state_of(row, tasks, lifecycle_of(row.framework, members, context.rules))
    job = PlacedJob(
        id=row.id,
        name=row.name,
        user=row.user_name,
        queue=row.queue,
        framework=row.framework,
        attempt=attempt,
        members=members,
        places=places,
        priority=row.priority,
        labels=_texts(row.labels),
        annotations=_texts(row.annotations),
        template=json.loads(row.template) if row.template else {},
    )
    slot_class = prefetch.slot_class_of(request, job.framework, places[0].node if places else "")
    prepared = prepare(job, context, slot_class, after)
    return Active(job, request, state, prepared, row.ttl, row.touched, slot_class, row.updated_at)


def _texts(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {} if text == "{}" else json.loads(text)  # of most jobs
    return found


@dataclass(slots=True)
class Board:
    """All jobs that have not ended, by where they are."""

    core: Recorded
    ports: Ports
    prefetch: Prefetcher
    foreign: ForeignPods | None = None  #: pods that the core places beside the jobs
    queue_version: int = -1
    waiting: dict[str, Waiting] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    reported: list[tuple[str, Sequence[str]]] = field(
        default_factory=list
    )  #: reasons that rows give, each with equal jobs
    restarting: dict[str, Waiting] = field(default_factory=dict)  #: ended to start again at the places that they hold
    gated: set[str] = field(default_factory=set)  #: waiting jobs that the scheduler does not know until `ungate`
    failures: list[JobUpdate] = field(
        default_factory=list
    )  #: jobs that could not be moved, to be written with the next turn
    _later: list[tuple[float, str]] = field(default_factory=list)  #: heap of restarts that must not come too early

    def enqueue(self, waiting: Waiting, not_before: float | None, now: float, gated: bool = False) -> None:
        """Let the scheduler know a job: now, when its time has come, or when it is no longer gated."""
        if gated:
            self.waiting[waiting.request.job] = waiting
            self.gated.add(waiting.request.job)
        else:
            self.enqueue_all([(waiting, not_before)], now)

    def enqueue_all(self, items: Iterable[tuple[Waiting, float | None]], now: float) -> None:
        """The same for many at once: equal ones that follow each other go into line together."""
        ready = []
        for waiting, not_before in items:
            request = waiting.request
            self.waiting[request.job] = waiting
            if not_before is not None and not_before > now:
                heapq.heappush(self._later, (not_before, request.job))
            else:
                ready.append(request)
        self.core.submit_many(ready)

    def ungate(self, job: str) -> None:
        """Let the scheduler know a gated job; one that has begun meanwhile is not gated any more."""
        if job in self.gated:
            self.gated.discard(job)
            self.core.submit(self.waiting[job].request)

    def forget_waiting(self, job: str) -> list[AttemptId]:
        """It does not wait any more; what the runtime might start of it by itself."""
        if self.waiting.pop(job, None) is not None:
            self.core.withdraw(job)
        if self.restarting.pop(job, None) is not None:
            self.core.release(job)
        self.gated.discard(job)
        return self.prefetch.forget(job)

    def take_restarting(self) -> dict[str, Waiting]:
        """Jobs that are to be placed where the scheduler has them; they count as waiting until that is written."""
        taken, self.restarting = self.restarting, {}
        self.waiting.update(taken)
        return taken

    def take_failures(self) -> list[JobUpdate]:
        """The ends of jobs that could not be moved, to be written now."""
        taken, self.failures = self.failures, []
        return taken

    def wake_due(self, now: float) -> None:
        """Hand the scheduler the restarts whose time has come."""
        while self._later and self._later[0][0] <= now:
            _, job = heapq.heappop(self._later)
            if job in self.waiting:
                self.core.submit(self.waiting[job].request)

    def next_due(self) -> float | None:
        return self._later[0][0] if self._later else None

    def assign_places(self, assignments: Sequence[Assignment], framework: str) -> tuple[MemberPlacement, ...]:
        """What the scheduler assigned, with the ports that the framework needs; `Temporary` when there are too few."""
        counts = port_counts(framework, [(each.role, each.index) for each in assignments])
        ports = self.ports.take(sum(counts)) if any(counts) else ()
        places, used = [], 0
        for item, count in zip(assignments, counts, strict=True):
            places.append(MemberPlacement(item.role, item.index, item.node, item.devices, ports[used : used + count]))
            used += count
        return tuple(places)

    def release(self, active: Active) -> None:
        """The job's resources are free again."""
        state = active.state
        ran = state.finished_at - state.started_at if state.finished_at and state.started_at else None
        self.prefetch.ended(active.job.id, active.slot_class, ran)
        self.active.pop(active.job.id, None)
        self.core.release(active.job.id)
        self.ports.release(active.ports)
