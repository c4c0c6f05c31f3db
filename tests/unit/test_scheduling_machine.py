"""The production core, driven at random, against a scheduler that is slow and obviously right.

After every cycle: the same jobs start in the same order on the same devices as in the reference, a core rebuilt from the
snapshot agrees, and the books are in order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Assignment, Decision, Held, Need, Node, Queue, Request, Snapshot, Start, Wait

GPU = "gpu"
PATIENCE = 300.0


# --- the reference: full scans, no memory ---------------------------------------------------------------------------


class Place:
    """A node with the list of what is on it; everything is computed from that list each time."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.on: list[tuple[Resources, tuple[int, ...]]] = []

    def cpu(self) -> int:
        return self.node.capacity.cpu - self.node.reserved.cpu - sum(each.cpu for each, _ in self.on)

    def memory(self) -> int:
        return self.node.capacity.memory - self.node.reserved.memory - sum(each.memory for each, _ in self.on)

    def devices(self) -> tuple[list[int], dict[int, int]]:
        """Untouched device numbers, and the room on the others."""
        count = self.node.capacity.scalar(GPU) // 1000
        used: Counter[int] = Counter()
        for each, numbers in self.on:
            for number in numbers:
                used[number] += each.scalar(GPU) // len(numbers)
        untouched = [number for number in range(count) if not used[number]]
        unnamed = -(-self.node.reserved.scalar(GPU) // 1000)
        return (
            untouched[: len(untouched) - unnamed] if unnamed < len(untouched) else [],
            {number: 1000 - amount for number, amount in used.items() if number < count and amount},
        )

    def take(self, each: Resources) -> tuple[int, ...] | None:
        """Device numbers for one more member, or None when it does not fit."""
        wanted = each.scalar(GPU)
        untouched, shared = self.devices()
        if each.cpu > self.cpu() or each.memory > self.memory():
            return None
        numbers: tuple[int, ...] = ()
        if wanted and wanted % 1000 == 0:
            if len(untouched) < wanted // 1000:
                return None
            numbers = tuple(self.lowest(wanted // 1000))
        elif wanted:
            fitting = sorted((room, number) for number, room in shared.items() if room >= wanted)
            if wanted > 1000 or not (fitting or untouched):
                return None
            numbers = (fitting[0][1],) if fitting else tuple(self.lowest(1))
        self.on.append((each, numbers))
        return numbers

    def lowest(self, wanted: int) -> list[int]:
        return self.devices()[0][:wanted]

    def holds(self, each: Resources, times: int) -> bool:
        before = list(self.on)
        good = all(self.take(each) is not None for _ in range(times))
        self.on = before
        return good

    def rank(self) -> tuple[object, ...]:
        untouched, shared = self.devices()
        part = 1000 if untouched else max([0, *shared.values()])
        known = self.node.capacity.scalar(GPU) > 0
        group = ((GPU, len(untouched) * 1000, part),) if known else ()
        return (len(untouched) * 1000 + part if known else 0, group, self.cpu(), self.memory(), self.node.name)


def selected(request: Request, queue: Queue) -> set[tuple[str, str]]:
    return set(request.node_labels) | set(queue.node_labels)


def put(request: Request, queue: Queue, places: list[Place]) -> list[Assignment] | None:
    wanted = selected(request, queue)
    eligible = [p for p in places if p.node.schedulable and wanted <= set(p.node.labels.items())]
    sizes: dict[Resources, list[tuple[str, int]]] = {}
    for need in request.needs:
        sizes.setdefault(need.each, []).extend((need.role, index) for index in range(need.count))
    before = [list(p.on) for p in places]
    found: list[Assignment] = []
    for each in sorted(sizes, key=lambda e: (e.scalar(GPU), e.cpu, e.memory), reverse=True):
        members = sizes[each]
        together = 1 if each.scalar(GPU) % 1000 else len(members)
        while members:
            together = min(together, len(members))
            fitting = sorted((p for p in eligible if p.holds(each, together)), key=Place.rank)
            if fitting:
                for role, index in members[:together]:
                    numbers = fitting[0].take(each)
                    assert numbers is not None
                    found.append(Assignment(role, index, fitting[0].node.name, ((GPU, numbers),) if numbers else ()))
                members = members[together:]
            elif together > 1:
                together -= 1
            else:
                for place, was in zip(places, before, strict=True):
                    place.on = was
                return None
    return sorted(found, key=lambda a: (a.role, a.index))


def needs_of(request: Request) -> Resources:
    return total(need.each * need.count for need in request.needs)


def reference(snapshot: Snapshot, limit: int | None) -> list[Start]:
    places = {node.name: Place(node) for node in snapshot.nodes}
    queues = {queue.name: queue for queue in snapshot.queues}
    used = {name: Resources() for name in queues}
    for held in snapshot.held:
        if held.request.queue in used:
            used[held.request.queue] += needs_of(held.request)
        each = {need.role: need.each for need in held.request.needs}
        for assignment in held.assignments:
            if assignment.node in places:
                places[assignment.node].on.append((each[assignment.role], dict(assignment.devices).get(GPU, ())))

    def possible(request: Request, queue: Queue) -> bool:
        if queue.most is not None and not needs_of(request).fits(queue.most):
            return False
        return put(request, queue, [Place(node) for node in snapshot.nodes]) is not None

    started: list[Start] = []
    failed: set[object] = set()
    passed: list[Request] = []
    for request in sorted(snapshot.pending, key=lambda r: (-r.priority, r.submitted_at, r.order, r.job)):
        if limit is not None and len(started) == limit:
            break
        queue = queues.get(request.queue)
        if queue is None or not queue.open:
            continue
        aged = [r for r in passed if r.queue == request.queue and r.submitted_at <= snapshot.now - PATIENCE]
        shape = (request.needs, frozenset(selected(request, queue)))
        fits_queue = queue.most is None or not any(
            needs_of(request).amount(d) and (used[queue.name] + needs_of(request)).amount(d) > queue.most.amount(d)
            for d in ("cpu", "memory", GPU)
        )
        if fits_queue and shape not in failed and not any(possible(r, queue) for r in aged):
            found = put(request, queue, list(places.values()))
            if found is not None:
                used[queue.name] += needs_of(request)
                started.append(Start(request.job, tuple(found)))
                continue
            failed.add(shape)
        passed.append(request)
    return started


# --- the world: one core, every event checked -----------------------------------------------------------------------

SIZES = [
    Resources.of(1000, 1),
    Resources.of(2000, 1),
    Resources.of(1500, 3),
    Resources.of(500, 0, {GPU: 300}),
    Resources.of(500, 1, {GPU: 600}),
    Resources.of(1000, 1, {GPU: 1000}),
    Resources.of(1000, 2, {GPU: 2000}),
]
#: What may happen, as often as it is named here.
EVENTS = ["submit"] * 8 + ["release"] * 8 + ["withdraw", "reprioritise", "tick", "tick", "adopt", "node", "queue"]


class World:
    """A core, what should be in it, and a clock; all choices come from a `Random`."""

    def __init__(self, random: Random) -> None:
        self.core = Core()
        self.now = 1000.0
        self.order = 0
        self.nodes: dict[str, Node] = {}
        self.queues = {name: Queue(name, Resources.of(14_000, 28, {GPU: 4000})) for name in ("q0", "q1")}
        self.pending: set[str] = set()
        self.running: set[str] = set()
        self.told: set[str] = set()
        self.core.set_queues(self.queues.values())
        for _ in range(3):
            self.node(random)

    def event(self, kind: str, random: Random) -> None:
        getattr(self, kind)(random)
        self.check()
        limit = random.choice([None, None, None, 0, 1, 2])  # 0: no cycle yet
        if limit != 0:
            self.decide(limit)
            self.check()

    def submit(self, random: Random) -> None:
        needs = [Need("worker", random.randint(1, 4), random.choice(SIZES))]
        if random.random() < 0.3:
            needs.insert(0, Need("server", random.randint(1, 2), random.choice(SIZES)))
        zone = random.choice([""] * 7 + ["a", "a", "c"])
        request = Request(
            "",
            random.choice(["q0"] * 6 + ["q1"] * 4 + ["q2"]),
            tuple(needs),
            self.now - random.choice([0.0, 0.0, 0.0, 100.0, 400.0]),
            0,
            random.choice([0, 0, 0, 1, 2]),
            node_labels=(("zone", zone),) if zone else (),
        )
        for _ in range(random.randint(1, 4)):
            self.order += 1
            request = replace(request, job=f"job-{self.order}", order=self.order)
            assert self.core.submit(request)
            assert not self.core.submit(replace(request, priority=9)), "a job that is known is not taken twice"
            self.pending.add(request.job)

    def withdraw(self, random: Random) -> None:
        if self.pending:
            job = random.choice(sorted(self.pending))
            assert self.core.withdraw(job)
            assert not self.core.withdraw(job)
            self.pending.remove(job)

    def reprioritise(self, random: Random) -> None:
        if self.pending:
            assert self.core.reprioritise(random.choice(sorted(self.pending)), random.randint(0, 2))

    def release(self, random: Random) -> None:
        for _ in range(random.randint(1, 3)):
            if self.running:
                job = random.choice(sorted(self.running))
                assert self.core.release(job)
                assert not self.core.release(job)
                self.running.remove(job)

    def node(self, random: Random) -> None:
        name, gpu, reserved = f"n{random.randint(0, 3)}", random.choice([0, 2, 4]), random.choice([0, 0, 1])
        if random.random() < 0.2:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = Node(
                name,
                Resources.of(random.randint(3, 12) * 1000, random.randint(6, 16), {GPU: gpu * 1000}),
                {"zone": random.choice("aaab")},
                random.random() < 0.9,
                Resources.of(0, reserved, {GPU: reserved * 1000 if gpu else 0}),
            )
        self.core.set_nodes(self.nodes.values())

    def queue(self, random: Random) -> None:
        name, most = random.choice(["q0", "q1"]), Resources.of(random.randint(4, 16) * 1000, 24, {GPU: 4000})
        if random.random() < 0.1:
            self.queues.pop(name, None)
        else:
            zone = random.choice(["", "", "", "a"])
            self.queues[name] = Queue(
                name,
                None if random.random() < 0.2 else most,
                open=random.random() < 0.9,
                node_labels=(("zone", zone),) if zone else (),
            )
        self.core.set_queues(self.queues.values())

    def adopt(self, random: Random) -> None:
        """A job that runs already, on a node that may not be known; without devices, to take none from others."""
        self.order += 1
        each = Resources.of(random.randint(0, 2) * 500, 1)
        request = Request(f"job-{self.order}", random.choice(["q0", "q2"]), (Need("main", 1, each),), self.now, 0)
        held = Held(request, (Assignment("main", 0, random.choice(["n0", "n9"])),), self.now)
        assert self.core.hold(held)
        assert not self.core.hold(held)
        self.running.add(request.job)

    def tick(self, random: Random) -> None:
        self.now += random.choice([1.0, 200.0, 400.0, -350.0])

    def decide(self, limit: int | None) -> None:
        snapshot = self.core.snapshot(self.now)
        expected = reference(snapshot, limit)
        rebuilt = [d for d in Core.of(snapshot).decide(self.now, limit) if isinstance(d, Start)]
        decisions = self.core.decide(self.now, limit)
        started = [d for d in decisions if isinstance(d, Start)]
        assert started == expected
        assert rebuilt == expected
        for decision in decisions:
            assert decision.job in self.pending
            if isinstance(decision, Start):
                self.pending.remove(decision.job)
                self.running.add(decision.job)
            else:
                assert decision.job not in self.told, "told once"
                self.told.add(decision.job)
        if limit is None:
            assert self.pending <= self.told
            self.reasons(snapshot, decisions)

    def reasons(self, snapshot: Snapshot, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Wait):
                assert self.core.why(decision.job) == decision.reason
        for request in snapshot.pending:
            if request.job in self.pending:
                reason = self.core.why(request.job)
                assert reason.text
                assert reason.code != "next" or len({need.each for need in request.needs}) > 1
        assert self.core.decide(self.now, 0) == []

    def check(self) -> None:
        """The books are in order."""
        core, places = self.core, {name: Place(node) for name, node in self.nodes.items()}
        snapshot = core.snapshot(self.now)
        assert {r.job for r in snapshot.pending} == self.pending
        assert {h.request.job for h in snapshot.held} == self.running
        assert core.pending_count == len(self.pending)
        used: Counter[tuple[str, int]] = Counter()
        usage: dict[str, Resources] = {}
        for held in snapshot.held:
            request = held.request
            usage[request.queue] = usage.get(request.queue, Resources()) + needs_of(request)
            members = Counter(assignment.role for assignment in held.assignments)
            assert members == Counter({need.role: need.count for need in request.needs}), "a gang is whole"
            each = {need.role: need.each for need in request.needs}
            for a in held.assignments:
                for number in dict(a.devices).get(GPU, ()):
                    used[a.node, number] += min(1000, each[a.role].scalar(GPU))
                if a.node in places:
                    places[a.node].on.append((each[a.role], dict(a.devices).get(GPU, ())))
        assert all(amount <= 1000 for amount in used.values()), "no device is given twice"
        for queue in ("q0", "q1", "q2"):
            assert core.usage(queue) == usage.get(queue, Resources())
        assert core.cluster.states.keys() == places.keys()
        for name, place in places.items():
            state = core.cluster.states[name]
            assert (state.cpu, state.memory, state.group) == (place.cpu(), place.memory(), place.rank()[1])
        for labels, pool in core.cluster.pools.items():
            fitting = {n for n, p in self.nodes.items() if p.schedulable and set(labels) <= set(p.labels.items())}
            assert pool.members.keys() == fitting


class Scheduling(RuleBasedStateMachine):
    """Hypothesis chooses, so that a failure shrinks to a few events."""

    @initialize(random=st.randoms(use_true_random=False))
    def begin(self, random: Random) -> None:
        self.world = World(random)

    @rule(kind=st.sampled_from(EVENTS), random=st.randoms(use_true_random=False))
    def event(self, kind: str, random: Random) -> None:
        self.world.event(kind, random)


Scheduling.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestScheduling = Scheduling.TestCase


@pytest.mark.parametrize("seed", range(6))
def test_a_long_walk(seed: int) -> None:
    """Many events on one core: what indexes forget over time shows here."""
    random = Random(seed)
    world = World(random)
    for _ in range(120):
        world.event(random.choice(EVENTS), random)
    assert len(world.running) + len(world.pending) < world.order
