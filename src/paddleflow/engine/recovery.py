"""The board, rebuilt from the database and the runtime: at start, after a crash, and after any error of a turn.

For every member that the rows call started or starting, the runtime's word decides:

| rows say | runtime says | what follows |
|---|---|---|
| pending  | nothing      | it was never started: launched now (the intent was durable, the start was not) |
| pending  | running      | it was started but not recorded: adopted |
| running  | running      | adopted |
| waiting  | running      | it was prefetched (see `prefetch`) and began: placed and adopted |
| any      | ended        | the end is recorded |
| running  | nothing      | lost: its end is not known, the member has failed |
| any, job terminating | nothing | it has ended |
| members without a process | – | as the rows say |
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field

from paddleflow.base.ids import AttemptId
from paddleflow.base.values import dataclass
from paddleflow.engine.board import Active, Board, Waiting, activate
from paddleflow.engine.changeset import Changeset
from paddleflow.engine.launch import LaunchContext, MemberPlacement, attempt_of
from paddleflow.engine.ports import Ports
from paddleflow.engine.prefetch import Prefetcher
from paddleflow.engine.turn import advance_job, failure
from paddleflow.jobs.facts import MemberEnded, StopAsked
from paddleflow.jobs.model import JobStatus, TaskStatus
from paddleflow.jobs.queries import evicted_jobs, find_job, held_jobs, tasks_of_held_jobs, waiting_classes
from paddleflow.jobs.rows import EvictedJob, JobRow, TaskRow, WaitingClass, allocation_of, members_of, requests_of
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import AttemptObservation, Ready, Started
from paddleflow.scheduling.model import Eviction, Node, Queue, Snapshot
from paddleflow.scheduling.record import Recorded
from paddleflow.scheduling.rules import DEFAULTS, Rules
from paddleflow.store.database import Tx

LOST = "the process is gone and nobody saw how it ended"


@dataclass(frozen=True, slots=True)
class Records:
    """What the database says of all jobs that have not ended."""

    held: list[JobRow]
    tasks: list[TaskRow]
    waiting: list[WaitingClass]
    evicted: list[EvictedJob] = field(default_factory=list)  #: those whose eviction still counts


def read_records(tx: Tx, cluster: str, since: float) -> Records:
    """All of a cluster; evictions before `since` count no more."""
    return Records(
        held_jobs(tx, cluster),
        tasks_of_held_jobs(tx, cluster),
        waiting_classes(tx, cluster),
        evicted_jobs(tx, cluster, since),
    )


def read_jobs(tx: Tx, cluster: str, jobs: Iterable[str]) -> list[JobRow]:
    """The rows of those of these jobs that wait and are of steps: nobody else is ever ahead, and theirs are the ids that are never used again."""
    rows = [row for job in jobs if (row := find_job(tx, job)) is not None and row.run_id is not None]
    return [row for row in rows if row.cluster == cluster and not row.placed and not JobStatus(row.status).final]


def rebuild(
    records: Records,
    nodes: Sequence[Node],
    queues: Sequence[Queue],
    ports: Ports,
    context: LaunchContext,
    now: float,
    prefetch: Prefetcher,
    rules: Rules = DEFAULTS,
) -> Board:
    """The board as the database says; `compare` then takes in what the runtime knows."""
    tasks: dict[str, list[TaskRow]] = defaultdict(list)
    for task in records.tasks:
        tasks[task.job_id].append(task)
    current = {row.id: _present(tasks[row.id], row.attempt) for row in records.held}
    actives: dict[str, Active] = {}
    failures = []
    allocations = []
    for row in records.held:
        mine = current[row.id]
        try:
            held, members = allocation_of(row, mine), members_of(row.members)
            actives[row.id] = activate(
                row, held.request, members, mine, row.attempt, places_of(mine), context, prefetch
            )
            allocations.append(held)
        except Exception as error:  # a fault of ours in one job must not stop the others, again and again
            failures.append(failure(row.id, row.attempt, [(task.role, task.idx) for task in mine], error, now))
    evictions = tuple(
        Eviction(row.id, row.evicted_by, row.evicted_at, gone=row.status != JobStatus.PREEMPTING)
        for row in records.evicted
    )
    shrinks = tuple(
        shrink
        for row in records.held
        if (shrink := _shrink(row, current[row.id], now)) is not None and row.id in actives
    )
    snapshot = Snapshot(
        now, tuple(nodes), tuple(queues), (), tuple(allocations), evictions=evictions, shrinks=shrinks, rules=rules
    )
    board = Board(Recorded.of(snapshot), ports, prefetch)
    board.failures = failures
    for job, active in actives.items():
        board.active[job] = active
        prefetch.placed(job, active.slot_class)
        ports.hold(active.ports)
    _enqueue_waiting(board, records.waiting, now)
    return board


def _enqueue_waiting(board: Board, classes: Iterable[WaitingClass], now: float) -> None:
    for each in classes:
        try:
            requests, rest = requests_of(each), (each.framework, each.touched, each.attempt)
        except Exception as error:  # as above
            board.failures += [failure(job, each.attempt, (), error, now) for _, job, _ in each.jobs]
            continue
        if each.gated:
            for request in requests:
                board.enqueue(Waiting(request, *rest), None, now, gated=True)
            continue
        board.enqueue_all([(Waiting(request, *rest), each.not_before) for request in requests], now)
        if each.status == JobStatus.PENDING:
            jobs = [request.job for request in requests]
            board.core.mark_explained(jobs)
            board.reported.append((each.message, jobs))


def places_of(tasks: Iterable[TaskRow]) -> tuple[MemberPlacement, ...]:
    """The places that task rows hold."""
    return tuple(
        MemberPlacement(
            task.role,
            task.idx,
            task.node,
            tuple((name, tuple(numbers)) for name, numbers in json.loads(task.devices)),
            tuple(json.loads(task.ports)),
        )
        for task in tasks
    )


def _present(tasks: Iterable[TaskRow], attempt: int) -> list[TaskRow]:
    """The members of the attempt that continues, without those that were asked to leave and have ended."""
    return [t for t in tasks if t.attempt == attempt and not (t.leaving and TaskStatus(t.status).final)]


def _shrink(row: JobRow, tasks: Iterable[TaskRow], now: float) -> Eviction | None:
    """A change of members that was under way: one that is started anew continues with the members that it had."""
    going = tuple((task.role, task.idx) for task in tasks if task.leaving)
    return Eviction(row.id, "", now, going) if going or row.outcome == JobStatus.PENDING else None


def compare(board: Board, known: Iterable[AttemptObservation], changes: Changeset, now: float) -> None:
    """What the runtime does not know of must be launched, or has been lost."""
    known_attempts: set[AttemptId] = {seen.attempt for seen in known if not isinstance(seen, Returned)}
    for active in list(board.active.values()):
        _compare_job(board, active, known_attempts, changes, now)


def _compare_job(board: Board, active: Active, known_attempts: set[AttemptId], changes: Changeset, now: float) -> None:
    job = active.job
    if active.state.status is JobStatus.TERMINATING and active.state.outcome is None:
        advance_job(board, active, StopAsked(now, active.state.message), changes, now)
    for task in active.state.tasks:
        attempt = attempt_of(job, task.key)
        prepared = active.prepared[task.key]
        if task.status not in {TaskStatus.PENDING, TaskStatus.RUNNING}:
            continue
        ending = active.state.outcome is not None
        if prepared.passive:
            if ending:
                advance_job(board, active, MemberEnded(now, task.key, 0), changes, now)
            elif not task.ready:
                changes.launches.append(prepared)
                changes.synthetic += [Started(attempt, now, 0), Ready(attempt, now)]
        elif attempt in known_attempts:
            if ending or task.leaving:
                changes.halts.append(attempt)
        elif task.status is TaskStatus.PENDING and not ending:
            changes.launches.append(prepared)
        else:
            advance_job(board, active, MemberEnded(now, task.key, None, LOST), changes, now)
