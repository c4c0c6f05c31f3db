"""The record of a scheduler: any stretch of it comes out the same again, and a change in it is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.engine.decision_log import DecisionLog, read
from paddleflow.scheduling.codec import decode, encode
from paddleflow.scheduling.model import MemberSet, Node, Preempt, Queue, Request, Resize, Snapshot, Start
from paddleflow.scheduling.record import Checkpoint, Decided, Entry, Recorded, Released
from paddleflow.scheduling.replay import replay
from paddleflow.scheduling.rules import Rules

RULES = Rules(
    preemption=True, elastic=True, patience=60.0, least_run=5.0, window=40.0, resize_pause=5.0, half_life=50.0
)
GPU = "gpu"


def size(cpu: int, gpu: int = 0) -> Resources:
    return Resources.of(cpu * 1000, cpu, {GPU: gpu * 500} if gpu else {})


NODES = tuple(Node(f"n{n}", size(6, 8), {"rack": f"r{n % 2}"}) for n in range(3))
QUEUES = (
    Queue("top", size(14, 16), size(6)),
    Queue("a", size(12, 16), size(4), parent="top", order="fair"),
    Queue("b", None, weight=2, order="drf"),
    Queue("c", size(9), size(3), placement="spread"),
)


def history(seed: int, steps: int) -> Recorded:
    """A scheduler whose record is taken after `steps` random events with everything that can happen in it."""
    random = Random(seed)
    core = Recorded.of(Snapshot(0.0, NODES, QUEUES, (), (), rules=RULES))
    core.begin()
    now, leaving = 0.0, list[str]()
    for number in range(steps):
        now += random.choice([0.0, 0.5, 3.0, 20.0])
        draw = random.random()
        if draw < 0.45:
            core.submit(_request(random, number, now))
        elif draw < 0.7 and core.allocations:
            core.release(random.choice(list(core.allocations)))
        elif draw < 0.74 and core.pending:
            core.withdraw(random.choice(list(core.pending)))
        elif draw < 0.78 and core.pending:
            core.reprioritise(random.choice(list(core.pending)), random.randrange(3))
        elif draw < 0.82:
            core.set_queues([q if random.random() < 0.8 else replace(q, weight=3, guarantee=size(1)) for q in QUEUES])
        elif draw < 0.85:
            core.set_nodes(NODES if random.random() < 0.5 else NODES[:2])
        for decision in core.decide(now, random.choice([None, None, 2])):
            if isinstance(decision, Preempt):
                leaving.append(decision.job)
            elif isinstance(decision, Resize) and decision.removed:
                left = set(decision.removed)
                core.resized(decision.job, [a for a in core.allocations[decision.job].assignments if a not in left])
        if leaving and random.random() < 0.5:
            victim = leaving.pop()
            allocation = core.allocations.get(victim)
            if allocation is not None and core.release(victim):
                core.submit(allocation.request)
        if random.random() < 0.02:
            core.begin()
    return core


def _request(random: Random, number: int, now: float) -> Request:
    count = random.choice([1, 1, 2, 4])
    member_sets = (
        MemberSet("w", count, size(random.choice([1, 2, 3]), random.choice([0, 0, 1, 2, 4])), random.choice([None, 1])),
    )
    return Request(
        f"j{number}",
        random.choice(["a", "b", "c", "top"]),
        member_sets,
        now,
        number,
        random.randrange(3),
        random.choice("xyz"),
        together=random.choice(["", "rack"]),
        restarts=random.random() < 0.3,
    )


@settings(max_examples=12)
@given(st.integers(0, 10**9))
def test_a_record_comes_out_the_same_again(seed: int) -> None:
    entries = history(seed, 150).take()
    again = [decode(json.loads(json.dumps(encode(entry)))) for entry in entries]
    assert again == entries, "nothing is lost on the way to the disk"
    report = replay(again)
    assert report.difference is None
    assert report.cycles == 150
    assert report.starts == sum(
        isinstance(action, Start) for entry in entries if isinstance(entry, Decided) for action in entry.actions
    )


def test_the_histories_hold_all_that_can_be_decided() -> None:
    found = {
        type(action).__name__
        for seed in range(6)
        for entry in history(seed, 150).take()
        if isinstance(entry, Decided)
        for action in entry.actions
    }
    assert found == {"Start", "Preempt", "Resize"}


def test_the_first_difference_is_found_and_told() -> None:
    entries = history(5, 200).take()
    cycles = [n for n, entry in enumerate(entries) if isinstance(entry, Decided) and entry.actions]
    at = cycles[len(cycles) // 2]
    decided = entries[at]
    assert isinstance(decided, Decided)
    changed: list[Entry] = [*entries[:at], replace(decided, actions=decided.actions[:-1]), *entries[at + 1 :]]
    found = replay(changed).difference
    assert found is not None
    assert (found.at, found.number, found.then) == (decided.at, len(decided.actions), "nothing more")
    assert found.now.split()[0] in {"start", "end"} or "gets" in found.now
    dropped = next(n for n, entry in enumerate(entries) if isinstance(entry, Released))
    assert replay([*entries[:dropped], *entries[dropped + 1 :]]).difference is not None, "what it saw counts as well"


def test_a_stretch_begins_at_the_snapshot_before_it(tmp_path: Path) -> None:
    entries = history(9, 400).take()
    log = DecisionLog(tmp_path, 10**9)
    moment = 1000.0
    for entry in entries:
        moment += 1.0
        log.append([entry], moment)
    files = sorted(tmp_path.iterdir())
    assert len(files) == sum(isinstance(entry, Checkpoint) for entry in entries) > 2
    assert list(read(tmp_path)) == entries
    later = int(files[2].stem) / 1000
    stretch = list(read(tmp_path, later))
    assert isinstance(stretch[0], Checkpoint)
    assert stretch == entries[len(entries) - len(stretch) :]
    assert replay(stretch).difference is None
    times = [entry.at for entry in entries if isinstance(entry, Decided)]
    report = replay(entries, times[100], times[200])
    assert (report.begins, report.ends) == (times[100], times[200])
    with files[-1].open("a") as file:
        file.write('["submit", ["half')
    assert list(read(tmp_path)) == entries, "a line that was cut off by a crash is left out"


def test_the_record_stays_within_its_bounds(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, 20_000)
    core = Recorded.of(Snapshot(0.0, NODES, QUEUES, (), (), rules=RULES))
    core.begin()
    for number in range(2000):
        core.submit(_request(Random(number), number, 0.0))
        core.withdraw(f"j{number}")
        if log.long:
            core.begin()
        log.append(core.take(), float(number))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 30_000
    assert replay(read(tmp_path)).difference is None
    core = Recorded(RULES, most=100)
    core.begin()
    for number in range(1000):
        core.submit(_request(Random(0), number, 0.0))
        core.withdraw(f"j{number}")
    taken = core.take()  # nobody did for long
    assert len(taken) <= 101
    assert isinstance(taken[0], Checkpoint)
