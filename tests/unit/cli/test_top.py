"""`top`, `job top`, `job list -w` and `job logs --tail`."""

from __future__ import annotations

import json
import time

import pytest
from inline_snapshot import snapshot

from tests.client_stub import Answer, Shell, Stub

NODE = {"nodeName": "n1", "total": {"cpu": "4", "memory": "8Gi"}, "idle": {"cpu": "1", "memory": "8Gi"}}
RUNNING = {"id": "job-1", "name": "train", "UserName": "ann", "schedulingPolicy": {"queue": "q"}, "status": "running"}
PENDING = {**RUNNING, "id": "job-2", "status": "pending", "message": "queue q has cpu 1 of 4 free, the job needs 2"}


def prepared(stub: Stub) -> None:
    stub.on("GET /cluster/resource", {"lab": {"nodeList": [NODE]}})
    queue = {"name": "q", "status": "open", "usedResources": {"cpu": "3"}, "maxResources": {"cpu": "4"}}
    stub.on("GET /queue", {"queueList": [queue]})
    stub.on("GET /job", {"jobList": [RUNNING]}, {"jobList": [PENDING]})


def test_one_screen(stub: Stub, shell: Shell) -> None:
    prepared(stub)
    assert shell("top").stdout == snapshot("""\
Nodes
NODE  CLUSTER  TOTAL                FREE
n1    lab      cpu 4, memory 8 GiB  cpu 1, memory 8 GiB

Queues
QUEUE  STATUS  GUARANTEE  USED   MAXIMUM
q      open    -          cpu 3  cpu 4

Running
ID     NAME   USER  QUEUE  TIME
job-1  train  ann   q

Pending
ID     NAME   USER  AGE  REASON
job-2  train  ann        queue q has cpu 1 of 4 free, the job needs 2
""")
    assert [seen.query.get("status") for seen in stub.requests if seen.path == "/job"] == ["running", "pending"]


def test_the_screen_for_programs(stub: Stub, shell: Shell) -> None:
    prepared(stub)
    found = json.loads(shell("top", "-o", "json").stdout)
    assert (found["running"], found["pending"], found["queues"][0]["name"]) == ([RUNNING], [PENDING], "q")


def test_usage_of_running_jobs(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job", {"jobList": [RUNNING, {**RUNNING, "id": "job-3"}]})
    stub.on(
        "GET /statistics/job/job-1", {"metricsInfo": {"cpu_usage_rate": "93.10%", "memory_usage": "3145728(Bytes)"}}
    )
    assert shell("job", "top").stdout == snapshot("""\
ID     NAME   USER  CPU     MEMORY  TIME
job-1  train  ann   93.10%  3 MiB
job-3  train  ann   -       -
""")
    assert json.loads(shell("job", "top", "--json").stdout)[0]["cpu_usage_rate"] == "93.10%"


def test_a_list_that_is_watched_is_shown_again(stub: Stub, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.on("GET /job", {"jobList": [RUNNING]}, {"jobList": [PENDING]})
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    printed = shell("job", "list", "-w", "-u", "ann", "-o", "name", code=130).stdout
    assert printed.split() == ["job-1", "job-2"]
    assert stub.requests[0].query["userFilter"] == "ann"


def test_the_last_lines(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/j", {"id": "j", "status": "succeeded"})
    stub.on("GET /job/j/log", Answer(b"1\n2\n3\n4"))
    assert shell("job", "logs", "j", "--tail", "2").stdout == "3\n4"
    assert shell("job", "logs", "j", "--tail", "2", "-f").stdout == "2\n3\n4", "the last one was not whole yet"
    assert shell("job", "logs", "j", "--tail", "0").stdout == ""
