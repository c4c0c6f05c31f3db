"""Many short steps through the real server: they follow each other by themselves, and every rule holds all the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import FINAL, call, create, ended, statuses
from tests.patience import eventually

pytestmark = pytest.mark.timeout(300)


def small(new_server: Callable[..., ServerProcess], slots: int) -> ServerProcess:
    return new_server(PADDLEFLOW_LOCAL_CPUS=str(slots), PADDLEFLOW_LOCAL_MEMORY=f"{slots}Gi")


def document(lines: list[str], head: str = "parallelism: 20") -> str:
    return "\n".join(["name: short", "docker_env: none", head, "entry_points:", *(f"  {line}" for line in lines)])


def beside_and_behind(story: Path, count: int) -> list[str]:
    """Half of them beside each other, then two lines of steps that wait for each other; each tells when it ran."""
    lines = []
    for n in range(count):
        deps = f", deps: s{n - 2}" if n > count // 2 else ""
        lines.append(
            f"s{n}: {{command: 'echo begin $PF_STEP_NAME >> {story}; echo end $PF_STEP_NAME >> {story}'{deps}}}"
        )
    return lines


def test_each_runs_once_and_no_more_at_once_than_there_are_places(
    new_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server, story = small(new_server, 2), tmp_path / "story"
    view = ended(server, create(server, document(beside_and_behind(story, 80))))
    assert set(statuses(view).values()) == {"succeeded"}
    words = [line.split() for line in story.read_text().splitlines()]
    assert sorted(name for word, name in words if word == "begin") == sorted(f"s{n}" for n in range(80))
    running = most = 0
    for word, name in words:
        running += 1 if word == "begin" else -1
        most = max(most, running)
        if word == "begin" and int(name[1:]) > 40:
            assert ["end", f"s{int(name[1:]) - 2}"] in words[: words.index(["begin", name])], f"{name} began too early"
    assert most <= 2
    jobs = call(server, "GET", "/job?maxKeys=1000")["jobList"]
    assert {(job["status"], bool(job["startTime"]), bool(job["finishTime"])) for job in jobs} == {
        ("succeeded", True, True)
    }
    for job in jobs[::8]:
        told = [event.at or 0.0 for event in server.connect().jobs.get(job["id"]).events()]
        assert told == sorted(told), "the story of a job goes forward"


@pytest.mark.parametrize("seed", range(2))
def test_kills_of_the_server_lose_and_double_nothing(
    seed: int, new_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server, story, rng = small(new_server, 2), tmp_path / "story", random.Random(seed)
    run = create(server, document(beside_and_behind(story, 150)))
    for _ in range(4):
        wanted = min(2 * 150, lines_of(story) + rng.randrange(10, 60))
        eventually(lambda known=wanted: lines_of(story) >= known, "steps go on")  # type: ignore[misc]
        server.kill()
        server.start()
    view = ended(server, run)
    assert set(statuses(view).values()) == {"succeeded"}
    told = story.read_text().splitlines()
    assert sorted(told) == sorted(f"{word} s{n}" for n in range(150) for word in ("begin", "end"))


def lines_of(story: Path) -> int:
    return len(story.read_text().splitlines()) if story.exists() else 0


def test_somebody_else_s_job_does_not_wait_for_the_whole_run(
    new_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    """With one place: the job is there before the gate opens, and has to come before steps that were submitted later."""
    server, gate, story = small(new_server, 1), tmp_path / "gate", tmp_path / "story"
    steps = [f"s{n}: {{command: 'echo s{n} >> {story}', deps: hold}}" for n in range(120)]
    wait = f"until [ -e {gate} ]; do sleep 0.01; done"
    run = create(server, document([f"hold: {{command: '{wait}'}}", *steps]))
    eventually(lambda: call(server, "GET", "/job?status=running")["jobList"], "the gate is watched")
    job = {"image": "none", "command": f"echo job >> {story}", "flavour": {"cpu": "1", "mem": "1Gi"}}
    call(server, "POST", "/job/single", job)
    gate.touch()
    assert ended(server, run)["status"] == "succeeded"
    eventually(lambda: lines_of(story) == 121, "the job has run")
    order = story.read_text().split()
    assert order.index("job") < 100, "the steps of the run went first, one after the other"


def test_after_a_failure_nothing_begins(new_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server, story = small(new_server, 1), tmp_path / "story"
    lines = [f"s{n}: {{command: 'echo s{n} >> {story}; {'exit 3' if n == 30 else 'true'}'}}" for n in range(80)]
    view = ended(server, create(server, document(lines)))
    found = statuses(view)
    assert view["status"] == "failed"
    ran = story.read_text().split()
    assert ran[-1] == "s30", "with one place nothing runs beside the failure"
    assert len(set(ran)) == len(ran)
    assert {name for name, status in found.items() if status == "succeeded"} == set(ran[:-1])
    assert found["s30"] == "failed"
    assert {status for name, status in found.items() if name not in ran} <= {"cancelled", "terminated"}


def test_a_stop_is_answered_at_once(new_server: Callable[..., ServerProcess]) -> None:
    server = small(new_server, 2)
    run = create(server, document([f"s{n}: {{command: 'sleep 0.05'}}" for n in range(500)]))
    eventually(lambda: len(call(server, "GET", "/job?status=succeeded&maxKeys=50")["jobList"]) > 20, "steps go on")
    call(server, "PUT", f"/run/{run}?action=stop", {"stopForce": False})
    view = ended(server, run)
    assert view["status"] in FINAL - {"succeeded"}
    assert {"succeeded", "cancelled"} <= set(statuses(view).values())
    assert not call(server, "GET", "/job?status=running")["jobList"]
    assert not call(server, "GET", "/job?status=pending")["jobList"]
