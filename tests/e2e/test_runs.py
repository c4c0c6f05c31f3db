"""Runs as people meet them: a real server, real processes, real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import call, create, ended, statuses
from tests.patience import eventually

WHOLE = """
name: whole
docker_env: python:3.11
parallelism: 5
fs_options: {main_fs: {name: store}}
cache: {enable: true}
entry_points:
  make:
    command: 'echo "[1,2,3]" > {{nums}}; echo 7 > $PF_OUTPUT_ARTIFACT_LIMIT'
    artifacts: {output: [nums, limit]}
    env: {PF_JOB_FLAVOUR: ''}
  each:
    deps: make
    command: 'echo item $PF_LOOP_ARGUMENT > {{out}}'
    loop_argument: '{{nums}}'
    artifacts: {input: {nums: '{{make.nums}}'}, output: [out]}
  maybe:
    deps: make
    command: echo yes
    condition: '{{limit}} > 5'
    artifacts: {input: {limit: '{{make.limit}}'}}
  never:
    deps: make
    command: echo no
    condition: '{{limit}} > 50'
    artifacts: {input: {limit: '{{make.limit}}'}}
  empty:
    command: echo no
    loop_argument: []
  flow:
    deps: each,empty
    loop_argument: [x, y]
    artifacts: {input: {all: '{{each.out}}'}, output: {last: '{{two.res}}'}}
    entry_points:
      one:
        command: cat $(echo {{all}} | tr , ' ')
        artifacts: {input: {all: '{{PF_PARENT.all}}'}}
        parameters: {letter: '{{PF_PARENT.PF_LOOP_ARGUMENT}}'}
      two:
        deps: one
        command: 'echo {{z}} > {{res}}'
        parameters: {z: '{{one.letter}}'}
        artifacts: {output: [res]}
  join:
    deps: flow
    command: 'cat $(echo {{in}} | tr , " ") > {{both}}'
    artifacts: {input: {in: '{{flow.last}}'}, output: [both]}
post_process:
  mail: {command: echo done}
"""


@pytest.fixture
def store(server: ServerProcess, tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    answer = call(server, "POST", "/fs", {"name": "store", "url": f"local://{folder}"})
    assert answer["fsID"] == "fs-root-store"
    return folder


@pytest.mark.timeout(120)
def test_everything_at_once_and_again_from_the_cache(server: ServerProcess, store: Path) -> None:
    first = ended(server, create(server, WHOLE))
    assert (first["status"], first["runMsg"]) == ("succeeded", "Run successfully")
    assert statuses(first) == {
        "make": "succeeded", "each": "succeeded", "each-1": "succeeded", "each-2": "succeeded", "maybe": "succeeded",
        "never": "skipped", "empty": "skipped", "flow": "succeeded", "flow.one": "succeeded", "flow.two": "succeeded",
        "flow-1": "succeeded", "flow-1.one": "succeeded", "flow-1.two": "succeeded", "join": "succeeded", "mail": "succeeded",
    }  # fmt: skip
    both = first["runtime"]["join"][0]["artifacts"]["output"]["both"]
    assert (store / both).read_text() == "x\ny\n"
    assert [(store / each["artifacts"]["output"]["out"]).read_text() for each in first["runtime"]["each"]] == [
        "item 1\n",
        "item 2\n",
        "item 3\n",
    ]
    second = ended(server, create(server, WHOLE))
    assert second["status"] == "succeeded"
    assert second["runtime"]["join"][0]["reusedFrom"] == first["runID"]
    assert second["runtime"]["join"][0]["artifacts"]["output"]["both"] == both
    assert second["runCachedIDs"] == "", "it served nobody"
    assert ended(server, first["runID"])["runCachedIDs"] == second["runID"]
    (store / both).write_text("changed by hand")
    third = ended(server, create(server, WHOLE.replace("echo yes", "echo indeed")))
    assert third["runtime"]["maybe"][0]["cacheMiss"] == ["command"]
    assert third["runtime"]["join"][0]["cacheMiss"] == ["its outputs were changed or removed"]
    assert third["runtime"]["each"][2]["reusedFrom"] == first["runID"]


@pytest.mark.timeout(120)
def test_a_failure_ends_the_others_and_the_post_process_runs(server: ServerProcess) -> None:
    yaml = """
name: failing
docker_env: x
entry_points:
  bad: {command: exit 3}
  long: {command: sleep 600}
  after: {command: echo no, deps: bad}
post_process:
  clean: {command: echo cleaned}
"""
    view = ended(server, create(server, yaml))
    assert view["status"] == "failed"
    assert statuses(view) == {"bad": "failed", "long": "terminated", "after": "cancelled", "clean": "succeeded"}
    assert view["runMsg"] == "step[bad] failed: the process exited with code 3"


@pytest.mark.timeout(120)
def test_a_kill_of_the_server_changes_nothing(server: ServerProcess, store: Path) -> None:
    run = create(server, WHOLE.replace("echo item", "sleep 0.3; echo item"))
    server.kill()
    server.start()
    view = ended(server, run)
    assert view["status"] == "succeeded"
    assert len(statuses(view)) == 15


FLAKY = """
name: flaky
docker_env: x
fs_options: {main_fs: {name: store}}
entry_points:
  first: {command: 'echo 1 > {{out}}', artifacts: {output: [out]}}
  loop:
    deps: first
    command: 'cat {{in}}; test $PF_LOOP_ARGUMENT = a || test -e allowed'
    loop_argument: [a, b]
    artifacts: {input: {in: '{{first.out}}'}}
  after: {command: 'echo {{p}}', deps: loop, parameters: {p: 3}}
