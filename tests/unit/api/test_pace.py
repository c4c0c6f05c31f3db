"""`Pace`: free at first, then at most so often, and free again after a rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.api.events import FEW_STREAMS, Pace, push_interval, share_of_streams
from paddleflow.api.logs import next_pause


def test_the_first_ones_are_free_and_the_others_are_apart() -> None:
    pace = Pace(burst=3, every=0.5)
    assert [pace.pause(10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]


def test_a_rest_makes_some_free_again() -> None:
    pace = Pace(burst=2, every=1.0)
    for _ in range(2):
        pace.pause(0.0)
    assert pace.pause(100.0) == 0.0
    assert pace.pause(100.0) == 0.0
    assert pace.pause(100.0) == 1.0


@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5))
def test_no_stretch_has_more_than_its_share(gaps: list[float], burst: int) -> None:
    pace, now, times = Pace(burst, 0.25), 0.0, []
    for gap in gaps:
        now += gap
        now += pace.pause(now)
        times.append(now)
    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= burst + (times[last] - times[first]) / 0.25 + 1e-6


@given(st.integers(1, 10_000))
def test_streams_together_ask_at_most_a_thousand_times_a_second(streams: int) -> None:
    assert share_of_streams(FEW_STREAMS) == 0.0
    if streams > FEW_STREAMS:
        assert streams / share_of_streams(streams) <= 1000 + 1e-6
        assert streams / push_interval(3.0, streams) <= FEW_STREAMS / 3.0 + 1e-6
    else:
        assert push_interval(3.0, streams) == 3.0


def test_a_quiet_log_is_read_less_often() -> None:
    pauses = [0.2]
    for _ in range(6):
        pauses.append(next_pause(pauses[-1], 0.2, news=False))
    assert pauses[:3] == pytest.approx([0.2, 0.3, 0.45])
    assert pauses[-2:] == [1.0, 1.0], "at least once a second"
    assert next_pause(1.0, 0.2, news=True) == 0.2
    assert next_pause(3.0, 3.0, news=False) == 3.0, "a longer one that was asked for stays"
