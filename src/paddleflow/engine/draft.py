"""What a turn wants: collected while it thinks, written in one transaction, then done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paddleflow.base.ids import AttemptId
from paddleflow.engine.board import Active
from paddleflow.engine.launch import PreparedLaunch
from paddleflow.engine.writes import Change, Turn
from paddleflow.jobs.machine import TaskState, changed_tasks
from paddleflow.jobs.model import JobStatus
from paddleflow.runtimes.runtime import Observation


@dataclass(slots=True)
class Moved:
    """A job that took steps in this turn."""

    active: Active
    tasks: Sequence[TaskState]  #: before the first step
    history: list[tuple[float, JobStatus, str]] = field(default_factory=list)  #: every status it went through


@dataclass(slots=True)
class Draft:
    """What a turn wants: first written, then done."""

    writes: Turn = field(default_factory=Turn)
    launches: list[PreparedLaunch] = field(default_factory=list)
    halts: list[AttemptId] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)  #: jobs that are handed to the runtime ahead of their place
    recalls: list[AttemptId] = field(default_factory=list)  #: those among them that are asked back
    back: set[str] = field(default_factory=set)  #: jobs that were ahead and are not any more
    ended: list[AttemptId] = field(default_factory=list)  #: recorded by this turn's write; the runtime may forget them
    stale: list[AttemptId] = field(default_factory=list)  #: of nobody any more; the runtime must forget them first
    synthetic: list[Observation] = field(default_factory=list)  #: of members without a process of their own
    moved: dict[str, Moved] = field(default_factory=dict)  #: jobs whose machines took a step

    def close(self) -> None:
        """Collect the changes of all machines that moved."""
        for moved in self.moved.values():
            after = moved.active.state
            tasks = changed_tasks(moved.tasks, after.tasks)
            self.writes.changes.append(Change(after, tasks, moved.active.ttl, moved.history))
