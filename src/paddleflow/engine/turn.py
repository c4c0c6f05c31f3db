"""One turn of the engine, without its I/O: observations and changed rows in, what to write and what to do out.

    1. apply_observations  what the runtime saw becomes facts of the job machines
    2. apply_row_changes   rows that others changed: new jobs, stops, other priorities
    3. decide              the scheduler starts jobs or says why they wait
    4. (write_turn)        `cluster_engine` writes the changeset in one transaction
    5. apply_placements    placements that stood become launches

The board is changed on the way. If the write fails the board is thrown away, so nothing here needs to be undone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence

from paddleflow.base.ids import parse_attempt
from paddleflow.base.log import Log
from paddleflow.engine.board import Active, Board, Waiting, activate
from paddleflow.engine.changeset import Changeset, JobUpdate, Moved, Placement
from paddleflow.engine.launch import LaunchContext, attempt_of
from paddleflow.engine.preemption import fact_for, finish_restart, finish_shrink
from paddleflow.errors import Temporary
from paddleflow.frameworks.catalogue import find
from paddleflow.jobs.facts import (
    Command,
    Evicted,
    Fact,
    Halt,
    Key,
    Launch,
    MemberDelayed,
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
from paddleflow.jobs.machine import JobState, Lifecycle, TaskState, advance
from paddleflow.jobs.model import NODE, JobStatus, TaskStatus
from paddleflow.jobs.rows import DELETED, ChangedJob, JobRow, members_of, request_of
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import AttemptObservation, Delayed, Ended, Ready, Started
from paddleflow.scheduling.classes import allocated_total
from paddleflow.scheduling.model import Assignment, Decision, Preempt, Reason, Resize, Start, Wait

STARTS_A_TURN = 256  #: bounds a turn, so that a flood of starts does not delay stops
STOPPED_BY_USER = "stopped by its user"

log = Log("engine")


def apply_observations(
    board: Board, observations: Iterable[AttemptObservation], changes: Changeset, now: float
) -> None:
    """What the runtime saw, as facts. What belongs to no attempt of ours is ended and to be forgotten."""
    for seen in observations:
        job, key, attempt = parse_attempt(seen.attempt)
        try:
            if isinstance(seen, Returned):
                board.prefetch.returned(job)
            else:
                _apply_observation(board, job, key, attempt, seen, changes, now)
        except Exception as error:  # a fault of ours in one job must not stop the others, again and again
            set_aside(board, job, error, changes, now)


def _apply_observation(
    board: Board,
    job: str,
    key: Key,
    attempt: int,
    seen: Started | Delayed | Ready | Ended,
    changes: Changeset,
    now: float,
) -> None:
    active = board.active.get(job)
    if active is None:  # it may have been prefetched, and have begun
        began = seen.started_at if isinstance(seen, Ended) else seen.at
        active = board.prefetch.begin(board, job, changes, now if began is None else began)
    if active is None or active.job.attempt != attempt:
        if isinstance(seen, Ended):
            changes.stale.append(seen.attempt)
        else:
            changes.halts.append(seen.attempt)
        return
    if isinstance(seen, Ended):
        if seen.started_at is not None and active.state.status is JobStatus.PENDING:  # its start was not reported
            advance_job(board, active, MemberReady(seen.started_at, key), changes, now)
        changes.ended.append(seen.attempt)
        if seen.disrupted:
            disrupt(board, active, seen, changes, now)
    advance_job(board, active, _fact(seen, key), changes, now)
    if isinstance(seen, Ended) and seen.successor is not None:
        successor, _, _ = parse_attempt(seen.successor)
        try:
            board.prefetch.begin(board, successor, changes, seen.at)
        except Exception as error:  # as above: it is the successor's
            set_aside(board, successor, error, changes, now)


def disrupt(board: Board, active: Active, seen: Ended, changes: Changeset, now: float) -> None:
    """The cluster took a member away: that is an eviction, after which the job waits for a new place."""
    held = board.core.allocations.get(active.job.id)
    if active.state.outcome is not None or not active.state.placed or held is None:
        return
    changes.writes.evictions.append((active.job.id, now, f"{NODE}{seen.node}", max(0.0, now - held.since)))
    advance_job(board, active, Evicted(now, seen.message), changes, now)


def _fact(seen: Started | Delayed | Ready | Ended, key: Key) -> Fact:
    match seen:
        case Started():
            return MemberStarted(seen.at, key)
        case Delayed():
            return MemberDelayed(seen.at, key, seen.message)
        case Ready():
            return MemberReady(seen.at, key)
        case Ended():
            return MemberEnded(
                seen.at, key, seen.exit_code, seen.message, seen.started_at, seen.cpu_seconds, seen.peak_memory
            )


def apply_row_changes(board: Board, rows: Iterable[ChangedJob], changes: Changeset, now: float) -> None:
    """Rows that somebody else wrote."""
    new: list[tuple[Waiting, float | None]] = []
    for row in rows:
        try:
            waiting = _apply_row_change(board, row, changes, now)
        except Exception as error:  # a fault of ours in one job must not stop the others, again and again
            set_aside(board, row.id, error, changes, now)
            waiting = None
        if waiting is not None:
            new.append((waiting, row.not_before))
        if row.status != DELETED:
            changes.writes.seen.append((row.seq, row.touched))
    board.enqueue_all(new, now)


def _apply_row_change(board: Board, row: ChangedJob, changes: Changeset, now: float) -> Waiting | None:
    """What follows from one row; a job that the scheduler must be told of."""
    job = row.id
    active = board.active.get(job)
    if row.status == DELETED:
        waiting = board.waiting.get(job)
        if waiting is not None and waiting.request.seq == row.seq:  # not a later job of the same id
            changes.halts += board.forget_waiting(job)
        changes.writes.deleted.append(row.seq)
    elif active is not None:
        if row.status == JobStatus.TERMINATING:
            advance_job(board, active, StopAsked(now, row.message or STOPPED_BY_USER), changes, now)
    elif row.status in {JobStatus.INIT, JobStatus.PENDING}:
        changes.recalls += board.forget_waiting(job)
        if not row.gated:
            return waiting_of(row)
        board.enqueue(waiting_of(row), None, now, gated=True)
    else:
        changes.halts += board.forget_waiting(job)
        if row.status == JobStatus.TERMINATING:
            _stop_unplaced(board, row, changes, now)
    return None


def _stop_unplaced(board: Board, row: ChangedJob, changes: Changeset, now: float) -> None:
    """A job was stopped while it ended, or while an attempt that failed went back to wait."""
    moved = changes.moved.get(row.id)
    if moved is None:
        changes.writes.changes.append(_ended_unplaced(row.id, row.message, now))
    else:  # that happened in this very turn, and is not written yet: its machine knows whether anything is left to stop
        advance_job(board, moved.active, StopAsked(now, row.message or STOPPED_BY_USER), changes, now)


def _ended_unplaced(job: str, message: str, now: float) -> JobUpdate:
    state = JobState(job, Lifecycle((), frozenset()), message=message or STOPPED_BY_USER)
    state, _ = advance(state, StopAsked(now, state.message))
    return JobUpdate(state, (), None, [(now, state.status, state.message)])


def end_waiting(board: Board, job: str, message: str, changes: Changeset, now: float) -> None:
    """End a job that waits for its place, on behalf of the engine itself."""
    changes.halts += board.forget_waiting(job)
    changes.writes.changes.append(_ended_unplaced(job, message, now))


def waiting_of(row: ChangedJob) -> Waiting:
    return Waiting(request_of(row, row.expected, row.data), row.framework, row.touched, row.attempt)


def decide(board: Board, changes: Changeset, context: LaunchContext, now: float) -> None:
    """Ask the scheduler; every start becomes a placement with its ports, and preemptions are carried out."""
    board.wake_due(now)
    returned = board.prefetch.take_returned()
    for job, waiting in board.take_restarting().items():
        _start(board, waiting, board.core.allocations[job].assignments, changes, now)
    for decision in _decisions(board, now):
        match decision:
            case Wait():
                if board.prefetch.holds(decision.job):  # it may have begun by now
                    continue
                returned.discard(decision.job)
                _wait(board, decision.job, decision.reason, changes)
            case Start():
                _start(board, board.waiting[decision.job], decision.assignments, changes, now)
            case Preempt() | Resize():
                asked = fact_for(board, decision, changes.writes, context, now)
                if asked is not None:
                    advance_job(board, *asked, changes, now)

    for job in returned & board.core.pending.keys():
        _wait(board, job, board.core.why(job), changes)
    board.prefetch.plan(board, changes)
    if board.reported and not board.core.touched:  # a whole cycle after a restart: say what has changed meanwhile
        _report_changes(board, changes)


def _decisions(board: Board, now: float) -> Sequence[Decision]:
    """What the scheduler decided about jobs; what it decided about pods of others is theirs."""
    foreign = board.foreign
    if foreign is None:
        return board.core.decide(now, limit=STARTS_A_TURN)
    foreign.take_in(now)
    found = board.core.decide(now, limit=STARTS_A_TURN)
    theirs = [decision for decision in found if foreign.knows(decision.job)]
    foreign.decided(theirs)
    return [decision for decision in found if not foreign.knows(decision.job)] if theirs else found


def _report_changes(board: Board, changes: Changeset) -> None:
    """Write down why jobs wait, where rows give another reason; equal jobs wait for the same one."""
    reported, board.reported = board.reported, []
    for text, jobs in reported:
        left = [job for job in jobs if job in board.core.pending]
        reason = board.core.why(left[0]) if left else None
        if reason is not None and reason.text != text:
            for job in left:
                _wait(board, job, reason, changes)


def _wait(board: Board, job: str, reason: Reason, changes: Changeset) -> None:
    waiting = board.waiting[job]
    changes.writes.waits.append((job, waiting.request.seq, waiting.touched, reason.text))


def _start(board: Board, waiting: Waiting, assignments: Sequence[Assignment], changes: Changeset, now: float) -> None:
    request, touched = waiting.request, waiting.touched
    try:
        places = board.assign_places(assignments, waiting.framework)
    except Temporary as error:
        board.core.release(request.job)
        board.enqueue(waiting, now + 1.0, now)
        changes.writes.waits.append((request.job, request.seq, touched, error.message))
        return
    slot_class = board.prefetch.slot_class_of(request, waiting.framework, places[0].node)
    board.prefetch.placed(request.job, slot_class)
    later = _later_stages(waiting.framework, [place.key for place in places])
    changes.writes.placements.append(
        Placement(request.job, request.seq, touched, waiting.attempt + 1, places, later, now)
    )
    if request.elastic:
        changes.writes.sizes.append((request.job, allocated_total(board.core.allocations[request.job])))


def _later_stages(framework: str, keys: Sequence[Key]) -> frozenset[Key]:
    if len(keys) == 1:
        return frozenset()
    roles = {role for role, _ in keys}
    first = next(stage for stage in find(framework).stages if roles & set(stage))
    return frozenset(key for key in keys if key[0] not in first)


def apply_placements(
    board: Board, changes: Changeset, rows: Mapping[str, JobRow], context: LaunchContext, now: float
) -> None:
    """The write stood: jobs whose placement was taken are active, the others are looked at again."""
    for item in changes.writes.placements:
        waiting = board.waiting.pop(item.job)
        row = rows.get(item.job)
        if row is None:
            board.core.release(item.job)
            slot_class = board.prefetch.slot_class_of(waiting.request, waiting.framework, item.places[0].node)
            board.prefetch.ended(item.job, slot_class, None)
            board.ports.release(port for place in item.places for port in place.ports)
            continue
        try:
            _activate_placement(board, item, row, waiting, changes, context, now)
        except Exception as error:  # a fault of ours in one job must not stop the others, again and again
            board.active.pop(item.job, None)
            board.core.release(item.job)
            board.ports.release(port for place in item.places for port in place.ports)
            board.failures.append(failure(item.job, item.attempt, [place.key for place in item.places], error, now))


def _activate_placement(
    board: Board,
    item: Placement,
    row: JobRow,
    waiting: Waiting,
    changes: Changeset,
    context: LaunchContext,
    now: float,
) -> None:
    fresh = changes.writes.runs.jobs.get(item.job)
    members = members_of(row.members) if fresh is None else fresh.job.members
    active = activate(row, waiting.request, members, (), item.attempt, item.places, context, board.prefetch)
    # The row of a step's job was written as placed already; the machine counts this attempt itself.
    before = active.state._replace(attempt=item.attempt - 1)
    active.state, commands = advance(before, Placed(now, tuple(place.key for place in item.places)))
    board.active[item.job] = active
    _apply_commands(board, active, commands, changes, now)


def failure(job: str, attempt: int, keys: Iterable[Key], error: Exception, now: float) -> JobUpdate:
    """The end of a job that this code cannot move: failed, with words for a person; the details are in the server's log."""
    log.error("a job cannot be moved", job=job, reason="".join(traceback.format_exception(error)))
    message = f"a fault of the server ended it: {type(error).__name__}; the server's log has the details"
    tasks = tuple(TaskState(*key, status=TaskStatus.FAILED, message=message, finished_at=now) for key in keys)
    state = JobState(job, Lifecycle((), frozenset()), JobStatus.FAILED, message, tasks, attempt, finished_at=now)
    return JobUpdate(state, tasks, None, [(now, state.status, message)])


