"""Runs as people meet them: a real server, real processes, real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import call, create, ended, statuses

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
    assert second["runCachedIDs"] == first["runID"]
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
