"""The calls of `paddleflow.Client` for runs, pipelines and schedules: the request each makes, and what scripts unpack."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from paddleflow.sdk.legacy import Client, PaddleFlowSDKException
from tests.client_stub import Stub

Call = Callable[[Client], Any]
Line = tuple[str, str, dict[str, str], Any]
PAGE: dict[str, Any] = {"maxKeys": 100, "isTruncated": True, "nextMarker": "m2"}
TEXT = base64.b64encode(b"name: x").decode()

RUN = {
    "runID": "run-000001",
    "fsName": "main",
    "username": "alice",
    "status": "succeeded",
    "name": "hello",
    "description": "d",
    "updateTime": "u",
    "source": "s",
    "runMsg": "Run successfully",
    "scheduleID": "",
    "scheduledTime": "",
    "createTime": "c",
    "activateTime": "a",
}
STEP = {
    "name": "run-000001-train",
    "deps": "",
    "parameters": {"epoch": "5"},
    "command": "train",
    "env": {},
    "status": "succeeded",
    "startTime": "1",
    "endTime": "2",
    "dockerEnv": "i",
    "jobID": "job-1",
    "type": "step",
    "stepName": "train",
    "parentDagID": "",
    "extraFS": None,
    "artifacts": {"input": {}, "output": {"model": "p"}},
    "cache": {"enable": False, "maxExpiredTime": "-1", "fsScope": None},
    "jobMessage": "",
    "cacheRunID": "",
    "cacheJobID": "",
}
DAG = {
    "id": "dag-1",
    "name": "n",
    "type": "dag",
    "dagName": "each",
    "status": "succeeded",
    "entryPoints": {"train": [STEP]},
}
ARTIFACT = {
    "runID": "run-000001",
    "fsname": "main",
    "username": "alice",
    "artifactPath": "p",
    "step": "train",
    "jobID": "job-1",
    "type": "output",
    "artifactName": "model",
    "meta": "",
    "createTime": "c",
    "updateTime": "u",
}
CACHE = {"cacheID": "cch-000001", "firstFp": "f", "secondFp": "s", "runID": "r", "jobID": "j", "expiredTime": "-1"}
PIPELINE = {"pipelineID": "ppl-000001", "name": "hello", "desc": "d", "username": "alice"}
VERSION = {"pipelineVersionID": "1", "pipelineID": "ppl-000001", "fsName": "main", "pipelineYaml": "y"}
SCHEDULE = {"scheduleID": "schedule-000001", "name": "nightly", "options": {"catchup": False}, "scheduleMsg": "m"}

#: call → request, answer, what is looked at of the payload, and its value
FOUND: dict[str, tuple[Call, Line, Any, Callable[[Any], Any], Any]] = {
    "create_run": (
        lambda c: c.create_run(
            "main", "alice", "n", "d", "p", b"name: x", "ppl", "1", {"a": 1}, "x,y", "i", {"strategy": "continue"}
        ),
        (
            "POST",
            "/run",
            {},
            {
                "fsName": "main",
                "username": "alice",
                "name": "n",
                "desc": "d",
                "runYamlPath": "p",
                "runYamlRaw": TEXT,
                "pipelineID": "ppl",
                "pipelineVersionID": "1",
                "parameters": {"a": 1},
                "disabled": "x,y",
                "dockerEnv": "i",
                "failureOptions": {"strategy": "continue"},
            },
        ),
        {"runID": "run-000001"},
        lambda p: p,
        "run-000001",
    ),
    "list_run": (
        lambda c: c.list_run("main", "alice", "r", "n", "active", 10, "m"),
        (
            "GET",
            "/run",
            {
                "userFilter": "alice",
                "fsFilter": "main",
                "runFilter": "r",
                "nameFilter": "n",
                "statusFilter": "active",
                "maxKeys": "10",
                "marker": "m",
            },
            None,
        ),
        {"runList": [RUN], **PAGE},
        lambda p: (p["runList"][0].run_id, p["runList"][0].run_msg, p["runList"][0].runtime, p["nextMarker"]),
        ("run-000001", "Run successfully", None, "m2"),
    ),
    "show_run": (
        lambda c: c.show_run("run-000001"),
        ("GET", "/run/run-000001", {}, None),
        {**RUN, "runtime": {"train": [STEP], "each": [DAG]}, "postProcess": {"mail": STEP}, "runYaml": "y"},
        lambda p: (
            p.runtime["train"][0].get_dict(),
            p.runtime["each"][0].entry_points["train"][0].job_id,
            p.runtime["each"][0].get_dict()["dagID"],
            p.post_process["mail"].job_id,
            p.run_yaml,
        ),
        ({**STEP, "extraFS": []}, "job-1", "dag-1", "job-1", "y"),
    ),
    "retry_run": (
        lambda c: c.retry_run("run-000001"),
        ("PUT", "/run/run-000001", {"action": "retry"}, None),
        {"runID": "run-000002"},
        lambda p: p,
        "run-000002",
    ),
    "list_artifact": (
        lambda c: c.list_artifact("u", "f", "r", "output", "p", 5, "m"),
        (
            "GET",
            "/artifact",
            {
                "userFilter": "u",
                "fsFilter": "f",
                "runFilter": "r",
                "typeFilter": "output",
                "pathFilter": "p",
                "maxKeys": "5",
                "marker": "m",
            },
            None,
        ),
        {"artifactEventList": [ARTIFACT], **PAGE},
        lambda p: (p["artifactList"][0].type, p["artifactList"][0].step, p["nextMarker"]),
        ("output", "train", "m2"),
    ),
    "list_cache": (
        lambda c: c.list_cache("u", "f", "r", 5, "m"),
        (
            "GET",
            "/runCache",
            {"userFilter": "u", "fsFilter": "f", "runFilter": "r", "maxKeys": "5", "marker": "m"},
            None,
        ),
        {"runCacheList": [CACHE], **PAGE},
        lambda p: (p["runCacheList"][0].first_fp, p["nextMarker"]),
        ("f", "m2"),
    ),
    "show_cache": (
        lambda c: c.show_cache("cch-000001"),
        ("GET", "/runCache/cch-000001", {}, None),
        CACHE,
        lambda p: (p.cache_id, p.second_fp, p.expired_time),
        ("cch-000001", "s", "-1"),
    ),
    "show_log": (
        lambda c: c.show_log("run-000001", "job-1", 10, 2, "begin"),
        (
            "GET",
            "/log/run/run-000001",
            {"jobID": "job-1", "pageNo": "2", "pageSize": "10", "logFilePosition": "begin"},
            None,
        ),
        {
            "submitLog": "s",
            "runID": "run-000001",
            "runLog": [
                {
                    "jobID": "job-1",
                    "taskList": [{"taskID": "t", "logInfo": {"logContent": "x", "hasNextPage": True}}],
                }
            ],
        },
        lambda p: (p["submitLog"], [tuple(vars(one).values()) for one in p["runLog"]]),
        ("s", [("run-000001", "job-1", "t", True, False, 10, 2, "x")]),
    ),
    "create_pipeline": (
        lambda c: c.create_pipeline("main", "p", "d", "alice"),
        ("POST", "/pipeline", {}, {"fsName": "main", "yamlPath": "p", "desc": "d", "username": "alice"}),
        {"pipelineID": "ppl-000001", "pipelineVersionID": "1", "name": "hello"},
        lambda p: p,
        {"name": "hello", "pplID": "ppl-000001", "pplVerID": "1"},
    ),
    "list_pipeline": (
        lambda c: c.list_pipeline("u", "n", 5, "m"),
        ("GET", "/pipeline", {"userFilter": "u", "nameFilter": "n", "maxKeys": "5", "marker": "m"}, None),
        {"pipelineList": [PIPELINE], **PAGE},
        lambda p: (p["pipelineList"][0].pipeline_id, p["nextMarker"]),
        ("ppl-000001", "m2"),
    ),
    "show_pipeline": (
        lambda c: c.show_pipeline("ppl-000001", "main", 5, "m"),
        ("GET", "/pipeline/ppl-000001", {"fsFilter": "main", "maxKeys": "5", "marker": "m"}, None),
        {"pipeline": PIPELINE, "pplVersions": {"pplVersionList": [VERSION], **PAGE}},
        lambda p: (p["pipelineInfo"].name, p["pipelineVersionList"][0].pipeline_yaml, p["nextMarker"]),
        ("hello", "y", "m2"),
    ),
    "update_pipeline": (
        lambda c: c.update_pipeline("ppl-000001", yaml_raw=b"name: x"),
        ("POST", "/pipeline/ppl-000001", {}, {"yamlRaw": TEXT}),
        {"pipelineID": "ppl-000001", "pipelineVersionID": "2"},
        lambda p: p,
        {"pipelineID": "ppl-000001", "pipelineVersionID": "2"},
    ),
    "show_pipeline_version": (
        lambda c: c.show_pipeline_version("ppl-000001", "1"),
        ("GET", "/pipeline/ppl-000001/1", {}, None),
        {"pipeline": PIPELINE, "pipelineVersion": VERSION},
        lambda p: (p["pipelineInfo"].name, p["pipelineVersionInfo"].fs_name),
        ("hello", "main"),
    ),
    "create_schedule": (
        lambda c: c.create_schedule("nightly", "ppl-000001", "1", "@daily", catchup=False, concurrency=0),
        (
            "POST",
            "/schedule",
            {},
            {
                "name": "nightly",
                "pipelineID": "ppl-000001",
                "pipelineVersionID": "1",
                "crontab": "@daily",
                "catchup": False,
                "concurrency": 0,
            },
        ),
        {"scheduleID": "schedule-000001"},
        lambda p: p,
        "schedule-000001",
    ),
    "list_schedule": (
        lambda c: c.list_schedule("u", "p", "v", "s", "n", "running", "m", 5),
        (
            "GET",
            "/schedule",
            {
                "userFilter": "u",
                "pplFilter": "p",
                "pplVersionFilter": "v",
                "scheduleFilter": "s",
                "nameFilter": "n",
                "statusFilter": "running",
                "marker": "m",
                "maxKeys": "5",
            },
            None,
        ),
        {"scheduleList": [SCHEDULE], **PAGE},
        lambda p: (p["scheduleList"][0].schedule_id, p["scheduleList"][0].message, p["nextMarker"]),
        ("schedule-000001", "m", "m2"),
    ),
    "show_schedule": (
        lambda c: c.show_schedule("schedule-000001", "r", "failed", "m", 5),
        (
            "GET",
            "/schedule/schedule-000001",
            {"runFilter": "r", "statusFilter": "failed", "marker": "m", "maxKeys": "5"},
            None,
        ),
        {**SCHEDULE, "runs": {"runList": [RUN], **PAGE}},
        lambda p: (p["scheduleInfo"].options, p["runList"][0].run_id, p["nextMarker"]),
        ({"catchup": False}, "run-000001", "m2"),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_call_returns_what_scripts_unpack(stub: Stub, client: Client, name: str) -> None:
    call, line, answer, look, wanted = FOUND[name]
    stub.on(f"{line[0]} {line[1]}", answer)
    ok, payload = call(client)
    assert (ok, look(payload)) == (True, wanted)
    assert stub.lines() == [line]


DONE: dict[str, tuple[Call, Line]] = {
    "stop_run": (lambda c: c.stop_run("r", True), ("PUT", "/run/r", {"action": "stop"}, {"stopForce": True})),
    "delete_run": (lambda c: c.delete_run("r"), ("DELETE", "/run/r", {}, {"checkCache": True})),
    "delete_run, no check": (lambda c: c.delete_run("r", False), ("DELETE", "/run/r", {}, {"checkCache": False})),
    "delete_cache": (lambda c: c.delete_cache("x"), ("DELETE", "/runCache/x", {}, None)),
    "delete_pipeline": (lambda c: c.delete_pipeline("p"), ("DELETE", "/pipeline/p", {}, None)),
    "delete_pipeline_version": (
        lambda c: c.delete_pipeline_version("p", "1"),
        ("DELETE", "/pipeline/p/1", {}, None),
    ),
    "stop_schedule": (lambda c: c.stop_schedule("s"), ("PUT", "/schedule/s", {"action": "stop"}, None)),
    "delete_schedule": (lambda c: c.delete_schedule("s"), ("DELETE", "/schedule/s", {}, None)),
}


@pytest.mark.parametrize("name", DONE)
def test_what_is_done_returns_true_and_none(stub: Stub, client: Client, name: str) -> None:
    call, line = DONE[name]
    stub.on(f"{line[0]} {line[1]}", None)
    assert call(client) == (True, None)
    assert stub.lines() == [line]


def test_a_document_must_be_bytes(client: Client) -> None:
    with pytest.raises(PaddleFlowSDKException, match="runYamlRaw must be bytes"):
        client.create_run(run_yaml_raw="name: x")  # type: ignore[arg-type]


def test_arguments_keep_their_names_and_order() -> None:
    wanted: dict[Callable[..., Any], str] = {
        Client.create_run: "fs_name username run_name desc run_yaml_path run_yaml_raw pipeline_id pipeline_version_id "
        "param disabled docker_env failure_options",
        Client.list_run: "fs_name username run_id run_name status maxsize marker",
        Client.create_pipeline: "fs_name yaml_path desc username yaml_raw",
        Client.update_pipeline: "pipeline_id fs_name yaml_path username desc yaml_raw",
        Client.create_schedule: "name pipeline_id pipeline_version_id crontab desc start_time end_time concurrency "
        "concurrency_policy expire_interval catchup username",
        Client.list_schedule: "user_filter ppl_filter ppl_version_filter schedule_filter name_filter status_filter "
        "marker max_keys",
        Client.list_artifact: "user_filter fs_filter run_filter type_filter path_filter maxkeys marker",
        Client.show_log: "run_id job_id page_size page_no log_file_position",
    }
    for method, names in wanted.items():
        assert list(inspect.signature(method).parameters)[1:] == names.split()
