"""Good and bad events at random against the production core: nothing raises, and the books stay in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Snapshot
from paddleflow.scheduling.rules import Rules
from paddleflow.simulator.storm import Storm, small_world

#: Everything that may happen does, and often: patience and pauses are short against the steps of the clock.
LIVELY = Rules(
    preemption=True, elastic=True, patience=60.0, least_run=5.0, window=60.0, resize_pause=5.0, restart_pause=20.0
)
BLOCKS, EVENTS = 20, 5000  #: 100,000 events in all, a block at a time so that workers share them


@pytest.mark.parametrize("seed", range(BLOCKS))
def test_nothing_raises_and_everything_agrees(seed: int) -> None:
    storm = Storm(seed, replace(small_world(), rules=LIVELY if seed % 2 else Rules()))
    storm.run(EVENTS)
    assert storm.counts["events"] == EVENTS
    assert storm.counts["starts"] > EVENTS // 8
    assert (storm.counts["evictions"] > 0) is bool(seed % 2)


def test_the_same_seed_is_the_same_storm() -> None:
    one, other = (Storm(1, replace(small_world(), rules=LIVELY)) for _ in range(2))
    one.run(300)
    other.run(300)
    assert one.core.snapshot(0.0) == other.core.snapshot(0.0)


def size(cpu: int) -> Resources:
    return Resources.of(cpu * 1000, cpu * 2**30)


def test_a_time_that_is_no_number_and_members_without_end_are_borne() -> None:
    core = Core.of(Snapshot(0.0, (Node("n0", size(16)),), (Queue("q", None, order="shortest"),), (), ()))
    for number, expected in enumerate((float("nan"), 5.0, float("nan"), 1.0)):
        member_set = MemberSet("w", 1, size(100))
        core.submit(Request(f"j{number}", "q", (member_set,), float("nan"), number, expected=expected))
    core.submit(Request("many", "q", (MemberSet("w", 2**62, size(1)),), 0.0, 9))
    core.decide(1.0)
    assert core.why("many").code == "invalid"
    assert "more than the 1000000 that a job may have" in core.why("many").text
    for number in range(4):
        assert core.withdraw(f"j{number}")
