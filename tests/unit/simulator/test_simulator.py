"""The event-driven simulator: the core's decisions come out as times, evictions lose nothing, broken worlds are noticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.baselines.disciplines import FairShare, Fifo, ShortestRemaining
from paddleflow.scheduling.baselines.model import Discipline
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Node, Queue, Request
from paddleflow.simulator import metrics
from paddleflow.simulator.checks import Broken, check
from paddleflow.simulator.philly import apart, peaks, requests, shared, shares
from paddleflow.simulator.simulation import FixedDurations, SimulatedJob, Simulation
from paddleflow.simulator.traces import ClusterJob


def job(name: str, at: float, duration: float, gpus: int = 1, group: str = "a") -> ClusterJob:
    return ClusterJob(name, at, duration, gpus, group)


def run(
    jobs: list[ClusterJob], line: Discipline | None = None, nodes: int = 1, each: int = 4
) -> dict[str, SimulatedJob]:
    return shared(jobs, nodes, each, line).run(requests(jobs, each))


def times(records: dict[str, SimulatedJob]) -> dict[str, tuple[float | None, float | None]]:
    return {name: (record.started_at, record.finished_at) for name, record in records.items()}


def test_a_job_starts_when_there_is_room_and_ends_after_its_duration() -> None:
    records = run([job("first", 5, 100, 4), job("second", 10, 50, 2), job("third", 11, 70, 2)])
    assert times(records) == {"first": (5, 105), "second": (105, 155), "third": (105, 175)}


def test_the_core_backfills_but_fifo_lets_nobody_pass() -> None:
    jobs = [job("running", 0, 100, 2), job("large", 1, 10, 4), job("small", 2, 10, 1)]
    assert run(jobs)["small"].started_at == 2
    assert run(jobs, Fifo())["small"].started_at == 110


def test_fair_share_serves_the_group_that_has_least() -> None:
    jobs = [job(f"a{i}", i / 10, 100, 1, "a") for i in range(6)] + [job("b", 1, 100, 1, "b")]
    assert run(jobs, FairShare())["b"].started_at == 100
    assert run(jobs, FairShare())["a5"].started_at == 100.2
    assert run(jobs, Fifo())["b"].started_at == 100.2


def test_the_oracle_displaces_whoever_has_more_left_and_nothing_is_lost() -> None:
    records = run([job("long", 0, 1000, 4), job("short", 400, 10, 1)], ShortestRemaining(every=60))
    assert times(records) == {"long": (0, 1010), "short": (400, 410)}
    assert records["long"].evictions == 1
    assert metrics.victims(records.values()) == {"a": 1}


def test_an_impossible_job_waits_and_the_rest_goes_on() -> None:
    records = run([job("giant", 0, 10, 64), job("small", 1, 10, 1)])
    assert times(records) == {"giant": (None, None), "small": (1, 11)}


def test_groups_apart_do_not_disturb_each_other() -> None:
    jobs = [job(f"a{i}", 0, 100, 4, "a") for i in range(3)] + [job("b", 1, 100, 4, "b")]
    assert shares(jobs, 4, 4) == {"a": 3, "b": 1}
    assert peaks(jobs, 4) == {"a": 1, "b": 1}
    assert peaks([job("a", 0, 14 * 86400, 8), job("b", 8 * 86400, 86400 * 7, 8)], 4) == {"a": 4}
    assert apart(jobs, shares(jobs, 4, 4), 4).run(requests(jobs, 4))["b"].started_at == 1


jobs_drawn = st.lists(
    st.tuples(
        st.integers(0, 500), st.integers(1, 400), st.sampled_from((1, 1, 2, 4, 8, 12)), st.sampled_from(("a", "b", "c"))
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(jobs_drawn, st.sampled_from(("core", "fifo", "fair", "srtf")))
def test_whatever_the_policy_everything_runs_to_its_end_and_the_sums_agree(
    drawn: list[tuple[int, int, int, str]], policy: str
) -> None:
    lines = {"core": None, "fifo": Fifo(), "fair": FairShare(), "srtf": ShortestRemaining(every=30)}
    jobs = [job(f"j{i}", at, duration, gpus, group) for i, (at, duration, gpus, group) in enumerate(drawn)]
    simulation = shared(jobs, 3, 4, lines[policy])
    records = simulation.run(requests(jobs, 4))
    for one in jobs:
        record = records[one.job]
        assert record.started_at is not None
        assert record.finished_at is not None
        assert record.finished_at - record.started_at >= one.duration - 1e-6
        if not record.evictions:
            assert record.finished_at == record.started_at + one.duration
    assert simulation.free == 12
    assert len(simulation.finished) == len(jobs)


def allocation(name: str, count: int, on: str = "n", placed: int | None = None) -> Allocation:
    member_set = MemberSet("worker", count, Resources.of(0, 0, {"gpu": 1000}))
    members = tuple(Assignment("worker", i, on) for i in range(count if placed is None else placed))
    return Allocation(Request(name, "q", (member_set,), 0, 0), members, 0)


@pytest.mark.parametrize(
    ("what", "running", "pending", "words"),
    [
        (allocation("j", 5), {"j"}, set[str](), "less than nothing|gives"),
        (allocation("j", 3, placed=2), {"j"}, set[str](), "2 of 3 members"),
        (allocation("j", 1), {"j"}, {"j"}, "pending and running"),
        (allocation("j", 1), set[str](), set[str](), "disagree whether j runs"),
        (allocation("j", 1, on="elsewhere"), {"j"}, set[str](), "no node"),
    ],
)
def test_a_broken_world_is_noticed(what: Allocation, running: set[str], pending: set[str], words: str) -> None:
    simulation = Simulation(
        [Node("n", Resources.of(0, 0, {"gpu": 4000}))], [Queue("q", None)], FixedDurations({}), "gpu"
    )
    simulation.core.allocate(what)
    with pytest.raises(Broken, match=words):
        check(simulation.core, pending, running, set(), 0.0)


def test_what_is_kept_for_a_job_that_waited_long_is_no_fault() -> None:
    simulation = shared([job("running", 0, 9000, 2), job("large", 0, 10, 4)], 1, 4)
    for request in requests([job("running", 0, 9000, 2), job("large", 0, 10, 4)], 4):
        simulation.core.submit(request)
    simulation.core.decide(0.0)
    simulation.core.decide(simulation.core.rules.patience + 1)
    assert set(simulation.core.reservations) == {"large"}
    check(simulation.core, {"large"}, {"running"}, set(), 301.0)


def test_metrics() -> None:
    records = list(run([job("x", 0, 100, 4, "a"), job("y", 0, 100, 2, "b")]).values())
    assert metrics.completion(records) == [100, 200]
    assert metrics.waiting_by_size(records) == {"2 to 4 GPUs": 50}
    assert metrics.use(records, 4, 200) == pytest.approx(0.75)
    assert metrics.jain([1, 1, 1]) == pytest.approx(1)
    assert metrics.jain([1, 0]) == 0.5
    assert metrics.percentile([], 0.5) == 0
    alone = [*run([job("x", 0, 100, 4, "a")]).values(), *run([job("y", 0, 100, 2, "b")]).values()]
    assert metrics.finish_time_fairness(records, alone) == {"a": 1, "b": 2}
