"""The machine's clock goes on when the wall clock is set back, and follows it otherwise."""

from __future__ import annotations

from paddleflow.base.clock import SET_BACK, SystemClock


class Machine:
    def __init__(self) -> None:
        self.wall, self.steady = 1000.0, 5.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_a_clock_that_is_set_back_goes_on_until_the_wall_clock_has_caught_up() -> None:
    machine = Machine()
    clock = SystemClock(lambda: machine.wall, lambda: machine.steady)
    machine.wall -= 3600.0
    assert clock.now() == 1000.0
    machine.pass_by(10.0)
    assert clock.now() == 1010.0
    machine.wall += 3600.0
    assert clock.now() == 1010.0
    machine.pass_by(1.0)
    assert clock.now() == machine.wall


def test_small_corrections_and_jumps_forward_are_followed() -> None:
    machine = Machine()
    clock = SystemClock(lambda: machine.wall, lambda: machine.steady)
    for _ in range(100):
        machine.pass_by(1.0)
        machine.wall -= SET_BACK / 10  # all together much more than is followed at once
        assert clock.now() == machine.wall
    machine.wall += 86400.0
    assert clock.now() == machine.wall
