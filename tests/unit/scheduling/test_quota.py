"""The quota tree: impossible quotas are named, ceilings hold at every level, shares decide between queues, and nobody
waits for ever."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Snapshot, Start
from paddleflow.scheduling.quota import quota_faults

GPU = "gpu"
_orders = iter(range(1, 1_000_000))


def cpus(cpu: int, gpu: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu, {GPU: gpu * 1000})


def request(job: str, queue: str, cpu: int = 1, count: int = 1, at: float = 0.0, **more: object) -> Request:
    return Request(job, queue, (MemberSet("w", count, cpus(cpu)),), at, next(_orders), **more)  # type: ignore[arg-type]


def core_of(cpu: int, *queues: Queue) -> Core:
    return Core.of(Snapshot(0.0, (Node("n1", cpus(cpu)),), queues, (), ()))


def starts(core: Core, now: float = 0.0, limit: int | None = None) -> list[str]:
    return [d.job for d in core.decide(now, limit) if isinstance(d, Start)]


# --- impossible quotas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queues", "wanted"),
    [
        ([Queue("a", cpus(4), cpus(5))], ("a", "min_over_max", "queue a has min cpu 5, more than its max 4")),
        ([Queue("a", cpus(4), cpus(0, 1))], ("a", "min_over_max", "queue a has min gpu 1, more than its max 0")),
        ([Queue("a", None, parent="b")], ("a", "parent", "queue a is under b, which does not exist")),
        ([Queue("a", None, parent="a")], ("a", "cycle", "queue a is under itself: a > a")),
        ([Queue("a", None, weight=0)], ("a", "weight", "queue a has weight 0, it must be at least 1")),
        ([Queue("a", None, order="luck")], ("a", "order", "queue a has order luck, not one of fifo, shortest, fair, drf")),
        ([Queue("a", Resources.of(2**63))], ("a", "amount", f"queue a has max cpu {2**63}, it must be 0 to {2**62}")),
        (
            [Queue("p", cpus(9), cpus(4)), Queue("a", None, cpus(3), parent="p"), Queue("b", None, cpus(2), parent="p")],
            ("p", "children", "the queues under p have min cpu 5 together, more than its min 4"),
        ),
        (
            [Queue("root", cpus(4)), Queue("a", None, cpus(3)), Queue("b", None, cpus(2))],
            ("root", "children", "the queues under root have min cpu 5 together, more than its max 4"),
        ),
    ],
)  # fmt: skip
def test_what_cannot_hold_is_named(queues: list[Queue], wanted: tuple[str, str, str]) -> None:
    faults = [(fault.queue, fault.code, fault.text) for fault in quota_faults(queues)]
    assert wanted in faults
    assert {code for _, code, _ in faults} == {wanted[1]}
    core_of(4, *queues).decide(0.0)


def test_a_sound_tree_has_no_faults() -> None:
    queues = [Queue("root", cpus(9)), Queue("p", cpus(9), cpus(4)), Queue("a", cpus(4), cpus(4), parent="p")]
    assert quota_faults(queues) == []
    circle = [Queue("a", None, parent="b"), Queue("b", None, parent="a"), Queue("c", None, parent="a")]
    assert {(fault.queue, fault.code) for fault in quota_faults(circle)} == {("a", "cycle"), ("b", "cycle")}


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["root", "a", "b", "c", "d", "x"]), max_size=6))
def test_cycles_are_those_queues_that_reach_themselves(parents: Mapping[str, str]) -> None:
    def reaches_itself(name: str) -> bool:
        at, steps = parents[name], 0
        while at in parents and at != name and steps < 9:
            at, steps = parents[at], steps + 1
        return at == name

    faults = quota_faults(Queue(name, None, parent=parent) for name, parent in parents.items())
    assert {f.queue for f in faults if f.code == "cycle"} == {name for name in parents if reaches_itself(name)}
    unknown = {name for name, parent in parents.items() if parent != "root" and parent not in parents}
    assert {f.queue for f in faults if f.code == "parent"} == unknown


# --- ceilings and shares ----------------------------------------------------------------------------------------------


def test_the_ceiling_of_a_parent_holds_for_all_below_it() -> None:
    queues = Queue("p", cpus(3)), Queue("a", cpus(2), parent="p"), Queue("b", cpus(9), parent="p")
    core = core_of(9, *queues)
    core.submit_many([request(f"{q}{i}", q) for i in range(4) for q in "ab"])
    assert starts(core) == ["a0", "b0", "a1"], "in turn, until the parent is full"
    assert core.usage("p") == cpus(3)
    assert core.why("b1").text.startswith("queue p has cpu 0 of 3 free, the job needs 1; ")
    core.release("a0")
    assert starts(core) == ["b1"], "of equal shares the older goes first"
    core.set_queues([Queue("a", None), Queue("b", None)])
    assert len(starts(core)) == 4, "the tree is gone, and its limits with it"


def test_who_still_fits_under_the_ceiling_starts_whatever_else_waits() -> None:
    """A queue that has no room for anybody is passed over; one that has room for its smallest is not."""
    core = core_of(16, Queue("a", cpus(4)))
    core.submit_many([request("runs", "a", 3), request("small", "a", 1), request("large", "a", 2, at=-1.0)])
    assert starts(core) == ["large", "small"]
    core.submit_many([request("one", "a", 1), request("two", "a", 2)])
    assert starts(core) == ["one"]
    core.submit_many([request("none", "a", 1)])
    assert starts(core) == []
    assert core.release("one")
    assert starts(core) == ["none"]


def test_weights_share_what_is_left_when_guarantees_are_met() -> None:
    core = core_of(12, Queue("heavy", None, weight=2), Queue("light", None), Queue("sure", None, cpus(3)))
    core.submit_many([request(f"{q}-{i}", q) for i in range(20) for q in ("heavy", "light", "sure")])
    assert starts(core, limit=3) == ["sure-0", "sure-1", "sure-2"]
    starts(core)
    assert [core.usage(q).cpu // 1000 for q in ("heavy", "light", "sure")] == [6, 3, 3]


def test_an_idle_guarantee_is_lent_and_a_ceiling_is_not_passed() -> None:
    core = core_of(8, Queue("owner", None, cpus(6)), Queue("other", cpus(7)))
    core.submit_many([request(f"o{i}", "other") for i in range(9)])
    assert len(starts(core)) == 7


def test_priority_goes_before_every_share() -> None:
    core = core_of(3, Queue("a", None), Queue("b", None, cpus(3)))
    core.submit_many([request(f"a{i}", "a", priority=1) for i in range(2)] + [request(f"b{i}", "b") for i in range(3)])
    assert starts(core) == ["a0", "a1", "b0"]


@pytest.mark.parametrize(
    ("policy", "first"),
    [("fifo", ["u0", "u1"]), ("shortest", ["v1", "u1"]), ("drf", ["u0", "v0"]), ("fair", ["u0", "v0"])],
)
def test_the_policy_of_a_queue_orders_equal_priorities(policy: str, first: list[str]) -> None:
    core = core_of(4, Queue("q", None, order=policy))
    rows = [("u0", 50.0), ("u1", 20.0), ("u2", None), ("v0", 40.0), ("v1", 10.0)]
    core.submit_many([request(job, "q", user=job[0], expected=expected) for job, expected in rows])
    assert starts(core, limit=2) == first


def test_fair_share_remembers_and_forgets() -> None:
    core = core_of(2, Queue("q", None, order="fair"))
    core.submit_many([request("u0", "q", 2, user="u")])
    assert starts(core, 0.0) == ["u0"]
    core.release("u0")
    core.submit_many([request("u1", "q", at=86_400.0, user="u"), request("v1", "q", at=86_400.0, user="v")])
    assert starts(core, 86_400.0, limit=1) == ["v1"], "u has had its share of the past"
    share = core.ledgers["q"].history.share("u", 86_400.0)
    assert share == pytest.approx(0.5), "all of the cluster, for one half-life"
    assert core.ledgers["q"].history.share("u", 2 * 86_400.0) == pytest.approx(0.25)
    assert Core.of(core.snapshot(86_400.0)).ledgers["q"].history.share("u", 86_400.0) == share


# --- nobody waits for ever --------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_a_large_gang_starts_whatever_streams_past_it(random: Random) -> None:
    """Small jobs of all queues keep coming; once aged, the gang starts as soon as what ran then has ended."""
    queues = [
        Queue("p", cpus(10)),
        Queue("a", cpus(9), parent="p", order=random.choice(["fifo", "shortest", "fair", "drf"])),
        Queue("b", None, cpus(4), parent="p", weight=5),
        Queue("c", None, weight=9),
    ]
    core = Core.of(Snapshot(0.0, tuple(Node(f"n{i}", cpus(4)) for i in range(3)), tuple(queues), (), ()))
    running: list[tuple[float, str]] = []
    longest, now = 120.0, 0.0
    gang = Request(
        "gang", "a", (MemberSet("w", random.randint(2, 8), cpus(1)), MemberSet("big", 1, cpus(1))), 0.0, 0, user="g"
    )
    for step in range(400):
        now = step * 10.0
        if step == 3:
            core.submit(Request("gang", "a", gang.member_sets, now, next(_orders), user="g", expected=10_000.0))
        for _ in range(3):
            queue = random.choice("abcc")
            core.submit(request(f"s{next(_orders)}", queue, random.randint(1, 2), at=now, user="u", expected=1.0))
        for end, job in [row for row in running if row[0] <= now]:
            core.release(job)
            running.remove((end, job))
        for job in starts(core, now):
            if job == "gang":
                assert now <= 30.0 + 300.0 + 2 * longest + 20.0
                return
            running.append((now + random.uniform(10.0, longest), job))
        allocation = total(core.usage(q) for q in ("p", "c"))
        assert allocation.fits(cpus(12))
    raise AssertionError("the gang never started")