failure_options: {strategy: continue}
"""


@pytest.mark.timeout(120)
def test_a_retry_goes_on_with_what_succeeded(server: ServerProcess, store: Path) -> None:
    run = create(server, FLAKY)
    view = ended(server, run)
    assert statuses(view) == {"first": "succeeded", "loop": "succeeded", "loop-1": "failed", "after": "cancelled"}
    (store / "allowed").touch()
    again = call(server, "PUT", f"/run/{run}?action=retry")["runID"]
    second = ended(server, again)
    assert set(statuses(second).values()) == {"succeeded"}
    assert second["retryOf"] == run
    steps = {each["fullName"]: each for views in second["runtime"].values() for each in views}
    assert {name: each["reusedFrom"] for name, each in steps.items()} == {
        "first": run, "loop": run, "loop-1": "", "after": "",
    }  # fmt: skip
    assert f"/{again}/" not in steps["loop-1"]["artifacts"]["input"]["in"]
    third = ended(server, call(server, "PUT", f"/run/{again}?action=retry", {"fromStep": "loop"})["runID"])
    assert [each["reusedFrom"] for each in third["runtime"]["loop"]] == ["", ""]
    assert third["runtime"]["first"][0]["reusedFrom"] == run
    refused = call(server, "DELETE", f"/run/{run}")
    assert (refused["status"], refused["code"]) == (409, "ActionNotAllowed")
    difference = call(server, "GET", f"/run/{run}/diff?with={again}")
    assert difference["steps"]["after"]["status"] == ["cancelled", "succeeded"]
    assert difference["parameters"] == {}


@pytest.mark.timeout(120)
def test_breakpoints_pictures_logs_artifacts_and_deletion(server: ServerProcess, store: Path) -> None:
    run = create(server, FLAKY, breakpoints=["after"], name="paused")
    (store / "allowed").touch()

    def paused() -> bool:
        return bool(call(server, "GET", f"/run/{run}")["paused"] == ["after"])

    eventually(paused, "it waits before its last step")
    graph = call(server, "GET", f"/run/{run}/graph")
    assert {node["id"]: node["status"] for node in graph["nodes"]} == {
        "first": "succeeded", "loop": "succeeded", "after": "pending",
    }  # fmt: skip
    assert ["loop", "after"] in graph["edges"]
    assert server.cli("version").returncode == 0
    call(server, "PUT", f"/run/{run}?action=resume")
    view = ended(server, run)
    assert view["status"] == "succeeded"
    log = call(server, "GET", f"/log/run/{run}")
    text = {part["name"]: part["taskList"][0]["logInfo"]["logContent"] for part in log["runLog"]}
    assert text[f"{run}-after"] == "3\n"
    records = call(server, "GET", f"/artifact?runFilter={run}&typeFilter=output")["artifactEventList"]
    assert [(each["step"], each["artifactName"], each["size"]) for each in records] == [("first", "out", 2)]
    path = records[0]["artifactPath"]
    assert (store / path).read_bytes() == b"1\n"
    lineage = call(server, "GET", f"/artifact/lineage?fsname=store&path={path}")
    assert (lineage["runID"], lineage["step"], lineage["inputs"]) == (run, "first", [])
    jobs = call(server, "GET", "/job")["jobList"]
    mine = next(job["id"] for job in jobs if job["id"].startswith(f"job-{run}-after"))
    assert call(server, "DELETE", f"/job/{mine}")["code"] == "ActionNotAllowed"
    assert call(server, "DELETE", f"/run/{run}") is None
    assert not (store / ".pipeline" / run).exists()
    assert call(server, "GET", f"/job/{mine}")["code"] == "JobNotFound"
    assert call(server, "GET", f"/run/{run}")["code"] == "RunNotFound"


@pytest.mark.timeout(120)
def test_a_run_answers_a_stop_and_a_stop_by_force(server: ServerProcess) -> None:
    yaml = """
name: long
docker_env: x
entry_points:
  long: {command: sleep 600}
  later: {command: echo no, deps: long}
post_process:
  clean: {command: sleep 600}
"""
    run = create(server, yaml)
    eventually(lambda: statuses(call(server, "GET", f"/run/{run}"))["long"] == "running", "its step runs")
    assert call(server, "PUT", f"/run/{run}?action=stop") is None
    eventually(lambda: statuses(call(server, "GET", f"/run/{run}")).get("clean") == "running", "its post-process runs")
    assert call(server, "PUT", f"/run/{run}?action=stop")["code"] == "ActionNotAllowed"
    assert call(server, "PUT", f"/run/{run}?action=stop", {"stopForce": True}) is None
    view = ended(server, run)
    assert (view["status"], view["runMsg"]) == ("terminated", "stopped by root")
    assert statuses(view) == {"long": "terminated", "later": "cancelled", "clean": "terminated"}
