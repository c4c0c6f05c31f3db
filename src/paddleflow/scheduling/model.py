"""What the scheduler sees and says: values only.

`Snapshot` in, a list of `Decision` out. The engine tells `core.Core` what happens (submit, release, …) so that its
indexes stay true between cycles; rebuilding a `Core` from a snapshot gives the same decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.rules import DEFAULTS, Rules

if TYPE_CHECKING:
    from paddleflow.scheduling.nodes import Cluster, Pool
    from paddleflow.scheduling.placement import Shortfall, SizeGroup


class NodeFilter(Protocol):
    """Which nodes come into question, where labels and taints cannot say it. Equal filters are equal values: they share a pool."""

    def admits(self, node: Node) -> bool: ...


class Constraint(Protocol):
    """What decides between admitted nodes beside room on them, such as who runs there. Jobs with equal ones are alike."""

    def by_room(self, cluster: Cluster) -> bool:
        """Whether room alone decides at the moment."""

    def place(self, cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
        """The contract of `placement.place`; a shortfall says `len(sizes)`, for the count of one size says nothing here."""

    def started(self, cluster: Cluster, job: str, assignments: tuple[Assignment, ...]) -> None:
        """A job has these places too from now on."""


@dataclass(frozen=True, slots=True)
class MemberSet:
    """Equal members of one role: how many, and what each one takes."""

    role: str
    count: int  #: so many members at the most
    each: Resources
    min_count: int | None = None  #: the job starts with so many, and more may come and go; None: all or none

    @property
    def minimum(self) -> int:
        return self.count if self.min_count is None else self.min_count


class Request(NamedTuple):
    """A job as the scheduler knows it. A named tuple, as a server that starts makes a hundred thousand of them at once."""

    job: str
    queue: str
    member_sets: tuple[MemberSet, ...]
    submitted_at: float
    seq: int  #: breaks ties of equal age; grows with submission
    priority: int = 0  #: higher first
    user: str = ""
    node_labels: tuple[tuple[str, str], ...] = ()  #: only nodes that carry all of these
    tolerates: tuple[str, ...] = ()  #: taints of nodes on which it may run all the same
    together: str = ""  #: labels, separated by commas: if it can be, all members go to nodes with the same value of the first, else of the next
    data: tuple[str, ...] = ()  #: nodes that hold its data, those with most of it first: tried before all others
    expected: float | None = None  #: seconds it will probably run; for queues of order `shortest`
    restarts: bool = False  #: a change of its members starts it anew, and what it did is lost
    filter: NodeFilter | None = None  #: only nodes that it admits
    constraint: Constraint | None = None
    preempts: bool = True  #: whether others may have to make way for it

    @property
    def elastic(self) -> bool:
        """Whether it may run with fewer members than it wants."""
        return any(member_set.min_count is not None for member_set in self.member_sets)


class Assignment(NamedTuple):
    """Where one member goes, and which device numbers of each scalar resource it gets there.

    A named tuple, for a cycle makes a hundred thousand of them, and a frozen dataclass takes three times as long.
    """

    role: str
    index: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here
    node: str
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Allocation(NamedTuple):
    """A job that holds resources now."""

    request: Request
    assignments: tuple[Assignment, ...]
    since: float
    changed_at: float | None = None  #: when members came or went last


@dataclass(frozen=True, slots=True)
class Node:
    """A place with capacity. `reserved` is what others than our jobs already take."""

    name: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    schedulable: bool = True
    reserved: Resources = field(default_factory=Resources)
    taints: tuple[str, ...] = ()  #: only jobs that tolerate all of these come here
    numbered: bool = True  #: whether jobs are given device numbers; otherwise devices are only counted


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue in the tree under `root`: `ceiling` (None: unlimited in every dimension) and `guarantee`.

    Ceilings and guarantees of a parent hold for all queues below it together.
    """

    name: str
    ceiling: Resources | None
    guarantee: Resources = field(default_factory=Resources)
    open: bool = True
    node_labels: tuple[tuple[str, str], ...] = ()  #: the queue's node selector
    parent: str = "root"
    weight: int = 1  #: its part of what is left when its siblings have their guarantees
    placement: str = "pack"  #: or `spread`: each member to the emptiest node instead of the fullest that fits
    order: str = "fifo"  #: who goes first inside, among equal priorities: one of `rules.ORDERS`


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for a job that has waited long: room for so many of its members on each is for nobody else."""

    job: str
    rows: tuple[tuple[str, int, int], ...]  #: node, which of the job's sizes (the largest is 0), how many members


@dataclass(frozen=True, slots=True)
class UserUsage:
    """What a user of a queue has had, as a share of the cluster times seconds, old use counting less."""

    queue: str
    user: str
    value: float
    at: float  #: when `value` was true
    rate: float  #: the share it held from then on


@dataclass(frozen=True, slots=True)
class Eviction:
    """A job was told to make way."""

    job: str
    by: str  #: the job that needs its place
    at: float
    members: tuple[tuple[str, int], ...] = ()  #: role and index of those that go; empty: the whole job
    gone: bool = False  #: it has made way; what it holds now is a place that it got later


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a decision may depend on."""

    now: float
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    pending: tuple[Request, ...]
    allocations: tuple[Allocation, ...]
    reservations: tuple[Reservation, ...] = ()
    past: tuple[UserUsage, ...] = ()
    evictions: tuple[Eviction, ...] = ()  #: of whole jobs, as long as they count
    shrinks: tuple[Eviction, ...] = ()  #: of members, until they have gone
    rules: Rules = DEFAULTS


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits: a word for programs, a sentence with numbers and names for people."""

    code: str  #: a word of `reasons`, listed in docs/internals/scheduling.md
    text: str
    causes: tuple[Reason, ...] = ()  #: everything that is in the way, where it was asked for


class Start(NamedTuple):
    """Start all members of this job now, there."""

    job: str
    assignments: tuple[Assignment, ...]


class Wait(NamedTuple):
    """This job stays pending, and why."""

    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Preempt:
    """End this job, so that `by` can start; it holds its resources until it is released."""

    job: str
    by: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Resize:
    """Add these members to a running job (they are counted from now on), or end those (until `Core.resized` says so)."""

    job: str
    added: tuple[Assignment, ...]
    removed: tuple[Assignment, ...]
    by: str = ""  #: the job that needs the place of those removed


Decision = Start | Wait | Preempt | Resize