def set_aside(board: Board, job: str, error: Exception, changes: Changeset, now: float) -> None:
    """End a job that this code cannot move, so that everything else continues: its members are stopped, its resources are released."""
    active = board.active.get(job)
    changes.moved.pop(job, None)
    if active is None:
        changes.halts += board.forget_waiting(job)
        changes.writes.changes.append(failure(job, 0, (), error, now))
        return
    keys = [task.key for task in active.state.tasks if not task.status.final]
    changes.halts += active.attempts(tuple(keys))
    board.release(active)
    changes.writes.changes.append(failure(job, active.job.attempt, keys, error, now))


def advance_job(board: Board, active: Active, fact: Fact, changes: Changeset, now: float) -> None:
    """Advance one job, and note what that asks for."""
    try:
        _advance_job(board, active, fact, changes, now)
    except Exception as error:  # a fault of ours in one job must not stop the others, again and again
        set_aside(board, active.job.id, error, changes, now)


def _advance_job(board: Board, active: Active, fact: Fact, changes: Changeset, now: float) -> None:
    before = active.state
    active.state, commands = advance(before, fact)
    if active.state is not before:
        moved = changes.moved.setdefault(before.id, Moved(active, before.tasks))
        delayed = isinstance(fact, MemberDelayed) and active.state.message != before.message
        if delayed or active.state.status != before.status:
            held = board.core.allocations.get(before.id)
            # A prefetched job may have begun before the turn that placed it.
            active.last_event_at = max(active.last_event_at, fact.at, 0.0 if held is None else held.since)
            if active.state.status is not JobStatus.TERMINATING:  # who asked for a stop has told so
                moved.history.append((active.last_event_at, active.state.status, active.state.message))
    _apply_commands(board, active, commands, changes, now)


def _apply_commands(board: Board, active: Active, commands: Iterable[Command], changes: Changeset, now: float) -> None:
    for command in commands:
        match command:
            case Launch(keys):
                for key in keys:
                    prepared = active.prepared[key]
                    changes.launches.append(prepared)
                    if prepared.passive:
                        attempt = attempt_of(active.job, key)
                        changes.synthetic += [Started(attempt, now, 0), Ready(attempt, now)]
            case Halt(keys):
                changes.halts += active.attempts(keys)
                changes.synthetic += [
                    Ended(attempt_of(active.job, key), now, 0) for key in keys if active.prepared[key].passive
                ]
            case Release():
                board.release(active)
            case Shrunk():
                finish_shrink(board, active, changes.writes)
            case Replace():
                finish_restart(board, active, now)
            case Requeue(not_before):
                again = Waiting(active.request, active.job.framework, active.touched, active.job.attempt)
                board.enqueue(again, not_before, now)
