"""One turn of the engine without its I/O: rows that others changed, and what recovery makes of rows and runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.board import Board
from paddleflow.engine.changeset import Changeset
from paddleflow.engine.launch import LaunchContext
from paddleflow.engine.ports import Ports
from paddleflow.engine.prefetch import NoPrefetch, Prefetch, Prefetcher
from paddleflow.engine.recovery import LOST, Records, compare, rebuild
from paddleflow.engine.turn import apply_observations, apply_placements, apply_row_changes, decide
from paddleflow.jobs.model import JobStatus, Member, NewJob
from paddleflow.jobs.rows import ChangedJob, JobRow, TaskRow
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Ready, Started
from paddleflow.scheduling.model import Node, Queue
from paddleflow.settings import JobSettings
from tests.job_tables import JOB, WORKER, changed, row_of, task_row, waiting

NODE = Node("n1", Resources.of(4000, 8 * 2**30, {"nvidia.com/gpu": 4000}))
QUEUE = Queue("q", None)
AROUND = LaunchContext("/data/{}".format, {}, {"n1": "127.0.0.1"}, JobSettings(restart_limit=3))
A1, A2 = AttemptId("job-1.worker-0.1"), AttemptId("job-1.worker-0.2")
AGAIN = replace(JOB, members=(replace(WORKER, env={"PF_JOB_RESTART_POLICY": "OnFailure"}),))
MPI = replace(
    JOB,
    kind="distributed",
    framework="mpi",
    members=(
        Member("master", 1, ("mpirun", "x"), {}, Resources.of(100, 2**20), None),
        Member("worker", 1, (), {}, Resources.of(100, 2**20), None),
    ),
)


PREFETCHERS: list[Callable[[], Prefetcher]] = []


@pytest.fixture(params=[Prefetch, NoPrefetch], autouse=True)
def _both(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of this holds with the optimisation and without it."""
    PREFETCHERS.append(request.param)
    yield
    PREFETCHERS.pop()


def board_of(*rows: JobRow, tasks: Iterable[TaskRow] = ()) -> Board:
    held = [row for row in rows if row.placed]
    others = waiting(*[row for row in rows if not row.placed])
    ports = Ports(range(2000, 2010), lambda port: True)
    return rebuild(Records(held, list(tasks), others), [NODE], [QUEUE], ports, AROUND, 20.0, PREFETCHERS[-1]())


def running(job: NewJob = JOB, **columns: Any) -> tuple[Board, JobRow]:
    row = row_of(job, status="running", placed=1, attempt=1, started_at=11.0, **columns)
    return board_of(row, tasks=[task_row(message="")]), row


def turn(board: Board, seen: Iterable[AttemptObservation] = (), rows: Iterable[JobRow | ChangedJob] = ()) -> Changeset:
    changes = Changeset()
    apply_observations(board, seen, changes, 30.0)
    apply_row_changes(board, [changed(r) if isinstance(r, JobRow) else r for r in rows], changes, 30.0)
    changes.close()
    return changes


def written(changes: Changeset) -> list[tuple[JobStatus, str, list[str]]]:
    return [(c.after.status, c.after.message, [status for _, status, _ in c.history]) for c in changes.writes.changes]


def test_what_the_cluster_takes_away_waits_for_a_new_place_and_uses_up_no_retry() -> None:
    board, _ = running()
    changes = turn(board, [Ended(A1, 25.0, 143, "taken away from node n1: drained", node="n1", disrupted=True)])
    ((status, message, _),) = written(changes)
    assert status is JobStatus.PENDING
    assert message == "taken away from node n1: drained; it waits for a place"
    assert [(job, by) for job, _, by, _ in changes.writes.evictions] == [("job-1", "node/n1")]
    assert changes.ended == [A1]
    assert "job-1" in board.waiting


def test_events_of_a_job_go_forward_whatever_the_clock_of_its_node_says() -> None:
    board, _ = running()
    stopped = Ended(A1, 22.0, 143, "its node was lost", node="n1", disrupted=True)
    (change,) = turn(board, [stopped]).writes.changes
    assert [(at, status) for at, status, _ in change.history] == [(30.0, "preempting"), (30.0, "pending")]

    board, _ = running(updated_at=27.0)  # written by a server before this one
    (change,) = turn(board, [Ended(A1, 22.0, 0)]).writes.changes
    assert [(at, status) for at, status, _ in change.history] == [(27.0, "succeeded")]


def test_a_job_that_is_being_stopped_is_not_started_again_by_a_disruption() -> None:
    board, row = running()
    turn(board, rows=[row._replace(status="terminating", touched=row.touched + 1)])
    changes = turn(board, [Ended(A1, 25.0, 143, "drained", node="n1", disrupted=True)])
    assert [status for status, _, _ in written(changes)] == [JobStatus.TERMINATED]
    assert not changes.writes.evictions


