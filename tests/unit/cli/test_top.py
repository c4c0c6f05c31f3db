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


def test_who_may_not_see_nodes_sees_queues_and_jobs(stub: Stub, shell: Shell) -> None:
    stub.refuse("GET /cluster/resource", 403, "AccessDenied", "user[bob] may not call GET /cluster/resource")
    prepared(stub)
    shown = shell("top").stdout
    assert shown.startswith("Queues\n")
    assert "Running" in shown
    assert "Nodes" not in shown


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


def test_a_part_of_a_log_is_asked_of_the_server(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/j", {"id": "j", "status": "succeeded", "attempt": 2})
    stub.on("GET /job/j/log", Answer(b"3\n4"))
    words = ("job", "logs", "j", "--member", "worker-1", "--tail", "2", "--since", "10m", "--try", "2")
    assert shell(*words).stdout == "3\n4"
    assert stub.requests[0].query == {
        "task": "worker-1", "offset": "0", "follow": "false", "try": "2", "tailLines": "2", "sinceSeconds": "600.0",
    }  # fmt: skip
    assert "is not of the form" in shell("job", "logs", "j", "--since", "soon", code=2).stderr


def test_a_watched_list_outlives_a_restart_of_the_server(
    stub: Stub, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.on("GET /job", {"jobList": [RUNNING]}, *[Answer({"message": "starting"}, 503)] * 2, {"jobList": [PENDING]})
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if pauses.count(2.0) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    done = shell("job", "list", "-w", "-o", "name", code=130)
    assert done.stdout.split() == ["job-1", "job-2"]
    assert "starting; trying again" in done.stderr


def test_usage_of_one_job(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/job-1", RUNNING)
    stub.on("GET /statistics/job/job-1", {"metricsInfo": {"cpu_usage_rate": "1.00%"}})
    assert shell("job", "top", "job-1", "-o", "name").stdout == "job-1\n"
    assert "/job" not in [seen.path for seen in stub.requests]


def test_usage_of_a_job_fits_a_terminal(stub: Stub, shell: Shell) -> None:
    stub.on("GET /statistics/job/job-1", {"metricsInfo": {"cpu_usage_rate": "1.00%", "gpu_util": ""}})
    assert shell("statistics", "job", "job-1").stdout == snapshot("""\
CPU usage rate:  1.00%
GPU util:        -
""")


def test_what_a_change_would_do_is_in_units_for_people(stub: Stub, shell: Shell) -> None:
    def side(wait: float, use: float) -> dict[str, object]:
        queue = {"name": "q", "jobs": 3, "meanWait": wait, "p90Wait": wait, "meanCompletion": 70.0, "use": use}
        return {"queues": [queue], "fairness": 1.0, "use": use, "victims": 0}

    answer = {"begins": "b", "now": "n", "cycles": 2, "before": side(12.3, 0.41), "after": side(260.0, 0.38)}
    stub.on("POST /queue/whatif", answer)
    assert shell("queue", "whatif", "--queue", "q,maxcpu=1").stdout == snapshot("""\
QUEUE  JOBS  MEAN WAIT     P90 WAIT      MEAN COMPLETION  USE         PREEMPTED  LOST
q      3     12s -> 4m20s  12s -> 4m20s  1m10s            41% -> 38%  0          0s
fairness: 1.00
use: 41% -> 38%
preempted: 0
""")
