"""What the scheduler sees and says: values only.

`Snapshot` in, a list of `Decision` out. The engine tells `core.Core` what happens (submit, release, …) so that its
indexes stay true between cycles; rebuilding a `Core` from a snapshot gives the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddleflow.base.quantity import Resources


@dataclass(frozen=True, slots=True)
class Need:
    """Equal members of one role: how many, and what each one takes."""

    role: str
    count: int
    each: Resources


@dataclass(frozen=True, slots=True)
class Request:
    """A job as the scheduler knows it."""

    job: str
    queue: str
    needs: tuple[Need, ...]
    submitted_at: float
    order: int  #: breaks ties of equal age; grows with submission
    priority: int = 0  #: higher first
    user: str = ""
    node_labels: tuple[tuple[str, str], ...] = ()  #: only nodes that carry all of these


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one member goes, and which device numbers of each scalar resource it gets there."""

    role: str
    index: int
    node: str
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """A job that holds resources now."""

    request: Request
    assignments: tuple[Assignment, ...]
    since: float


@dataclass(frozen=True, slots=True)
class Node:
    """A place with capacity. `reserved` is what others than our jobs already take."""

    name: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True
    reserved: Resources = field(default_factory=Resources)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: `most` is the ceiling (None: no ceiling in any dimension), `least` the guarantee."""

    name: str
    most: Resources | None
    least: Resources = field(default_factory=Resources)
    open: bool = True
    node_labels: tuple[tuple[str, str], ...] = ()  #: the queue's location


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision may depend on."""

    now: float
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    pending: tuple[Request, ...]
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: a word for programs, a sentence with numbers and names for people."""

    code: str  #: a word of `reasons`, listed in docs/internals/scheduling.md
    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start all members of this job now, there."""

    job: str
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """This job stays pending, and why."""

    job: str
    reason: Reason


Decision = Start | Wait
