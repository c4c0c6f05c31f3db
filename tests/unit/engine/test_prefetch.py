"""Short jobs of steps that follow each other: who is handed out ahead, who takes whose place, and when all are asked back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.base.quantity import Resources
from paddleflow.engine.board import Board
from paddleflow.engine.changeset import Changeset
from paddleflow.engine.launch import LaunchContext
from paddleflow.engine.ports import Ports
from paddleflow.engine.prefetch import HORIZON, MAX_PER_JOB, Prefetch, SlotClass, kind_of
from paddleflow.engine.recovery import Records, compare, rebuild
from paddleflow.engine.turn import apply_observations, apply_row_changes, decide
from paddleflow.jobs.model import JobStatus, Member, UsedSecret
from paddleflow.jobs.rows import ChangedJob, JobRow, request_of
from paddleflow.runtimes.prefetch import Returned
from paddleflow.runtimes.runtime import AttemptObservation, Ended, Started
from paddleflow.scheduling.model import Node, Queue
from paddleflow.settings import JobSettings
from tests.job_tables import JOB, changed, row_of, task_row, waiting

ONE = Resources.of(1000, 2**30)
SMALL = Member("worker", 1, ("true",), {}, ONE, ONE, document={"command": "true"})
STEP = replace(JOB, members=(SMALL,), request=ONE, priority="NORMAL")
AROUND = LaunchContext("/data/{}".format, {}, {"n1": "127.0.0.1"}, JobSettings(restart_limit=3))
NOW = 30.0


def attempt(number: int) -> AttemptId:
    return AttemptId(f"job-{number}.worker-0.1")


def step_row(number: int, run: str = "run-1", **columns: Any) -> JobRow:
    return row_of(replace(STEP, id=f"job-{number}"), seq=number, run_id=run, status="pending", **columns)


def scene(*steps: JobRow, after: dict[str, Callable[[], list[str]]] | None = None) -> Board:
    """One place, which job-1 has; the others wait, and the engine knows the rows of steps' jobs."""
    first = step_row(1)._replace(status="running", placed=1, attempt=1, started_at=29.99)
    task = task_row(devices="[]", started_at=29.99)
    records = Records([first], [task], waiting(*steps))
    ports = Ports(range(2000, 2010), lambda port: True)
    board = rebuild(records, [Node("n1", ONE)], [Queue("q", None)], ports, AROUND, 20.0, Prefetch())
    for row in steps:
        if row.run_id is not None:
            predecessors = (after or {}).get(row.id)
            board.prefetch.queued(row.id, row.run_id, predecessors)
            board.prefetch.written(row, (SMALL,))
    return board


def turn(board: Board, *seen: AttemptObservation, rows: tuple[ChangedJob, ...] = ()) -> Changeset:
    changes = Changeset()
    apply_observations(board, seen, changes, NOW)
    apply_row_changes(board, rows, changes, NOW)
    decide(board, changes, AROUND, NOW)
    board.prefetch.launch(board, changes, AROUND)
    changes.close()
    return changes


def ahead(changes: Changeset) -> list[AttemptId]:
    return [item.launch.attempt for item in changes.launches if item.launch.waits_for_slot]


def test_the_next_step_goes_ahead_and_stays_in_the_line() -> None:
    board = scene(step_row(2), step_row(3))
    changes = turn(board)
    assert ahead(changes) == [attempt(2)], "as long as nothing is known of durations, one for each that runs"
    assert {"job-2", "job-3"} <= board.core.pending.keys()
    assert changes.writes.placements == changes.writes.successors == []
    assert ahead(turn(board)) == []


def test_a_step_that_goes_ahead_keeps_its_secrets() -> None:
    row, used = step_row(2), UsedSecret("key", "KEY", "")
    board = scene(row)
    board.prefetch.written(row, (replace(SMALL, document={"secrets": [{"name": "key", "env": "KEY"}]}),))
    (launched,) = turn(board).launches
    assert launched.launch.waits_for_slot
    assert launched.secrets == (used,)


