"""Watching a run: the state that events build, and a screen of limited rows."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from paddleflow.cli.run_watch import RunProgress, counter, screen
from paddleflow.runs.model import ComponentStatus
from paddleflow.sdk.follow import Event
from tests.client_stub import Answer, Shell, Stub


def step(name: str, status: str, at: float, message: str = "", job: str = "") -> Event:
    return Event(type="step", step=name, status=status, at=at, message=message, raw={"jobID": job})


def progress(*events: Event) -> RunProgress:
    found = RunProgress()
    for event in events:
        found.apply(event)
    return found


def test_events_build_the_state() -> None:
    found = progress(
        Event(type="status", status="running", at=0.0),
        step("a", "pending", 1.0, job="job-a"),
        step("a", "running", 2.0, job="job-a"),
        step("b", "pending", 2.0, job="job-b"),
        step("a", "succeeded", 5.0, job="job-a"),
        step("c", "running", 5.0, job="job-c"),
        step("c", "failed", 6.0, "exit code 3", job="job-c"),
    )
    assert found.counts() == (1, 0, 1, 1)
    assert (found.steps["a"].seconds(9.0), found.status) == (3.0, "running")
    assert screen("run-000001", found, 20, 10.0, lambda step: "waits" if step.name == "b" else "") == snapshot(
        [
            "run-000001 running",
            "1/3 done · 0 running · 1 waiting · 1 failed · 10s elapsed",
            "✓ a  succeeded  3.0 s",
            "· b  pending  job-b  waits",
            "✗ c  failed  1.0 s  exit code 3",
        ]
    )


def test_every_state_of_a_step_has_a_mark() -> None:
    states = ["", *(status.value for status in ComponentStatus)]
    shown = [screen("r", progress(step("a", status, 1.0)), 20, 2.0)[-1] for status in states]
    assert not [line for line in shown if line.startswith("?")]


def test_a_step_that_is_tried_again_starts_again() -> None:
    found = progress(step("a", "running", 1.0), step("a", "pending", 2.0), step("a", "running", 7.0))
    assert found.steps["a"].seconds(8.0) == 1.0


def test_many_steps_are_folded() -> None:
    events = [step(f"prepare-{number}", "succeeded", number) for number in range(300)]
    events += [step(f"dag.train-{number}", "running", 300, job=f"job-{number}") for number in range(3)]
    events += [step(f"dag.wait-{number}", "pending", 300) for number in range(50)]
    events += [step("bad", "failed", 301, "exit code 1")]
    lines = screen("run-000002", progress(*events), 10, 330.0)
    assert lines == snapshot(
        [
            "run-000002",
            "300/354 done · 3 running · 50 waiting · 1 failed · 5m30s elapsed",
            "✗ bad  failed  0.0 s  exit code 1",
            "▶ dag.train-0  running  30.0 s",
            "▶ dag.train-1  running  30.0 s",
            "▶ dag.train-2  running  30.0 s",
            "▶ dag  3 running, 50 waiting",
            "✓ prepare  300 done",
        ]
    )
    assert len(lines) <= 10


def test_steps_that_have_not_begun_count_and_single_ones_are_summed_up() -> None:
    found = RunProgress()
    found.expect([(f"s{number}", "init") for number in range(30)] + [("off", "skipped")])
    for event in [*(step(f"s{n}", "succeeded", n) for n in range(20)), step("s20", "running", 20, job="job-20")]:
        found.apply(event)
    found.apply(step("s21", "pending", 20, job="job-21"))
    lines = screen("run-000004", found, 9, 21.0)
    assert lines == snapshot(
        [
            "run-000004",
            "21/31 done · 1 running · 9 waiting · 0 failed · 21s elapsed",
            "▶ s20  running  1.0 s",
            "· s21  pending  job-21",
            "· 8 more waiting steps",
            "✓ 21 more finished steps",
        ]
    )
    found.finish()
    assert sum(found.counts()) == 23


def test_free_rows_show_what_starts_next_and_a_group_of_one_is_one_line() -> None:
    events = [step(f"train-{number}", "pending", 0, job=f"job-{number}") for number in range(20)]
    events += [step("bad", "failed", 1, "exit code 1")]
    lines = screen("run-000003", progress(*events), 12, 2.0, lambda step: "no cpu is free")
    assert lines[2:] == snapshot(
        [
            "✗ bad  failed  0.0 s  exit code 1  no cpu is free",
            "· train-0  pending  job-0  no cpu is free",
            "· train-1  pending  job-1  no cpu is free",
            "· train-2  pending  job-2  no cpu is free",
            "· train  20 waiting",
        ]
    )


def test_the_counter_fits_eighty_columns() -> None:
    events = [step(f"s-{n}", "running", 0) for n in range(2000)] + [
        step(f"s-{n}", "succeeded", 900) for n in range(1000)
    ]
    assert len(counter(progress(*events), 1000.0)) <= 80


def test_the_counter_estimates_the_rest() -> None:
    events = [
        event
        for n in range(4)
        for event in (step(f"s-{n}", "running", n * 10), step(f"s-{n}", "succeeded", n * 10 + 10))
    ]
    found = progress(*events, step("r", "running", 40), *(step(f"w-{n}", "pending", 40) for n in range(6)))
    assert counter(found, 45.0) == snapshot("4/11 done · 1 running · 6 waiting · 0 failed · 45s elapsed · ~1m5s left")


STATUSES = st.sampled_from(["pending", "running", "succeeded", "failed", "skipped"])
NAMES = st.sampled_from([f"{dag}{name}" for dag in ("", "d.", "e.f.") for name in ("a", "b-1", "b-2", "c-17")])


@given(st.lists(st.tuples(NAMES, STATUSES), max_size=40), st.integers(5, 30))
def test_a_screen_never_has_too_many_rows(events: list[tuple[str, str]], rows: int) -> None:
    found = progress(*(step(name, status, number) for number, (name, status) in enumerate(events)))
    lines = screen("r", found, rows, 100.0)
    assert len(lines) <= rows
    assert sum(found.counts()) == len(found.steps)


def test_a_pipe_gets_a_line_per_change_and_the_run_is_not_fetched_for_each(stub: Stub, shell: Shell) -> None:
    events: list[dict[str, Any]] = [{"event": "status", "status": "running"}]
    for number in range(50):
        events += [{"event": "step", "step": f"s-{number}", "status": status} for status in ("running", "succeeded")]
    events.append({"event": "status", "status": "succeeded"})
    chunks = [
        f"id: {n}\nevent: {event.pop('event')}\ndata: {json.dumps(event)}\n\n".encode()
        for n, event in enumerate(events, 1)
    ]
    stub.on("GET /run/r/events", Answer(chunks=chunks))
    stub.on("GET /run/r", {"runID": "r", "status": "succeeded"})
    lines = shell("run", "watch", "r").stdout.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (100, "s-0 running", "s-49 succeeded")
    assert [seen.path for seen in stub.requests].count("/run/r") <= 3
