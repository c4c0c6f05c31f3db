"""What every `Clock` promises: moments that are seconds since the epoch, and durations that never run backwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paddleflow.base.clock import Clock, ManualClock, SystemClock


@pytest.fixture(params=[SystemClock, ManualClock], ids=["system", "manual"])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Callable[[], Clock] = request.param
    return made()


def test_now_is_seconds_since_the_epoch(clock: Clock) -> None:
    assert isinstance(clock.now(), float)
    assert 1_600_000_000 < clock.now() < 10_000_000_000  # neither milliseconds nor seconds since start


def test_time_never_runs_backwards(clock: Clock) -> None:
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_the_clock_of_tests_moves_only_by_hand() -> None:
    clock = ManualClock(at=1_700_000_000.0)
    before = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == before
    clock.advance(1.5)
    assert (clock.now() - before[0], clock.monotonic() - before[1]) == (1.5, 1.5)
