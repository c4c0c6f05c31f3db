"""What the scheduler decided about running jobs, as facts for their machines and rows to write."""

from __future__ import annotations

from dataclasses import replace

from paddleflow.base.quantity import Resources
from paddleflow.engine.board import Board
from paddleflow.engine.changeset import Writes
from paddleflow.engine.launch import LaunchContext
from paddleflow.engine.ports import Ports
from paddleflow.engine.preemption import fact_for, finish_restart, finish_shrink
from paddleflow.engine.prefetch import NoPrefetch
from paddleflow.engine.recovery import Records, rebuild
from paddleflow.jobs.facts import Evicted, Resized
from paddleflow.scheduling.model import Assignment, Node, Preempt, Queue, Reason, Resize
from paddleflow.settings import JobSettings
from tests.job_tables import JOB, WORKER, row_of, task_row, waiting

NODE = Node("n1", Resources.of(8000, 8 * 2**30, {"nvidia.com/gpu": 8000}))
CONTEXT = LaunchContext("/data/{}".format, {}, {"n1": "127.0.0.1"}, JobSettings(restart_limit=3))
BY = Reason("reclaim", "its queue is below its guarantee")


def board_with(members: int, *, in_place: bool, leaving: int = 0) -> Board:
    """A board with `job-1`, which runs with so many of three members, the last ones of them on their way out."""
    worker = replace(WORKER, replicas=3, least=1, in_place=in_place, request=Resources.of(100, 2**20), limit=None)
    job = replace(JOB, kind="distributed", framework="pytorch", members=(worker,))
    row = row_of(job, status="running", placed=1, attempt=1, started_at=11.0, placed_at=12.0)
    tasks = [
        task_row(index=index, devices="[]", ports=f"[{2000 + index}]", leaving=int(index >= members - leaving))
        for index in range(members)
    ]
    ports = Ports(range(2000, 2010), lambda port: True)
    return rebuild(Records([row], tasks, waiting()), [NODE], [Queue("q", None)], ports, CONTEXT, 20.0, NoPrefetch())


def at(index: int) -> Assignment:
    return Assignment("worker", index, "n1")


def test_a_job_that_must_make_way_is_evicted_with_the_work_that_it_loses() -> None:
    board, writes = board_with(2, in_place=False), Writes()
    found = fact_for(board, Preempt("job-1", "job-2", BY), writes, CONTEXT, 30.0)
    assert found is not None
    text = "made way for job-2 after 18 s: its queue is below its guarantee"
    assert (found[0].job.id, found[1]) == ("job-1", Evicted(30.0, text))
    assert writes.evictions == [("job-1", 30.0, "job-2", 18.0)]


def test_a_job_that_has_ended_meanwhile_is_left_alone() -> None:
    board, writes = board_with(2, in_place=False), Writes()
    assert fact_for(board, Preempt("job-9", "job-2", BY), writes, CONTEXT, 30.0) is None
    assert fact_for(board, Resize("job-9", (), (at(1),)), writes, CONTEXT, 30.0) is None
    assert not writes


def test_members_join_a_job_that_resizes_in_place() -> None:
    board, writes = board_with(2, in_place=True), Writes()
    found = fact_for(board, Resize("job-1", (at(2),), ()), writes, CONTEXT, 30.0)
    assert found is not None
    active, fact = found
    assert isinstance(fact, Resized)
    assert (fact.added, fact.removed, fact.anew) == ((("worker", 2),), (), False)
    (join,) = writes.joins
    assert (join.job, [place.key for place in join.places]) == ("job-1", [("worker", 2)])
    assert set(active.prepared) == {("worker", 0), ("worker", 1), ("worker", 2)}
    assert writes.resizes == [("job-1", 30.0, False, 0.0)]
    assert [event.data["added"] for event in writes.events] == [["worker-2"]]


def test_a_job_that_cannot_resize_in_place_starts_again_at_its_new_size() -> None:
    board, writes = board_with(3, in_place=False), Writes()
    found = fact_for(board, Resize("job-1", (), (at(2),), by="job-2"), writes, CONTEXT, 30.0)
    assert found is not None
    assert isinstance(found[1], Resized)
    assert found[1].anew
    assert found[1].message == "started anew with 2 instead of 3 members for job-2"
    assert writes.resizes == [("job-1", 30.0, True, 18.0)]
    assert not writes.joins


def test_without_free_ports_a_job_stays_as_it_is() -> None:
    board, writes = board_with(2, in_place=True), Writes()
    board.ports.take(8)
    assert fact_for(board, Resize("job-1", (at(2),), ()), writes, CONTEXT, 30.0) is None
    assert not writes
    assert {a.index for a in board.core.allocations["job-1"].assignments} == {0, 1}


def test_what_leaving_members_held_is_free_when_they_have_gone() -> None:
    board, writes = board_with(3, in_place=True, leaving=1), Writes()
    finish_shrink(board, board.active["job-1"], writes)
    assert [place.key for place in board.active["job-1"].job.places] == [("worker", 0), ("worker", 1)]
    assert {a.index for a in board.core.allocations["job-1"].assignments} == {0, 1}
    assert 2002 in board.ports.take(8)


def test_a_job_that_starts_again_is_placed_where_the_scheduler_has_it() -> None:
    board = board_with(3, in_place=False)
    finish_restart(board, board.active["job-1"], 30.0)
    assert "job-1" in board.restarting
    assert "job-1" not in board.active
    assert "job-1" in board.core.allocations


def test_a_job_that_must_make_way_while_it_starts_again_waits_instead() -> None:
    board = board_with(3, in_place=False)
    active = board.active["job-1"]
    board.core.release("job-1")
    finish_restart(board, active, 30.0)
    assert "job-1" in board.waiting
    assert "job-1" not in board.restarting
