"""One turn of the engine, without its I/O: observations and changed rows in, what to write and what to do out.

    1. hear    what the runtime saw becomes facts of the job machines
    2. look    rows that others changed: new jobs, stops, other priorities
    3. decide  the scheduler starts jobs or says why they wait
    4. (write) `mover` writes the draft in one transaction
    5. settle  placements that stood become launches

The board is changed on the way. If the write fails the board is thrown away, so nothing here needs to be undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddleflow.base.ids import AttemptId
from paddleflow.engine.board import Active, Board, Waiting
from paddleflow.engine.following import lane_of
from paddleflow.engine.launching import Place, PlacedJob, Prepared, attempt_of, parse_attempt, prepare
from paddleflow.engine.surroundings import Surroundings
from paddleflow.engine.writes import Change, Placement, Turn
from paddleflow.engine.yielding import asked_of, begin_anew, places_for, shrunk
from paddleflow.errors import Temporary
from paddleflow.frameworks.catalogue import find
from paddleflow.jobs.facts import (
    Command,
    Fact,
    Halt,
    Key,
    Launch,
    MemberEnded,
    MemberReady,
    MemberStarted,
    Placed,
    Release,
    Replace,
    Requeue,
    Shrunk,
    StopAsked,
)
from paddleflow.jobs.machine import JobState, Shape, TaskState, advance, changed_tasks
from paddleflow.jobs.model import JobStatus, Member
from paddleflow.jobs.rows import members_of, request_of, shape_of, state_of
from paddleflow.runtimes.runtime import Ended, Observation, Ready, Recalled, Started
from paddleflow.scheduling.classes import held_total
from paddleflow.scheduling.model import Assignment, Held, Preempt, Reason, Resize, Start, Wait
from paddleflow.store.database import Row

STARTS_A_TURN = 256  #: bounds a turn, so that a flood of starts does not delay stops
STOPPED_BY_USER = "stopped by its user"
DELETED = "deleted"  #: what `unseen_jobs` says of a job whose row is gone


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
    launches: list[Prepared] = field(default_factory=list)
    halts: list[AttemptId] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)  #: jobs that are handed to the runtime ahead of their place
    recalls: list[AttemptId] = field(default_factory=list)  #: those among them that are asked back
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


def hear(board: Board, observations: Iterable[Observation], draft: Draft, now: float) -> None:
    """What the runtime saw, as facts. What belongs to no attempt of ours is ended and to be forgotten."""
    for seen in observations:
        job, key, attempt = parse_attempt(seen.attempt)
        if isinstance(seen, Recalled):
            board.following.back(job)
            continue
        active = board.active.get(job)
        if active is None and job in board.following.ahead:  # it began, and nobody said in whose place
            active = take_over(board, job, draft, now)
        if active is None or active.job.attempt != attempt:
            if isinstance(seen, Ended):
                draft.stale.append(seen.attempt)
            else:
                draft.halts.append(seen.attempt)
            continue
        if isinstance(seen, Ended):
            if (
                seen.started_at is not None and active.state.status is JobStatus.PENDING
            ):  # it was not told to have begun
                step(board, active, MemberReady(seen.started_at, key), draft, now)
            draft.ended.append(seen.attempt)
        step(board, active, _fact(seen, key), draft, now)
        if isinstance(seen, Ended) and seen.heir is not None:
            heir, _, _ = parse_attempt(seen.heir)
            if heir in board.following.ahead:
                take_over(board, heir, draft, now)


def take_over(board: Board, job: str, draft: Draft, now: float) -> Active:
    """A job that was ahead has the place of one that has ended."""
    active = board.following.ahead[job]
    board.following.begun(job, active.lane)
    waiting = board.waiting.pop(job)
    board.held_back.discard(job)
    places = active.job.places
    board.core.hold(Held(waiting.request, tuple(Assignment(p.role, p.index, p.node, p.devices) for p in places), now))
    active.request = waiting.request
    active.state, _ = advance(active.state, Placed(now, tuple(place.key for place in places)))
    board.active[job] = active
    draft.writes.heirs.append(
        Placement(job, waiting.request.order, waiting.touched, active.job.attempt, places, frozenset())
    )
    return active


def _fact(seen: Started | Ready | Ended, key: Key) -> Fact:
    match seen:
        case Started():
            return MemberStarted(seen.at, key)
        case Ready():
            return MemberReady(seen.at, key)
        case Ended():
            return MemberEnded(
                seen.at, key, seen.exit_code, seen.message, seen.started_at, seen.cpu_seconds, seen.peak_memory
            )


def look(board: Board, rows: Iterable[Row], draft: Draft, now: float) -> None:
    """Rows that somebody else wrote."""
    new: list[tuple[Waiting, float | None]] = []
    for row in rows:
        job = row["id"]
        active = board.active.get(job)
        if row["status"] == DELETED:
            waiting = board.waiting.get(job)
            if waiting is not None and waiting.request.order == row["seq"]:  # not a later job of the same id
                draft.halts += board.forget_waiting(job)
            draft.writes.deleted.append(row["seq"])
            continue
        if active is not None:
            if row["status"] == JobStatus.TERMINATING:
                step(board, active, StopAsked(now, row["message"] or STOPPED_BY_USER), draft, now)
        elif row["status"] in {JobStatus.INIT, JobStatus.PENDING}:
            draft.recalls += board.forget_waiting(job)
            new.append((waiting_of(row), row["not_before"]))
        else:
            draft.halts += board.forget_waiting(job)
            if row["status"] == JobStatus.TERMINATING:
                _stop_unplaced(board, row, draft, now)
        draft.writes.seen.append((row["seq"], row["touched"]))
    board.enqueue_all(new, now)


def _stop_unplaced(board: Board, row: Row, draft: Draft, now: float) -> None:
    """A job was stopped while it ended, or while an attempt that failed went back to wait."""
    moved = draft.moved.get(row["id"])
    if moved is None:
        draft.writes.changes.append(_ended_unplaced(row, now))
    else:  # that happened in this very turn, and is not written yet: its machine knows whether anything is left to stop
        step(board, moved.active, StopAsked(now, row["message"] or STOPPED_BY_USER), draft, now)


def _ended_unplaced(row: Row, now: float) -> Change:
    state = JobState(row["id"], Shape((), frozenset()), message=row["message"] or STOPPED_BY_USER)
    state, _ = advance(state, StopAsked(now, state.message))
    return Change(state, (), None, [(now, state.status, state.message)])


def end_waiting(board: Board, job: str, message: str, draft: Draft, now: float) -> None:
    """End a job that waits for its place, on behalf of the engine itself."""
    draft.halts += board.forget_waiting(job)
    draft.writes.changes.append(_ended_unplaced({"id": job, "message": message}, now))


def waiting_of(row: Row) -> Waiting:
    return Waiting(request_of(row), row["framework"], row["touched"], row["attempt"])


def decide(board: Board, draft: Draft, around: Surroundings, now: float) -> None:
    """Ask the scheduler; every start becomes a placement with its ports, and who makes way is told."""
    board.wake_due(now)
    for job, waiting in board.take_anew().items():
        _start(board, waiting, board.core.held[job].assignments, draft, now)
    for decision in board.core.decide(now, limit=STARTS_A_TURN):
        match decision:
            case Wait():
                _wait(board, decision.job, decision.reason, draft)
            case Start():
                _start(board, board.waiting[decision.job], decision.assignments, draft, now)
            case Preempt() | Resize():
                asked = asked_of(board, decision, draft.writes, around, now)
                if asked is not None:
                    step(board, *asked, draft, now)

    hand_ahead(board, draft)
    if board.told and not board.core.touched:  # a whole cycle after a restart: say what has changed meanwhile
        _tell_changes(board, draft)


def hand_ahead(board: Board, draft: Draft) -> None:
    """While steps of one run alone wait, the next ones are handed to the runtime ahead; else all are asked back."""
    following, pending = board.following, board.core.pending
    runs = {job: str(row["run_id"]) for job, (row, _) in following.rows.items()}
    runs |= {job: new.run for job, new in draft.writes.runs.jobs.items() if job in board.waiting}
    waiting = [run for job, run in runs.items() if job in pending]
    known = [(job, found.request, found.framework) for job in runs if (found := board.waiting.get(job))]
    settled = all(board.core.account(queue).settled for queue in {request.queue for _, request, _ in known})
    if not settled or len(waiting) < len(pending) or len(set(waiting)) > 1:  # the scheduler's order and quota count
        draft.recalls += following.recall()
        return
    following.recalled = False
    draft.ahead += following.choose(known, pending)


def _tell_changes(board: Board, draft: Draft) -> None:
    """Write down why jobs wait, where rows give another reason; equal jobs wait for the same one."""
    told, board.told = board.told, []
    for text, jobs in told:
        left = [job for job in jobs if job in board.core.pending]
        reason = board.core.why(left[0]) if left else None
        if reason is not None and reason.text != text:
            for job in left:
                _wait(board, job, reason, draft)


def _wait(board: Board, job: str, reason: Reason, draft: Draft) -> None:
    waiting = board.waiting[job]
    draft.writes.waits.append((job, waiting.request.order, waiting.touched, reason.text))


def _start(board: Board, waiting: Waiting, assignments: Sequence[Assignment], draft: Draft, now: float) -> None:
    request, touched = waiting.request, waiting.touched
    try:
        places = places_for(board, assignments, waiting.framework)
    except Temporary as error:
        board.core.release(request.job)
        board.enqueue(waiting, now + 1.0, now)
        draft.writes.waits.append((request.job, request.order, touched, error.message))
        return
    board.following.begun(request.job, lane_of(request, waiting.framework))
    later = _later_stages(waiting.framework, [place.key for place in places])
    draft.writes.placements.append(Placement(request.job, request.order, touched, waiting.attempt + 1, places, later))
    if any(need.least is not None for need in request.needs):
        draft.writes.sizes.append((request.job, held_total(board.core.held[request.job])))


def _later_stages(framework: str, keys: Sequence[Key]) -> frozenset[Key]:
    roles = {role for role, _ in keys}
    first = next(stage for stage in find(framework).stages if roles & set(stage))
    return frozenset(key for key in keys if key[0] not in first)


def settle(board: Board, draft: Draft, rows: Mapping[str, Row], around: Surroundings, now: float) -> None:
    """The write stood: jobs whose placement was taken are active, the others are looked at again."""
    for item in draft.writes.placements:
        waiting = board.waiting.pop(item.job)
        row = rows.get(item.job)
        if row is None:
            board.core.release(item.job)
            board.following.ended(item.job, lane_of(waiting.request, waiting.framework), None)
            board.ports.release(port for place in item.places for port in place.ports)
            continue
        fresh = draft.writes.runs.jobs.get(item.job)
        members = members_of(row["members"]) if fresh is None else fresh.job.members
        active = activate(row, members, (), item.attempt, item.places, around)
        active.request = active.request._replace(expected=waiting.request.expected)
        board.active[item.job] = active
        # The row of a step's job was written as placed already; the machine counts this attempt itself.
        before = active.state._replace(attempt=item.attempt - 1)
        active.state, commands = advance(before, Placed(now, tuple(place.key for place in item.places)))
        _do(board, active, commands, draft, now)


def settle_ahead(board: Board, draft: Draft, around: Surroundings) -> None:
    """The write stood, so the rows of jobs that go ahead are there: their launches."""
    for job in draft.ahead:
        active = expect(board, *board.following.rows[job], around)
        prepared = active.prepared[active.job.places[0].key]
        launch = replace(prepared.launch, ahead=True, after=_after(board, job))
        draft.launches.append(replace(prepared, launch=launch))


def _after(board: Board, job: str) -> tuple[AttemptId, ...]:
    """The attempts that must end well before a job that is held back may begin."""
    if job not in board.held_back:
        return ()
    known = [board.active.get(other) or board.following.ahead[other] for other in board.following.awaits[job]()]
    return tuple(attempt for active in known for attempt in active.attempts(tuple(active.prepared)))


def expect(board: Board, row: Row, members: tuple[Member, ...], around: Surroundings) -> Active:
    """A waiting job as it will run, if it begins before a turn places it."""
    attempt = board.waiting[row["id"]].attempt
    place = Place(members[0].role, 0, node=next(iter(around.addresses)))
    active = activate(row, members, (), attempt + 1, (place,), around)
    active.state = active.state._replace(attempt=attempt)  # the machine counts this attempt itself
    board.following.ahead[row["id"]] = active
    return active


def activate(
    row: Row,
    members: tuple[Member, ...],
    tasks: Iterable[Row],
    attempt: int,
    places: tuple[Place, ...],
    around: Surroundings,
) -> Active:
    """A placed job, ready to be launched."""
    state = state_of(row, tasks, shape_of(row["framework"], members, around.restart_limit))
    job = PlacedJob(
        id=row["id"],
        name=row["name"],
        user=row["user_name"],
        queue=row["queue"],
        framework=row["framework"],
        attempt=attempt,
        members=members,
        places=places,
    )
    request = request_of(row)
    lane = lane_of(request, job.framework)
    prepared = prepare(job, around.data, around.base_env, around.addresses, lane)
    return Active(job, request, state, prepared, row["ttl"], row["touched"])


def places_of(tasks: Iterable[Row]) -> tuple[Place, ...]:
    """The places that task rows hold."""
    return tuple(
        Place(
            task["role"],
            task["idx"],
            task["node"],
            tuple((name, tuple(numbers)) for name, numbers in json.loads(task["devices"])),
            tuple(json.loads(task["ports"])),
        )
        for task in tasks
    )


def step(board: Board, active: Active, fact: Fact, draft: Draft, now: float) -> None:
    """Advance one job, and note what that asks for."""
    before = active.state
    active.state, commands = advance(before, fact)
    if active.state is not before:
        moved = draft.moved.setdefault(before.id, Moved(active, before.tasks))
        if active.state.status not in {before.status, JobStatus.TERMINATING}:  # who asked for a stop has told so
            moved.history.append((fact.at, active.state.status, active.state.message))
    _do(board, active, commands, draft, now)


def _do(board: Board, active: Active, commands: Iterable[Command], draft: Draft, now: float) -> None:
    for command in commands:
        match command:
            case Launch(keys):
                for key in keys:
                    prepared = active.prepared[key]
                    draft.launches.append(prepared)
                    if prepared.passive:
                        attempt = attempt_of(active.job, key)
                        draft.synthetic += [Started(attempt, now, 0), Ready(attempt, now)]
            case Halt(keys):
                draft.halts += active.attempts(keys)
                draft.synthetic += [
                    Ended(attempt_of(active.job, key), now, 0) for key in keys if active.prepared[key].passive
                ]
            case Release():
                board.release(active)
            case Shrunk():
                shrunk(board, active, draft.writes)
            case Replace():
                begin_anew(board, active, now)
            case Requeue(not_before):
                again = Waiting(active.request, active.job.framework, active.touched, active.job.attempt)
                board.enqueue(again, not_before, now)
