"""Making way: what the scheduler decided about jobs that run, as facts for their machines and rows to write.

    Preempt   the job is ended and waits for a new place (or ends, if it says so); its room is free when the last member ended
    Resize    in place: members are launched beside the others, or halted while the others continue
              anew: all members are ended, and the next attempt starts at the places that the scheduler already counts

The scheduler counts added members at once and removed ones until `Core.resized` says that they have gone, so nothing is
ever given out twice. A member can change in place when its role says so (`Member.in_place`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paddleflow.engine.board import Active, Board, Waiting
from paddleflow.engine.changeset import Join, Writes
from paddleflow.engine.launch import LaunchContext, prepare
from paddleflow.errors import Temporary
from paddleflow.jobs.facts import Evicted, Fact, Key, Resized
from paddleflow.scheduling.classes import allocated_total
from paddleflow.scheduling.model import Allocation, Assignment, Preempt, Resize
from paddleflow.store.events import NewEvent


def fact_for(
    board: Board, decision: Preempt | Resize, writes: Writes, context: LaunchContext, now: float
) -> tuple[Active, Fact] | None:
    """Which job gets which fact; None when it has ended meanwhile, or cannot change after all."""
    active = board.active.get(decision.job)
    held = board.core.allocations.get(decision.job)
    if active is None or held is None:
        return None
    if isinstance(decision, Preempt):
        lost = max(0.0, now - held.since)
        text = f"made way for {decision.by} after {lost:.0f} s: {decision.reason.text}"
        writes.evictions.append((decision.job, now, decision.by, lost))
        return active, Evicted(now, text)
    return _resize(board, active, held, decision, writes, context, now)


def _resize(
    board: Board, active: Active, held: Allocation, decision: Resize, writes: Writes, context: LaunchContext, now: float
) -> tuple[Active, Fact] | None:
    added, removed = _keys(decision.added), _keys(decision.removed)
    free = {member.role for member in active.job.members if member.in_place}
    anew = any(role not in free for role, _ in (*added, *removed))
    text = _resize_text(held, decision, anew)
    if not anew and added:
        try:
            places = board.assign_places(decision.added, active.job.framework)
        except Temporary:  # no ports: it stays as it is
            board.core.resized(decision.job, [a for a in held.assignments if a not in set(decision.added)])
            return None
        active.job = replace(active.job, places=(*active.job.places, *places))
        fresh = prepare(active.job, context)
        active.prepared = {**active.prepared, **{key: fresh[key] for key in added}}
        writes.joins.append(Join(decision.job, active.job.attempt, places))
    writes.resizes.append((decision.job, now, anew, max(0.0, now - held.since) if anew else 0.0))
    writes.sizes.append((decision.job, allocated_total(held)))
    data = {"added": _names(added), "removed": _names(removed), "by": decision.by, "anew": anew, "message": text}
    writes.events.append(NewEvent("job", decision.job, now, "members", data))
    return active, Resized(now, added, removed, text, anew)


def _resize_text(held: Allocation, decision: Resize, anew: bool) -> str:
    """What happens to its members, for a person."""
    after = len(held.assignments) - len(decision.removed)
    before = len(held.assignments) - len(decision.added)
    why = f"for {decision.by}" if decision.by else "because there is room"
    return f"{'started anew with' if anew else 'has'} {after} instead of {before} members {why}"


def _keys(assignments: Iterable[Assignment]) -> tuple[Key, ...]:
    return tuple((a.role, a.index) for a in assignments)


def _names(keys: Iterable[Key]) -> list[str]:
    return [f"{role}-{index}" for role, index in keys]


def finish_shrink(board: Board, active: Active, writes: Writes) -> None:
    """The members that had to go have gone: what they held is free."""
    held = _settled(board, active.job.id)
    if held is None:
        return
    left = {(a.role, a.index) for a in held.assignments}
    board.ports.release(port for place in active.job.places if place.key not in left for port in place.ports)
    active.job = replace(active.job, places=tuple(place for place in active.job.places if place.key in left))
    writes.sizes.append((active.job.id, allocated_total(held)))


def finish_restart(board: Board, active: Active, now: float) -> None:
    """All members have gone; the job is placed again in this turn, unless it must make way by now."""
    job = active.job.id
    held = _settled(board, job)
    again = Waiting(active.request, active.job.framework, active.touched, active.job.attempt)
    if held is None or board.core.leaving(job):
        board.release(active)
        board.enqueue(again, None, now)
        return
    board.core.restarted(job, now)
    board.active.pop(job, None)
    board.ports.release(active.ports)
    board.restarting[job] = again


def _settled(board: Board, job: str) -> Allocation | None:
    """The job in the scheduler without the members that were told to go."""
    held, shrink = board.core.allocations.get(job), board.core.shrinks.get(job)
    if held is not None and shrink is not None:
        gone = set(shrink.members)
        board.core.resized(job, [a for a in held.assignments if (a.role, a.index) not in gone])
    return board.core.allocations.get(job)
