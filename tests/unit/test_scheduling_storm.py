"""Good and bad events at random against the production core: nothing raises, and the books stay in order."""

from __future__ import annotations

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Need, Node, Queue, Request, Snapshot
from paddleflow.scheduling.policy import Rules
from paddleflow.simulator.storm import Storm

RULES = Rules(
    preemption=True, elastic=True, patience=60.0, least_run=5.0, window=60.0, resize_pause=5.0, restart_pause=20.0
)


def size(cpu: int, devices: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu * 2**30, {"gpu": devices} if devices else {})


NODES = tuple(
    Node(f"n{i}", size(16 if i % 3 == 0 else 8, 4000 * (i % 2)), {"zone": f"z{i % 2}"}, taints=("spot",) * (i == 5))
    for i in range(6)
)
POLICIES = ("fifo", "fair", "drf", "shortest", "fifo")
QUEUES = (
    Queue("top", size(40, 20_000), size(20)),
    *[
        Queue(f"q{i}", size(20, 8000), size(4 * (i % 2)), parent="top" if i < 3 else "root", policy=policy)
        for i, policy in enumerate(POLICIES)
    ],
)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_raises_and_everything_agrees(seed: int) -> None:
    storm = Storm(seed, Snapshot(0.0, NODES, QUEUES, (), (), rules=RULES if seed % 3 else Rules()))
    storm.run(700)
    assert storm.counts["events"] == 700
    assert storm.counts["starts"] > 50


def test_a_time_that_is_no_number_and_members_without_end_are_borne() -> None:
    core = Core.of(Snapshot(0.0, NODES, (Queue("q", None, policy="shortest"),), (), ()))
    for number, expected in enumerate((float("nan"), 5.0, float("nan"), 1.0)):
        need = Need("w", 1, size(100))
        core.submit(Request(f"j{number}", "q", (need,), float("nan"), number, expected=expected))
    core.submit(Request("many", "q", (Need("w", 2**62, size(1)),), 0.0, 9))
    core.decide(1.0)
    assert core.why("many").code == "invalid"
    assert "more than the 1000000 that a job may have" in core.why("many").text
    for number in range(4):
        assert core.withdraw(f"j{number}")