def test_the_events_of_a_job_that_began_before_the_turn_that_placed_it_go_forward() -> None:
    board, _ = running()
    held = board.core.allocations["job-1"]
    changes = turn(board, [Ended(A1, held.since - 1.0, 0, started_at=held.since - 2.0)])
    ((at, status, _),) = changes.writes.changes[0].history
    assert (at, status) == (held.since, JobStatus.SUCCEEDED)
    assert changes.writes.changes[0].after.finished_at == held.since - 1.0


# ---- stops that meet ends ------------------------------------------------------------------------------------------


def test_a_stop_of_a_running_job_halts_it() -> None:
    board, row = running()
    changes = turn(board, rows=[changed(row, status="terminating", message="stopped by ann", touched=2)])
    assert written(changes) == [(JobStatus.TERMINATING, "stopped by ann", [])]
    assert changes.halts == [A1]
    assert changes.writes.seen == [(7, 2)]


def test_a_stop_that_comes_in_the_turn_of_the_end_changes_nothing() -> None:
    board, row = running()
    stop = changed(row, status="terminating", message="stopped by ann", touched=2)
    changes = turn(board, [Ended(A1, 29.0, 0)], [stop])
    assert written(changes) == [(JobStatus.SUCCEEDED, "", ["succeeded"])]
    assert changes.writes.seen == [(7, 2)]
    assert not board.active
    assert not board.waiting


def test_a_stop_that_comes_in_the_turn_of_a_restart_ends_the_job_once() -> None:
    board, row = running(AGAIN)
    stop = changed(row, status="terminating", message="stopped by ann", touched=2)
    changes = turn(board, [Ended(A1, 29.0, 1)], [stop])
    ((status, message, history),) = written(changes)
    assert (status, message, history) == (JobStatus.TERMINATED, "stopped by ann", ["pending", "terminated"])
    assert not board.active
    assert not board.waiting
    assert board.core.pending_count == 0
    decide(board, changes, AROUND, 60.0)
    assert changes.writes.placements == []


def test_a_stop_that_is_seen_one_turn_after_a_restart_ends_the_job() -> None:
    board, row = running(AGAIN)
    turn(board, [Ended(A1, 29.0, 1)])
    assert set(board.waiting) == {"job-1"}
    changes = turn(board, rows=[changed(row, status="terminating", placed=0, message="enough", touched=2)])
    assert written(changes) == [(JobStatus.TERMINATED, "enough", ["terminated"])]
    assert not board.waiting


def test_a_stopped_job_that_waited_is_forgotten() -> None:
    board = board_of(row_of(JOB))
    assert board.core.pending_count == 1
    changes = turn(board, rows=[row_of(JOB, status="terminated", touched=2)])
    assert (written(changes), changes.writes.seen) == ([], [(7, 2)])
    assert not board.waiting
    assert board.core.pending_count == 0


# ---- deletions -----------------------------------------------------------------------------------------------------


def test_a_job_that_is_gone_is_forgotten() -> None:
    board = board_of(row_of(JOB))
    changes = turn(board, rows=[row_of(JOB, status="deleted", touched=0)])
    assert not board.waiting
    assert (changes.writes.deleted, changes.writes.seen) == ([7], [])


@pytest.mark.parametrize("placed", [0, 1])
def test_a_later_job_of_the_same_id_stays(placed: int) -> None:
    later = row_of(JOB, seq=9, placed=placed, attempt=placed, status="pending")
    board = board_of(later, tasks=[task_row()])
    changes = turn(board, rows=[row_of(JOB, status="deleted", touched=0)])
    assert changes.writes.deleted == [7]
    assert set(board.waiting) | set(board.active) == {"job-1"}


def test_a_new_job_takes_the_place_of_the_one_that_is_gone() -> None:
    board = board_of(row_of(JOB))
    turn(board, rows=[row_of(JOB, status="deleted", touched=0), row_of(JOB, seq=9)])
    assert board.waiting["job-1"].request.seq == 9


# ---- reasons -------------------------------------------------------------------------------------------------------


def test_a_board_that_was_rebuilt_says_only_what_has_changed() -> None:
    large = replace(JOB, members=(replace(WORKER, request=Resources.of(5000, 2**30)),))
    first = Changeset()
    decide(board_of(row_of(large)), first, AROUND, 20.0)
    ((_, _, _, reason),) = first.writes.waits
    rows = [
        row_of(replace(large, id=id), seq=seq, status=status, message=message)
        for id, seq, status, message in (
            ("new", 1, "init", ""), ("same", 2, "pending", reason), ("other", 3, "pending", "the moon is full"),
        )
    ]  # fmt: skip
    changes, board = Changeset(), board_of(*rows)
    decide(board, changes, AROUND, 20.0)
    assert changes.writes.waits == [("new", 1, 1, reason), ("other", 3, 1, reason)]
    again = Changeset()
    decide(board, again, AROUND, 21.0)
    assert not again.writes.waits


# ---- placements ----------------------------------------------------------------------------------------------------


