"""Kills while pipelines run: at each transition of a run, and at random moments with a ledger that the steps write.

The second kind is the benchmark's (`benchmarks.kills`), with fewer kills: of the server, of the keeper, of both, and stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from benchmarks.kills import FAULTS, GOOD_STARTS, Line, Verdict, run_batch
from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import FINAL, call, create, statuses
from tests.patience import eventually

#: In each of the first four lives of the server something happens, and what comes next waits for the next life: however
#: slow the machine is, the run does not end between two looks of the test.
YAML = """
name: killed
docker_env: x
fs_options: {main_fs: {name: store}}
failure_options: {strategy: continue}
entry_points:
  make:
    command: 'echo make >> ran; until [ -e life-2 ]; do sleep 0.05; done; echo "[1, 2]" > {{list}}'
    artifacts: {output: [list]}
    cache: {enable: true}
  each:
    deps: make
    command: 'echo each $PF_LOOP_ARGUMENT >> ran; until [ -e life-4 ]; do sleep 0.05; done'
    loop_argument: '{{list}}'
    artifacts: {input: {list: '{{make.list}}'}}
  again:
    command: 'echo again >> ran; until [ -e life-3 ]; do sleep 0.05; done; exit 3'
    retry: {times: 1, delay: 0.2}
  never: {command: echo no, deps: again}
post_process:
  last: {command: 'echo last >> ran'}
"""
EXPECTED = {
    "make": "succeeded", "each": "succeeded", "each-1": "succeeded", "again": "failed", "never": "cancelled", "last": "succeeded",
}  # fmt: skip


def events(server: ServerProcess, run: str) -> int:
    """How many changes of the run have been told."""
    request = Request(f"{server.url}/api/paddleflow/v1/run/{run}/events?follow=false")
    request.add_header("x-pf-authorization", server.token)
    with urlopen(request, timeout=30) as answer:
        return int(answer.read().count(b"event: "))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_the_end_is_the_same_however_often_the_server_dies(
    engine: str, tmp_path: Path, new_server: Callable[..., ServerProcess], request: pytest.FixtureRequest
) -> None:
    settings = (
        {"PADDLEFLOW_DATABASE_URL": request.getfixturevalue("postgres_url_factory")()} if engine == "postgres" else {}
    )
    server = new_server(**settings)
    store = tmp_path / "store"
    store.mkdir()
    call(server, "POST", "/fs", {"name": "store", "url": f"local://{store}"})
    run = create(server, YAML)
    seen = kills = 0
    while True:
        eventually(lambda known=seen: events(server, run) > known, "something more happens")  # type: ignore[misc]
        seen = events(server, run)  # before the status: the run may end in between, and then nothing more would happen
        if call(server, "GET", f"/run/{run}")["status"] in FINAL:
            break
        server.kill()
        kills += 1
        (store / f"life-{kills + 1}").touch()
        server.start()
    view = call(server, "GET", f"/run/{run}")
    assert (view["status"], statuses(view)) == ("failed", EXPECTED)
    assert Counter((store / "ran").read_text().splitlines()) == {
        "make": 1, "each 1": 1, "each 2": 1, "again": 2, "last": 1,
    }  # fmt: skip
    assert kills > 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_random_kills_lose_nothing_and_do_nothing_twice(engine: str, request: pytest.FixtureRequest) -> None:
    """Whatever is killed: every run ends as its document says, and no try of a step starts twice."""
    url = request.getfixturevalue("postgres_url_factory")() if engine == "postgres" else ""
    verdict = run_batch(25, 13, url)
    assert (verdict.lost, verdict.doubled) == ([], [])
    assert set(verdict.faults) == set(FAULTS)
    assert verdict.runs > verdict.unseen, "some runs are judged by all rules"


def whole_ledger() -> list[Line]:
    """What the steps of a run write when all is well."""
    starts = [Line("start", label, f"job-{n} 1", str(n)) for n, label in enumerate(GOOD_STARTS.elements())]
    return [*starts, *(Line("end", line.label, line.attempt, line.nonce) for line in starts)]


@pytest.mark.parametrize(
    ("status", "change", "lost", "doubled"),
    [
        ("succeeded", lambda lines: lines, 0, 0),
        ("running", lambda lines: lines, 1, 0),
        ("failed", lambda lines: lines, 1, 0),
        ("succeeded", lambda lines: lines[:-1], 1, 0),  # a step that never ended
        ("succeeded", lambda lines: [line for line in lines if line.label != "make"], 1, 0),
        ("succeeded", lambda lines: [*lines, Line("start", "never", "job-x 1", "0")], 0, 1),
        # one try twice, which is also one start too many
        ("succeeded", lambda lines: [*lines, Line("start", "make", "job-0 1", "0")], 0, 2),
    ],
)
def test_the_ledger_shows_what_is_lost_and_what_was_done_twice(
    status: str, change: Callable[[list[Line]], list[Line]], lost: int, doubled: int
) -> None:
    verdict = Verdict()
    verdict.judge("run-1", False, status, change(whole_ledger()), {})
    assert (len(verdict.lost), len(verdict.doubled)) == (lost, doubled), (verdict.lost, verdict.doubled)


def test_a_try_whose_end_nobody_saw_excuses_the_end_of_its_run_but_no_second_start() -> None:
    verdict, lines = Verdict(), whole_ledger()
    unseen = {"job-0": "ended while nobody watched: the keeper had been killed"}
    verdict.judge("run-1", False, "failed", lines[:5], unseen)
    assert (verdict.lost, verdict.doubled, verdict.unseen) == ([], [], 1)
    verdict.judge("run-2", False, "failed", [lines[0], lines[0]], unseen)
    assert verdict.doubled == ["run-2: job-0 1 started 2 times"]
    verdict.judge("run-3", False, "running", lines, unseen)
    assert verdict.lost == ["run-3 is running"]
