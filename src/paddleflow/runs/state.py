"""What the machine keeps of a run: indexes, so that the end of a step costs what comes after it and no more.

The state is changed in place by `machine.advance`, which is deterministic all the same: equal histories give equal states
and commands. What has ended is dropped; what a later step may need of it (outputs, parameters) stays with its frame.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.runs.facts import Fingerprints, Measurement
from paddleflow.runs.model import ComponentStatus, RunStatus
from paddleflow.runs.names import with_seq
from paddleflow.spec.pipeline.model import Component, Dag, Pipeline, Step

ROOT = 0  #: number of the frame that holds the entry points
POST = -1  #: number of the frame that holds the post-process
MOUNTS = "/home/paddleflow/storage/mnt"
_NOTHING: Mapping[str, Any] = {}
_NO_PRINTS = Fingerprints()
_NOBODY: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class DagPlan:
    """The children of one dag (or the entry points), numbered in the document's order. Made once; shared by all elements of a loop."""

    path: str  #: dotted name of the dag, with a dot behind it; empty for the entry points
    names: list[str]
    components: list[Component]
    index: dict[str, int]
    successors: list[tuple[int, ...]]
    waits: list[int]  #: how many each one waits for
    _inner: dict[int, DagPlan] = field(default_factory=dict)

    def inner(self, child: int) -> DagPlan:
        """The plan of a child that is a dag."""
        found = self._inner.get(child)
        if found is None:
            dag = self.components[child]
            assert isinstance(dag, Dag)
            found = self._inner[child] = plan_of(dag.children, f"{self.path}{dag.name}.")
        return found


def plan_of(children: Mapping[str, Component], path: str = "") -> DagPlan:
    names = list(children)
    index = {name: number for number, name in enumerate(names)}
    after: dict[int, list[int]] = {}
    waits = []
    for number, child in enumerate(children.values()):
        deps = dict.fromkeys(child.deps)
        waits.append(len(deps))
        for dep in deps:
            after.setdefault(index[dep], []).append(number)
    successors = [tuple(after[number]) if number in after else _NOBODY for number in range(len(names))]
    return DagPlan(path, names, list(children.values()), index, successors, waits)


class Phase(StrEnum):
    """What a component that has begun waits for."""

    EXPANDING = "expanding"  #: its loop's elements, or a person at a breakpoint
    READING = "reading"  #: files that its condition names
    LOOKUP = "lookup"  #: an answer of the cache
    QUEUED = "queued"  #: its turn
    PREPARING = "preparing"  #: folders of its outputs
    RUNNING = "running"  #: its job, or the components inside it
    PREFETCHED = "prefetched"  #: its time, or the end of the step that it may follow at once (`prefetch`)
    RECORDING = "recording"  #: its outputs are being noted
    BACKOFF = "backoff"  #: its next try is not due yet
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Frame:
    """One running dag, or the entry points, or the post-process."""

    number: int
    plan: DagPlan
    path: str  #: dotted run-time name with a dot behind it; empty for the entry points
    waits: list[int]
    statuses: list[ComponentStatus]
    left: int
    inputs: Mapping[str, str] = field(default_factory=dict)  #: of the dag itself
    values: Mapping[str, Any] = field(default_factory=dict)  #: its own parameters
    item: Any = ""  #: its element of the loop
    groups: dict[int, LoopGroup] = field(default_factory=dict)  #: children that have begun and not ended
    results: set[ComponentStatus] = field(default_factory=set)  #: how children have ended
    outputs: dict[tuple[int, int], Mapping[str, str]] = field(default_factory=dict)
    parameters: dict[int, Mapping[str, Any]] = field(default_factory=dict)  #: of children, rendered
    counts: dict[int, int] = field(default_factory=dict)  #: elements of loops


def frame_of(number: int, plan: DagPlan, path: str = "") -> Frame:
    return Frame(number, plan, path, list(plan.waits), [ComponentStatus.INIT] * len(plan.names), len(plan.names))


