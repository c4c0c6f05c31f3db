"""`queue tree`, the warnings of `queue create`, and `job why`, as they are printed."""

from __future__ import annotations

import json

from inline_snapshot import snapshot

from paddleflow.cli.queue import ORDERS
from paddleflow.scheduling import rules
from paddleflow.spec import queue as documents
from tests.client_stub import Shell, Stub


def queue(name: str, parent: str = "root", **fields: object) -> dict[str, object]:
    return {
        "name": name,
        "parent": parent,
        "weight": 1,
        "order": "fifo",
        "status": "open",
        "minResources": {"cpu": "1", "memory": "0"},
        "maxResources": {"cpu": "8", "memory": "16Gi"},
        "usedTogether": {"cpu": "500m", "memory": "1Gi"},
        **fields,
    }


def test_the_words_of_an_order_are_the_scheduler_s() -> None:
    assert rules.ORDERS == ORDERS == tuple(documents.ORDERS)


def test_the_tree_is_drawn(stub: Stub, shell: Shell) -> None:
    gpus = {"cpu": "8", "memory": "16Gi", "scalarResources": {"nvidia.com/gpu": "4"}}
    rows = [
        queue("default-queue"),
        queue("dev", "lab", order="fair", weight=2),
        queue("lab", maxResources=gpus),
        queue("train", "lab", status="closed"),
        queue("mine", "theirs"),
    ]
    stub.on("GET /queue", {"queueList": rows})
    assert shell("queue", "tree").stdout == snapshot("""\
root              guaranteed / used / maximum
├─ default-queue  cpu 1 / 500m / 8, memory 0 B / 1 GiB / 16 GiB, weight 1, fifo
├─ lab            cpu 1 / 500m / 8, memory 0 B / 1 GiB / 16 GiB, nvidia.com/gpu 0 / 0 / 4, weight 1, fifo
│  ├─ dev         cpu 1 / 500m / 8, memory 0 B / 1 GiB / 16 GiB, weight 2, fair
│  └─ train       cpu 1 / 500m / 8, memory 0 B / 1 GiB / 16 GiB, weight 1, fifo, closed
└─ theirs
   └─ mine        cpu 1 / 500m / 8, memory 0 B / 1 GiB / 16 GiB, weight 1, fifo
""")
    (first, *_) = json.loads(shell("queue", "tree", "-o", "json").stdout)
    assert first == rows[0]
    assert stub.lines()[0] == ("GET", "/queue", {"maxKeys": "500", "usage": "true"}, None)


def test_a_tree_that_goes_round_is_drawn_to_its_end(stub: Stub, shell: Shell) -> None:
    stub.on("GET /queue", {"queueList": [queue("a", "b"), queue("b", "a"), queue("c", "c")]})
    assert shell("queue", "tree").stdout.startswith("root")


def test_warnings_go_to_standard_error(stub: Stub, shell: Shell) -> None:
    stub.on("POST /queue", {"name": "q", "warnings": ["too much"]})
    stub.on("PUT /queue/q", {"name": "q", "warnings": ["still too much"]})
    made = shell("queue", "create", "q", "default", "4", "8Gi")
    assert (made.stdout, made.stderr) == ("queue[q] create success\n", "warning: too much\n")
    assert shell("queue", "update", "q", "--weight", "2").stderr == "warning: still too much\n"


WHY = {
    "id": "job-1",
    "status": "pending",
    "queue": "dev",
    "code": "quota",
    "text": "queue lab has cpu 1 of 4 free, the job needs 2",
    "causes": [
        {"code": "quota", "text": "queue lab has cpu 1 of 4 free, the job needs 2"},
        {"code": "busy", "text": "the only node has cpu 1 free, the job needs 2"},
    ],
    "suggestions": [{"code": "queue", "text": "in queue default-queue it starts now", "queue": "default-queue"}],
}


def test_why_says_all_that_is_in_the_way(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/job-1/why", WHY)
    assert shell("job", "why", "job-1").stdout == snapshot("""\
job-1 is pending in queue dev
  quota: queue lab has cpu 1 of 4 free, the job needs 2
also blocked by:
  busy: the only node has cpu 1 free, the job needs 2
suggestions:
  in queue default-queue it starts now
""")
    assert json.loads(shell("job", "why", "job-1", "--json").stdout) == WHY
    text = shell("job", "why", "job-1", "-o", "text").stdout
    assert text == "job-1\tpending\tquota\tqueue lab has cpu 1 of 4 free, the job needs 2\n"


def test_why_of_a_job_that_runs(stub: Stub, shell: Shell) -> None:
    stub.on("GET /job/job-1/why", {"id": "job-1", "status": "running", "queue": "q", "code": "running", "text": "runs"})
    assert shell("job", "why", "job-1").stdout == "job-1 is running in queue q\n  running: runs\n"


def test_why_of_a_job_that_ended(stub: Stub, shell: Shell) -> None:
    ended = {"status": "failed", "queue": "q", "code": "ended", "text": "ended at 2026-11-19 06:13:11, failed: \x1b[2J"}
    stub.on("GET /job/job-1/why", {"id": "job-1", **ended})
    assert shell("job", "why", "job-1").stdout == ("job-1 in queue q ended at 2026-11-19 06:13:11, failed: \\x1b[2J\n")


def test_long_values_of_a_difference_are_below_each_other(stub: Stub, shell: Shell) -> None:
    long = "python train.py --epochs {} --learning-rate 0.001 --output /data/models"
    steps = {"train": {"command": [long.format(3), long.format(5)], "seconds": [1, 2]}}
    stub.on("GET /run/run-000002", {"runID": "run-000002"})
    stub.on("GET /run/run-000001/diff", {"steps": steps})
    assert shell("run", "diff", "1", "2").stdout == snapshot("""\
steps:
  train:
    command:
      - python train.py --epochs 3 --learning-rate 0.001 --output /data/models
      + python train.py --epochs 5 --learning-rate 0.001 --output /data/models
    seconds: 1 → 2
""")
