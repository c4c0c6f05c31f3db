"""Elastic trainers: nobody below the least, room is used, given back when asked for, and nothing swings."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import Node
from paddleflow.scheduling.rounds.trainers import BAND, Elastic, resize
from paddleflow.simulator.elastic import GI, ElasticSimulation, PsJob
from paddleflow.simulator.metrics import jain

drawn = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(0, 25)), min_size=1, max_size=8)


@settings(max_examples=200)
@given(drawn, st.integers(-30, 30))
def test_resize_keeps_its_bounds_and_is_steady(rows: list[tuple[int, int, int]], free: int) -> None:
    jobs = [
        Elastic(f"j{i}", least, least + span, min(least + extra, least + span))
        for i, (least, span, extra) in enumerate(rows)
    ]
    wanted = resize(jobs, free)
    assert all(job.least <= wanted[job.job] <= job.most for job in jobs)
    grown = sum(wanted.values()) - sum(job.has for job in jobs)
    assert grown <= max(free, 0)
    if free < 0:
        assert grown == max(free, -sum(job.has - job.least for job in jobs))
    left = free - grown
    again = [Elastic(job.job, job.least, job.most, wanted[job.job]) for job in jobs]
    assert resize(again, min(left, 0)) == wanted  # decided once, it stays
    able = [wanted[job.job] for job in jobs if wanted[job.job] > job.least]
    open_ = [wanted[job.job] for job in jobs if wanted[job.job] < job.most]
    assert not able or not open_ or max(able) - min(open_) <= BAND


def nodes(count: int) -> list[Node]:
    return [Node(f"n{i}", Resources.of(24_000, 100 * GI)) for i in range(count)]


def test_jobs_share_and_give_when_others_come() -> None:
    jobs = [PsJob("first", 0, 2, 60), PsJob("second", 100, 2, 60)]
    simulation = ElasticSimulation(nodes(12), jobs, resize, headroom=0, seed=1)
    simulation.run(100)
    alone = jobs[0].trainers
    assert alone > 30
    simulation = ElasticSimulation(
        nodes(12), jobs := [PsJob("first", 0, 2, 60), PsJob("second", 100, 2, 60)], resize, 0, seed=1
    )
    simulation.run(250)
    assert jobs[0].trainers < alone
    assert jain([job.trainers for job in jobs]) > 0.98
    assert jobs[1].started_at is not None
    assert jobs[1].started_at - 100 < 60


def test_the_service_gets_its_share_back() -> None:
    jobs = [PsJob("job", 0, 2, 60)]
    simulation = ElasticSimulation(nodes(10), jobs, resize, 0, 1, lambda second: 0 if second < 60 else 30)
    simulation.run(60)
    assert jobs[0].trainers > 25
    simulation = ElasticSimulation(
        nodes(10), [PsJob("job", 0, 2, 60)], resize, 0, 1, lambda second: 0 if second < 60 else 30
    )
    simulation.run(120)
    assert simulation.online[59] == (0, 0)
    assert simulation.online[119] == (30, 30)
