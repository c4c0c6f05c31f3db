"""The preemption contract: the loops and starvation cases that other schedulers are known for, and the rules at random."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling import rules
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.ledgers import guaranteed_part
from paddleflow.scheduling.model import (
    Decision,
    MemberSet,
    Node,
    Preempt,
    Queue,
    Reason,
    Request,
    Snapshot,
    Start,
    Wait,
)
from paddleflow.scheduling.rules import Rules

GPU = "gpu"
_orders = iter(range(1, 10_000_000))


def size(cpu: int, gpu: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu, {GPU: gpu * 1000})


def request(
    job: str, queue: str, cpu: int = 1, count: int = 1, at: float = 0.0, *, gpu: int = 0, priority: int = 0
) -> Request:
    return Request(job, queue, (MemberSet("w", count, size(cpu, gpu)),), at, next(_orders), priority)


class Cluster:
    """A core whose victims end at once and come back, as an engine would do it."""

    def __init__(self, nodes: list[Node], *queues: Queue) -> None:
        self.core = Core.of(Snapshot(0.0, tuple(nodes), queues, (), (), rules=Rules(preemption=True)))
        self.evicted: list[tuple[float, str, str]] = []
        self.requests: dict[str, Request] = {}

    def put(self, *requests: Request) -> None:
        self.requests |= {one.job: one for one in requests}
        assert self.core.submit_many(requests) == len(requests)

    def step(self, now: float) -> list[Decision]:
        """One cycle; victims end, and wait again with their old age."""
        rebuilt = Core.of(self.core.snapshot(now)).decide(now)
        decisions = self.core.decide(now)
        acts = [d for d in decisions if not isinstance(d, Wait)]
        assert [d for d in rebuilt if not isinstance(d, Wait)] == acts, "a rebuilt core decides the same"
        for decision in acts:
            if isinstance(decision, Preempt):
                self.evicted.append((now, decision.job, decision.by))
                self.core.release(decision.job)
                self.core.submit(self.requests[decision.job])
        return decisions

    def run(self, start: float, end: float, every: float = 10.0) -> None:
        now = start
        while now <= end:
            self.step(now)
            now += every

    @property
    def running(self) -> set[str]:
        return set(self.core.allocations)


# --- who may evict whom -----------------------------------------------------------------------------------------------


def test_a_higher_priority_evicts_in_its_own_queue_only_and_the_least_lost_work() -> None:
    cluster = Cluster([Node("n1", size(3))], Queue("a", None), Queue("b", None))
    cluster.put(request("old", "a"), request("other", "b"))
    cluster.step(0.0)
    cluster.put(request("young", "a", at=50.0))
    cluster.step(50.0)
    cluster.put(request("urgent", "a", at=111.0, priority=5))
    preempts = [d for d in cluster.step(111.0) if isinstance(d, Preempt)]
    reason = Reason("priority", "urgent of the same queue has priority 5, this job 0")
    assert preempts == [Preempt("young", "urgent", reason)]
    cluster.step(112.0)
    assert cluster.running == {"old", "other", "urgent"}
    cluster.put(request("alone", "c", at=112.0, priority=9), request("equal", "a", at=112.0, priority=5))
    cluster.run(113.0, 400.0)
    assert [job for _, job, _ in cluster.evicted] == ["young", "old"], "the equal one may evict old, and not its equals"


def test_nobody_is_evicted_before_the_least_run_or_twice_in_a_window() -> None:
    cluster = Cluster([Node("n1", size(1))], Queue("a", None))
    cluster.put(request("low", "a"))
    cluster.step(0.0)
    cluster.put(request("high1", "a", priority=1))
    cluster.run(1.0, rules.DEFAULTS.least_run - 1.0)
    assert cluster.evicted == []
    cluster.step(rules.DEFAULTS.least_run)
    assert cluster.evicted == [(rules.DEFAULTS.least_run, "low", "high1")]
    cluster.step(61.0)
    cluster.core.release("high1")
    cluster.step(62.0)
    assert cluster.running == {"low"}
    cluster.put(request("high2", "a", priority=1))
    cluster.run(63.0, rules.DEFAULTS.least_run + rules.DEFAULTS.window - 1.0, 50.0)
    assert len(cluster.evicted) == 1
    cluster.step(rules.DEFAULTS.least_run + rules.DEFAULTS.window)
    assert cluster.evicted[1:] == [(rules.DEFAULTS.least_run + rules.DEFAULTS.window, "low", "high2")]


def test_a_lent_guarantee_comes_back_and_the_borrower_keeps_its_own() -> None:
    cluster = Cluster([Node("n1", size(10))], Queue("owner", None, size(6)), Queue("borrower", None, size(4)))
    cluster.put(*[request(f"b{i}", "borrower") for i in range(10)])
    cluster.step(0.0)
    assert len(cluster.running) == 10
    cluster.put(*[request(f"o{i}", "owner", 2, at=100.0) for i in range(5)])
    cluster.run(100.0, 1000.0)
    assert cluster.core.usage("owner") == size(6), "its guarantee, and not more: the rest is the other's own"
    assert cluster.core.usage("borrower") == size(4)
    assert len(cluster.evicted) == 6
    assert all(by.startswith("o") for _, _, by in cluster.evicted)


def test_without_the_option_nobody_is_evicted() -> None:
    core = Core.of(Snapshot(0.0, (Node("n1", size(1)),), (Queue("a", None),), (), ()))
    core.submit_many([request("low", "a")])
    core.decide(0.0)
    core.submit_many([request("high", "a", priority=9)])
    assert not any(isinstance(d, Preempt) for d in core.decide(1000.0))


def test_a_changed_quota_evicts_nobody_whom_it_allows() -> None:
    cluster = Cluster([Node("n1", size(8))], Queue("a", size(8)), Queue("b", size(8)))
    cluster.put(*[request(f"a{i}", "a") for i in range(8)], *[request(f"b{i}", "b", at=1.0) for i in range(8)])
    cluster.run(0.0, 100.0)
    before = cluster.running
    cluster.core.set_queues([Queue("a", size(4), size(4)), Queue("b", size(4), size(4))])
    cluster.run(100.0, 1000.0)
    assert cluster.evicted == [], "each has its four"
    assert cluster.running == before


# --- what goes wrong elsewhere ----------------------------------------------------------------------------------------


def test_two_queues_beyond_their_guarantee_do_not_evict_each_other_for_ever() -> None:
    cluster = Cluster([Node("n1", size(10))], Queue("a", None, size(3)), Queue("b", None, size(3)))
    cluster.put(*[request(f"{q}{i}", q, 2) for i in range(8) for q in "ab"])
    cluster.run(0.0, 20_000.0, 30.0)
    assert cluster.evicted == [], "both are beyond, so neither may claim"
    assert len(cluster.running) == 5


def test_a_borrowing_gang_is_not_evicted_and_admitted_again_each_cycle() -> None:
    cluster = Cluster([Node(f"n{i}", size(4)) for i in range(2)], Queue("owner", None, size(4)), Queue("other", None))
    cluster.put(request("gang", "other", 1, 8))
    cluster.step(0.0)
    cluster.put(*[request(f"o{i}", "owner", 2, at=100.0) for i in range(2)])
    cluster.run(100.0, 5000.0)
    assert [job for _, job, _ in cluster.evicted] == ["gang"]
    assert cluster.running == {"o0", "o1"}, "the gang waits while its place is the owner's"
    for job in ("o0", "o1"):
        cluster.core.release(job)
    cluster.step(5001.0)
    assert cluster.running == {"gang"}


def test_reclaim_frees_only_where_the_claimant_then_fits() -> None:
    nodes = [Node("cpu", size(4)), Node("gpu", size(4, 2))]
    cluster = Cluster(nodes, Queue("owner", None, size(4, 2)), Queue("other", None))
    cluster.put(request("on-cpu", "other", 4))
    cluster.step(0.0)
    cluster.put(request("on-gpu", "other", 4, at=1.0, gpu=2))
    cluster.step(1.0)
    cluster.put(request("claim", "owner", 1, at=100.0, gpu=2))
    cluster.run(100.0, 200.0)
    assert [job for _, job, _ in cluster.evicted] == ["on-gpu"], "though on-cpu would have lost as little"
    cluster.put(request("too-large", "owner", 5, at=200.0))
    cluster.run(200.0, 3000.0)
    assert len(cluster.evicted) == 1, "no eviction helps a job that fits nowhere"


def test_the_room_is_kept_until_the_victims_have_gone() -> None:
    core = Core.of(
        Snapshot(
            0.0,
            (Node("n1", size(4)),),
            (Queue("owner", None, size(4)), Queue("o", None)),
            (),
            (),
            rules=Rules(preemption=True),
        ),
    )
    core.submit_many([request("big", "o", 3)])
    core.decide(0.0)
    core.submit_many([request("claim", "owner", 4, at=100.0), *[request(f"s{i}", "o", at=100.0) for i in range(9)]])
    decisions = core.decide(100.0)
    started = [d.job for d in decisions if isinstance(d, Start)]
    assert started == ["s0"], "one fits beside the big one, before anybody is evicted"
    evicted = [d.job for d in decisions if isinstance(d, Preempt)]
    assert evicted == [], "s0 has just begun, so evicting the big one would not help"
    evicted = [d.job for d in core.decide(160.0) if isinstance(d, Preempt)]
    assert sorted(evicted) == ["big", "s0"]
    assert core.decide(161.0) == [], "they are on their way, nobody is asked twice"
    core.release("big")
    assert core.decide(162.0) == [], "nobody moves into what the big one left"
    core.release("s0")
    (start,) = core.decide(163.0)
    assert isinstance(start, Start)
    assert start.job == "claim"


def test_a_head_that_waits_for_devices_does_not_block_other_resources() -> None:
    cluster = Cluster([Node("n1", size(8, 1))], Queue("a", None))
    cluster.put(request("has", "a", gpu=1))
    cluster.step(0.0)
    cluster.put(request("wants", "a", gpu=1), *[request(f"cpu{i}", "a", at=500.0) for i in range(4)])
    cluster.step(500.0)
    assert cluster.running == {"has", "cpu0", "cpu1", "cpu2", "cpu3"}


# --- the rules at random ----------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.randoms(use_true_random=False))
def test_every_eviction_is_allowed_needed_and_followed_by_the_start(random: Random) -> None:
    """And it all comes to rest: without anything new, evictions end."""
    queues = [
        Queue("p", None, size(6, 1)),
        Queue("a", size(9, 4), size(4, 1), parent="p"),
        Queue("b", None, size(2), parent="p"),
        Queue("c", None, random.choice([Resources(), size(4, 1)]), weight=2),
    ]
    nodes = [Node(f"n{i}", size(random.randint(3, 6), random.choice([0, 2]))) for i in range(3)]
    cluster = Cluster(nodes, *queues)
    now, last = 0.0, dict[str, float]()
    for step in range(60):
        now += random.choice([1.0, 20.0, 100.0])
        for _ in range(random.randint(0, 2) if step < 30 else 0):
            name = f"j{len(cluster.requests)}"
            cluster.put(request(name, random.choice("abc"), random.randint(1, 3), random.randint(1, 3), now,
                                gpu=random.choice([0, 0, 1]), priority=random.choice([0, 0, 1])))  # fmt: skip
        if random.random() < 0.3 and cluster.running:
            cluster.core.release(random.choice(sorted(cluster.running)))
        core = cluster.core
        before, used = dict(core.allocations), {name: ledger.used for name, ledger in core.ledgers.items()}
        evicted = len(cluster.evicted)
        decisions = cluster.step(now)
        starts = {d.job for d in decisions if isinstance(d, Start)}
        claims = {by for _, _, by in cluster.evicted[evicted:]}
        for _, job, by in cluster.evicted[evicted:]:
            victim, claimant = cluster.requests[job], cluster.requests[by]
            assert job in before, "who started in this cycle is not evicted in it"
            assert now - before[job].since >= rules.DEFAULTS.least_run
            assert now - last.get(job, float("-inf")) >= rules.DEFAULTS.window
            last[job] = now
            if victim.queue == claimant.queue:
                assert victim.priority < claimant.priority
            else:
                least = next(q.guarantee for q in queues if q.name == victim.queue)
                assert starts or guaranteed_part(used[victim.queue], least) > 1.0
        if claims:
            following = {d.job for d in cluster.step(now) if isinstance(d, Start)}
            assert claims <= following, "all victims have gone: the claimants start"
    calm = len(cluster.evicted)
    cluster.run(now + rules.DEFAULTS.window * 2, now + rules.DEFAULTS.window * 12, rules.DEFAULTS.window / 3)
    settled = len(cluster.evicted)
    cluster.run(now + rules.DEFAULTS.window * 20, now + rules.DEFAULTS.window * 40, rules.DEFAULTS.window / 3)
    assert len(cluster.evicted) == settled, f"{calm} before, {settled} later, and it goes on"
    assert max(Counter(job for _, job, _ in cluster.evicted).values(), default=0) <= 12


@pytest.mark.parametrize("priority", [0, 1])
def test_a_claimant_that_goes_away_leaves_nothing_behind(priority: int) -> None:
    cluster = Cluster([Node("n1", size(1))], Queue("a", None))
    cluster.put(request("low", "a"))
    cluster.step(0.0)
    cluster.put(request("high", "a", priority=1))
    cluster.step(100.0)
    cluster.core.withdraw("high")
    cluster.put(request("next", "a", priority=priority))
    cluster.step(101.0)
    assert cluster.core.reservations == {}
    assert len(cluster.running) == 1
