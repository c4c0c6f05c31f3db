"""Who holds many connections locks nobody out; who holds one too long loses it."""

from __future__ import annotations

import pytest

from paddleflow.errors import Unavailable
from paddleflow.server.connections import Connections, budget
from paddleflow.settings import ServerSettings


class Line:
    """A connection that notes its end."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def table(most: int = 3, per_address: int = 10) -> Connections:
    return Connections(most, per_address, 1.0, 1.0)


def test_at_the_limit_the_longest_idle_makes_place() -> None:
    connections, lines = table(), [Line() for _ in range(5)]
    for line in lines[:3]:
        assert connections.add(line, "a")
    connections.begin(lines[0])
    assert connections.add(lines[3], "b")
    assert [line.aborted for line in lines] == [False, True, False, False, False]
    connections.end(lines[0])  # idle since the last of all
    assert connections.add(lines[4], "b")
    assert [line.aborted for line in lines] == [False, True, True, False, False]
    assert len(connections) == 3


def test_where_all_are_at_work_the_new_one_is_refused() -> None:
    connections, lines = table(), [Line() for _ in range(4)]
    for line in lines[:3]:
        connections.add(line, "a")
        connections.begin(line)
    assert not connections.add(lines[3], "b")
    connections.remove(lines[0])
    assert connections.add(lines[3], "b")


def test_an_address_has_a_limit_of_its_own() -> None:
    connections, lines = table(10, 2), [Line() for _ in range(4)]
    assert connections.add(lines[0], "b")
    for line in lines[1:3]:
        assert connections.add(line, "a")
    assert connections.add(lines[3], "a")
    assert [line.aborted for line in lines] == [False, True, False, False]


def test_descriptors_are_budgeted() -> None:
    assert budget(ServerSettings(), 1024).most == 768
    assert budget(ServerSettings(max_connections=100), 65_536).most == 100
    with pytest.raises(Unavailable, match="may open 256 files, a server needs at least 320") as refused:
        budget(ServerSettings(), 256)
    assert "ulimit -n" in refused.value.hint
