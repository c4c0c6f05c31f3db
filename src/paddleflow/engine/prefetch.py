"""Short jobs of steps that follow each other at one place, without a turn of the engine between them.

A *lane* is what equal small jobs run in: one member, no devices, no ports. While only steps of one run wait, the next ones are
handed to the runtime *ahead*: each begins the moment another of its lane has ended well, in that one's place, and
the engine hears of both together. As many are ahead as fit into a tenth of a second of what the lane's last jobs took.

Nothing is decided differently by it: who is ahead stays in the scheduler's line, and when anybody else comes to wait, all are
recalled. Nothing is lost or doubled by it: a job that is ahead is a row that waits. If it has begun by the time the engine
is started anew, the runtime says so, and it is placed then (`recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddleflow.base.ids import AttemptId
from paddleflow.jobs.model import Member
from paddleflow.scheduling.model import Request
from paddleflow.store.database import Row

if TYPE_CHECKING:
    from paddleflow.engine.board import Active

HORIZON = 0.1  #: seconds of work that are handed out ahead
MOST = 128  #: jobs ahead for each that runs
MOST_LANES = 1000
LEARNING = 0.2  #: how much the last duration counts in a lane's mean
FRAMEWORK = "standalone"


def lane_of(request: Request, framework: str) -> str:
    """The lane that a job runs in; empty: it needs a place of its own."""
    if framework != FRAMEWORK or len(request.member_sets) != 1:
        return ""
    need = request.member_sets[0]
    if need.count != 1 or need.min_count is not None or need.each.scalars:
        return ""
    return f"{request.queue}/{request.user}/{request.priority}/{need.each.cpu}/{need.each.memory}"


#: The jobs at work that one comes after, as of now; empty: there is nothing that it could follow.
Awaited = Callable[[], list[str]]


@dataclass(slots=True)
class Lane:
    running: set[str] = field(default_factory=set)
    ahead: set[str] = field(default_factory=set)
    seconds: float | None = None  #: that its jobs take, lately

    def room(self) -> int:
        """How many more may be ahead; as long as nothing is known, one for each that runs."""
        each = 1 if self.seconds is None else min(int(HORIZON / max(self.seconds, 1e-6)), MOST)
        return len(self.running) * each - len(self.ahead)


@dataclass(slots=True)
class Prefetch:
    """Who runs in which lane, and who is ahead."""

    ahead: dict[str, Active] = field(default_factory=dict)  #: jobs that the runtime may start by itself
    rows: dict[str, tuple[Row, tuple[Member, ...]]] = field(default_factory=dict)  #: of steps' jobs that wait
    awaits: dict[str, Awaited] = field(default_factory=dict)  #: jobs that are held back → jobs whose end they wait for
    lanes: dict[str, Lane] = field(default_factory=dict)
    recalled: bool = False  #: all of them were asked back

    def begun(self, job: str, lane: str) -> None:
        """It has a place."""
        self.rows.pop(job, None)
        self.awaits.pop(job, None)
        self.ahead.pop(job, None)
        if lane:
            mine = self.lanes.setdefault(lane, Lane())
            mine.ahead.discard(job)
            mine.running.add(job)

    def ended(self, job: str, lane: str, seconds: float | None) -> None:
        """Its place is free, or somebody else's."""
        mine = self.lanes.get(lane)
        if mine is None:
            return
        mine.running.discard(job)
        if seconds is not None:
            mine.seconds = seconds if mine.seconds is None else mine.seconds + LEARNING * (seconds - mine.seconds)
        if len(self.lanes) > MOST_LANES and not mine.running and not mine.ahead:
            del self.lanes[lane]  # else it stays, for what it knows of durations

    def back(self, job: str) -> Active | None:
        """It is not ahead any more; as it would have run, if it was."""
        active = self.ahead.pop(job, None)
        if active is not None and (mine := self.lanes.get(active.lane)) is not None:
            mine.ahead.discard(job)
        return active

    def forget(self, job: str) -> Active | None:
        """It does not wait any more."""
        self.rows.pop(job, None)
        self.awaits.pop(job, None)
        return self.back(job)

    def choose(self, fresh: Iterable[tuple[str, Request, str]], pending: Mapping[str, object]) -> list[str]:
        """Who of these is handed out ahead next: jobs with request and framework, in their order."""
        chosen: list[str] = []
        for job, request, framework in fresh:
            lane = self.lanes.get(lane_of(request, framework)) if job not in self.ahead else None
            if lane is not None and lane.running and lane.room() > 0 and self._may_follow(job, lane, pending):
                lane.ahead.add(job)
                chosen.append(job)
        return chosen

    def _may_follow(self, job: str, lane: Lane, pending: Mapping[str, object]) -> bool:
        """Whether it waits for a place only, or for jobs of its lane that end before it can begin."""
        if job in pending:
            return True
        after = self.awaits[job]() if job in self.awaits else []
        return bool(after) and all(other in lane.running or other in lane.ahead for other in after)

    def recall(self) -> list[AttemptId]:
        """All that are ahead are asked back, once."""
        if self.recalled or not self.ahead:
            return []
        self.recalled = True
        return [attempt for active in self.ahead.values() for attempt in active.attempts(tuple(active.prepared))]
