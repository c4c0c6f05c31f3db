"""Commands that make several requests, or look at what they are given before they make one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.client_stub import Answer, Shell, Stub


def test_storages_are_granted_by_name(stub: Stub, shell: Shell) -> None:
    stub.on("GET /fs/data", {"id": "fs-bob-data", "name": "data"})
    stub.on("POST /grant", {"grantID": "g"})
    stub.on("DELETE /grant", None)
    grants = [{"userName": "alice", "resourceType": kind, "resourceID": f"{kind}-1"} for kind in ("queue", "fs")]
    stub.on("GET /grant", {"maxKeys": 100, "isTruncated": False, "grantList": grants})
    assert shell("fs", "grant", "alice", "data", "--owner", "bobby").stdout == "fs[data] add username[alice] success\n"
    assert shell("fs", "ungrant", "alice", "data").stdout == "fs[data] delete username[alice] success\n"
    assert json.loads(shell("fs", "grantlist", "--json").stdout) == [
        {"id": "", "userName": "alice", "resourceType": "fs", "resourceID": "fs-1"}
    ]
    key = {"resourceType": "fs", "resourceID": "fs-bob-data"}
    assert stub.lines()[:4] == [
        ("GET", "/fs/data", {"username": "bobby"}, None),
        ("POST", "/grant", {}, {"userName": "alice", **key}),
        ("GET", "/fs/data", {}, None),
        ("DELETE", "/grant", {"username": "alice", **key}, None),
    ]


def test_of_several_jobs_those_that_can_be_are_stopped(stub: Stub, shell: Shell) -> None:
    stub.refuse("PUT /job/over", 409, "ActionNotAllowed", "job[over] cannot be stopped, it is succeeded")
    stub.on("PUT /job/alive", None)
    result = shell("job", "stop", "over", "alive", code=1)
    assert result.stdout == "jobid[alive] stop success\n"
    assert result.stderr == "error: job[over] cannot be stopped, it is succeeded\n"


def test_a_graph_is_written_as_its_ending_says(stub: Stub, shell: Shell, tmp_path: Path) -> None:
    stub.on("GET /run/r/graph", "<svg/>")
    shell("run", "graph", "r", "--to", str(tmp_path / "r.svg"))
    assert stub.requests[-1].query == {"format": "svg"}
    refused = shell("run", "graph", "r", "--to", str(tmp_path / "r.png"), code=2)
    assert "r.png has none of the suffixes .svg" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["r.svg"]


def test_waiting_for_runs_says_how_they_are(stub: Stub, shell: Shell) -> None:
    for run, status in (("r1", "succeeded"), ("r2", "failed")):
        stub.on(f"GET /run/{run}/events", Answer({"events": []}))
        stub.on(f"GET /run/{run}", {"runID": run, "name": "n", "status": status, "runMsg": "so"})
    result = shell("run", "wait", "r1", "r2", code=1)
    assert {"r1 succeeded", "r2 failed"} <= {" ".join(line.split()[:2]) for line in result.stderr.splitlines()}
    assert result.stdout.splitlines()[-1].split() == ["r2", "n", "failed", "so"]


def test_who_watched_a_run_fail_is_told_where_to_look(stub: Stub, shell: Shell) -> None:
    stub.on("GET /run/r", {"runID": "r", "status": "failed", "runMsg": "so"})
    events = [
        b'id: 1\nevent: step\ndata: {"step": "train", "jobID": "j", "status": "pending"}\n\n',
        b'id: 2\nevent: step\ndata: {"step": "train", "jobID": "j", "status": "failed", "message": "exited with code 3"}\n\n',
        b'id: 3\nevent: status\ndata: {"status": "failed", "message": "so"}\n\n',
    ]
    stub.on("GET /run/r/events", Answer(chunks=events))
    result = shell("run", "watch", "r", code=1)
    assert result.stdout == "train failed exited with code 3\n"
    assert result.stderr == "r failed: so\nhint: see its output with: paddleflow run logs r train\n"


def test_faults_of_a_file_are_said_with_its_name(stub: Stub, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("nam: x")
    faults = [
        {"where": "1:1", "message": "no attribute [nam]", "hint": ""},
        {"where": "parameters.x", "message": "not exist"},
    ]
    for route, words in (
        ("POST /run", ("run", "create", "-yr", str(file))),
        ("POST /pipeline", ("pipeline", "create", "-yr", str(file))),
        ("POST /pipeline/p", ("pipeline", "update", "p", "-yr", str(file))),
    ):
        stub.refuse(route, 400, "InvalidPipeline", "1:1: no attribute [nam]; parameters.x: not exist", details=faults)
        said = shell(*words, code=1).stderr.splitlines()
        assert said[1:] == [f"  - {file}:1:1: no attribute [nam]", "  - parameters.x: not exist"]
