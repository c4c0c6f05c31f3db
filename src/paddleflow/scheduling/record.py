"""What a scheduler was told and what it decided, as entries that can be kept and played again.

`Recorded` is a `Core` that writes down every event and every cycle with its outcome. A record begins with a snapshot, so any
stretch that begins with one can be executed again (`replaying`); the entries between are small. Whoever keeps them takes
them away with `take`; if nobody does, the record begins anew with a snapshot instead of growing for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    Decision,
    Node,
    Preempt,
    Queue,
    Request,
    Resize,
    Snapshot,
    Start,
)
from paddleflow.scheduling.rules import DEFAULTS, Rules

MOST = 200_000  #: entries that nobody took

Action = Start | Preempt | Resize


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Things as they are; `fresh`: nothing before it belongs to it (a scheduler that was built anew)."""

    snapshot: Snapshot
    fresh: bool


@dataclass(frozen=True, slots=True)
class Submitted:
    request: Request


@dataclass(frozen=True, slots=True)
class Withdrawn:
    job: str


@dataclass(frozen=True, slots=True)
class Allocated:
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Released:
    job: str


@dataclass(frozen=True, slots=True)
class Resized:
    """A job has only these members (role and index) left."""

    job: str
    members: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Restarted:
    job: str
    at: float


@dataclass(frozen=True, slots=True)
class Queues:
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """One cycle: when, how many it might start, and what it decided; who waits is left out."""

    at: float
    limit: int | None
    actions: tuple[Action, ...]


Entry = Checkpoint | Submitted | Withdrawn | Allocated | Released | Resized | Restarted | Queues | Nodes | Decided


def actions_of(decisions: Iterable[Decision]) -> tuple[Action, ...]:
    """The decisions that change something."""
    return tuple(d for d in decisions if isinstance(d, Start | Preempt | Resize))


class Recorded(Core):
    """A core that keeps a record from `begin` on."""

    def __init__(self, rules: Rules = DEFAULTS, *, most: int = MOST) -> None:
        super().__init__(rules)
        self._most = most
        self._entries: list[Entry] | None = None
        self._inside = False  # an event that causes others is written down alone

    @property
    def recording(self) -> bool:
        return self._entries is not None

    def begin(self, now: float | None = None) -> None:
        """Keep a record, beginning with things as they are; one that is being kept goes on from a new snapshot."""
        fresh = self._entries is None or len(self._entries) > self._most
        if self._entries is None or fresh:
            self._entries = []
        self._entries.append(Checkpoint(self.snapshot(self.now if now is None else now), fresh))

    def take(self) -> list[Entry]:
        """The entries since the last time."""
        taken, self._entries = self._entries or [], None if self._entries is None else []
        return taken

    def _note(self, entry: Entry) -> None:
        if self._entries is not None and not self._inside:
            self._entries.append(entry)
            if len(self._entries) > self._most:
                self.begin()

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        done = super().submit(request)
        if done:
            self._note(Submitted(request))
        return done

    def _submit_alike(self, requests: Sequence[Request]) -> Sequence[Request]:
        self._inside, outer = True, self._inside
        new = super()._submit_alike(requests)
        self._inside = outer
        for request in new:
            self._note(Submitted(request))
        return new

    def withdraw(self, job: str) -> bool:
        done = super().withdraw(job)
        if done:
            self._note(Withdrawn(job))
        return done

    def allocate(self, allocation: Allocation) -> bool:
        self._inside, outer = True, self._inside
        done = super().allocate(allocation)
        self._inside = outer
        if done:
            self._note(Allocated(allocation))
        return done

    def release(self, job: str) -> bool:
        done = super().release(job)
        if done:
            self._note(Released(job))
        return done

    def resized(self, job: str, assignments: Iterable[Assignment]) -> bool:
        left = tuple(assignments)
        done = super().resized(job, left)
        if done:
            self._note(Resized(job, tuple((a.role, a.index) for a in left)))
        return done

    def restarted(self, job: str, now: float) -> bool:
        done = super().restarted(job, now)
        if done:
            self._note(Restarted(job, now))
        return done

    def set_queues(self, queues: Iterable[Queue]) -> None:
        known = tuple(queues)
        self._inside, outer = True, self._inside
        super().set_queues(known)
        self._inside = outer
        self._note(Queues(known))

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        known = tuple(nodes)
        super().set_nodes(known)
        self._note(Nodes(known))

    def decide(self, now: float, limit: int | None = None) -> list[Decision]:
        decisions = super().decide(now, limit)
        self._note(Decided(now, limit, actions_of(decisions)))
        return decisions


def apply(core: Core, entry: Entry) -> None:
    """Feed an entry to a core; a checkpoint or a cycle is no event, and changes nothing."""
    match entry:
        case Submitted(request):
            core.submit(request)
        case Withdrawn(job):
            core.withdraw(job)
        case Allocated(allocation):
            core.allocate(allocation)
        case Released(job):
            core.release(job)
        case Resized(job, members):
            kept = set(members)
            known = core.allocations.get(job)
            core.resized(job, [a for a in known.assignments if (a.role, a.index) in kept] if known is not None else [])
        case Restarted(job, at):
            core.restarted(job, at)
        case Queues(queues):
            core.set_queues(queues)
        case Nodes(nodes):
            core.set_nodes(nodes)
        case Checkpoint() | Decided():
            pass
