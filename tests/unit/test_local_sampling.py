"""Which process belongs to which attempt, and what this machine has."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Invalid
from paddleflow.runtimes.local import sampling
from paddleflow.runtimes.local.capacity import log_limit, this_machine
from paddleflow.runtimes.local.sampling import Process, grown, members, parse_process
from paddleflow.runtimes.runtime import Sample
from paddleflow.settings import LocalSettings

A, B = AttemptId("a"), AttemptId("b")


def test_a_name_with_brackets_and_spaces_does_not_confuse() -> None:
    text = b"7 (a ) b (x) S 3 7 5 0 -1 0 0 0 0 0 10 20 3 4 20 0 1 0 99 1000 25 18446744073709551615 1 1"
    assert parse_process(7, text) == Process(pid=7, parent=3, session=5, ticks=37, pages=25)


def test_members_are_those_of_the_session_and_all_their_descendants() -> None:
    table = {
        10: Process(10, 1, 10, 1, 1),  # leads the session of a
        11: Process(11, 10, 10, 1, 1),
        12: Process(12, 11, 12, 1, 1),  # left the session, still a child
        13: Process(13, 12, 12, 1, 1),
        14: Process(14, 1, 10, 1, 1),  # its parent has gone, the session stays
        20: Process(20, 1, 20, 1, 1),  # leads the session of b
        30: Process(30, 1, 30, 1, 1),  # somebody else
        31: Process(31, 30, 30, 1, 1),
    }
    groups = members(table, {10: A, 20: B})
    assert {name: sorted(p.pid for p in group) for name, group in groups.items()} == {A: [10, 11, 12, 13, 14], B: [20]}


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 30), st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_any_table_of_processes_is_sorted_out(table: dict[int, tuple[int, int]]) -> None:
    """Also one with a circle of parents, as a table read while processes come and go may have."""
    processes = {pid: Process(pid, parent, session, 0, 0) for pid, (parent, session) in table.items()}
    groups = members(processes, {1: A, 2: B})
    listed = [process.pid for group in groups.values() for process in group]
    assert len(listed) == len(set(listed))
    assert {p.pid for p in groups.get(A, [])} >= {p.pid for p in processes.values() if p.session == 1}


def test_a_sample_of_ourselves() -> None:
    taken = sampling.take({os.getsid(0): A}, 5.0)[A]
    assert taken.at == 5.0
    assert taken.memory > 1 << 20
    assert taken.cpu_seconds > 0
    assert taken.net_received is None


def test_counters_never_fall() -> None:
    before = Sample(1.0, 5.0, 100, disk_read=7, disk_write=None)
    after = grown(before, Sample(2.0, 4.0, 50, disk_read=None, disk_write=3))
    assert after == Sample(2.0, 5.0, 50, disk_read=7, disk_write=3)


def test_capacity_from_the_settings() -> None:
    local = LocalSettings(cpus="7500m", memory="20Gi", scalars="nvidia.com/gpu=4, example.com/nic = 2")
    node = this_machine(local)
    assert (node.capacity.cpu, node.capacity.memory) == (7500, 20 << 30)
    assert dict(node.capacity.scalars) == {"nvidia.com/gpu": 4000, "example.com/nic": 2000}
    assert node.address == "127.0.0.1"


def test_capacity_of_the_machine_itself() -> None:
    node = this_machine(LocalSettings())
    assert node.capacity.cpu == 1000 * len(os.sched_getaffinity(0))
    assert node.capacity.memory > 1 << 28


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        this_machine(LocalSettings(cpus="many", memory="-1", scalars="gpu,=3,nic=x"))
    places = [fault.where for fault in caught.value.details]
    assert places == ["local.cpus", "local.memory", "local.scalars", "local.scalars", "local.scalars"]
    with pytest.raises(Invalid):
        log_limit(LocalSettings(log_limit="1.5.2Gi"))