def test_a_successor_is_placed_where_the_other_one_was() -> None:
    board = scene(step_row(2), step_row(3))
    turn(board)
    changes = turn(board, Ended(attempt(1), NOW - 0.3, 0, successor=attempt(2)), Started(attempt(2), NOW - 0.2, 7))
    assert [(item.job, item.attempt, item.at) for item in changes.writes.successors] == [("job-2", 1, NOW - 0.3)]
    assert {change.after.id: change.after.status for change in changes.writes.changes} == {
        "job-1": JobStatus.SUCCEEDED, "job-2": JobStatus.RUNNING,
    }  # fmt: skip
    assert list(board.core.allocations) == ["job-2"]
    assert board.core.usage("q") == ONE
    assert ahead(changes) == [attempt(3)]


def test_a_successor_may_end_in_the_turn_in_which_it_began() -> None:
    board = scene(step_row(2), step_row(3))
    turn(board)
    end = Ended(attempt(2), NOW + 0.2, 0, started_at=NOW + 0.1)
    changes = turn(board, Ended(attempt(1), NOW, 0, successor=attempt(2)), end)
    told = {change.after.id: [status for _, status, _ in change.history] for change in changes.writes.changes}
    assert told["job-2"] == [JobStatus.RUNNING, JobStatus.SUCCEEDED]
    assert [item.job for item in changes.writes.placements] == ["job-3"], "nobody took its place"


def test_somebody_else_who_waits_has_all_asked_back() -> None:
    board = scene(step_row(2))
    assert ahead(turn(board)) == [attempt(2)]
    other = changed(step_row(9, run="run-2"), status="init", touched=2)
    changes = turn(board, rows=(other,))
    assert changes.recalls == [attempt(2)]
    assert turn(board).recalls == [], "once is enough"
    changes = turn(board, Returned(attempt(2)))
    assert (ahead(changes), changes.recalls) == ([], [])
    changes = turn(board, Ended(attempt(1), NOW, 0))
    assert [item.job for item in changes.writes.placements] == ["job-2"]


def test_what_one_that_is_ahead_waits_for_is_told_when_it_comes_back() -> None:
    board = scene(step_row(2, gated=1), after={"job-2": lambda: ["job-1"]})
    assert ahead(turn(board)) == [attempt(2)]
    board.ungate("job-2")
    assert turn(board).writes.waits == [], "it may have begun by now"
    ((job, *_, reason),) = turn(board, Returned(attempt(2))).writes.waits
    assert job == "job-2"
    assert "free" in reason


@pytest.mark.parametrize(
    "changed", [Queue("q", None, open=False), Queue("q", Resources.of(500, 2**30)), Queue("other", None)]
)
def test_a_queue_that_is_closed_lowered_or_gone_passes_no_place_on(changed: Queue) -> None:
    board = scene(step_row(2))
    assert ahead(turn(board)) == [attempt(2)]
    board.core.set_queues([changed])
    assert turn(board).recalls == [attempt(2)]
    assert ahead(turn(board, Returned(attempt(2)))) == []


def test_nobody_goes_ahead_while_jobs_of_nobody_s_run_wait() -> None:
    board = scene(step_row(2), step_row(9, run=None))  # type: ignore[arg-type]  # a job that is no step
    assert ahead(turn(board)) == []


def test_a_step_that_is_stopped_while_it_is_ahead_is_ended_wherever_it_is() -> None:
    board = scene(step_row(2))
    turn(board)
    changes = turn(board, rows=(changed(step_row(2), status="terminated", touched=2),))
    assert changes.halts == [attempt(2)]
    changes = turn(board, Ended(attempt(1), NOW, 0, successor=attempt(2)), Started(attempt(2), NOW, 7))
    assert changes.writes.successors == []
    assert changes.halts == [attempt(2)], "it began all the same, and is nobody's"
    assert board.core.allocations == {}


def test_a_step_whose_row_changed_is_asked_back_and_waits_anew() -> None:
    board = scene(step_row(2))
    turn(board)
    changes = turn(board, rows=(changed(step_row(2), touched=2, priority="NORMAL"),))
    assert (changes.recalls, changes.halts) == ([attempt(2)], [])
    assert "job-2" in board.core.pending


def test_who_is_held_back_goes_ahead_after_those_that_it_waits_for() -> None:
    board = scene(step_row(2), step_row(3, gated=1), after={"job-3": lambda: ["job-2"]})
    assert board.gated == {"job-3"}
    assert "job-3" not in board.core.pending
    slot_class = board.active["job-1"].slot_class
    board.prefetch.placed("short", slot_class)
    board.prefetch.ended("short", slot_class, 0.001)
    changes = turn(board)
    assert ahead(changes) == [attempt(2), attempt(3)]
    assert [item.launch.prefetch.after for item in changes.launches if item.launch.prefetch] == [(), (attempt(2),)]


