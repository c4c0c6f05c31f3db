"""Parts of logs: the vectors of the reference, and limits that hold for any log fed in any pieces."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.jobs.log_pages import LogPage, Window, limited

TEN = b"".join(b"%d\n" % n for n in range(1, 11))
ALL = 10**9


@pytest.mark.parametrize(
    ("lines", "size", "from_tail", "expected"),
    [
        (2, ALL, False, LogPage("1\n2\n", True, False)),
        (ALL, 10, False, LogPage("1\n2\n3\n4\n", True, True)),
        (2, ALL, True, LogPage("9\n10\n", True, False)),
        (ALL, 10, True, LogPage("7\n8\n9\n10\n", True, True)),
        (10, ALL, False, LogPage(TEN.decode(), False, False)),
        (10, len(TEN), True, LogPage(TEN.decode(), False, False)),
        (3, 10, False, LogPage("1\n2\n3\n", True, True)),
        (ALL, 1, False, LogPage("", True, True)),
    ],
)
def test_vectors(lines: int, size: int, from_tail: bool, expected: LogPage) -> None:
    assert limited(TEN, lines, size, from_tail) == expected


def test_nothing_is_a_whole_log() -> None:
    assert limited(b"", 10, 10, True) == limited(b"", 10, 10, False) == LogPage("", False, False)


def test_only_newlines_end_lines() -> None:
    text = "10%\r50%\r100%\n\x0c\u2028x\x1c\n".encode()
    assert limited(text, 1, ALL, False).content == "10%\r50%\r100%\n"


def test_the_last_line_needs_no_newline_and_bad_bytes_are_shown() -> None:
    assert limited(b"a\nb\xff", 1, ALL, True) == LogPage("b\ufffd", True, False)


def test_no_more_bytes_than_asked_for_however_long_the_first_lines_are() -> None:
    long_first = b"x" * 80 + b"\n" + b"y\n" * 60
    assert limited(long_first, ALL, 100, False).content == "x" * 80 + "\n" + "y\n" * 9
    assert len(limited(long_first[::-1], ALL, 90, True).content) <= 90


@given(
    st.lists(st.binary(max_size=9), max_size=12),
    st.integers(1, 8),
    st.integers(1, 40),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_pages_keep_their_promises(
    words: list[bytes], lines: int, size: int, from_tail: bool, rng: random.Random
) -> None:
    data = b"\n".join(words)
    window, at = Window(lines, size, from_tail), 0
    while at < len(data):
        step = rng.randint(1, 7)
        window.feed(data[at : at + step])
        at += step
    page = window.page()
    assert page == limited(data, lines, size, from_tail)
    whole = data.split(b"\n")
    whole = [line + b"\n" for line in whole[:-1]] + ([whole[-1]] if whole[-1] else [])
    shown = next(
        n
        for n in range(len(whole), -1, -1)
        if b"".join(whole[len(whole) - n :] if from_tail else whole[:n]).decode("utf-8", "replace") == page.content
    )
    assert shown <= lines
    assert len(b"".join(whole[len(whole) - shown :] if from_tail else whole[:shown])) <= size
    assert page.truncated == (len(data) > size)
    if not page.has_next_page:
        assert page.content == data.decode("utf-8", "replace")
