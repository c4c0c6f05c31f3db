"""Suggestions are true: applied to a copy of the state, the job starts. Reasons name everything that is in the way."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Snapshot, Start
from paddleflow.scheduling.suggestions import apply, suggest

GPU = "gpu"
SIZES = [Resources.of(c * 1000, c, {GPU: g * 1000}) for c, g in ((1, 0), (2, 0), (4, 0), (1, 1), (2, 2))]


def size(cpu: int, gpu: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu, {GPU: gpu * 1000})


def started(core: Core, now: float) -> set[str]:
    return {d.job for d in core.decide(now) if isinstance(d, Start)}


def test_each_kind_of_change_is_suggested() -> None:
    queues = Queue("q", size(6)), Queue("other", None)
    core = Core.of(Snapshot(0.0, (Node("n1", size(12)),), queues, (), ()))
    core.submit_many(
        [
            Request("has", "q", (MemberSet("w", 1, size(4)),), 0.0, 1),
            Request("j", "q", (MemberSet("w", 2, size(2)),), 0.0, 2),
        ]
    )
    assert suggest(core, "j") == [], "nothing is said before a cycle"
    assert started(core, 0.0) == {"has"}
    found = suggest(core, "j", ["q", "other", "unknown"], SIZES)
    assert [(s.code, s.text) for s in found] == [
        ("fewer", "with 1 instead of 2 members of role w it starts now"),
        ("queue", "in queue other it starts now"),
        ("smaller", "with members of cpu: 1, mem: 1 instead of cpu: 2, mem: 2 it starts now"),
        ("victims", "if has ended it would start now"),
    ]
    assert suggest(core, "has") == suggest(core, "nobody") == []


def test_a_tree_of_reasons_names_all_that_is_in_the_way() -> None:
    queues = Queue("p", size(9, 1)), Queue("q", size(6, 1), parent="p"), Queue("o", None)
    core = Core.of(Snapshot(0.0, (Node("n1", size(8, 1)),), queues, (), ()))
    core.submit_many(
        [
            Request("has", "q", (MemberSet("w", 1, size(4, 1)),), 0.0, 1),
            Request("also", "o", (MemberSet("w", 1, size(2)),), 0.0, 2),
        ]
    )
    core.submit_many([Request("j", "q", (MemberSet("w", 1, size(3, 1)),), 0.0, 3)])
    core.decide(0.0)
    tree = core.explain("j")
    assert (tree.code, tree.text) == (core.why("j").code, core.why("j").text)
    assert Counter(cause.code for cause in tree.causes) == {"quota": 4, "busy": 1}
    assert "queue q has memory 2 of 6 free, the job needs 3; has holds 4" in [cause.text for cause in tree.causes]
    assert core.explain("has").code == "running"


def simulation(random: Random) -> tuple[Core, float]:
    queues = [
        Queue("p", random.choice([None, size(16, 4)]), size(4)),
        Queue("a", random.choice([None, size(9, 2)]), parent="p", order=random.choice(["fifo", "fair", "shortest"])),
        Queue("b", size(8, 4), parent="p"),
        Queue("c", None, weight=2, open=random.random() < 0.8),
    ]
    nodes = [Node(f"n{i}", size(random.randint(3, 8), random.choice([0, 2, 4]))) for i in range(4)]
    core = Core.of(Snapshot(0.0, tuple(nodes), tuple(queues), (), ()))
    now = 0.0
    for number in range(random.randint(5, 40)):
        now += random.choice([0.0, 5.0, 200.0])
        each, count, least = random.choice(SIZES), random.randint(1, 6), random.choice([None, None, 1])
        member_sets = (MemberSet("w", count, each, least),)
        core.submit(
            Request(
                f"j{number}",
                random.choice("abbc"),
                member_sets,
                now,
                number,
                random.choice([0, 0, 1]),
                random.choice("uv"),
            )
        )
        if random.random() < 0.5:
            core.decide(now)
        if core.allocations and random.random() < 0.2:
            core.release(random.choice(sorted(core.allocations)))
    core.decide(now)
    core.decide(now)
    return core, now


@pytest.mark.parametrize("block", range(8))
def test_every_suggestion_is_true(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * 25, block * 25 + 25):
        core, now = simulation(Random(seed))
        before = core.snapshot(now)
        for job in list(core.pending):
            for suggestion in suggest(core, job, "abc", SIZES):
                copy = Core.of(core.snapshot(now))
                copy.now = now
                apply(copy, job, suggestion)
                assert job in started(copy, now), (seed, job, suggestion)
                seen[suggestion.code] += 1
            assert core.explain(job).causes
        assert core.snapshot(now) == before, "asking changes nothing"
    assert seen.keys() == {"fewer", "queue", "smaller", "victims"}, seen
