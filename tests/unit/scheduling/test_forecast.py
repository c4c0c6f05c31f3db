"""Forecasts: exact when durations are known, honest about spread when they are not, corrected by what came."""

from __future__ import annotations

from random import Random

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.forecast import Calibration, Durations, Forecast, expect, expect_start, quantile
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Node, Queue, Request, Snapshot
from paddleflow.simulator.forecast_watcher import ForecastWatcher
from paddleflow.simulator.philly import apart, requests
from paddleflow.simulator.traces import ClusterJob


def request(name: str, at: float, gpus: int = 1) -> Request:
    return Request(name, "q", (MemberSet("w", 1, Resources.of(0, 0, {"gpu": gpus * 1000})),), at, int(at))


def scene(pending: list[Request]) -> Snapshot:
    running = Allocation(request("running", 0), (Assignment("w", 0, "n", (("gpu", (0,)),)),), 0.0)
    node = Node("n", Resources.of(0, 0, {"gpu": 1000}))
    return Snapshot(40.0, (node,), (Queue("q", None),), tuple(pending), (running,))


def test_a_replay_with_known_durations_is_exact() -> None:
    waiting = [request("a", 10), request("b", 20), request("c", 30)]
    assert expect_start(scene(waiting), "c", lambda one, elapsed: 100 - elapsed) == 260
    assert expect_start(scene([*waiting, request("never", 35, 2)]), "never", lambda one, elapsed: 1) is None


def test_durations_come_from_the_narrowest_key_that_knows_enough() -> None:
    durations, draw = Durations(), Random(1)
    for _ in range(10):
        durations.learn(["narrow", "wide"], 100)
        durations.learn(["wide"], 500)
    assert durations.draw(["narrow", "wide"], 0, draw) == 100
    assert durations.draw(["narrow", "wide"], 200, draw) == 300  # none of the narrow ones ran so long
    assert durations.draw(["narrow", "wide"], 600, draw) == 600  # nor any at all


def test_old_durations_are_forgotten() -> None:
    durations = Durations()
    for seconds in [1.0] * 300 + [9.0] * 300:
        durations.learn(["k"], seconds)
    assert {durations.draw(["k"], 0, Random(seed)) for seed in range(50)} == {9.0}


def test_keys_that_were_not_seen_for_long_are_forgotten() -> None:
    durations = Durations()
    for key in range(20_000):
        for _ in range(8):
            durations.learn((key, "queue"), float(key))
    assert durations.middle((0,)) is None
    assert durations.middle((19_999,)) == 19_999.0
    assert durations.middle((0, "queue")) == pytest.approx(19_984, abs=1)


def test_the_interval_spans_what_the_past_spans() -> None:
    durations = Durations()
    for seconds in range(100, 1100, 10):
        durations.learn(["q"], seconds)
    found = expect(scene([request("a", 10)]), "a", durations, lambda one: ["q"], Random(1), 101)
    assert found is not None
    assert 100 < found.early < 300 < found.middle < 700 < found.late < 1100


def test_calibration_turns_errors_into_bounds() -> None:
    calibration, plain = Calibration(), Forecast(100, 90, 110)
    believed = calibration.correct("q", plain)
    assert (believed.middle, believed.early, believed.late) == pytest.approx((100, 54, 184), abs=1), "half to double"
    assert calibration.correct("q", Forecast(100, 10, 1000)) == Forecast(believed.middle, 10, 1000), (
        "or as futures differ"
    )
    for came in [*[9000] * 30, *range(100, 310, 7)]:  # those of long ago are forgotten
        calibration.learn("q", 100, came)
    found = calibration.correct("q", plain)
    assert found.middle == pytest.approx(180, abs=3)
    assert found.early == pytest.approx(77, abs=3)
    assert found.late == pytest.approx(289, abs=3)
    assert calibration.correct("unseen", plain) == found  # what is known of all serves the unknown


def test_quantile() -> None:
    assert quantile([1, 2, 3], 0.5) == 2
    assert quantile([1, 3], 0.25) == 1.5


def test_a_watched_simulation_is_forecast_from_its_past_alone() -> None:
    jobs = [ClusterJob(f"j{i}", i * 50.0, 100.0, 4, "a") for i in range(40)]
    watcher = ForecastWatcher(every=5, futures=5)
    watched = apart(jobs, {"a": 1}, 4, watcher).run(requests(jobs, 4))
    unwatched = apart(jobs, {"a": 1}, 4).run(requests(jobs, 4))
    assert {n: r.started_at for n, r in watched.items()} == {n: r.started_at for n, r in unwatched.items()}
    late = [said for said in watcher.said if said.at > 1000]
    assert late
    assert all(said.came is not None and said.raw.middle == pytest.approx(said.came, rel=0.05) for said in late)
