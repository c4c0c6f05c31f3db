"""Schedules on a real server: slots become runs at their time, and ``kill -9`` neither loses nor doubles one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from paddleflow.sdk.client import PaddleFlow
from tests.e2e.conftest import ServerProcess
from tests.patience import eventually

FLOW = """\
name: ticking
entry_points:
  main:
    command: echo $PF_RUN_ID >> {marks}
    docker_env: none
"""


def slots(client: PaddleFlow, schedule: str) -> list[float]:
    """The slots that became a run or a note, oldest first."""
    found = [run.record.scheduled_time for run in client.schedules.runs(schedule)]
    return [time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) for text in reversed(found)]


def ticking(client: PaddleFlow, marks: Path, **options: object) -> str:
    registered = client.pipelines.create(yaml=FLOW.format(marks=marks))
    made = client.schedules.create("ticks", registered.pipeline_id, registered.version_id, "@every 1s", **options)  # type: ignore[arg-type]
    return made.id


@pytest.mark.timeout(180)
def test_kills_lose_and_double_no_slot(tmp_path: Path, new_server: Callable[..., ServerProcess]) -> None:
    server = new_server()
    marks = tmp_path / "marks"
    schedule = ticking(server.connect(), marks)
    for least in (2, 4, 7):
        client = server.connect()
        eventually(lambda client=client, least=least: len(slots(client, schedule)) >= least, "slots fire")  # type: ignore[misc]
        server.kill()
        server.start()
    client = server.connect()
    before = len(slots(client, schedule))
    eventually(lambda: len(slots(client, schedule)) > before, "it fires again after the last kill")
    client.schedules.stop(schedule)
    fired = slots(client, schedule)
    assert fired == [fired[0] + n for n in range(len(fired))], "each second once, in order, the outages too"
    eventually(lambda: not list(client.schedules.runs(schedule, status="active")), "all runs have ended")
    runs = list(client.schedules.runs(schedule))
    assert {run.record.status for run in runs} == {"succeeded"}
    ran = Counter(marks.read_text().split())
    assert ran == Counter(run.id for run in runs), "each run ran once"
    assert client.schedules.get(schedule).status == "terminated"


@pytest.mark.timeout(120)
def test_an_outage_without_catchup_runs_only_the_newest(
    tmp_path: Path, new_server: Callable[..., ServerProcess]
) -> None:
    server = new_server()
    schedule = ticking(server.connect(), tmp_path / "marks", catchup=False)
    client = server.connect()
    eventually(lambda: slots(client, schedule), "it fires")
    server.kill()
    killed = time.time()
    eventually(lambda: time.time() > killed + 3, "three slots are missed")
    server.start()
    client = server.connect()
    eventually(lambda: slots(client, schedule)[-1] > killed + 3, "it fires again")
    client.schedules.stop(schedule)
    fired = slots(client, schedule)
    assert fired == [fired[0] + n for n in range(len(fired))]
    notes = [run for run in client.schedules.runs(schedule) if run.record.status == "skipped"]
    assert len(notes) >= 2
    assert all(note.record.message == "a newer slot is due, and catchup is off" for note in notes)
