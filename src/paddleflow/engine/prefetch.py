"""Prefetch: short jobs of steps that follow each other on a node without a turn of the engine between them (decision 0023).

An optimisation: everything is right with `NoPrefetch`, which does nothing, and the engine's tests run with both. `turn`,
`board` and `cluster_engine` know no more of it than the methods of `Prefetcher`.

A *slot class* is jobs that are interchangeable: of one size and owner on one node, with one member and no devices or ports. While only steps of one run wait, the
next ones are prefetched: the runtime starts each the moment another of its slot class has ended well, as its successor, and the engine
learns of both together. As many are prefetched as fit into a tenth of a second of what the last jobs of the class took.

It changes no decision: a prefetched job stays in the scheduler's queue, and when any other job begins to wait, all
are withdrawn. It loses nothing and runs nothing twice: a prefetched job is a row that waits. If it has begun by the time the engine
is restarted, the runtime says so, and it is placed then (`recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Protocol

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.values import dataclass
from paddleflow.engine.board import Active, Board, activate
from paddleflow.engine.changeset import Changeset, Placement
from paddleflow.engine.launch import LaunchContext, MemberPlacement
from paddleflow.jobs.facts import Placed
from paddleflow.jobs.machine import advance
from paddleflow.jobs.model import Member
from paddleflow.jobs.rows import JobRow
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Started
from paddleflow.scheduling.model import Allocation, Assignment, Request

HORIZON = 0.1  #: seconds of work that are prefetched
MAX_PER_JOB = 128  #: jobs that are prefetched for each that runs
MAX_SLOT_CLASSES = 1000
SMOOTHING = 0.2  #: how much the last duration counts in the mean
FRAMEWORK = "standalone"

#: The jobs at work that a gated job comes after, as of now; empty: there is nothing that it could follow.
Predecessors = Callable[[], list[str]]


class Prefetcher(Protocol):
    """What the engine calls when jobs arrive, are placed and end."""

    def slot_class_of(self, request: Request, framework: str, node: str) -> str:
        """The slot class that a job runs in there; empty: it has none."""
        ...

    def queued(self, job: str, run: str, predecessors: Predecessors | None) -> None:
        """The job of a step waits; `predecessors`: it is gated, and comes after these."""
        ...

    def written(self, row: JobRow, members: tuple[Member, ...]) -> None:
        """Its row is in the database, so it may be launched."""
        ...

    def placed(self, job: str, slot_class: str) -> None:
        """It has a place."""
        ...

    def ended(self, job: str, slot_class: str, seconds: float | None) -> None:
        """Its place is free, or a successor's."""
        ...

    def forget(self, job: str) -> list[AttemptId]:
        """It does not wait any more; attempts that the runtime may still start."""
        ...

    def holds(self, job: str) -> bool:
        """Whether the runtime may start it by itself."""
        ...

    def returned(self, job: str) -> None:
        """The runtime gave it back; it was never started."""
        ...

    def take_returned(self) -> set[str]:
        """Jobs that were given back since this was asked last."""
        ...

    def unplaced(self, board: Board, seen: Iterable[AttemptObservation]) -> dict[str, str]:
        """Jobs that wait, to the board, although an attempt of theirs has begun: an engine before this one prefetched them.

        The values are the nodes that the runtime names; empty where it does not.
        """
        ...

    def expect(self, board: Board, row: JobRow, members: tuple[Member, ...], node: str, context: LaunchContext) -> None:
        """A waiting job may begin on that node before a turn places it."""
        ...

    def begin(self, board: Board, job: str, changes: Changeset, at: float) -> Active | None:
        """An attempt of a job that was expected has begun; None: it was not expected."""
        ...

    def plan(self, board: Board, changes: Changeset) -> None:
        """Choose the jobs that are prefetched next, or take all of them back."""
        ...

    def launch(self, board: Board, changes: Changeset, context: LaunchContext) -> None:
        """The rows of the chosen jobs are written: add their launches."""
        ...


class NoPrefetch:
    """Every job waits for a turn that places it."""

    def slot_class_of(self, request: Request, framework: str, node: str) -> str:
        return ""

    def queued(self, job: str, run: str, predecessors: Predecessors | None) -> None: ...

    def written(self, row: JobRow, members: tuple[Member, ...]) -> None: ...

    def placed(self, job: str, slot_class: str) -> None: ...

    def ended(self, job: str, slot_class: str, seconds: float | None) -> None: ...

    def forget(self, job: str) -> list[AttemptId]:
        return []

    def holds(self, job: str) -> bool:
        return False

    def returned(self, job: str) -> None: ...

    def take_returned(self) -> set[str]:
        return set()

    def unplaced(self, board: Board, seen: Iterable[AttemptObservation]) -> dict[str, str]:
        return {}

    def expect(
        self, board: Board, row: JobRow, members: tuple[Member, ...], node: str, context: LaunchContext
    ) -> None: ...

    def begin(self, board: Board, job: str, changes: Changeset, at: float) -> Active | None:
        return None

    def plan(self, board: Board, changes: Changeset) -> None: ...

    def launch(self, board: Board, changes: Changeset, context: LaunchContext) -> None: ...