@dataclass(slots=True, eq=False)
class LoopGroup:
    """A child that has begun: all its elements."""

    number: int  #: of its first element
    left: int = 0
    items: Sequence[Any] | None = None
    paused: bool = False
    begun: bool = False  #: its elements are there
    contents: Mapping[str, str] | None = None  #: of files that were read
    results: set[ComponentStatus] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Instance:
    """One element of a component (or the whole of it, without a loop), from its beginning to its end."""

    number: int
    frame: Frame
    child: int
    seq: int = 0
    item: Any = ""
    status: ComponentStatus = ComponentStatus.PENDING
    phase: Phase = Phase.EXPANDING
    message: str = ""
    job: str = ""
    tries: int = 0
    not_before: float | None = None
    started_at: float | None = None
    try_started_at: float | None = None
    finished_at: float | None = None
    slot: bool = False  #: counts towards the parallelism
    timed_out: bool = False
    prints: Fingerprints = _NO_PRINTS
    misses: Sequence[str] = ()
    reused_run: str = ""
    reused_job: str = ""
    predecessor: int = 0  #: number of the step that a prefetched one may follow at once
    outputs: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    @property
    def component(self) -> Component:
        return self.frame.plan.components[self.child]

    @property
    def step(self) -> Step:
        component = self.component
        assert isinstance(component, Step)
        return component

    @property
    def name(self) -> str:
        return self.frame.plan.names[self.child]

    @property
    def full_name(self) -> str:
        """Dotted, with the numbers of loop elements."""
        return self.frame.path + with_seq(self.name, self.seq)

    @property
    def post(self) -> bool:
        return self.frame.number == POST


@dataclass(slots=True, eq=False)
class RunState:
    """A run that has not ended."""

    id: str
    user: str
    pipeline: Pipeline
    fs_id: str
    root: Frame
    post: Frame | None = None
    status: RunStatus = RunStatus.PENDING
    message: str = ""
    breakpoints: frozenset[str] = frozenset()
    stopping: bool = False  #: somebody asked for it
    force: bool = False  #: without the post-process
    halting: str = ""  #: why nothing new begins; empty: it continues
    failure: str = ""  #: the first one, for a person
    activated_at: float | None = None
    finished_at: float | None = None
    frames: dict[int, Frame] = field(default_factory=dict)
    instances: dict[int, Instance] = field(default_factory=dict)
    queue: deque[Instance] = field(default_factory=deque)
    running: int = 0  #: steps that hold a slot
    prefetch: bool = True  #: whether jobs may be made before their time (`prefetch`)
    short_steps: int = 0  #: how many of its last steps in a row were short: the more, the more are prefetched
    prefetched: dict[int, Instance] = field(default_factory=dict)  #: steps whose jobs are held back
    predecessors: dict[int, Instance] = field(default_factory=dict)  #: running steps without a prefetched successor
    withdrawn: list[int] = field(
        default_factory=list
    )  #: numbers of prefetched steps that were withdrawn: their rows go
    next_number: int = 1
    timers: list[tuple[float, int]] = field(default_factory=list)
    changed: dict[int, Instance] = field(default_factory=dict)  #: rows to write; whoever writes them clears it
    loops: list[tuple[int, str, Sequence[Any]]] = field(default_factory=list)  #: loops to write: frame, name, elements
    source: str = ""  #: where the document came from
    measured: dict[int, Mapping[str, Measurement]] = field(
        default_factory=dict
    )  #: outputs of steps that are being recorded
    changed_itself: bool = False  #: status or message of the run itself to be written

    def take_number(self) -> int:
        number = self.next_number
        self.next_number += 1
        return number

    def at(self, moment: float, number: int) -> None:
        """Set a timer for a component."""
        heapq.heappush(self.timers, (moment, number))

    def next_due(self) -> float | None:
        return self.timers[0][0] if self.timers else None

    @property
    def mount(self) -> str:
        """Conditions steps see the main storage."""
        main = self.pipeline.main_fs
        if main is not None and main.mount_path:
            return "/" + main.mount_path.strip("/")
        return f"{MOUNTS}/{self.fs_id}"