def test_who_waits_for_nobody_at_work_stays_held_back_until_it_is_due() -> None:
    board = scene(step_row(3, gated=1), after={"job-3": list})
    assert ahead(turn(board)) == []
    board.ungate("job-3")
    assert "job-3" in board.core.pending
    assert ahead(turn(board)) == [attempt(3)]


def test_a_process_of_a_job_that_waits_is_taken_up() -> None:
    board = scene(step_row(2))
    seen: list[AttemptObservation] = [Ended(attempt(1), NOW, 0), Started(attempt(2), NOW, 7, node="n1")]
    assert board.prefetch.unplaced(board, seen) == {"job-2": "n1"}
    board.prefetch.expect(board, step_row(2), (SMALL,), "n1", AROUND)
    changes = turn(board, *seen)
    assert [item.job for item in changes.writes.successors] == ["job-2"]
    assert list(board.core.allocations) == ["job-2"]


def test_only_small_jobs_have_a_slot_class() -> None:
    assert kind_of(request_of(step_row(2)), "standalone")
    assert not kind_of(request_of(row_of(JOB)), "standalone"), "devices are numbered"
    assert not kind_of(request_of(step_row(2)), "paddle")
    assert not kind_of(request_of(step_row(2))._replace(member_sets=()), "standalone")


def test_the_shorter_jobs_are_the_more_go_ahead() -> None:
    slot_class = SlotClass(running={"a", "b"})
    assert slot_class.capacity() == 2
    slot_class.seconds = HORIZON / 10
    assert slot_class.capacity() == 20
    slot_class.seconds = 0.0
    assert slot_class.capacity() == 2 * MAX_PER_JOB
    slot_class.seconds = 60.0
    assert slot_class.capacity() == 0


def test_a_slot_class_learns_how_long_its_jobs_take() -> None:
    prefetch = Prefetch()
    slot_class = prefetch.slot_class_of(request_of(step_row(2)), "standalone", "n1")
    for job, seconds in (("a", 2.0), ("b", 1.0)):
        prefetch.placed(job, slot_class)
        prefetch.ended(job, slot_class, seconds)
    assert prefetch._slot_classes[slot_class].seconds == 1.8


def test_a_successor_takes_the_node_of_its_predecessor() -> None:
    """Two nodes, and a job on each: the one that ends first passes its own node on, not the first one there is."""
    rows = [step_row(n)._replace(status="running", placed=1, attempt=1, started_at=29.99) for n in (1, 2)]
    tasks = [task_row(job_id=f"job-{n}", node=f"n{n}", devices="[]", started_at=29.99) for n in (1, 2)]
    steps = [step_row(n) for n in (3, 4)]
    nodes = [Node("n1", ONE), Node("n2", ONE)]
    ports = Ports(range(2000, 2010), lambda port: True)
    records = Records(rows, tasks, waiting(*steps))
    board = rebuild(records, nodes, [Queue("q", None)], ports, AROUND, 20.0, Prefetch())
    for row in steps:
        board.prefetch.queued(row.id, "run-1", None)
        board.prefetch.written(row, (SMALL,))
    launches = {
        item.launch.prefetch.slot_class: item.launch.attempt for item in turn(board).launches if item.launch.prefetch
    }
    successor = launches[board.active["job-2"].slot_class]
    changes = turn(board, Ended(attempt(2), NOW, 0, successor=successor))
    assert [place.node for item in changes.writes.successors for place in item.places] == ["n2"]
    (job,) = (item.job for item in changes.writes.successors)
    assert [each.node for each in board.core.allocations[job].assignments] == ["n2"]


def test_what_was_given_back_does_not_count_as_known() -> None:
    """A job was ahead, then placed, and the engine began anew before it could say so: it must be launched."""
    row = step_row(1)._replace(status="pending", placed=1, attempt=1)
    task = task_row(devices="[]", status="pending", ready=0, started_at=None)
    ports = Ports(range(2000, 2010), lambda port: True)
    board = rebuild(Records([row], [task], []), [Node("n1", ONE)], [Queue("q", None)], ports, AROUND, 20.0, Prefetch())
    changes = Changeset()
    compare(board, [Returned(attempt(1))], changes, NOW)
    assert [item.launch.attempt for item in changes.launches] == [attempt(1)]
