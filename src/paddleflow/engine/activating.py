"""Jobs that get their place, or may get it without a turn: as they will run, who is handed out ahead, who takes whose place.

`turn` decides and settles, `recovery` takes up what runs; `following` has the rules of who goes ahead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from paddleflow.base.ids import AttemptId
from paddleflow.engine.board import Active, Board
from paddleflow.engine.changeset import Changeset, Placement
from paddleflow.engine.launch import MemberPlacement, PlacedJob, prepare
from paddleflow.engine.launch_context import LaunchContext
from paddleflow.engine.prefetch import lane_of
from paddleflow.jobs.facts import Placed
from paddleflow.jobs.machine import advance
from paddleflow.jobs.model import Member
from paddleflow.jobs.rows import request_of, shape_of, state_of
from paddleflow.scheduling.model import Allocation, Assignment
from paddleflow.store.database import Row


def activate(
    row: Row,
    members: tuple[Member, ...],
    tasks: Iterable[Row],
    attempt: int,
    places: tuple[MemberPlacement, ...],
    around: LaunchContext,
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


def places_of(tasks: Iterable[Row]) -> tuple[MemberPlacement, ...]:
    """The places that task rows hold."""
    return tuple(
        MemberPlacement(
            task["role"],
            task["idx"],
            task["node"],
            tuple((name, tuple(numbers)) for name, numbers in json.loads(task["devices"])),
            tuple(json.loads(task["ports"])),
        )
        for task in tasks
    )


def hand_ahead(board: Board, changes: Changeset) -> None:
    """While steps of one run alone wait, the next ones are handed to the runtime ahead; else all are asked back."""
    prefetch, pending = board.prefetch, board.core.pending
    runs = {job: str(row["run_id"]) for job, (row, _) in prefetch.rows.items()}
    runs |= {job: new.run for job, new in changes.writes.runs.jobs.items() if job in board.waiting}
    waiting = [run for job, run in runs.items() if job in pending]
    known = [(job, found.request, found.framework) for job in runs if (found := board.waiting.get(job))]
    settled = all(board.core.ledger(queue).settled for queue in {request.queue for _, request, _ in known})
    if not settled or len(waiting) < len(pending) or len(set(waiting)) > 1:  # the scheduler's order and quota count
        changes.recalls += prefetch.recall()
        return
    prefetch.recalled = False
    changes.ahead += prefetch.choose(known, pending)


def settle_ahead(board: Board, changes: Changeset, around: LaunchContext) -> None:
    """The write stood, so the rows of jobs that go ahead are there: their launches."""
    for job in changes.ahead:
        after = _after(board, job)
        active = expect(board, *board.prefetch.rows[job], around)
        if after is None:
            board.prefetch.back(job)
            continue
        prepared = active.prepared[active.job.places[0].key]
        changes.launches.append(replace(prepared, launch=prepared.launch.prefetched(after)))


def _after(board: Board, job: str) -> tuple[AttemptId, ...] | None:
    """The attempts that must end well before a job that is held back may begin; None: one of them has no place after all."""
    if job not in board.held_back:
        return ()
    others = board.prefetch.awaits[job]()
    known = [active for other in others if (active := board.active.get(other) or board.prefetch.ahead.get(other))]
    if len(known) < len(others):
        return None
    return tuple(attempt for active in known for attempt in active.attempts(tuple(active.prepared)))


def expect(board: Board, row: Row, members: tuple[Member, ...], around: LaunchContext) -> Active:
    """A waiting job as it will run, if it begins before a turn places it."""
    attempt = board.waiting[row["id"]].attempt
    place = MemberPlacement(members[0].role, 0, node=next(iter(around.addresses)))
    active = activate(row, members, (), attempt + 1, (place,), around)
    active.state = active.state._replace(attempt=attempt)  # the machine counts this attempt itself
    board.prefetch.ahead[row["id"]] = active
    return active


def take_over(board: Board, job: str, changes: Changeset, at: float) -> Active:
    """A job that was ahead has had the place of one that has ended, since then."""
    active = board.prefetch.ahead[job]
    board.prefetch.begun(job, active.lane)
    waiting = board.waiting.pop(job)
    board.held_back.discard(job)
    places = active.job.places
    board.core.allocate(
        Allocation(waiting.request, tuple(Assignment(p.role, p.index, p.node, p.devices) for p in places), at)
    )
    active.request = waiting.request
    active.state, _ = advance(active.state, Placed(at, tuple(place.key for place in places)))
    board.active[job] = active
    changes.writes.heirs.append(
        Placement(job, waiting.request.seq, waiting.touched, active.job.attempt, places, frozenset(), at)
    )
    return active
