"""The production core, driven at random, against a scheduler that is slow and obviously right.

After every cycle: the same jobs start in the same order on the same devices as in the reference, a core rebuilt from the
snapshot agrees, and the books are in order.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import (
    Allocation,
    Assignment,
    MemberSet,
    Node,
    Queue,
    Request,
    Start,
    Wait,
)
from tests.scheduling_reference import GPU, Model, Place, member_sets_of, put, reference, sizes_of

# --- the simulation: one core, every event checked -----------------------------------------------------------------------

SIZES = [
    Resources.of(1000, 1),
    Resources.of(2000, 1),
    Resources.of(1500, 3),
    Resources.of(500, 0, {GPU: 300}),
    Resources.of(500, 1, {GPU: 600}),
    Resources.of(1000, 1, {GPU: 1000}),
    Resources.of(1000, 2, {GPU: 2000}),
]
QUEUES = ["q0", "q1", "q2", "team"]
#: What may happen, as often as it is named here.
EVENTS = ["submit"] * 8 + ["release"] * 8 + ["withdraw", "reprioritise", "tick", "tick", "adopt", "node", "queue"]


def startable(model: Model, request: Request) -> bool:
    """Whether it could start on what is free now, before everybody else; nothing changes."""
    if not model.open(request) or not model.possible(request) or not model.within(request) or model.claimed(request):
        return False
    queue, kept = model.queues[request.queue], model.kept.get(request.job)
    before = {name: list(place.on) for name, place in model.places.items()}
    model.keep(besides=request.job)
    found = put(request, queue, list(model.places.values()))
    if found is None and kept is not None:
        found = model.put_kept(request, kept, queue)
    for name, was in before.items():
        model.places[name].on = was
    model.keep()
    return found is not None


class Simulation:
    """A core, what should be in it, and a clock; all choices come from a `Random`."""

    def __init__(self, random: Random) -> None:
        self.core = Core()
        self.now = 1000.0
        self.order = 0
        self.nodes: dict[str, Node] = {}
        most, least = Resources.of(14_000, 28, {GPU: 4000}), Resources.of(4000, 8, {GPU: 1000})
        self.queues = {
            "q0": Queue("q0", most, parent="team"),
            "q1": Queue("q1", most, least, parent="team", order="fair"),
            "q2": Queue("q2", None, weight=2),
            "team": Queue("team", Resources.of(20_000, 40, {GPU: 6000})),
        }
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
        member_sets = [MemberSet("worker", random.randint(1, 4), random.choice(SIZES))]
        if random.random() < 0.3:
            member_sets.insert(0, MemberSet("server", random.randint(1, 2), random.choice(SIZES)))
        zone = random.choice([""] * 7 + ["a", "a", "c"])
        request = Request(
            "",
            random.choice(["q0"] * 6 + ["q1"] * 4 + ["q2"] * 3 + ["team", "nowhere"]),
            tuple(member_sets),
            self.now - random.choice([0.0, 0.0, 0.0, 100.0, 400.0]),
            0,
            random.choice([0, 0, 0, 1, 2]),
            node_labels=(("zone", zone),) if zone else (),
            user=random.choice("uv"),
            expected=random.choice([None, 10.0, 20.0]),
        )
        for _ in range(random.randint(1, 4)):
            self.order += 1
            request = request._replace(job=f"job-{self.order}", seq=self.order)
            assert self.core.submit(request)
            assert not self.core.submit(request._replace(priority=9)), "a job that is known is not taken twice"
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
        name, most = random.choice(QUEUES), Resources.of(random.randint(4, 16) * 1000, 24, {GPU: 4000})
        if random.random() < 0.1:
            self.queues.pop(name, None)
        else:
            zone = random.choice(["", "", "", "a"])
            self.queues[name] = Queue(
                name,
                None if random.random() < 0.2 else most,
                random.choice([Resources(), Resources.of(2000, 4), Resources.of(4000, 8, {GPU: 2000})]),
                open=random.random() < 0.9,
                node_labels=(("zone", zone),) if zone else (),
                parent=random.choice(["root", "team", "team", "q2", "unknown"]),
                weight=random.randint(1, 3),
                order=random.choice(["fifo", "fifo", "shortest", "fair", "drf"]),
            )
        self.core.set_queues(self.queues.values())

    def adopt(self, random: Random) -> None:
        """A job that runs already, on a node that may not be known; without devices, to take none from others."""
        self.order += 1
        each = Resources.of(random.randint(0, 2) * 500, 1)
        request = Request(
            f"job-{self.order}", random.choice(["q0", "nowhere"]), (MemberSet("main", 1, each),), self.now, 0
        )
        allocation = Allocation(request, (Assignment("main", 0, random.choice(["n0", "n9"])),), self.now)
        assert self.core.allocate(allocation)
        assert not self.core.allocate(allocation)
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
            for decision in decisions:
                if isinstance(decision, Wait):
                    assert self.core.why(decision.job) == decision.reason
            assert self.core.decide(self.now, 0) == []
        self.reasons(complete=limit is None)

    def reasons(self, complete: bool) -> None:
        """`next` is said of those, and only those, whom nothing but the order or the cycle's limit holds back."""
        snapshot, told = self.core.snapshot(self.now), self.core.reasons()
        model = Model(snapshot, None)
        claims = {name: ledger.claim for name, ledger in self.core.ledgers.items()}
        model.claims = {name: model.pending[claim.job] for name, claim in claims.items()
                        if claim is not None and claim.job in model.pending}  # fmt: skip
        first = {line.key[3] for line in self.core.pending.values()}
        for request in snapshot.pending:
            reason = told[request.job]
            assert reason.text
            if request.job in first:
                assert (reason.code == "next") == startable(model, request), (request, reason)
        if complete and any(reason.code == "next" for reason in told.values()):
            assert self.core.dirty, "a start that is possible is not left out"
        copy = Core.of(snapshot)
        for _ in range(len(snapshot.pending) + 2):
            copy.decide(self.now)
        assert all(reason.code != "next" for reason in copy.reasons().values()), "it does not stay the next for ever"

    def check(self) -> None:
        """The books are in order."""
        core, places = self.core, {name: Place(node) for name, node in self.nodes.items()}
        snapshot = core.snapshot(self.now)
        assert {r.job for r in snapshot.pending} == self.pending
        assert {h.request.job for h in snapshot.allocations} == self.running
        assert core.pending_count == len(self.pending)
        used: Counter[tuple[str, int]] = Counter()
        usage: dict[str, Resources] = {}
        for allocation in snapshot.allocations:
            request = allocation.request
            usage[request.queue] = usage.get(request.queue, Resources()) + member_sets_of(request)
            members = Counter(assignment.role for assignment in allocation.assignments)
            assert members == Counter({member_set.role: member_set.count for member_set in request.member_sets}), (
                "a gang is whole"
            )
            each = {member_set.role: member_set.each for member_set in request.member_sets}
            for a in allocation.assignments:
                for number in dict(a.devices).get(GPU, ()):
                    used[a.node, number] += min(1000, each[a.role].scalar(GPU))
                if a.node in places:
                    places[a.node].on.append((each[a.role], dict(a.devices).get(GPU, ())))
        assert all(amount <= 1000 for amount in used.values()), "no device is given twice"
        for queue in [*QUEUES, "nowhere"]:
            below = [
                n
                for n in [*QUEUES, "nowhere"]
                if queue in ([n] if n not in self.queues else Model(snapshot, 0).path(n))
            ]
            assert core.usage(queue) == total(usage.get(n, Resources()) for n in below)
        by_job = {request.job: request for request in snapshot.pending}
        nodes_kept = [row[0] for kept in snapshot.reservations for row in {row[0]: row for row in kept.rows}.values()]
        assert len(nodes_kept) == len(set(nodes_kept)), "a node is kept for one job"
        for kept in snapshot.reservations:
            sizes = sizes_of(by_job[kept.job])
            for name, at, count in kept.rows:
                places[name].kept += sizes[at][0] * count
        assert core.cluster.states.keys() == places.keys()
        for name, place in places.items():
            state = core.cluster.states[name]
            assert (state.cpu, state.memory, state.group) == (place.cpu(), place.memory(), place.rank()[1])
        for selector, pool in core.cluster.pools.items():
            fitting = {
                n for n, p in self.nodes.items() if p.schedulable and set(selector.labels) <= set(p.labels.items())
            }
            assert pool.members.keys() == fitting


class Scheduling(RuleBasedStateMachine):
    """Hypothesis chooses, so that a failure shrinks to a few events."""

    @initialize(random=st.randoms(use_true_random=False))
    def begin(self, random: Random) -> None:
        self.simulation = Simulation(random)

    @rule(kind=st.sampled_from(EVENTS), random=st.randoms(use_true_random=False))
    def event(self, kind: str, random: Random) -> None:
        self.simulation.event(kind, random)


Scheduling.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestScheduling = Scheduling.TestCase


@pytest.mark.parametrize("seed", range(6))
def test_a_long_walk(seed: int) -> None:
    """Many events on one core: what indexes forget over time shows here."""
    random = Random(seed)
    simulation = Simulation(random)
    for _ in range(120):
        simulation.event(random.choice(EVENTS), random)
    assert len(simulation.running) + len(simulation.pending) < simulation.order
