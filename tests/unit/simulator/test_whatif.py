"""What-if over a recorded past: without a change it is the past, with one it shows what the change does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import Allocation, MemberSet, Node, Preempt, Queue, Request, Resize, Snapshot, Start
from paddleflow.scheduling.record import Decided, Entry, Recorded
from paddleflow.scheduling.rules import Rules
from paddleflow.simulator.report import report
from paddleflow.simulator.scenario import scenario_of
from paddleflow.simulator.whatif import Change, Played, play, queues_with

RULES = Rules(
    preemption=True, elastic=True, patience=30.0, least_run=4.0, window=60.0, resize_pause=5.0, restart_pause=9.0
)


def size(cpu: int) -> Resources:
    return Resources.of(cpu * 1000, cpu)


NODES = (Node("n1", size(8)), Node("n2", size(8)))
QUEUES = (Queue("gold", None, size(8)), Queue("free", None), Queue("small", size(4), order="fair"))


class Engine:
    """Ticks once a second, as a server does: jobs end, fail and are tried again, take their time to go."""

    def __init__(self, seed: int, queues: tuple[Queue, ...] = QUEUES, *, prefetch: bool = False) -> None:
        self.prefetch = prefetch
        self.random = Random(seed)
        self.core = Recorded.of(Snapshot(1000.0, NODES, queues, (), (), rules=RULES))
        self.now = 1000.0
        self.due: list[tuple[float, str, Request]] = []  # when, what, whose
        self.number = 0

    def tick(self) -> None:
        self.now += 1.0 + self.random.random() / 10
        while ready := sorted((row for row in self.due if row[0] <= self.now), key=lambda row: row[0]):
            self.due = [row for row in self.due if row[0] > self.now]
            for _, what, request in ready:
                self._happens(what, request)
        if self.random.random() < 0.3:
            self.number += 1
            self.core.submit(self.request())
        if self.random.random() < 0.03 and self.core.pending:
            job = self.random.choice(sorted(self.core.pending))
            if self.random.random() < 0.5:
                self.core.reprioritise(job, self.random.randrange(3))
            else:
                self.core.withdraw(job)
        if self.random.random() < 0.01:
            self.core.set_queues([replace(queue, weight=self.random.randrange(1, 4)) for queue in QUEUES])
        for decision in self.core.decide(self.now, 256):
            self._told(decision)

    def request(self) -> Request:
        random, n = self.random, self.number
        member_set = MemberSet(
            "w", random.choice([1, 1, 2, 4]), size(random.choice([1, 2, 3])), random.choice([None, None, 1])
        )
        restarts = random.random() < 0.5
        return Request(
            f"j{n}", random.choice(["gold", "free", "small"]), (member_set,), self.now, n, 0, "ann", restarts=restarts
        )

    def _happens(self, what: str, request: Request) -> None:
        job = request.job
        allocation = self.core.allocations.get(job)
        if allocation is None:
            return
        if what == "changed":
            shrink = self.core.shrinks.get(job)
            if shrink is not None:
                gone = set(shrink.members)
                self.core.resized(job, [a for a in allocation.assignments if (a.role, a.index) not in gone])
            if request.restarts and not self.core.leaving(job):
                self.core.restarted(job, self.now)
        elif what == "gone" or not self.core.leaving(job):
            self.core.release(job)
            if what == "gone":
                self.core.submit(request)
            elif self.prefetch and len(allocation.assignments) == 1 and self.random.random() < 0.5:
                self._successor(allocation)
            elif self.random.random() < 0.2:  # it failed, and is tried again after a pause
                self.due.append((self.now + self.random.choice([0.0, 2.0]), "again", request))
        if what == "again":
            self.core.submit(request)

    def _successor(self, before: Allocation) -> None:
        """A prefetched step takes the slot of one that has ended; the scheduler is told, and decides nothing."""
        self.number += 1
        request = before.request._replace(job=f"j{self.number}", seq=self.number, submitted_at=self.now - 30.0)
        self.core.allocate(Allocation(request, before.assignments, self.now))
        self.due.append((self.now + self.random.choice([0.0, 0.2, 5.0]), "end", request))

    def _told(self, decision: object) -> None:
        match decision:
            case Start(job):
                request = self.core.allocations[job].request
                self.due = [row for row in self.due if row[2].job != job]
                self.due.append((self.now + self.random.uniform(1, 40), "end", request))
            case Preempt(job):
                request = self.core.allocations[job].request
                self.due = [row for row in self.due if row[2].job != job]
                self.due.append((self.now + self.random.choice([0.5, 1.5, 2.5]), "gone", request))
            case Resize(job, _, removed):
                request = self.core.allocations[job].request
                if removed or request.restarts:
                    self.due.append((self.now + self.random.choice([0.5, 1.5]), "changed", request))


def past(seed: int, ticks: int, *, prefetch: bool = False) -> list[Entry]:
    engine = Engine(seed, prefetch=prefetch)
    for _ in range(20):
        engine.tick()
    engine.core.begin()
    for tick in range(ticks):
        engine.tick()
        if tick % 60 == 59:
            engine.core.begin()
    return engine.core.take()


def played(entries: Iterable[Entry], change: Change, horizon: float = 0.0) -> Played:
    scenario = scenario_of(entries)
    assert scenario is not None
    return play(scenario, change, lambda request, ran: ran + 20.0, horizon)


@settings(max_examples=25)
@given(st.integers(0, 10**9))
@example(314696487)  # members went between the snapshot and the first cycle after it
@example(34746)  # a job that had just made way got another priority before the next cycle
@example(7)
@example(1098)  # a job made way before its members had changed, and later they changed again
def test_a_change_of_nothing_is_what_happened_decision_by_decision(seed: int) -> None:
    entries = past(seed, 200, prefetch=seed % 2 == 1)
    cycles = [entry for entry in entries if isinstance(entry, Decided)]
    same = played(entries, Change())
    assert same.first is None
    assert same.cycles == len(cycles)
    starts = sum(isinstance(action, Start) for cycle in cycles for action in cycle.actions)
    ends = sum(isinstance(action, Preempt) for cycle in cycles for action in cycle.actions)
    assert sum(outcome.evictions for outcome in same.outcomes.values()) == ends
    assert starts > 20


def test_the_pasts_hold_evictions_and_changes_of_size() -> None:
    found = {
        type(action).__name__
        for seed in range(5)
        for entry in past(seed, 200)
        if isinstance(entry, Decided)
        for action in entry.actions
    }
    assert found == {"Start", "Preempt", "Resize"}


def test_the_stretch_begins_where_it_is_asked_for_and_goes_over_no_break() -> None:
    entries = past(3, 200)
    late = scenario_of(entries, since=1150.0)
    assert late is not None
    assert 1150.0 <= late.snapshot.now < 1153.0
    assert play(late, Change(), lambda request, ran: ran + 20.0, 0.0).first is None
    other = past(4, 50)  # a server that was started anew
    both = scenario_of([*entries, *other])
    assert both is not None
    assert both.snapshot == scenario_of(other).snapshot  # type: ignore[union-attr]
    assert scenario_of([]) is None


@pytest.mark.parametrize("since", [1030.0, 1100.0, 1200.0])
@pytest.mark.parametrize("seed", [1, 2, 75, 147, 171])
def test_a_stretch_begins_at_the_moment_asked_for_and_reproduces(seed: int, since: float) -> None:
    entries = past(seed, 200, prefetch=True)
    scenario = scenario_of(entries, since)
    assert scenario is not None
    assert since <= scenario.snapshot.now == scenario.cycles[0].decided.at < since + 3.0
    assert play(scenario, Change(), lambda request, ran: ran + 20.0, 0.0).first is None


def test_prefetched_jobs_hold_their_slots_for_as_long_as_they_did() -> None:
    core = Recorded.of(Snapshot(1000.0, NODES[:1], QUEUES, (), (), rules=RULES))
    core.begin()
    request = Request("a", "free", (MemberSet("w", 1, size(8)),), 1000.0, 1)
    core.submit(request)
    core.decide(1000.0, 256)
    places = core.allocations["a"].assignments
    for number in range(5):  # a chain of steps, several of them between two cycles
        core.release("abcdef"[number])
        step = request._replace(job="abcdef"[number + 1], seq=number + 2)
        core.allocate(Allocation(step, places, 1010.0 + number))
        if number % 2:
            core.decide(1010.0 + number, 256)
    core.release("f")
    core.decide(1020.0, 256)
    core.submit(request._replace(job="z", seq=10, submitted_at=1021.0))
    core.decide(1021.0, 256)
    entries = core.take()
    result = played(entries, Change(), 500.0)
    assert result.first is None
    (row,) = report(result, result.ends).queues
    assert (row.jobs, row.started, row.finished, row.mean_wait) == (7, 7, 7, 0.0)
    without = played(entries, Change(nodes=lambda nodes: (Node("other", size(8)),)), 500.0)
    assert sum(outcome.finished_at is not None for outcome in without.outcomes.values()) == 7, "they start elsewhere"


def test_a_job_that_was_given_up_has_waited_until_then() -> None:
    core = Recorded.of(Snapshot(1000.0, NODES[:1], QUEUES, (), (), rules=RULES))
    core.begin()
    for number, job in enumerate(("runs", "gives up")):
        core.submit(Request(job, "free", (MemberSet("w", 1, size(8)),), 1000.0, number))
    core.decide(1000.0, 256)
    core.withdraw("gives up")
    core.decide(1003.0, 256)
    core.release("runs")
    core.decide(1100.0, 256)
    result = played(core.take(), Change(), 500.0)
    (row,) = report(result, result.ends).queues
    assert (row.jobs, row.started, row.mean_wait) == (2, 1, 1.5)


def waiting(result: Played, queue: str) -> float:
    waits = [
        (outcome.started_at if outcome.started_at is not None else result.ends) - outcome.request.submitted_at
        for outcome in result.outcomes.values()
        if outcome.request.queue == queue
    ]
    return sum(waits) / len(waits)


def test_a_changed_quota_more_nodes_and_fewer_show_what_they_do() -> None:
    entries = past(11, 300)
    base = played(entries, Change(), 500.0)
    tight = played(entries, Change(queues=queues_with([Queue("free", size(2))])), 500.0)
    assert tight.first is not None
    assert waiting(tight, "free") > waiting(base, "free")
    assert waiting(tight, "gold") <= waiting(base, "gold")
    more = played(entries, Change(nodes=lambda nodes: (*nodes, Node("n3", size(16)))), 500.0)
    fewer = played(entries, Change(nodes=lambda nodes: tuple(node for node in nodes if node.name != "n2")), 500.0)
    for queue in ("gold", "free"):
        assert waiting(more, queue) <= waiting(base, queue) <= waiting(fewer, queue)
    gentle = played(entries, Change(rules={"preemption": False, "elastic": False}), 500.0)
    assert sum(outcome.evictions for outcome in gentle.outcomes.values()) == 0
    assert sum(outcome.evictions for outcome in base.outcomes.values()) > 0
    crowd = tuple(
        (Request(f"new-{n}", "crowd", (MemberSet("w", 1, size(2)),), 1030.0 + n, 10**6 + n), 30.0) for n in range(60)
    )
    team = played(entries, Change(queues=queues_with([Queue("crowd", None, weight=4)]), arrivals=crowd), 2000.0)
    done = [outcome for outcome in team.outcomes.values() if outcome.request.queue == "crowd"]
    assert len(done) == 60
    assert all(outcome.finished_at is not None for outcome in done)
    assert waiting(team, "free") > waiting(base, "free")
