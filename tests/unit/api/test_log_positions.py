"""Where the last lines of a log begin: the same whatever the pieces in which it is read."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.api.logs import Between, line_begin, tail_begin

LOGS = st.lists(st.sampled_from([b"a", b"bc", b"\n"]), max_size=30).map(b"".join)


def reader(log: bytes) -> Between:
    async def read(begin: int, end: int) -> bytes:
        return log[begin:end]

    return read


@given(LOGS, st.data(), st.integers(0, 12), st.integers(1, 9))
def test_the_last_lines_begin_where_they_do_in_the_whole_text(
    log: bytes, data: st.DataObject, lines: int, piece: int
) -> None:
    begin = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(begin, len(log)))
    found = asyncio.run(tail_begin(reader(log), begin, end, lines, piece))
    wanted = b"".join(log[begin:end].splitlines(keepends=True)[-lines:] if lines else [])
    assert log[found:end] == wanted


@given(LOGS, st.data())
def test_a_line_begins_behind_the_newline_before_it(log: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(log)))
    assert asyncio.run(line_begin(reader(log), position, len(log) + 1)) == log.rfind(b"\n", 0, position) + 1


def test_a_line_that_begins_too_far_away_begins_here() -> None:
    assert asyncio.run(line_begin(reader(b"one long line"), 9, 3)) == 9
