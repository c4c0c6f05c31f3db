"""Forecasts are computed once for all who ask, in a process where there are many jobs, and not for clients that have gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from paddleflow.base.quantity import Resources
from paddleflow.jobs.forecaster import Forecaster, Forecasts, Question
from paddleflow.scheduling.forecast import Estimate
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Node, Queue, Request, Snapshot
from paddleflow.simulator.forecast_worker import Problem
from tests.patience import soon

ONE = Resources.of(1000, 1)
KNOWN = Estimate((10.0, 10.0), known=True)


def request(number: int) -> Request:
    return Request(f"job-{number}", "q", (MemberSet("worker", 1, ONE),), 0.0, number)


def question(now: float, waiting: int, seconds: float = 10.0) -> Question:
    """One slot, which job-0 has had for four seconds of its ten."""
    held = Allocation(request(0), (Assignment("worker", 0, "n1"),), now - 4.0)
    pending = tuple(request(n) for n in range(1, waiting + 1))
    snapshot = Snapshot(now, (Node("n1", ONE),), (Queue("q", None),), pending, (held,))
    estimates = {f"job-{n}": KNOWN for n in range(waiting + 1)}
    return Question(Problem(snapshot, estimates, 3, seconds), 2)


class Asked:
    """Says what there is to forecast, and counts how often it was asked."""

    def __init__(self, waiting: int = 3, seconds: float = 10.0) -> None:
        self.times = 0
        self.now = 100.0
        self.waiting = waiting
        self.seconds = seconds

    async def __call__(self) -> Question | None:
        self.times += 1
        return question(self.now, self.waiting, self.seconds)


def middles(found: Forecasts | None) -> list[float]:
    assert found is not None
    return [start.forecast.middle for start in found.starts.values() if start.forecast is not None]


async def test_all_who_ask_at_a_time_get_one_computation() -> None:
    forecaster, ask = Forecaster(), Asked()
    answers = await asyncio.gather(*[forecaster.forecasts(f"job-{1 + n % 3}", 100.0, ask) for n in range(20)])
    assert ask.times == 1
    assert all(answer is answers[0] for answer in answers)
    assert middles(answers[0]) == [6.0, 16.0, 26.0]


async def test_a_forecast_is_used_for_a_while_and_by_jobs_that_it_knows() -> None:
    forecaster, ask = Forecaster(keep=10.0), Asked()
    await forecaster.forecasts("job-1", 100.0, ask)
    await forecaster.forecasts("job-2", 109.0, ask)
    assert ask.times == 1
    ask.now, ask.waiting = 109.5, 4
    await forecaster.forecasts("job-4", 109.5, ask)
    assert ask.times == 2, "a job that came later is not in the old one"
    ask.now = 120.0
    await forecaster.forecasts("job-4", 120.0, ask)
    assert ask.times == 3


async def test_a_process_finds_what_a_thread_finds() -> None:
    here = await Forecaster().forecasts("job-1", 100.0, Asked(20))
    there = await Forecaster(small=0).forecasts("job-1", 100.0, Asked(20))
    assert here is not None
    assert there is not None
    assert here.starts == there.starts


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        found |= set((task / "children").read_text().split())
    return {pid for pid in found if b"forecast_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def test_nobody_computes_for_a_client_that_has_gone() -> None:
    forecaster, endless = Forecaster(small=0), Asked(50_000, 600.0)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(forecaster.forecasts("job-1", 100.0, endless))
        waiting = group.create_task(forecaster.forecasts("job-1", 100.0, Asked(2)))
        await soon(lambda: bool(children()), "the process has begun")
        asking.cancel()
        assert middles(await waiting) == [6.0, 16.0], "who waits behind it is served"
    assert not children()


async def test_a_limit_of_time_leaves_out_the_end() -> None:
    for seconds in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6):  # a busy machine comes to nothing at all within the first
        found = await Forecaster(small=0).forecasts("job-1", 100.0, Asked(3000, seconds))
        assert found is not None
        if found.starts["job-1"].forecast is not None:
            break
    assert found is not None
    assert found.starts["job-1"].forecast is not None
    last = found.starts["job-3000"]
    assert last.forecast is None
    assert last.beyond is not None
