"""Round-based policies over made-up applications: the rules of each policy, and what no policy may do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.errors import NotFound
from paddleflow.scheduling.rounds.goodput import Goodput
from paddleflow.scheduling.rounds.model import Policy, RoundJob, Spread, gpus, take_emptiest
from paddleflow.scheduling.rounds.optimus import Optimus
from paddleflow.scheduling.rounds.tiresias import Tiresias
from paddleflow.simulator.applications import Application, Batch, Epoch, even, packed
from paddleflow.simulator.rounds import nodes_of, simulate
from paddleflow.simulator.traces import TrainingJob, read_application, read_philly, read_workload

NODES = {"n0": 4, "n1": 4}


def view(name: str, most: int, held: Spread = (), served: float = 0.0, remaining: float = 100.0) -> RoundJob:
    """A job that scales perfectly on a node and a little worse beyond it."""
    return RoundJob(
        name, 0.0, most, held, served, 0, remaining, lambda n: 1 / n, lambda nodes, n: n * (1.0 if nodes == 1 else 0.9)
    )


def application() -> Application:
    """Steps of one second whatever the placement; 10 epochs of 100 steps; batches of 32 to 128 learn alike."""
    curve = [(8, (1.0, 0.2)), (64, (1.0, 0.2))]
    placements = {(1,): curve, (2,): curve, (4,): curve, (1, 1): curve, (4, 4): [(8, (1.5, 0.5)), (64, (1.5, 0.5))]}
    rows = [Epoch(100.0 * (i + 1), 100.0 * (i + 1), 1.0, 1.0) for i in range(10)]
    return Application("made-up", placements, {}, {32: rows, 128: rows})


def test_tiresias_passes_over_who_does_not_fit_and_lets_the_served_fall_behind() -> None:
    policy = Tiresias(threshold=100)
    found = policy.allot(0, [view("a", 6), view("b", 4), view("c", 2)], NODES)
    assert {name: gpus(spread) for name, spread in found.items()} == {"a": 6, "c": 2}
    found = policy.allot(60, [view("a", 6, found["a"], served=360), view("b", 4), view("c", 2, found["c"])], NODES)
    assert {name: gpus(spread) for name, spread in found.items()} == {"b": 4, "c": 2}


def test_optimus_gives_where_most_time_is_saved() -> None:
    found = Optimus().allot(0, [view("short", 8, remaining=10), view("long", 8, remaining=1000)], NODES)
    assert {name: gpus(spread) for name, spread in found.items()} == {"short": 1, "long": 7}


def test_goodput_prefers_who_had_little_and_does_not_move_for_nothing() -> None:
    policy = Goodput(grace=100, lean=1)
    found = policy.allot(0, [view("old", 8, served=1e6), view("new", 8)], NODES)
    assert gpus(found["new"]) == 8
    steady = policy.allot(0, [view("a", 4, (("n0", 4),)), view("b", 4, (("n1", 4),))], NODES)
    assert steady == {"a": (("n0", 4),), "b": (("n1", 4),)}


@settings(max_examples=150)
@given(st.integers(0, 1 << 30), st.sampled_from(("tiresias", "optimus", "goodput")))
def test_no_policy_gives_more_than_there_is(seed: int, name: str) -> None:
    policies: dict[str, Policy] = {"tiresias": Tiresias(), "optimus": Optimus(), "goodput": Goodput()}
    draw, nodes = random.Random(seed), {f"n{i}": 4 for i in range(4)}
    held: dict[str, Spread] = {}
    mosts = {f"j{i}": draw.randint(1, 16) for i in range(draw.randint(1, 12))}
    for turn in range(5):
        jobs = [view(job, most, held.get(job, ()), draw.random() * 1e5) for job, most in mosts.items()]
        held = policies[name].allot(60.0 * turn, jobs, nodes)
        used = dict.fromkeys(nodes, 0)
        for job, spread in held.items():
            assert 0 < gpus(spread) <= mosts[job]
            for node, count in spread:
                used[node] += count
        assert all(used[node] <= nodes[node] for node in nodes)


def test_taking_more_than_is_free_is_refused() -> None:
    with pytest.raises(ValueError, match="3 more GPUs"):
        take_emptiest({"n": 1}, 4)


def test_an_application_answers_between_its_measurements() -> None:
    made_up = application()
    assert made_up.times((4, 4), 8) == (1.5, 0.5)
    assert made_up.times((4, 4), 36) == pytest.approx((1.5, 0.5))
    assert made_up.fixed_batch(128, 1) == Batch(64, 1)
    assert made_up.step_time((1,), Batch(64, 1)) == pytest.approx(1.8)
    assert made_up.gain(32, 0) == pytest.approx(1)
    assert made_up.gain(128, 0) == pytest.approx(2 / 1.25)
    assert packed(10) == (4, 4, 2)
    assert even(3, 10) == (3, 3, 4)


def test_a_training_pays_for_its_start_and_ends_with_its_last_epoch() -> None:
    jobs = [TrainingJob("one", 10, "made-up", 1, 32), TrainingJob("two", 10, "made-up", 4, 32)]
    outcomes = simulate(Tiresias(), jobs, {"made-up": application()}, nodes_of(1, 4), fixed_gpus=True)
    first, second = outcomes
    assert (first.started_at, first.finished_at, first.restarts) == (60, 60 + 30 + 1000, 0)
    assert second.started_at == 1140  # the round after the first one's end
    assert second.served == pytest.approx(4 * 1030)


def test_elastic_jobs_all_end() -> None:
    draw = random.Random(3)
    jobs = [TrainingJob(f"j{i}", draw.uniform(0, 600), "made-up", 1, 32) for i in range(12)]
    for policy, adaptive in ((Optimus(), False), (Goodput(), True)):
        outcomes = simulate(policy, jobs, {"made-up": application()}, nodes_of(2, 4), adaptive)
        assert all(outcome.finished_at > outcome.started_at >= outcome.submitted_at for outcome in outcomes)


def test_traces_are_read_and_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"workload-1\.csv is missing"):
        read_workload(tmp_path / "workload-1.csv")
    (tmp_path / "w.csv").write_text("name,time,application,num_replicas,batch_size\nj,5,x,2,64\n")
    assert read_workload(tmp_path / "w.csv") == [TrainingJob("j", 5, "x", 2, 64)]
    app = tmp_path / "x"
    app.mkdir()
    (app / "placements.csv").write_text("placement,local_bsz,step_time,sync_time\n1,8,1,0.1\n1,16,2,0.1\n12,8,1,0.5\n")
    (app / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,8,3,1\n")
    with pytest.raises(NotFound, match="validation"):
        read_application(app)
    (app / "validation-8.csv").write_text("progress,iteration,metric,grad_sqr,grad_var\n10,10,1,1,1\n")
    made = read_application(app)
    assert made.times((1,), 12) == pytest.approx((1.5, 0.1))
    assert made.times((2, 1), 8) == (1, 0.5)
    (tmp_path / "p.csv").write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:01:45,10.0,2,20.0,b\n,,,,\n"
    )
    assert [(job.submitted_at, job.gpus, job.group) for job in read_philly(tmp_path / "p.csv")] == [
        (0, 2, "b"), (10, 1, "a"),
    ]  # fmt: skip
