"""What jobs used: rates, percentages and card time from samples and moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.base.quantity import Resources
from paddleflow.jobs.cards import CardUse, card_use, scalars_of
from paddleflow.runtimes.log_store import Sample
from paddleflow.runtimes.usage import METRICS, metrics_text, series, stepped
from paddleflow.scheduling.model import MemberSet

GPU = "nvidia.com/gpu"
EACH = Resources.of(2000, 1000)


def test_rates_are_between_two_samples_and_percent_of_the_request() -> None:
    samples = [
        Sample(100, 10.0, 500, disk_read=0, disk_write=100, net_received=5, net_sent=7, disk_usage=9),
        Sample(110, 20.0, 250, disk_read=50, disk_write=100, net_received=25, net_sent=None, disk_usage=11),
    ]
    assert series(samples, EACH) == {
        "memory_usage": [(100, 500), (110, 250)],
        "memory_usage_rate": [(100, 50.0), (110, 25.0)],
        "disk_usage": [(100, 9), (110, 11)],
        "cpu_usage_rate": [(110, 50.0)],  # 10 s of 10 s on 2 cores
        "disk_read_rate": [(110, 5.0)],
        "disk_write_rate": [(110, 0.0)],
        "net_receive_bytes": [(110, 2.0)],
    }


def test_a_counter_that_began_anew_is_no_negative_rate() -> None:
    samples = [Sample(100, 50.0, 1), Sample(110, 1.0, 1), Sample(110, 2.0, 1)]
    assert series(samples, EACH)["cpu_usage_rate"] == [(110, 0.0)]


def test_one_sample_tells_levels_but_no_rates_and_nothing_tells_nothing() -> None:
    assert set(series([Sample(1, 1.0, 10)], EACH)) == {"memory_usage", "memory_usage_rate"}
    assert series([], EACH) == {}
    assert "cpu_usage_rate" not in series([Sample(1, 1.0, 1), Sample(2, 2.0, 1)], Resources())


def test_steps_hold_means_and_skip_what_is_not_known() -> None:
    points = [(100.0, 1.0), (130.0, 3.0), (159.0, 5.0), (160.0, 7.0), (280.0, 9.0), (281.0, 100.0)]
    assert stepped(points, 100, 280, 60) == [[100, 3.0], [160, 7.0], [220, 9.0]]
    assert stepped(points, 500, 600, 60) == []
    assert stepped([(5.0, 1.0)], 5, 5, 60) == [[5, 1.0]]


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), max_size=40),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.floats(1, 1e4),
)
def test_never_more_points_than_steps(
    points: list[tuple[float, float]], start: float, length: float, step: float
) -> None:
    values = stepped(points, start, start + length, step)
    assert len(values) <= max(length / step + 1, 1)
    assert [at for at, _ in values] == sorted(at for at, _ in values)


def test_texts_with_units() -> None:
    first = series([Sample(0, 0.0, 100, disk_read=0), Sample(10, 5.0, 300, disk_read=100)], EACH)
    second = series([Sample(0, 0.0, 100), Sample(10, 15.0, 500)], EACH)
    text = metrics_text([first, second, {}])
    assert set(text) == set(METRICS)
    assert text["cpu_usage_rate"] == "50.00%"  # mean of 25 and 75
    assert text["memory_usage_rate"] == "40.00%"
    assert text["memory_usage"] == "800(Bytes)"
    assert text["disk_read_rate"] == "10.00(B/s)"
    assert text["net_send_bytes"] == text["gpu_util"] == ""
    assert set(metrics_text([]).values()) == {""}


@pytest.mark.parametrize(
    ("needs", "started", "finished", "expected"),
    [
        ([MemberSet("worker", 2, Resources.of(1, 1, {GPU: 2000}))], 0, 3600, CardUse(4, 4.0, GPU)),
        ([MemberSet("worker", 1, Resources.of(1, 1, {GPU: 1000}))], 0, 3599, CardUse(1, 0.99, GPU)),
        ([MemberSet("worker", 1, Resources.of(1, 1, {"x.com/v100_cgpu": 500}))], 0, 7200, CardUse(0.5, 1.0, "x.com/v100_cgpu")),
        ([MemberSet("worker", 3, Resources.of(1, 1, {"x.com/fpga": 1000}))], 0, 3600, CardUse(0, 0.0, "")),
        ([MemberSet("worker", 1, Resources.of(1, 1, {GPU: 1000}))], -3600, 1800, CardUse(1, 0.5, GPU)),
        ([MemberSet("worker", 1, Resources.of(1, 1, {GPU: 1000}))], 7200, None, CardUse(1, 2.0, GPU)),
        ([MemberSet("worker", 1, Resources.of(1, 1, {GPU: 1000}))], 10_000, 30_000, CardUse(1, 1.22, GPU)),
    ],
)  # fmt: skip
def test_card_time(needs: list[MemberSet], started: float, finished: float | None, expected: CardUse) -> None:
    """Between 0 and 14400: cards times replicas, only within the period, floored to two decimals."""
    assert card_use([(started, scalars_of(needs))], started, finished, 0, 14400) == expected


def test_card_time_of_a_job_that_grew_and_shrank() -> None:
    held = [(0.0, {GPU: 2000}), (3600.0, {GPU: 8000}), (5400.0, {GPU: 1000}), (9000.0, {})]
    assert card_use(held, 1800.0, None, 0, 14400) == CardUse(8, 1 + 4 + 1, GPU), "from its start on"
    assert card_use(held, 0.0, 4500.0, 1800, 14400) == CardUse(8, 1 + 2, GPU), "until its end"
    assert card_use(held, 0.0, None, 0, 7200) == CardUse(8, 2 + 4 + 0.5, GPU), "until the period is over"
