"""Handles of runs: their parts, waiting, logs that are put together of their steps' logs, artifacts, submitting."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pytest

from paddleflow.errors import NotFound
from paddleflow.pipeline import ContainerStep, Pipeline
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.runs import DagView, Run, views, written_name
from tests.client_stub import Answer, Stub

TEXT = base64.b64encode(b"name: x").decode()


def run(pf: PaddleFlow) -> Run:
    return pf.runs.handle("run-000001")


def step(status: str, **more: object) -> dict[str, object]:
    return {"type": "step", "status": status, "jobID": "", "startTime": "1", **more}


WHOLE = {
    "runID": "run-000001",
    "status": "running",
    "runtime": {
        "prepare": [step("succeeded", stepName="prepare", jobID="job-1", reusedFrom="run-000000", tries=2)],
        "each": [
            {
                "type": "dag",
                "status": "running",
                "id": "dag-1",
                "entryPoints": {"train": [step("running", jobID="job-2")]},
            },
            {"type": "dag", "status": "running", "entryPoints": {"train": [step("init", fullName="each-1.train")]}},
        ],
    },
    "postProcess": {"mail": step("init", stepName="mail", artifacts={"input": {}, "output": {"a": "p"}})},
    "runCachedIDs": "run-000000,run-000009",
    "disabled": "",
    "paused": ["each-1.train"],
}


def test_a_run_shows_its_parts(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /run/run-000001", WHOLE)
    found = pf.runs.get("run-000001")
    assert repr(found) == "Run('run-000001', status='running')"
    assert not found.finished
    assert [one.full_name or one.step_name for one in found.steps] == [
        "prepare",
        "each.train",
        "each-1.train",
        "mail",
    ]
    assert isinstance(found.record.runtime["each"][0], DagView)
    assert (found.steps[0].reused_from, found.steps[0].tries) == ("run-000000", 2)
    assert found.steps[-1].outputs == {"a": "p"}
    assert (found.record.cached_ids, found.record.disabled, found.record.paused) == (
        ("run-000000", "run-000009"),
        (),
        ("each-1.train",),
    )


def events(*lines: tuple[str, dict[str, object]]) -> Answer:
    frames = [f"id: {n}\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for n, (kind, data) in enumerate(lines, 1)]
    return Answer(chunks=["".join(frames).encode()])


def test_waiting_follows_the_events_to_the_end(stub: Stub, pf: PaddleFlow) -> None:
    stub.on(
        "GET /run/run-000001/events",
        events(("step", {"step": "a", "status": "running"}), ("status", {"status": "succeeded"})),
    )
    stub.on("GET /run/run-000001", {"runID": "run-000001", "status": "succeeded"})
    seen: list[tuple[str, str]] = []
    done = run(pf).wait(timeout=30, on_event=lambda event: seen.append((event.step, event.status)))
    assert done.succeeded
    assert seen == [("a", "running"), ("", "succeeded")]


def test_waiting_has_an_end(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /run/run-000001", {"runID": "run-000001", "status": "running"})
    with pytest.raises(TimeoutError, match="still running"):
        run(pf).wait(timeout=0)


def lines_of(text: str) -> Answer:
    return Answer(chunks=[text.encode()])


def test_logs_of_a_run_are_those_of_its_steps(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /run/run-000001", WHOLE)
    stub.on("GET /job/job-1/log", lines_of("one\ntwo"))
    stub.on("GET /job/job-2/log", lines_of("three\n"))
    assert list(run(pf).logs()) == ["[prepare] one\n", "[prepare] two\n", "[each.train] three\n"]
    assert list(run(pf).logs("each")) == ["three\n"]
    assert list(run(pf).logs("prepare")) == ["one\n", "two"]
    with pytest.raises(NotFound, match="no step 'trian'") as caught:
        list(run(pf).logs("trian"))
    assert "each.train" in caught.value.hint


@pytest.mark.parametrize("follow", [False, True])
def test_a_deleted_job_does_not_hide_the_logs_of_others(stub: Stub, pf: PaddleFlow, follow: bool) -> None:
    stub.on("GET /run/run-000001", WHOLE)
    stub.on("GET /run/run-000001/events", events(("status", {"status": "succeeded"})))
    stub.refuse("GET /job/job-1/log", 404, "JobNotFound", "job[job-1] does not exist")
    stub.on("GET /job/job-2/log", lines_of("three\n"))
    stub.on("GET /job/job-2", {"id": "job-2", "status": "succeeded"})
    found = sorted(run(pf).logs(follow=follow))
    assert found == ["[each.train] three\n", "[prepare] paddleflow: job-1 was deleted, and its log with it\n"]


def test_following_logs_begins_each_step_as_it_starts(stub: Stub, pf: PaddleFlow) -> None:
    begun = {
        "runID": "run-000001",
        "status": "running",
        "runtime": {"a": [step("running", jobID="job-1")], "b": [step("init")]},
    }
    later = {
        "runID": "run-000001",
        "status": "succeeded",
        "runtime": {"a": [step("succeeded", jobID="job-1")], "b": [step("succeeded", jobID="job-2")]},
    }
    first_read = threading.Event()
    stub.on("GET /run/run-000001", begun, later)
    stub.on(
        "GET /run/run-000001/events",
        Answer(
            chunks=[
                b'id: 1\nevent: step\ndata: {"step": "a", "jobID": "job-1"}\n\n',
                first_read,
                b'id: 2\nevent: step\ndata: {"step": "b-1", "jobID": "job-2"}\n\n',
                b'id: 3\nevent: status\ndata: {"status": "succeeded"}\n\n',
            ]
        ),
    )
    for job, text in (("job-1", "from a\n"), ("job-2", "from b\n")):
        stub.on(f"GET /job/{job}/log", lines_of(text))
        stub.on(f"GET /job/{job}", {"id": job, "status": "succeeded"})
    found = []
    for line in run(pf).logs(follow=True):
        found.append(line)
        first_read.set()
    assert found == ["[a] from a\n", "[b-1] from b\n"]


def test_following_one_step_ends_with_it(stub: Stub, pf: PaddleFlow) -> None:
    stub.on(
        "GET /run/run-000001",
        {"runID": "run-000001", "status": "running", "runtime": {"a": [step("succeeded", jobID="job-1")]}},
    )
    stub.on("GET /job/job-1/log", lines_of("done\n"))
    stub.on("GET /job/job-1", {"id": "job-1", "status": "succeeded"})
    assert list(run(pf).logs("a", follow=True)) == ["done\n"]


def test_artifacts_can_be_read(stub: Stub, pf: PaddleFlow, tmp_path: Path) -> None:
    row = {
        "runID": "run-000001",
        "fsname": "main",
        "artifactPath": "p/model",
        "artifactName": "model",
        "type": "output",
    }
    stub.on("GET /artifact", {"artifactEventList": [row], "isTruncated": False})
    stub.on("GET /artifact/content", Answer(b"\x00bytes"))
    (found,) = run(pf).artifacts
    assert (found.name, found.read()) == ("model", b"\x00bytes")
    assert found.download(tmp_path / "model").read_bytes() == b"\x00bytes"
    assert stub.requests[-1].query == {"fsname": "main", "path": "p/model"}


def test_checking_gives_all_faults(stub: Stub, pf: PaddleFlow) -> None:
    faults = [{"where": "3:5 entry_points.a", "message": "unknown", "hint": "did you mean b?"}]
    stub.refuse("POST /pipeline/check", 400, "InvalidPipeline", "3:5 …", details=faults)
    assert [fault.hint for fault in pf.pipelines.check("name: x")] == ["did you mean b?"]
    assert stub.requests[0].body == {"yamlRaw": TEXT}


def test_a_pipeline_is_submitted_run_and_registered(stub: Stub, pf: PaddleFlow, tmp_path: Path) -> None:
    made = Pipeline(name="hello", docker_env="i")(lambda: ContainerStep(name="Process", command="x"))()
    stub.on("POST /run", {"runID": "run-000007"})
    stub.on("POST /login", {"authorization": "token"})
    stub.on("POST /pipeline", {"pipelineID": "ppl-000001", "pipelineVersionID": "1", "name": "hello"})
    stub.on("POST /pipeline/ppl-000001", {"pipelineID": "ppl-000001", "pipelineVersionID": "2"})
    started = made.submit(pf, {"a": 1}, disabled=[made.entry_points["Process"].full_name], fs_name="main")
    assert started.id == "run-000007"
    body = stub.requests[-1].body
    assert (body["parameters"], body["disabled"], body["fsName"]) == ({"a": 1}, "Process", "main")
    assert base64.b64decode(body["runYamlRaw"]).decode() == (
        "docker_env: i\nentry_points:\n  Process:\n    command: x\n    type: step\nname: hello\n"
    )
    host, _, port = stub.url.removeprefix("http://").partition(":")
    ini = tmp_path / "paddleflow.ini"
    ini.write_text(
        "[user]\nname = root\npassword = x\n"
        f"[server]\npaddleflow_server_host = {host}\npaddleflow_server_port = {port}\n"
    )
    assert made.run(str(ini), run_name="n", disabled=["PF-ENTRY-POINT.Process"]) == (True, "run-000007")
    assert stub.requests[-1].body["disabled"] == "Process"
    assert made.create(str(ini)) == (True, {"name": "hello", "pplID": "ppl-000001", "pplVerID": "1"})
    assert made.update("ppl-000001", str(ini), desc="d") == (
        True,
        {"pipelineID": "ppl-000001", "pipelineVersionID": "2"},
    )


def test_a_repetition_is_known_by_its_name_in_the_document() -> None:
    inner = {"train": [step("init")], "train-2": [step("init")]}
    found = views({"each": [{"entryPoints": inner}], "last-1": [step("init")]})
    for name, wanted in {
        "each.train": "each.train",
        "each-3.train-1": "each.train",
        "each.train-2": "each.train-2",
        "last-1": "last-1",
        "last-1-4": "last-1",
        "unknown": "unknown",
    }.items():
        assert written_name(name, found) == wanted
