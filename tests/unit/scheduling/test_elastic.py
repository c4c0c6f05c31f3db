"""Members that come and go: from least to most into what is idle, back when others wait, fairly and without flapping."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling import rules
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import (
    Assignment,
    Decision,
    MemberSet,
    Node,
    Preempt,
    Queue,
    Request,
    Resize,
    Snapshot,
    Start,
    Wait,
)
from paddleflow.scheduling.rules import Rules

PAUSE = rules.DEFAULTS.resize_pause
_orders = iter(range(1, 10_000_000))


def cpus(cpu: int) -> Resources:
    return Resources.of(cpu * 1000, cpu)


def elastic(
    job: str, least: int, most: int, *, at: float = 0.0, queue: str = "q", cpu: int = 1, priority: int = 0
) -> Request:
    member_sets = (MemberSet("ps", 1, cpus(1)), MemberSet("worker", most, cpus(cpu), least))
    return Request(job, queue, member_sets, at, next(_orders), priority)


def rigid(job: str, cpu: int, *, at: float = 0.0, queue: str = "q", priority: int = 0) -> Request:
    return Request(job, queue, (MemberSet("main", 1, cpus(cpu)),), at, next(_orders), priority)


def core_of(cpu: int, *queues: Queue, nodes: int = 1, preemption: bool = False) -> Core:
    made = tuple(Node(f"n{i}", cpus(cpu)) for i in range(nodes))
    rules = Rules(preemption=preemption, elastic=True)
    return Core.of(Snapshot(0.0, made, queues or (Queue("q", None),), (), (), rules=rules))


def step(core: Core, now: float) -> list[Decision]:
    """One cycle; members that are told to go have gone at once."""
    rebuilt = Core.of(core.snapshot(now)).decide(now)
    decisions = core.decide(now)
    acts = [d for d in decisions if not isinstance(d, Wait)]
    assert [d for d in rebuilt if not isinstance(d, Wait)] == acts, "a rebuilt core decides the same"
    for decision in acts:
        if isinstance(decision, Resize) and decision.removed:
            left = [a for a in core.allocations[decision.job].assignments if a not in decision.removed]
            assert core.resized(decision.job, left)
    return decisions


def workers(core: Core, job: str) -> int:
    return sum(a.role == "worker" for a in core.allocations[job].assignments)


def test_a_gang_starts_with_its_least_members_and_takes_what_is_idle() -> None:
    core = Core.of(Snapshot(0.0, (Node("n1", cpus(6)),), (Queue("q", None),), (), ()))
    core.submit_many([elastic("j", 2, 9)])
    (start,) = core.decide(0.0)
    assert isinstance(start, Start)
    assert Counter(a.role for a in start.assignments) == {"ps": 1, "worker": 5}
    assert core.usage("q") == cpus(6)
    core.submit_many([elastic("k", 2, 9)])
    assert [type(d) for d in core.decide(1000.0)] == [Wait], "without the option nothing is resized"
    core.release("j")
    assert core.usage("q") == Resources()


def test_too_little_for_the_least_starts_nothing() -> None:
    core = core_of(3)
    core.submit_many([elastic("j", 3, 9)])
    (wait,) = step(core, 0.0)
    assert isinstance(wait, Wait)
    assert wait.reason.code == "capacity"


def test_idle_capacity_levels_out_however_the_jobs_came() -> None:
    core = core_of(12, nodes=14)
    now, moved = 0.0, 0
    for number in range(6):
        core.submit_many([elastic(f"j{number}", 2, 60, at=now, cpu=2)])
        step(core, now)
        now += 5.0
    assert workers(core, "j0") == 60, "the first had all to itself"
    for _ in range(60):
        moved = sum(isinstance(d, Resize) for d in step(core, now))
        now += PAUSE
    sizes = [workers(core, f"j{number}") for number in range(6)]
    jain = sum(sizes) ** 2 / (len(sizes) * sum(size**2 for size in sizes))
    assert jain >= 0.9, sizes
    assert min(sizes) >= 2
    assert moved == 0, "and then it rests"
    assert core.usage("q").cpu >= 160_000, "with little idle"


def test_started_together_they_grow_alike() -> None:
    core = core_of(10, nodes=12)
    core.submit_many([elastic(f"j{number}", 2, 60, cpu=1) for number in range(5)])
    step(core, 0.0)
    sizes = [workers(core, f"j{number}") for number in range(5)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) + 5 == 120, "and nothing is idle"


def test_members_are_given_back_when_another_job_waits_the_best_served_first() -> None:
    core = core_of(20)
    core.submit_many([elastic("rich", 1, 12), elastic("poor", 6, 10)])
    step(core, 0.0)
    before = workers(core, "rich"), workers(core, "poor")
    assert sum(before) == 18
    core.submit_many([rigid("new", 4, at=10.0)])
    assert not any(isinstance(d, Resize) for d in step(core, 10.0)), "they have just begun"
    resizes = [d for d in step(core, PAUSE) if isinstance(d, Resize)]
    assert resizes
    assert all(d.by == "new" and not d.added for d in resizes)
    assert sum(len(d.removed) for d in resizes) == 4, "as many as are needed"
    assert [d.job for d in step(core, PAUSE + 1.0) if isinstance(d, Start)] == ["new"]
    assert workers(core, "rich") >= 1
    assert workers(core, "poor") >= 6
    core.release("new")
    assert not any(isinstance(d, Resize) for d in step(core, PAUSE + 2.0)), "not so soon again"
    grown = [d for d in step(core, 2 * PAUSE + 1.0) if isinstance(d, Resize)]
    assert sum(len(d.added) for d in grown) == 4
    assert (workers(core, "rich"), workers(core, "poor")) == before


def test_nobody_goes_below_the_least_and_higher_priorities_give_nothing() -> None:
    core = core_of(8)
    core.submit_many([elastic("high", 2, 6, priority=1)])
    step(core, 0.0)
    assert workers(core, "high") == 6
    core.submit_many([rigid("low", 5, at=1.0)])
    for turn in range(10):
        assert not any(isinstance(d, Resize) for d in step(core, 100.0 * turn + 100.0))
    core.withdraw("low")
    core.submit_many([rigid("equal", 5, at=1.0, priority=1)])
    for turn in range(3):
        step(core, 2000.0 + 100.0 * turn)
    assert workers(core, "high") == 2
    assert "equal" in core.allocations


def test_spare_members_go_before_whole_jobs_are_evicted() -> None:
    core = core_of(10, Queue("owner", None, cpus(6)), Queue("q", None), preemption=True)
    core.submit_many([elastic("big", 2, 6), rigid("small", 3)])
    step(core, 0.0)
    assert workers(core, "big") == 6
    core.submit_many([rigid("claim", 4, at=100.0, queue="owner")])
    decisions = step(core, 100.0)
    assert [type(d) for d in decisions if not isinstance(d, Wait)] == [Resize]
    step(core, 101.0)
    core.submit_many([rigid("more", 2, at=200.0, queue="owner")])
    decisions = [d for d in step(core, 200.0) if isinstance(d, Preempt)]
    assert [d.job for d in decisions] in (["small"], ["big"]), "what is left to give is a whole job"


@settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_whatever_happens_the_books_agree_and_nobody_is_below_the_least(random: Random) -> None:
    queues = (Queue("q", None, cpus(4)), Queue("r", cpus(14), cpus(6), weight=2))
    core = core_of(6, *queues, nodes=4, preemption=random.random() < 0.5)
    requests: dict[str, Request] = {}
    changed: dict[str, float] = {}
    now = 0.0
    for _ in range(40):
        now += random.choice([1.0, 15.0, 60.0])
        for _ in range(random.randint(0, 2)):
            job, queue, priority = f"j{len(requests)}", random.choice("qr"), random.choice([0, 0, 1])
            least = random.randint(0, 2)
            made = elastic(job, least, least + random.randint(0, 5), at=now, queue=queue, priority=priority)
            requests[job] = made if random.random() < 0.6 else rigid(job, random.randint(1, 5), at=now, queue=queue)
            core.submit(requests[job])
        if core.allocations and random.random() < 0.3:
            core.release(random.choice(sorted(core.allocations)))
        for decision in step(core, now):
            if isinstance(decision, Resize):
                assert now - changed.get(decision.job, float("-inf")) >= PAUSE, "no flapping"
                changed[decision.job] = now
            elif isinstance(decision, Start):
                changed[decision.job] = now
            elif isinstance(decision, Preempt):
                core.release(decision.job)
                core.submit(requests[decision.job])
        _check(core, requests)


def _check(core: Core, requests: dict[str, Request]) -> None:
    free = {name: cpus(6) for name in core.cluster.states}
    usage = {"q": Resources(), "r": Resources()}
    for job, allocation in core.allocations.items():
        each = {member_set.role: member_set.each for member_set in requests[job].member_sets}
        members = Counter(a.role for a in allocation.assignments)
        assert len({(a.role, a.index) for a in allocation.assignments}) == len(allocation.assignments)
        assert all(
            member_set.minimum <= members[member_set.role] <= member_set.count
            for member_set in requests[job].member_sets
        )
        usage[allocation.request.queue] += total(each[a.role] for a in allocation.assignments)
        for a in allocation.assignments:
            free[a.node] -= each[a.role]
    for reservation in core.reservations.values():
        for name, at, count in reservation.rows:
            free[name] -= core.pending[reservation.job].gang.sizes[at].each * count
    assert {name: core.usage(name) for name in usage} == usage
    assert {name: Resources.of(s.cpu, s.memory) for name, s in core.cluster.states.items()} == free


def test_a_resize_of_nothing_known_changes_nothing() -> None:
    core = core_of(4)
    assert not core.resized("nobody", [Assignment("worker", 0, "n0")])
