"""Ports for distributed jobs: each given to one member alone."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.engine.ports import Ports, is_free, parse_range
from paddleflow.errors import Invalid, Temporary


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20000-29999", range(20000, 30000)), (" 5 - 5 ", range(5, 6)), ("1-65535", range(1, 65536))],
)
def test_ranges(text: str, expected: range) -> None:
    assert parse_range(text) == expected


@pytest.mark.parametrize("text", ["", "5", "a-b", "5-", "-5", "6-5", "0-9", "1-65536", "1-2-3", "1.5-2"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(Invalid, match=r"local\.ports must"):
        parse_range(text)


def test_a_port_just_released_is_used_again_as_late_as_possible() -> None:
    ports = Ports(range(10, 15), lambda port: True)
    assert ports.take(2) == (10, 11)
    ports.release([10])
    assert ports.take(3) == (12, 13, 14)
    assert ports.take(1) == (10,)


def test_all_or_none() -> None:
    ports = Ports(range(10, 14), lambda port: port != 11)
    with pytest.raises(Temporary, match="only 3 of 4 ports are free in 10-13"):
        ports.take(4)
    assert sorted(ports.take(3)) == [10, 12, 13]
    assert ports.take(0) == ()


def test_ports_of_jobs_that_run_already_are_left_alone() -> None:
    ports = Ports(range(10, 13), lambda port: True)
    ports.hold([10, 12, 99])
    assert ports.take(1) == (11,)
    with pytest.raises(Temporary):
        ports.take(1)


def test_a_port_that_somebody_else_listens_on_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(Temporary):
            Ports(range(port, port + 1)).take(1)
    assert is_free(port)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=30))
def test_no_port_is_ever_held_twice(acts: list[tuple[bool, int]]) -> None:
    ports, held = Ports(range(100, 110), lambda port: True), list[tuple[int, ...]]()
    for take, number in acts:
        if take:
            free = 10 - sum(map(len, held))
            if number <= free:
                held.append(ports.take(number))
            else:
                with pytest.raises(Temporary):
                    ports.take(number)
        elif held:
            ports.release(held.pop(number % len(held)))
        every = [port for given in held for port in given]
        assert len(every) == len(set(every))
        assert set(every) <= set(range(100, 110))
