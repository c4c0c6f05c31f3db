"""Which process belongs to which attempt, and what this machine has."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Invalid
from paddleflow.runtimes.local import sampler, sockets
from paddleflow.runtimes.local.capacity import log_limit, this_machine
from paddleflow.runtimes.local.sampler import Process, Seen, grown, members, parse_process
from paddleflow.runtimes.log_store import Sample
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


@given(st.dictionaries(st.integers(1, 30), st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_any_table_of_processes_is_sorted_out(table: dict[int, tuple[int, int]]) -> None:
    """Also one with a circle of parents, as a table read while processes come and go may have."""
    processes = {pid: Process(pid, parent, session, 0, 0) for pid, (parent, session) in table.items()}
    groups = members(processes, {1: A, 2: B})
    listed = [process.pid for group in groups.values() for process in group]
    assert len(listed) == len(set(listed))
    assert {p.pid for p in groups.get(A, [])} >= {p.pid for p in processes.values() if p.session == 1}


def test_a_sample_of_ourselves() -> None:
    taken = sampler.take({os.getsid(0): A}, 5.0)[A].sample
    assert taken.at == 5.0
    assert taken.memory > 1 << 20
    assert taken.cpu_seconds > 0


def test_counters_never_fall() -> None:
    before = Seen(Sample(1.0, 5.0, 100, disk_read=7, disk_write=None), None)
    after = grown(before, Seen(Sample(2.0, 4.0, 50, disk_read=None, disk_write=3), None))
    assert after.sample == Sample(2.0, 5.0, 50, disk_read=7, disk_write=3)


def traffic(*moments: dict[int, tuple[int, int]] | None) -> list[tuple[int | None, int | None]]:
    """The network counters of an attempt whose connections are these, one moment after the other."""
    counters, before = [], None
    for at, connections in enumerate(moments):
        before = grown(before, Seen(Sample(float(at), 0.0, 0), connections))
        counters.append((before.sample.net_received, before.sample.net_sent))
    return counters


def test_a_connection_that_closed_stays_counted() -> None:
    assert traffic({1: (10, 20)}, {1: (15, 20), 2: (1, 1)}, {2: (4, 1)}, {}) == [(10, 20), (16, 21), (19, 21), (19, 21)]


def test_a_number_that_is_used_again_is_another_connection() -> None:
    assert traffic({1: (10, 20)}, {1: (3, 0)}) == [(10, 20), (13, 20)]


def test_a_machine_that_does_not_tell_the_network() -> None:
    assert traffic(None, None) == [(None, None), (None, None)]
    assert traffic({1: (10, 20)}, None, {1: (11, 20)})[:2] == [(10, 20), (10, 20)]


def test_what_went_over_a_connection_of_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.sendall(b"x" * 1000)
            assert len(far.recv(1000, socket.MSG_WAITALL)) == 1000
            inodes = [os.fstat(end.fileno()).st_ino for end in (near, far)]
            assert sockets.held(os.getpid()).issuperset(inodes)
            found = sockets.traffic()
    if found is None:
        pytest.skip("this kernel does not tell what goes over connections")
    assert (found[inodes[0]][0], found[inodes[1]][0]) == (0, 1000)
    assert found[inodes[0]][1] >= 0


@given(st.binary(min_size=72, max_size=400))
def test_any_message_is_read_or_passed_over(message: bytes) -> None:
    assert len(list(sockets.parse(message))) <= len(message) // 128


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