def kind_of(request: Request, framework: str) -> str:
    """What jobs of one slot class have in common besides their node; empty: the job cannot follow another."""
    if framework != FRAMEWORK or len(request.member_sets) != 1:
        return ""
    need = request.member_sets[0]
    if need.count != 1 or need.min_count is not None or need.each.scalars:
        return ""
    return f"{request.queue}/{request.user}/{request.priority}/{need.each.cpu}/{need.each.memory}"


@dataclass(slots=True)
class SlotClass:
    kind: str = ""  #: what its jobs have in common
    node: str = ""
    running: set[str] = field(default_factory=set)
    prefetched: set[str] = field(default_factory=set)
    seconds: float | None = None  #: that its jobs take, lately

    def capacity(self) -> int:
        """How many more may be prefetched; as long as nothing is known, one for each that runs."""
        each = 1 if self.seconds is None else min(int(HORIZON / max(self.seconds, 1e-6)), MAX_PER_JOB)
        return len(self.running) * each - len(self.prefetched)


@dataclass(slots=True)
class _Candidate:
    """The job of a step that waits."""

    run: str
    predecessors: Predecessors | None
    row: JobRow | None = None  #: once it is written
    members: tuple[Member, ...] = ()


class Prefetch:
    """Who runs in which slot class, and who is prefetched."""

    def __init__(self) -> None:
        self._slot_classes: dict[str, SlotClass] = {}
        self._kinds: dict[str, dict[str, SlotClass]] = {}  # class → its classes, one for each node
        self._candidates: dict[str, _Candidate] = {}
        self._expected: dict[str, Active] = {}  # jobs that the runtime may start by itself
        self._chosen: list[tuple[str, SlotClass]] = []  # to be launched after this turn's write
        self._returned: set[str] = set()
        self._recalled = False  # all of them were asked back

    def slot_class_of(self, request: Request, framework: str, node: str) -> str:
        kind = kind_of(request, framework)
        if not kind:
            return ""
        name = f"{node}/{kind}"
        if name not in self._slot_classes:
            slot_class = self._slot_classes[name] = SlotClass(kind, node)
            self._kinds.setdefault(kind, {})[name] = slot_class
        return name

    def queued(self, job: str, run: str, predecessors: Predecessors | None) -> None:
        self._candidates[job] = _Candidate(run, predecessors)

    def written(self, row: JobRow, members: tuple[Member, ...]) -> None:
        candidate = self._candidates.get(row.id)
        if candidate is not None:
            candidate.row, candidate.members = row, members

    def placed(self, job: str, slot_class: str) -> None:
        self._candidates.pop(job, None)
        active = self._expected.pop(job, None)
        if active is not None and (other := self._slot_classes.get(active.slot_class)) is not None:
            other.prefetched.discard(job)
        if (mine := self._slot_classes.get(slot_class)) is not None:
            mine.running.add(job)

    def ended(self, job: str, slot_class: str, seconds: float | None) -> None:
        mine = self._slot_classes.get(slot_class)
        if mine is None:
            return
        mine.running.discard(job)
        if seconds is not None:
            mine.seconds = seconds if mine.seconds is None else mine.seconds + SMOOTHING * (seconds - mine.seconds)
        if len(self._slot_classes) > MAX_SLOT_CLASSES and not mine.running and not mine.prefetched:
            del self._slot_classes[slot_class]  # else it stays, for what it knows of durations
            self._kinds[mine.kind].pop(slot_class)
            if not self._kinds[mine.kind]:
                del self._kinds[mine.kind]

    def forget(self, job: str) -> list[AttemptId]:
        self._candidates.pop(job, None)
        active = self._withdraw(job)
        return [] if active is None else active.attempts(tuple(active.prepared))

    def _withdraw(self, job: str) -> Active | None:
        active = self._expected.pop(job, None)
        if active is not None and (mine := self._slot_classes.get(active.slot_class)) is not None:
            mine.prefetched.discard(job)
        return active

    def holds(self, job: str) -> bool:
        return job in self._expected

    def returned(self, job: str) -> None:
        self._withdraw(job)
        self._returned.add(job)

    def take_returned(self) -> set[str]:
        taken, self._returned = self._returned, set()
        return taken

    def unplaced(self, board: Board, seen: Iterable[AttemptObservation]) -> dict[str, str]:
        found = dict[str, str]()
        for each in seen:
            job, _, attempt = parse_attempt(each.attempt)
            waiting = None if isinstance(each, Returned) or job in self._expected else board.waiting.get(job)
            if waiting is not None and waiting.attempt + 1 == attempt:
                node = each.node if isinstance(each, Started | Ended) else ""
                found[job] = found.get(job) or node
        return found

    def expect(self, board: Board, row: JobRow, members: tuple[Member, ...], node: str, context: LaunchContext) -> None:
        self._expect(board, row, members, node, context)

    def _expect(
        self,
        board: Board,
        row: JobRow,
        members: tuple[Member, ...],
        node: str,
        context: LaunchContext,
        after: tuple[AttemptId, ...] | None = None,
    ) -> Active:
        waiting = board.waiting[row.id]
        attempt = waiting.attempt
        place = MemberPlacement(members[0].role, 0, node=node)
        active = activate(row, waiting.request, members, (), attempt + 1, (place,), context, self, after)
        active.state = active.state._replace(attempt=attempt)  # the machine counts this attempt itself
        self._expected[row.id] = active
        return active

    def begin(self, board: Board, job: str, changes: Changeset, at: float) -> Active | None:
        """It has held its place since then: in the scheduler, on the board, and with this turn in its row."""
        active = self._expected.get(job)
        if active is None:
            return None
        self.placed(job, active.slot_class)
        waiting = board.waiting.pop(job)
        board.gated.discard(job)
        places = active.job.places
        board.core.allocate(
            Allocation(waiting.request, tuple(Assignment(p.role, p.index, p.node, p.devices) for p in places), at)
        )
        active.request = waiting.request
        active.state, _ = advance(active.state, Placed(at, tuple(place.key for place in places)))
        board.active[job] = active
        changes.writes.successors.append(
            Placement(job, waiting.request.seq, waiting.touched, active.job.attempt, places, frozenset(), at)
        )
        return active

    def plan(self, board: Board, changes: Changeset) -> None:
        """While steps of one run alone wait, the next ones; otherwise the scheduler's order and quotas count, and all come back."""
        pending = board.core.pending
        waiting = [each.run for job, each in self._candidates.items() if job in pending]
        known = [(job, found) for job in self._candidates if (found := board.waiting.get(job))]
        settled = all(board.core.ledger(queue).settled for queue in {found.request.queue for _, found in known})
        if not settled or len(waiting) < len(pending) or len(set(waiting)) > 1:
            changes.recalls += self._recall()
            return
        self._recalled = False
        for job, found in known:
            slot_class = (
                None if job in self._expected else self._slot_class_for(job, found.request, found.framework, board)
            )
            if slot_class is not None:
                slot_class.prefetched.add(job)
                self._chosen.append((job, slot_class))

    def _slot_class_for(self, job: str, request: Request, framework: str, board: Board) -> SlotClass | None:
        """The slot class with the most room in which it may follow another job."""
        classes = self._kinds.get(kind_of(request, framework), {}).values()
        open_ones = [
            slot_class
            for slot_class in classes
            if slot_class.running and slot_class.capacity() > 0 and self._may_follow(job, slot_class, board)
        ]
        return max(open_ones, key=SlotClass.capacity, default=None)

    def _may_follow(self, job: str, slot_class: SlotClass, board: Board) -> bool:
        """Whether it waits for a place only, or for jobs of the slot class that end before it can begin."""
        if job in board.core.pending:
            return True
        predecessors = self._candidates[job].predecessors
        after = predecessors() if predecessors is not None else []
        return bool(after) and all(other in slot_class.running or other in slot_class.prefetched for other in after)

    def launch(self, board: Board, changes: Changeset, context: LaunchContext) -> None:
        chosen, self._chosen = self._chosen, []
        for job, slot_class in chosen:
            candidate = self._candidates[job]
            assert candidate.row is not None, "a job is launched after its row is written"
            after = self._attempts_before(board, job)
            if after is None:
                slot_class.prefetched.discard(job)
                continue
            active = self._expect(board, candidate.row, candidate.members, slot_class.node, context, after)
            changes.launches += active.prepared.values()

    def _attempts_before(self, board: Board, job: str) -> tuple[AttemptId, ...] | None:
        """The attempts that must end well before a gated job may begin; None: one of them has no place after all."""
        predecessors = self._candidates[job].predecessors
        if job not in board.gated or predecessors is None:
            return ()
        others = predecessors()
        known = [active for other in others if (active := board.active.get(other) or self._expected.get(other))]
        if len(known) < len(others):
            return None
        return tuple(attempt for active in known for attempt in active.attempts(tuple(active.prepared)))

    def _recall(self) -> Sequence[AttemptId]:
        """All that are prefetched are asked back, once."""
        if self._recalled or not self._expected:
            return []
        self._recalled = True
        return [attempt for active in self._expected.values() for attempt in active.attempts(tuple(active.prepared))]