def test_a_placement_that_somebody_forestalled_gives_everything_back() -> None:
    board = board_of(row_of(replace(MPI, framework="paddle", members=(replace(WORKER, replicas=2),))))
    changes = Changeset()
    decide(board, changes, AROUND, 20.0)
    (placement,) = changes.writes.placements
    assert [len(place.ports) for place in placement.places] == [2, 2]
    apply_placements(board, changes, {}, AROUND, 20.0)
    assert not board.waiting
    assert not board.active
    assert not board.core.allocations
    assert board.ports.take(10), "all ports are free again"
    turn(board, rows=[row_of(JOB, touched=2)])
    assert set(board.waiting) == {"job-1"}, "the row is still unseen, so the job comes back"


def test_a_job_waits_for_ports_and_then_gets_them() -> None:
    gang = replace(JOB, framework="paddle", kind="distributed", members=(replace(WORKER, replicas=2),))
    board = board_of(row_of(gang))
    board.ports.hold(range(2000, 2010))
    changes = Changeset()
    decide(board, changes, AROUND, 20.0)
    ((_, _, _, reason),) = changes.writes.waits
    assert "ports are free" in reason
    assert board.next_due() == 21.0
    board.ports.release(range(2000, 2010))
    again = Changeset()
    decide(board, again, AROUND, 21.0)
    assert len(again.writes.placements) == 1


def test_observations_of_unknown_attempts_are_forgotten() -> None:
    board, _ = running()
    changes = turn(board, [Started(A2, 1.0, 5), Ended(A2, 2.0, 0), Ended(AttemptId("other.worker-0.1"), 2.0, 0)])
    assert changes.stale == [A2, "other.worker-0.1"]
    assert changes.writes.changes == []
    assert set(board.active) == {"job-1"}


# ---- recovery ------------------------------------------------------------------------------------------------------


def recovered(board: Board, known: Iterable[AttemptObservation] = ()) -> Changeset:
    known, changes = list(known), Changeset()
    compare(board, known, changes, 30.0)
    apply_observations(board, known, changes, 30.0)
    changes.close()
    return changes


def test_an_intent_without_a_start_is_launched() -> None:
    row = row_of(JOB, status="pending", placed=1, attempt=1)
    changes = recovered(board_of(row, tasks=[task_row(status="pending", ready=0, started_at=None)]))
    assert [item.launch.attempt for item in changes.launches] == [A1]
    assert changes.writes.changes == []


def test_what_runs_is_taken_up() -> None:
    row = row_of(JOB, status="pending", placed=1, attempt=1)
    board = board_of(row, tasks=[task_row(status="pending", ready=0, started_at=None)])
    changes = recovered(board, [Started(A1, 25.0, 5), Ready(A1, 25.0)])
    assert changes.launches == []
    assert written(changes) == [(JobStatus.RUNNING, "", ["running"])]


def test_an_end_that_nobody_saw_is_recorded() -> None:
    board, _ = running()
    changes = recovered(board, [Ended(A1, 25.0, 3)])
    assert written(changes) == [(JobStatus.FAILED, "the process exited with code 3", ["failed"])]
    assert changes.ended == [A1]


def test_a_process_that_is_gone_has_failed() -> None:
    board, _ = running()
    assert written(recovered(board)) == [(JobStatus.FAILED, LOST, ["failed"])]


def test_a_stop_before_the_crash_is_carried_out() -> None:
    row = row_of(JOB, status="terminating", message="stopped by ann", placed=1, attempt=1)
    changes = recovered(board_of(row, tasks=[task_row()]), [Started(A1, 25.0, 5)])
    assert set(changes.halts) == {A1}
    gone = recovered(board_of(row, tasks=[task_row()]))
    assert written(gone) == [(JobStatus.TERMINATED, "stopped by ann", ["terminated"])]


@pytest.mark.parametrize("status", ["pending", "running"])
def test_slots_are_ready_again_so_that_those_behind_them_start(status: str) -> None:
    """A slot has no process that could tell; killed before its readiness was written, the master waits for it."""
    row = row_of(MPI, status="pending", placed=1, attempt=1)
    tasks = [
        task_row("master", status="waiting", ready=0, started_at=None, devices="[]"),
        task_row("worker", status=status, ready=0, started_at=None, devices="[]"),
    ]
    board = board_of(row, tasks=tasks)
    changes = recovered(board)
    later = turn(board, changes.synthetic)
    assert [item.launch.attempt for item in later.launches] == ["job-1.master-0.1"]


def test_a_restart_waits_its_time_also_after_a_crash() -> None:
    board = board_of(row_of(AGAIN, status="pending", attempt=1, not_before=25.0, message="attempt 1 failed"))
    changes = Changeset()
    decide(board, changes, AROUND, 20.0)
    assert changes.writes.placements == []
    assert board.next_due() == 25.0
    decide(board, changes, AROUND, 25.0)
    assert [item.attempt for item in changes.writes.placements] == [2]
