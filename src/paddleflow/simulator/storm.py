"""Random events against the production core, good and bad ones, and what must hold after each: by seed, for as long as asked.

Submissions, ends, withdrawals, other priorities, quotas that change under load, nodes that come, go and shrink, clocks that
jump back and far ahead, requests that make no sense, amounts that overflow 64 bits. Nothing may raise, and everything that
the core counts must agree with a second count. The simulation is small and crowded, because what goes wrong in a large one goes
wrong in a small one too, and an event there costs a tenth. Changed queues and nodes become again what they were at the
start as often as not, so that much starts however long it lasts. The tests run 100,000 events, `scripts/bench storm` a
hundred times as many.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import allocated_total
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.devices import WHOLE
from paddleflow.scheduling.model import (
    Allocation,
    Decision,
    MemberSet,
    Node,
    Preempt,
    Queue,
    Request,
    Resize,
    Snapshot,
    Start,
)
from paddleflow.simulator.checks import Broken

HUGE = 2**62
_FULL = 50  #: events between two counts of everything
_CROWD = 12  #: with more jobs waiting, fewer come


def _size(cpu: int, devices: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu * 2**30, {"gpu": devices} if devices else {})


def small_world() -> Snapshot:
    """Four nodes, one of them with a taint, and four queues in two levels with three policies."""
    nodes = tuple(
        Node(f"n{i}", _size(16 if i == 0 else 8, 4000 * (i % 2)), {"zone": f"z{i % 2}"}, taints=("spot",) * (i == 3))
        for i in range(4)
    )
    queues = (
        Queue("top", _size(30, 8000), _size(12)),
        Queue("q0", _size(20, 8000), parent="top"),
        Queue("q1", _size(20, 8000), _size(4), parent="top", order="fair"),
        Queue("q2", _size(20, 8000), order="shortest"),
    )
    return Snapshot(0.0, nodes, queues, (), ())


class Storm:
    """One storm; the same seed is the same storm."""

    def __init__(self, seed: int, start: Snapshot) -> None:
        self._random = Random(seed)  # noqa: S311  no secrets are drawn
        self.core = Core.of(start)
        self._start = start
        self._nodes, self._queues = list(start.nodes), list(start.queues)
        self._now = start.now
        self._number = 0
        self._leaving: list[str] = []
        self.counts = {"events": 0, "starts": 0, "evictions": 0, "resizes": 0}

    def run(self, events: int) -> None:
        """So many events, each followed by a cycle; `Broken` says what does not hold."""
        for number in range(events):
            self._event()
            self._carry_out(self.core.decide(self._now, self._random.choice([None, None, None, 3])))
            self.counts["events"] += 1
            if number % _FULL == 0:
                self.check()
        self.check()

    def check(self) -> None:
        self._check_sums()
        both = self.core.pending.keys() & self.core.allocations.keys()
        if both:
            raise Broken(f"after {self.counts['events']} events {min(both)} both waits and runs")
        self.core.reasons(list(self.core.pending)[:20])

    def _check_sums(self) -> None:
        """Every queue and node counts what the running jobs hold; on a node that is gone only the queue does."""
        core, queues, nodes = self.core, dict[str, Resources](), dict[str, Resources]()
        devices: Counter[tuple[str, str, int]] = Counter()
        for allocation in core.allocations.values():
            for ledger in core.ledgers[allocation.request.queue].path:
                queues[ledger.name] = queues.get(ledger.name, Resources()) + allocated_total(allocation)
            each = {member_set.role: member_set.each for member_set in allocation.request.member_sets}
            for assignment in allocation.assignments:
                nodes[assignment.node] = nodes.get(assignment.node, Resources()) + each[assignment.role]
                for name, numbers in assignment.devices:
                    part = min(WHOLE, each[assignment.role].scalar(name))
                    devices.update({(assignment.node, name, number): part for number in numbers})
        twice = next((place for place, amount in devices.items() if amount > WHOLE), None)
        if twice is not None:
            raise Broken(f"{twice[1]} {twice[2]} of node {twice[0]} is given out to {devices[twice]} of {WHOLE} parts")
        for name, ledger in core.ledgers.items():
            if ledger.used != queues.get(name, Resources()):
                raise Broken(f"queue {name} counts {ledger.used}, its jobs hold {queues.get(name, Resources())}")
        for name, state in core.cluster.states.items():
            used = nodes.get(name, Resources()) + state.node.reserved + (state.kept or Resources())
            if (
                state.cpu + used.cpu != state.node.capacity.cpu
                or state.memory + used.memory != state.node.capacity.memory
            ):
                raise Broken(f"node {name} counts wrong: {used} used of {state.node.capacity}")

    # --- what happens -------------------------------------------------------------------------------------------

    def _event(self) -> None:
        random, core = self._random, self.core
        self._now += random.choice([0.0, 0.1, 1.0, 10.0])
        draw = random.random()
        busy = len(core.pending) > _CROWD
        if draw < (0.2 if busy else 0.45):
            self._number += 1
            core.submit(self._request())
        elif draw < 0.76 and core.allocations:
            core.release(random.choice(list(core.allocations)))
        elif draw < 0.88 and core.pending:
            job = random.choice(list(core.pending))
            if random.random() < 0.7:
                core.withdraw(job)
            else:
                core.reprioritise(job, random.randrange(-2, 3))
        elif draw < 0.91:
            core.set_queues(self._other_queues())
        elif draw < 0.94:
            core.set_nodes(self._other_nodes())
        elif draw < 0.95:
            self._now += random.choice([-1e6, -100.0, 1e5, 1e9, -1e9])
        elif draw < 0.97:
            core.submit(self._nonsense())
        elif draw < 0.98 and (core.release("nobody") or core.withdraw("nobody") or core.resized("nobody", ())):
            raise Broken("a job that nobody knows was dealt with")
        if self._leaving and random.random() < 0.6:
            self._go(self._leaving.pop())

    def _request(self) -> Request:
        random, n = self._random, self._number
        count = random.choice([1, 1, 1, 2, 4, 9])
        least = random.choice([None, None, None, 1])
        member_sets = [
            MemberSet("worker", count, _size(random.choice([1, 2, 5]), random.choice([0, 0, 250, 1000, 2000])), least)
        ]
        if random.random() < 0.15:
            member_sets.append(MemberSet("server", random.choice([1, 2]), _size(1)))
        return Request(
            f"job-{n}",
            random.choice(self._queues).name,
            tuple(member_sets),
            self._now,
            n,
            random.choice([0, 0, 0, 1, 2]),
            random.choice("abc"),
            node_labels=random.choice([(), (), (("zone", "z1"),)]),
            tolerates=random.choice([(), ("spot",)]),
            together=random.choice(["", "zone"]),
            expected=random.choice([None, 1.0, 60.0]),
            restarts=random.random() < 0.3,
        )

    def _nonsense(self) -> Request:
        """What no cluster can serve, or what no number should be."""
        self._number += 1
        request = self._request()
        random = self._random
        each = random.choice(
            [Resources.of(HUGE, HUGE), Resources.of(-5, 1), Resources.of(1, 1, {"gpu": 1500}), Resources()]
        )
        member_sets = random.choice(
            [
                (),
                (MemberSet("w", random.choice([0, -3, HUGE]), each),),
                (MemberSet("w", 2, each, 5),),
                request.member_sets * 2,
            ]
        )
        at = random.choice([float("nan"), float("inf"), float("-inf"), self._now + 1e12])
        return request._replace(
            member_sets=member_sets,
            submitted_at=at,
            queue=random.choice([request.queue, "nowhere"]),
            priority=random.choice([0, HUGE, -HUGE]),
            expected=random.choice([None, float("nan"), -1.0]),
        )

    def _other_queues(self) -> list[Queue]:
        random = self._random
        changed = []
        for before, first in zip(self._queues, self._start.queues, strict=True):
            queue = before if random.random() < 0.5 else first
            if random.random() < 0.2:
                queue = replace(
                    before,
                    ceiling=random.choice([None, _size(4, 2000), _size(20, 8000), Resources.of(HUGE, HUGE)]),
                    guarantee=random.choice([Resources(), _size(3), _size(50, 9000)]),
                    weight=random.choice([1, 3, 0]),
                    order=random.choice(["fifo", "shortest", "fair", "drf"]),
                    open=random.random() < 0.9,
                    parent=random.choice(["root", "root", *[other.name for other in self._queues], "nowhere"]),
                )
            changed.append(queue)
        self._queues = changed
        return [queue for queue in changed if random.random() < 0.97]

    def _other_nodes(self) -> list[Node]:
        random = self._random
        changed = []
        for before, first in zip(self._nodes, self._start.nodes, strict=True):
            node = before if random.random() < 0.5 else first
            if random.random() < 0.2:
                capacity = random.choice([_size(2, 1000), _size(8, 4000), _size(16, 8000), Resources()])
                schedulable = random.random() < 0.8
                node = replace(before, capacity=capacity, schedulable=schedulable)
            changed.append(node)
        self._nodes = changed
        return [node for node in changed if random.random() < 0.9]

    # --- what is decided ----------------------------------------------------------------------------------------

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start(job):
                    self.counts["starts"] += 1
                    self._whole(self.core.allocations[job])
                case Preempt(job):
                    self.counts["evictions"] += 1
                    self._leaving.append(job)
                case Resize(job, _, removed):
                    self.counts["resizes"] += 1
                    if removed:
                        left = set(removed)
                        self.core.resized(job, [a for a in self.core.allocations[job].assignments if a not in left])
                        self._whole(self.core.allocations[job])

    def _whole(self, allocation: Allocation) -> None:
        for member_set in allocation.request.member_sets:
            members = sum(assignment.role == member_set.role for assignment in allocation.assignments)
            if not member_set.minimum <= members <= member_set.count:
                raise Broken(
                    f"{allocation.request.job} has {members} of {member_set.minimum} to {member_set.count} of role {member_set.role}"
                )

    def _go(self, job: str) -> None:
        allocation = self.core.allocations.get(job)
        if allocation is not None and self.core.release(job):
            self.core.submit(allocation.request)
