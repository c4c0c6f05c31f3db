"""Statistics: what jobs use as text and over time, card time of queues, and the metrics of queues and jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paddleflow.access import grants
from paddleflow.api.job_metrics import JobMetrics, WaitingMetrics
from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock, local_text
from paddleflow.runtimes.log_store import Sample, TaskAddress
from paddleflow.runtimes.usage import METRICS
from paddleflow.server.readiness import ReadinessMetrics, database_check
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until

pytestmark = pytest.mark.usefixtures("ready")

GPU = "nvidia.com/gpu"
BEGAN = 1_700_000_000.0


def card(number: object = 1) -> dict[str, Any]:
    return {"command": "x", "flavour": {**TINY, "scalarResources": {GPU: number}}}


async def runs(
    client: Api, platform: Platform, workshop: Workshop, clock: ManualClock, job: str, seconds: float
) -> None:
    """Let a job run for so long."""
    async with workshop.open(platform):
        shown = await until(client, job, "running")
        clock.advance(seconds)
        for member in shown["members"]:
            for index in range(member["replicas"]):
                workshop.finish(f"{job}.{member['role']}-{index}.1")
        await until(client, job, "succeeded")


# ---- what a job uses -----------------------------------------------------------------------------------------------


async def used(client: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> str:
    """A gang of two, of which samples of 100 seconds are kept."""
    members = [{"role": "worker", "replicas": 2, "command": "x", "flavour": {"cpu": "1", "mem": "1000"}}]
    job: str = (await client.post("/job/distributed", {"framework": "paddle", "members": members})).ok()["id"]
    await runs(client, platform, workshop, clock, job, 100)
    for index in range(2):
        task = TaskAddress(job, "worker", index)
        for second in range(0, 101, 10):
            sample = Sample(BEGAN + second, second * (index + 1) / 4, 250 * (index + 1), disk_read=second * 5)
            await workshop.runtime.samples.append({task: sample})
    return job


async def test_the_latest_values_with_units(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    job = await used(alice, platform, workshop, clock)
    info = (await alice.get(f"/statistics/job/{job}")).ok()["metricsInfo"]
    assert set(info) == set(METRICS)
    assert info["cpu_usage_rate"] == "37.50%"
    assert info["memory_usage_rate"] == "37.50%"
    assert info["memory_usage"] == "750(Bytes)"
    assert info["disk_read_rate"] == "10.00(B/s)"
    assert info["gpu_util"] == info["net_send_bytes"] == ""


async def test_values_over_time(alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> None:
    job = await used(alice, platform, workshop, clock)
    whole = (await alice.get(f"/statistics/jobDetail/{job}")).ok()
    assert whole["truncated"] is False
    assert [task["taskName"] for task in whole["result"]] == ["worker-0", "worker-1"]
    series = {item["metric"]: item["values"] for item in whole["result"][1]["taskInfo"]}
    assert series["memory_usage"] == [[BEGAN, 500.0], [BEGAN + 60, 500.0]]
    assert series["cpu_usage_rate"] == [[BEGAN, 50.0], [BEGAN + 60, 50.0]]
    fine = (await alice.get(f"/statistics/jobDetail/{job}", step=10, start=int(BEGAN) + 50)).ok()["result"][0]
    assert [at - BEGAN for at, _ in fine["taskInfo"][0]["values"]] == [50, 60, 70, 80, 90]
    long_ago = (await alice.get(f"/statistics/jobDetail/{job}", start=int(BEGAN) - 5000, step=1)).ok()
    assert long_ago["truncated"] is True
    assert all(not item["values"] for task in long_ago["result"] for item in task["taskInfo"])
    wide = (await alice.get(f"/statistics/jobDetail/{job}", end=int(BEGAN) + 10**6, step=1)).ok()
    assert wide["truncated"] is True
    assert max(len(item["values"]) for task in wide["result"] for item in task["taskInfo"]) <= 1000


async def test_a_job_without_samples_has_no_figures(alice: Api) -> None:
    job = (await alice.post("/job/single", card())).ok()["id"]
    assert set((await alice.get(f"/statistics/job/{job}")).ok()["metricsInfo"].values()) == {""}
    assert (await alice.get(f"/statistics/jobDetail/{job}")).ok() == {"result": [], "truncated": False}


@pytest.mark.parametrize("query", [{"start": 20, "end": 10}, {"step": 0}, {"start": "x"}, {"end": "nan"}])
async def test_bad_periods(alice: Api, query: dict[str, object]) -> None:
    job = (await alice.post("/job/single", card())).ok()["id"]
    (await alice.get(f"/statistics/jobDetail/{job}", **query)).refused(400, "InvalidURI")


# ---- card time -----------------------------------------------------------------------------------------------------


async def test_card_time(
    alice: Api, root: Api, platform: Platform, workshop: Workshop, clock: ManualClock, database: Database
) -> None:
    period = {"startTime": local_text(BEGAN), "endTime": local_text(BEGAN + 10 * 3600)}
    job = (await alice.post("/job/single", card(2))).ok()["id"]
    await runs(alice, platform, workshop, clock, job, 3599)  # 2 x 0.9997 h
    plain = (await alice.post("/job/single", {"command": "x", "flavour": TINY})).ok()["id"]
    await runs(alice, platform, workshop, clock, plain, 60)
    member = {"role": "worker", "replicas": 2, **card(1)}
    gang = (await root.post("/job/distributed", {"framework": "paddle", "members": [member]})).ok()["id"]
    await runs(root, platform, workshop, clock, gang, 1800)
    running = (await root.post("/job/single", card(1))).ok()["id"]
    async with workshop.open(platform):
        await until(root, running, "running")
    clock.advance(900)

    mine = (await alice.get("/statistics/cardTime/default-queue", **period)).ok()
    assert (mine["queueName"], mine["cardTime"], mine["deviceType"]) == ("default-queue", 1.99, GPU)
    assert mine["detail"] == [
        {
            "userName": "alice",
            "jobCount": 1,
            "totalCardTime": 1.99,
            "jobInfoList": [
                {
                    "jobId": job,
                    "cardTime": 1.99,
                    "createTime": local_text(BEGAN),
                    "startTime": local_text(BEGAN),
                    "finishTime": local_text(BEGAN + 3599),
                    "deviceCount": 2,
                }
            ],
        }
    ]
    body = {**period, "queueNames": ["default-queue", "default-queue"]}
    (all_of_it,) = (await root.post("/statistics/cardTime", body)).ok()["data"]
    assert {user["userName"]: user["totalCardTime"] for user in all_of_it["detail"]} == {"alice": 1.99, "root": 1.25}
    assert all_of_it["cardTime"] == 3.24, "what runs counts up to now, not up to the end of the period"
    part = {"startTime": local_text(BEGAN + 1800), "endTime": local_text(BEGAN + 3600)}
    assert (await root.get("/statistics/cardTime/default-queue", **part)).ok()["cardTime"] == 0.99


async def test_card_time_of_a_job_whose_members_came_and_went(
    alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    member = {"role": "worker", "minReplicas": 1, "maxReplicas": 4, "resize": "inPlace", **card(1)}
    async with workshop.open(platform):
        job = (await alice.post("/job/distributed", {"framework": "pytorch", "members": [member]})).ok()["id"]
        await until(alice, job, "running")
        clock.advance(1800)  # with all four cards
        other = (await alice.post("/job/single", card(3))).ok()["id"]
        await until(alice, other, "running")
        clock.advance(1800)  # with one of them
        period = {"startTime": local_text(BEGAN), "endTime": local_text(BEGAN + 3600)}
        told = (await alice.get("/statistics/cardTime/default-queue", **period)).ok()
    (user,) = told["detail"]
    assert {row["jobId"]: (row["cardTime"], row["deviceCount"]) for row in user["jobInfoList"]} == {
        job: (2.5, 4), other: (1.5, 3)
    }  # fmt: skip


async def test_card_time_of_queues_that_one_may_not_see(alice: Api, root: Api, database: Database) -> None:
    document = {"name": "private", "namespace": "default", "maxResources": {"cpu": "1", "mem": "1Gi"}}
    (await root.post("/queue", document)).ok()
    period = {"startTime": local_text(0.0), "endTime": local_text(BEGAN)}
    for name, status, code in (("private", 403, "AccessDenied"), ("nope", 404, "QueueNameNotFound")):
        (await alice.get(f"/statistics/cardTime/{name}", **period)).refused(status, code)
        (await alice.post("/statistics/cardTime", {**period, "queueNames": [name]})).refused(status, code)
    await database.write(grants.add, "alice", "queue", "private", 0.0)
    assert (await alice.get("/statistics/cardTime/private", **period)).ok() == {
        "queueName": "private", "cardTime": 0.0, "deviceType": "", "detail": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "period",
    [
        {"startTime": "2026-01-02 00:00:00", "endTime": "2026-01-01 00:00:00"},
        {"startTime": "yesterday", "endTime": "2026-01-01 00:00:00"},
        {"startTime": "2026-01-01 00:00:00"},
    ],
)
async def test_periods_that_are_none(alice: Api, period: dict[str, str]) -> None:
    (await alice.get("/statistics/cardTime/default-queue", **period)).refused(400, "InvalidURI")
    body = {**period, "queueNames": ["default-queue"]}
    (await alice.post("/statistics/cardTime", body)).refused(400, "InvalidArguments")


# ---- metrics -------------------------------------------------------------------------------------------------------

Samples = dict[tuple[str, ...], float]


async def scraped(client: Api) -> dict[str, Samples]:
    """Name → label values in the order of their names → value."""
    answer = await client.call("GET", "/metrics", absolute=True)
    assert answer.status == 200
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def test_metrics_of_queues_and_jobs(
    nobody: Api, alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    platform.refresh.append((await JobMetrics.watching(platform.database, platform.registry)).refresh)
    queue = "default-queue"
    whole = {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi", "scalarResources": {GPU: "3"}}}
    first, second, third = [(await alice.post("/job/single", whole)).ok()["id"] for _ in range(3)]
    async with workshop.open(platform):
        await until(alice, first, "running")
        await until(alice, third, "pending")
        found = await scraped(nobody)
        info = found["pf_metric_queue_info"]
        assert {kind: info[queue, "cpu", kind] for kind in ("max", "min", "used", "idle")} == {
            "max": 8, "min": 0, "used": 8, "idle": 0,
        }  # fmt: skip
        assert info[queue, "memory", "idle"] == 15 * 2**30
        assert (info[queue, GPU, "used"], info[queue, GPU, "idle"]) == (3, 1)
        assert found["pf_metric_jobs"] == {(queue, "running"): 1, (queue, "pending"): 2}
        assert "pf_metric_job_time_count" not in found
        assert found["pf_metric_held"] == {
            (queue, "cpu", "alice"): 8, (queue, "memory", "alice"): 2**30, (queue, GPU, "alice"): 3,
        }  # fmt: skip
        assert "pf_metric_resource_seconds_total" not in found

        (await alice.put(f"/job/{third}", action="stop")).ok()
        clock.advance(50)
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, second, "running")
        for _ in range(2):  # each job is counted once, however often one looks
            found = await scraped(nobody)
            assert found["pf_metric_jobs_ended_total"] == {(queue, "succeeded"): 1, (queue, "terminated"): 1}
            assert found["pf_metric_job_time_count"] == {(queue, "waiting"): 2, (queue, "running"): 1}
            assert found["pf_metric_job_time_sum"] == {(queue, "waiting"): 0, (queue, "running"): 50}
            buckets = found["pf_metric_job_time_bucket"]
            assert (buckets["10.0", queue, "running"], buckets["60.0", queue, "running"]) == (0, 1)
        clock.advance(7)
        workshop.finish(f"{second}.worker-0.1", 1)
        await until(alice, second, "failed")
    found = await scraped(nobody)
    assert found["pf_metric_jobs_ended_total"][queue, "failed"] == 1
    assert found["pf_metric_job_time_sum"] == {(queue, "waiting"): 50, (queue, "running"): 57}
    assert found["pf_metric_queue_info"][queue, "cpu", "used"] == 0
    assert "pf_metric_held" not in found
    assert found["pf_metric_resource_seconds_total"][queue, GPU, "alice"] == 3 * 57, "card time"
    assert found["pf_metric_resource_seconds_total"][queue, "cpu", "alice"] == 8 * 57
    assert "pf_metric_jobs" not in found, "a gauge without jobs is not there"


async def test_metrics_say_why_jobs_wait(nobody: Api, alice: Api, platform: Platform, workshop: Workshop) -> None:
    whole = {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi"}}
    async with workshop.open(platform):

        async def waiting() -> dict[tuple[str, str, str], int]:
            assert workshop.engine is not None
            return {("default-cluster", *key): jobs for key, jobs in (await workshop.engine.waiting()).items()}

        platform.refresh.append(WaitingMetrics(platform.registry, waiting).refresh)
        first, *_, last = [(await alice.post("/job/single", whole)).ok()["id"] for _ in range(3)]
        await until(alice, first, "running")
        await until(alice, last, "pending")
        found = await scraped(nobody)
        assert found["pf_metric_jobs_waiting"] == {("default-cluster", "default-queue", "quota"): 2}


async def test_metrics_answer_while_the_database_does_not(nobody: Api, platform: Platform, database: Database) -> None:
    platform.refresh.append((await JobMetrics.watching(database, platform.registry)).refresh)
    assert "pf_metric_queue_info" in await scraped(nobody)
    await database.close()
    found = await scraped(nobody)
    assert "pf_metric_queue_info" not in found
    assert "pf_metric_api_duration_millisecond_count" in found


BOARDS = sorted((Path(__file__).resolve().parents[2] / "deploy" / "helm" / "paddleflow" / "boards").glob("*.json"))
_SELECTOR = re.compile(r"(\bpf_\w+)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "le"}  #: labels that Prometheus adds, or that buckets have


async def test_every_expression_of_the_boards_names_metrics_that_servers_export(
    nobody: Api, alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock
) -> None:
    platform.refresh.append((await JobMetrics.watching(platform.database, platform.registry)).refresh)
    every = {"database": database_check(platform.database)}
    platform.refresh.append(ReadinessMetrics(platform.registry, every).refresh)
    whole = {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi", "scalarResources": {GPU: "3"}}}
    first, _, third = [(await alice.post("/job/single", whole)).ok()["id"] for _ in range(3)]
    async with workshop.open(platform):

        async def waiting() -> dict[tuple[str, str, str], int]:
            assert workshop.engine is not None
            return {("default-cluster", *key): jobs for key, jobs in (await workshop.engine.waiting()).items()}

        platform.refresh.append(WaitingMetrics(platform.registry, waiting).refresh)
        await until(alice, third, "pending")
        await until(alice, first, "running")
        clock.advance(50)
        workshop.finish(f"{first}.worker-0.1")
        await until(alice, first, "succeeded")
        answer = await nobody.call("GET", "/metrics", absolute=True)
    exported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    for board in BOARDS:
        document = json.loads(board.read_text("utf-8"))
        said = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
        said += [each["query"] for each in document["templating"]["list"] if each["type"] == "query"]
        for expression in said:
            named = _SELECTOR.findall(expression)
            assert named, expression
            known = set[str](OF_PROMETHEUS)
            for metric, selector in named:
                assert metric in exported, f"{board.name}: {expression}"
                labels = set(re.findall(r"(\w+)\s*[=!]~?", selector))
                assert labels <= exported[metric], f"{board.name}: {expression}"
                known |= exported[metric]
            for grouping in _GROUPING.findall(expression):
                assert {label.strip() for label in grouping.split(",")} <= known, f"{board.name}: {expression}"
    assert len(BOARDS) == 2
