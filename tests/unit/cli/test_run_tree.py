"""A run drawn as a tree, from what the server says of it."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from paddleflow.cli.run_tree import branches, duration, tree
from paddleflow.sdk.runs import RunRecord, StepView

ANSWER = {
    "runID": "run-000007",
    "name": "train",
    "username": "alice",
    "fsName": "data",
    "status": "failed",
    "runMsg": "step train failed",
    "createTime": "2026-11-17 00:00:00",
    "paused": ["evaluate"],
    "runtime": {
        "prepare": [{"name": "run-000007-prepare", "status": "succeeded", "seconds": 3.21, "reusedFrom": "run-000003"}],
        "each": [
            {
                "name": f"run-000007-each-{number}",
                "status": "succeeded",
                "seconds": 70.0,
                "entryPoints": {"work": [{"status": "succeeded", "seconds": 69.0, "cacheMiss": ["command", "env"]}]},
            }
            for number in range(2)
        ],
        "train": [{"status": "failed", "tries": 3, "seconds": 7300.0, "jobMessage": "the process exited with code 3"}],
    },
    "postProcess": {"notify": {"stepName": "notify", "status": "running", "fullName": "notify"}},
}


def test_a_run_with_everything() -> None:
    assert "\n".join(tree(RunRecord.of(ANSWER))) == snapshot("""\
run-000007 train failed: step train failed
  user: alice
  storage: data
  started: 2026-11-17 00:00:00
  paused before: evaluate
├─ ✓ prepare                succeeded   3.2 s  reused from run-000003
├─ ✓ each[0]                succeeded   1 min 10 s
│  └─ ✓ work  succeeded   1 min 9 s  not reused: command, env
├─ ✓ each[1]                succeeded   1 min 10 s
│  └─ ✓ work  succeeded   1 min 9 s  not reused: command, env
├─ ✗ train                  failed      2 h 1 min  3 tries  the process exited with code 3
└─ ▶ notify (post_process)  running\
""")


def test_the_last_line_of_a_log_stands_behind_its_step() -> None:
    def tail(step: StepView) -> str:
        return "epoch 3" if step.status == "running" else ""

    lines = branches(RunRecord.of(ANSWER), tail)
    assert [line for line in lines if "epoch 3" in line] == [lines[-1]]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (250, "4 min 10 s"), (7500, "2 h 5 min")]
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_step_that_has_not_begun_says_what_it_waits_for() -> None:
    def step(status: str, deps: str = "") -> dict[str, str]:
        return {"type": "step", "status": status, "deps": deps}

    inner = {"first": [step("init")], "then": [step("init", "first")]}
    runtime = {
        "prepare": [step("running")],
        "train": [step("init", "prepare")],
        "more": [step("init")],
        "later": [{**step("init", "prepare"), "entryPoints": inner}],
        "now": [{**step("running"), "entryPoints": inner}],
    }
    lines = tree(RunRecord.of({"runID": "run-1", "status": "running", "runtime": runtime}))[1:]
    assert [" ".join(line.split()[1:]) for line in lines] == snapshot(
        [
            "▶ prepare running",
            "· train init waits for prepare",
            "· more init waits for running steps to end (parallelism)",
            "· later init waits for prepare",
            "├─ · first init",
            "└─ · then init",
            "▶ now running",
            "· first init waits for running steps to end (parallelism)",
            "· then init waits for first",
        ]
    )
