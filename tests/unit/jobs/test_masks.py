"""Values are hidden in logs, byte for byte, wherever a chunk ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddleflow.jobs.masks import MOST_LINES, Masks


def test_values_are_replaced_by_as_many_bytes() -> None:
    masks = Masks(["s3cret", "täter"])
    assert masks.hide(b"x s3cret y s3cret") == b"x ****** y ******"
    assert masks.hide("ein täter".encode()) == b"ein ******"
    assert masks.hide(b"nothing") == b"nothing"


def test_values_that_overlap_are_hidden_whole() -> None:
    assert Masks(["abcd", "cdef"]).hide(b"-abcdef-") == b"-******-"
    assert Masks(["abab"]).hide(b"ababab") == b"******"


def test_lines_of_a_value_are_hidden_alone_and_short_ones_are_not() -> None:
    masks = Masks(["first line\nxy\nlast line\n", "abc"])
    assert masks.hide(b"> first line\n> xy abc\n> last line") == b"> **********\n> xy abc\n> *********"
    assert not Masks(["abc", ""])


def test_an_end_that_may_become_a_value_is_told() -> None:
    masks = Masks(["s3cret"])
    assert [masks.unfinished(data) for data in (b"", b"x", b"a s", b"a s3cre", b"a s3cret", b"s3cres")] == [
        0,
        0,
        1,
        5,
        0,
        1,
    ]


@given(st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=3), st.text("ab\n", max_size=60))
def test_nothing_of_a_value_is_left(values: list[str], log: str) -> None:
    masked = Masks(values).hide(log.encode())
    assert len(masked) == len(log)
    assert not any(value.encode() in masked for value in values)


@given(st.lists(st.text("ab", min_size=4, max_size=40), min_size=1, max_size=3), st.text("ab", max_size=400))
def test_what_is_hidden_is_what_values_cover(values: list[str], log: str) -> None:
    covered = bytearray(log.encode())
    for value in values:
        for at in range(len(log)):
            if log.startswith(value, at):
                covered[at : at + len(value)] = b"*" * len(value)
    assert Masks(values).hide(log.encode()) == bytes(covered)


@given(st.lists(st.text("ab", min_size=4, max_size=60), min_size=1, max_size=3), st.text("ab", max_size=100))
def test_an_end_that_may_become_a_value_is_held_back_whole(values: list[str], log: str) -> None:
    exact = max(
        (size for value in values for size in range(1, len(value)) if log.endswith(value[:size])), default=0
    )  # fmt: skip
    assert exact <= Masks(values).unfinished(log.encode()) < max(map(len, values))


def test_of_very_many_lines_the_longest_are_hidden_alone() -> None:
    lines = [f"{number:05}".ljust(10 + number // 1_000, "x") for number in range(3_000)]
    masks = Masks(["\n".join(lines)])
    hidden = [masks.hide(line.encode()) == b"*" * len(line) for line in lines]
    assert hidden == [False] * (3_000 - MOST_LINES) + [True] * MOST_LINES


def test_values_and_logs_of_a_hostile_user_cost_no_more_than_others() -> None:
    """Repetitions, thousands of lines and beginnings everywhere: without bounds each of these takes minutes to hours."""
    log = b"a" * 300_000
    long = ["a" * (60_000 - number) for number in range(50)]
    masks = Masks(long)
    assert masks.hide(log) == b"*" * len(log)
    assert masks.unfinished(log) == masks.longest - 1
    assert Masks(["a" * 30_000 + "b" + "a" * 30_000]).unfinished(log) <= 60_000
    lines = ["\n".join(f"{secret:04}{line:06}" for line in range(6_000)) for secret in range(50)]
    assert Masks(lines).hide(b"0000000001 " * 30_000).count(b"*") in (0, 300_000)
