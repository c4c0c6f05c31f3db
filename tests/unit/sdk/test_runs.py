"""Runs, pipelines, schedules, artifacts and caches of the client: which request each call makes, what comes back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.runs import Run
from tests.client_stub import Stub

Call = Callable[[PaddleFlow], Any]
Line = tuple[str, str, dict[str, str], Any]
TEXT = base64.b64encode(b"name: x").decode()


def run(pf: PaddleFlow) -> Run:
    return pf.runs.handle("run-000001")


#: call → its request
CALLS: dict[str, tuple[Call, Line]] = {
    "run create": (
        lambda pf: pf.runs.create(
            yaml="name: x",
            name="n",
            desc="d",
            fs="f",
            user="alice",
            parameters={"a": 1},
            disabled=["a", "b.c"],
            docker_env="i",
            strategy="continue",
            breakpoints=["b"],
        ),
        (
            "POST",
            "/run",
            {},
            {
                "fsName": "f",
                "username": "alice",
                "name": "n",
                "desc": "d",
                "parameters": {"a": 1},
                "dockerEnv": "i",
                "disabled": "a,b.c",
                "failureOptions": {"strategy": "continue"},
                "runYamlRaw": TEXT,
                "breakpoints": ["b"],
            },
        ),
    ),
    "run of a registered pipeline": (
        lambda pf: pf.runs.create(pipeline="ppl-000001", version="2"),
        ("POST", "/run", {}, {"pipelineID": "ppl-000001", "pipelineVersionID": "2"}),
    ),
    "run of a file": (
        lambda pf: pf.runs.create(fs="f", path="a/run.yaml"),
        ("POST", "/run", {}, {"fsName": "f", "runYamlPath": "a/run.yaml"}),
    ),
    "runjson": (lambda pf: pf.runs.create_json({"entryPoints": {}}), ("POST", "/runjson", {}, {"entryPoints": {}})),
    "run page": (
        lambda pf: pf.runs.page(user="u", fs="f", run="r", name="n", status="running,failed", max_keys=5, marker="m"),
        (
            "GET",
            "/run",
            {
                "userFilter": "u",
                "fsFilter": "f",
                "runFilter": "r",
                "nameFilter": "n",
                "statusFilter": "running,failed",
                "marker": "m",
                "maxKeys": "5",
            },
            None,
        ),
    ),
    "run stop": (
        lambda pf: run(pf).stop(force=True),
        ("PUT", "/run/run-000001", {"action": "stop"}, {"stopForce": True}),
    ),
    "run retry": (lambda pf: run(pf).retry(), ("PUT", "/run/run-000001", {"action": "retry"}, None)),
    "run retry from": (
        lambda pf: run(pf).retry("a.b"),
        ("PUT", "/run/run-000001", {"action": "retry"}, {"fromStep": "a.b"}),
    ),
    "run breakpoint": (
        lambda pf: run(pf).pause_before("a", "b"),
        ("PUT", "/run/run-000001", {"action": "breakpoint"}, {"add": ["a", "b"], "remove": []}),
    ),
    "run no breakpoint": (
        lambda pf: run(pf).clear_breakpoints("a"),
        ("PUT", "/run/run-000001", {"action": "breakpoint"}, {"add": [], "remove": ["a"]}),
    ),
    "run resume": (lambda pf: run(pf).resume(), ("PUT", "/run/run-000001", {"action": "resume"}, None)),
    "run resume one": (
        lambda pf: run(pf).resume("a"),
        ("PUT", "/run/run-000001", {"action": "resume"}, {"step": "a"}),
    ),
    "run diff": (
        lambda pf: run(pf).diff(pf.runs.handle("run-000002")),
        ("GET", "/run/run-000001/diff", {"with": "run-000002"}, None),
    ),
    "run graph": (lambda pf: run(pf).graph("svg"), ("GET", "/run/run-000001/graph", {"format": "svg"}, None)),
    "run delete": (
        lambda pf: run(pf).delete(check_cache=False),
        ("DELETE", "/run/run-000001", {}, {"checkCache": False}),
    ),
    "run log": (
        lambda pf: pf.logs.run("run-000001", job="j", page_no=2, page_size=10, position="begin"),
        (
            "GET",
            "/log/run/run-000001",
            {"jobID": "j", "pageNo": "2", "pageSize": "10", "logFilePosition": "begin"},
            None,
        ),
    ),
    "pipeline create": (
        lambda pf: pf.pipelines.create(yaml=b"name: x", desc="d", user="alice"),
        ("POST", "/pipeline", {}, {"yamlRaw": TEXT, "desc": "d", "username": "alice"}),
    ),
    "pipeline update": (
        lambda pf: pf.pipelines.update("ppl-000001", fs="f", path="p"),
        ("POST", "/pipeline/ppl-000001", {}, {"fsName": "f", "yamlPath": "p"}),
    ),
    "pipeline get": (
        lambda pf: pf.pipelines.get("ppl-000001"),
        ("GET", "/pipeline/ppl-000001", {"maxKeys": "1"}, None),
    ),
    "pipeline list": (
        lambda pf: list(pf.pipelines.list(user="u", name="n")),
        ("GET", "/pipeline", {"userFilter": "u", "nameFilter": "n", "maxKeys": "500"}, None),
    ),
    "pipeline versions": (
        lambda pf: list(pf.pipelines.versions("ppl-000001", fs="f")),
        ("GET", "/pipeline/ppl-000001", {"fsFilter": "f", "maxKeys": "500"}, None),
    ),
    "pipeline version": (
        lambda pf: pf.pipelines.version("ppl-000001", "1"),
        ("GET", "/pipeline/ppl-000001/1", {}, None),
    ),
    "pipeline delete": (lambda pf: pf.pipelines.delete("p"), ("DELETE", "/pipeline/p", {}, None)),
    "pipeline version delete": (
        lambda pf: pf.pipelines.delete_version("p", "2"),
        ("DELETE", "/pipeline/p/2", {}, None),
    ),
    "schedule create": (
        lambda pf: pf.schedules.create(
            "nightly",
            "ppl-000001",
            "1",
            "@daily",
            start_time="2027-01-01 00:00:00",
            concurrency=0,
            concurrency_policy="skip",
            expire_interval=60,
            catchup=False,
            timezone="Europe/Berlin",
            user="alice",
            desc=None,
        ),
        (
            "POST",
            "/schedule",
            {},
            {
                "name": "nightly",
                "pipelineID": "ppl-000001",
                "pipelineVersionID": "1",
                "crontab": "@daily",
                "startTime": "2027-01-01 00:00:00",
                "concurrency": 0,
                "concurrencyPolicy": "skip",
                "expireInterval": 60,
                "catchup": False,
                "timezone": "Europe/Berlin",
                "username": "alice",
            },
        ),
    ),
    "schedule page": (
        lambda pf: pf.schedules.page(user="u", pipeline="p", version="v", schedule="s", name="n", status="running"),
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
                "maxKeys": "500",
            },
            None,
        ),
    ),
    "schedule runs": (
        lambda pf: list(pf.schedules.runs("s", status="failed")),
        ("GET", "/schedule/s", {"statusFilter": "failed", "maxKeys": "500"}, None),
    ),
    "schedule stop": (lambda pf: pf.schedules.stop("s"), ("PUT", "/schedule/s", {"action": "stop"}, None)),
    "schedule pause": (lambda pf: pf.schedules.pause("s"), ("PUT", "/schedule/s", {"action": "pause"}, None)),
    "schedule resume": (lambda pf: pf.schedules.resume("s"), ("PUT", "/schedule/s", {"action": "resume"}, None)),
    "schedule next": (lambda pf: pf.schedules.next("s", 3), ("GET", "/schedule/s/next", {"count": "3"}, None)),
    "schedule delete": (lambda pf: pf.schedules.delete("s"), ("DELETE", "/schedule/s", {}, None)),
    "artifact list": (
        lambda pf: list(pf.artifacts.list(user="u", fs="f", run="r", type="output", path="p")),
        (
            "GET",
            "/artifact",
            {
                "userFilter": "u",
                "fsFilter": "f",
                "runFilter": "r",
                "typeFilter": "output",
                "pathFilter": "p",
                "maxKeys": "500",
            },
            None,
        ),
    ),
    "artifact lineage": (
        lambda pf: pf.artifacts.lineage("f", "p"),
        ("GET", "/artifact/lineage", {"fsname": "f", "path": "p"}, None),
    ),
    "artifact delete": (
        lambda pf: pf.artifacts.delete("f", "r", "p", user="alice"),
        ("DELETE", "/artifact", {"username": "alice", "fsname": "f", "runID": "r", "path": "p"}, None),
    ),
    "cache list": (
        lambda pf: list(pf.caches.list(user="u", fs="f", run="r")),
        ("GET", "/runCache", {"userFilter": "u", "fsFilter": "f", "runFilter": "r", "maxKeys": "500"}, None),
    ),
    "cache get": (lambda pf: pf.caches.get("cch-000001"), ("GET", "/runCache/cch-000001", {}, None)),
    "cache delete": (lambda pf: pf.caches.delete("cch-000001"), ("DELETE", "/runCache/cch-000001", {}, None)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_makes_one_request(stub: Stub, pf: PaddleFlow, name: str) -> None:
    call, line = CALLS[name]
    stub.on(f"{line[0]} {line[1]}", {"runID": "run-000002"})
    call(pf)
    assert stub.lines() == [line]


@pytest.mark.parametrize("area", ["runs", "artifacts", "caches", "schedules"])
def test_a_misspelt_filter_is_refused_before_it_lists_everything(stub: Stub, pf: PaddleFlow, area: str) -> None:
    with pytest.raises(TypeError, match=r"keyword\[usr\] is not one of user, "):
        list(getattr(pf, area).list(usr="alice"))
    assert stub.requests == []
