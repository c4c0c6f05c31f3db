"""Jobs: submitting them in every way, and finding them again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddleflow.access import grants
from paddleflow.api.platform import Platform
from paddleflow.base.clock import ManualClock, local_text
from paddleflow.queues.queues import usage_by_queue
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until

pytestmark = pytest.mark.usefixtures("ready")

JOB = {"command": "true", "flavour": TINY}
WORKERS = {"role": "worker", "replicas": 2, "command": "train", "flavour": TINY}
GANG = {"framework": "paddle", "members": [WORKERS]}


async def ids(client: Api, **query: object) -> list[str]:
    return [job["id"] for job in (await client.get("/job", **query)).ok()["jobList"]]


# ---- submitting ----------------------------------------------------------------------------------------------------


async def test_a_field_of_the_wrong_shape_is_said_without_names_of_classes(alice: Api) -> None:
    wrong = {"command": 3, "args": ["x", {}], "flavour": "flavour1", "labels": ["a"], "extraFS": {}}
    refused = (await alice.post("/job/single", wrong)).refused(400, "JobInvalidField")
    assert [(fault["where"], fault["message"]) for fault in refused["details"]] == [
        ("labels", "expected an object, found a list"),
        ("flavour", 'expected an object, found "flavour1"'),
        ("extraFS", "expected a list, found an object"),
        ("command", "expected a text or a list, found 3"),
        ("args[1]", "input should be a valid string, found an object"),
    ]


async def test_a_single_job_shows_what_was_asked_for(alice: Api) -> None:
    document = {
        "name": "first",
        "labels": {"team": "blue"},
        "annotations": {"note": "n"},
        "schedulingPolicy": {"queue": "default-queue", "priority": "high"},
        "flavour": {"name": "flavour1"},
        "limitFlavour": {"name": "flavour2"},
        "image": "paddle:3.3",
        "env": {"A": "1"},
        "command": "echo",
        "args": ["x"],
        "port": 80,
    }
    job = (await alice.post("/job/single", document)).ok()["id"]
    shown = (await alice.get(f"/job/{job}")).ok()
    for key in ("name", "labels", "annotations", "limitFlavour", "image", "env", "command", "args", "port"):
        assert shown[key] == document[key]
    assert shown["flavour"] == {"name": "flavour1", "cpu": "1", "mem": "1Gi", "scalarResources": {}}
    assert shown["schedulingPolicy"] == {"queue": "default-queue", "priority": "HIGH"}
    assert (shown["UserName"], shown["framework"], shown["status"]) == ("alice", "standalone", "init")
    assert (shown["acceptTime"], shown["startTime"], shown["finishTime"]) == (local_text(1_700_000_000.0), "", "")
    assert [member["role"] for member in shown["members"]] == ["worker"]
    assert "runtime" not in shown


async def test_a_single_job_runs(alice: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> None:
    job = (await alice.post("/job/single", {**JOB, "flavour": {**TINY, "scalarResources": {"nvidia.com/gpu": 2}}})).ok()["id"]  # fmt: skip
    async with workshop.open(platform):
        shown = await until(alice, job, "running")
        assert shown["runtime"]["status"] == "running"
        assert shown["runtime"]["nodeName"] == "memory"
        assert shown["runtime"]["acceleratorCards"] == "0,1"
        assert (await platform.database.read(usage_by_queue))["default-queue"].cpu == 100
        clock.advance(60)
        workshop.finish(f"{job}.worker-0.1", 3)
        shown = await until(alice, job, "failed")
    assert shown["message"] == "the process exited with code 3"
    assert shown["runtime"]["exitCode"] == 3
    assert (shown["startTime"], shown["finishTime"]) == (local_text(1_700_000_000.0), local_text(1_700_000_060.0))
    assert await platform.database.read(usage_by_queue) == {}


async def test_a_gang_runs(alice: Api, platform: Platform, workshop: Workshop) -> None:
    members = [{"role": "pserver", "command": "serve", "flavour": TINY}, WORKERS]
    job = (await alice.post("/job/distributed", {"framework": "paddle", "members": members})).ok()["id"]
    async with workshop.open(platform):
        shown = await until(alice, job, "running")
        runtimes = shown["distributedRuntime"]["runtimes"]
        assert [(task["name"], task["status"]) for task in runtimes] == [
            ("pserver-0", "running"),
            ("worker-0", "running"),
            ("worker-1", "running"),
        ]
        assert runtimes[1]["id"] == f"{job}.worker-0"
        for n in range(2):
            workshop.finish(f"{job}.worker-{n}.1")
        await until(alice, job, "succeeded")


async def test_a_waiting_job_says_why(alice: Api, platform: Platform, workshop: Workshop) -> None:
    full = (await alice.post("/job/single", {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi"}})).ok()["id"]
    async with workshop.open(platform):
        await until(alice, full, "running")
        waits = (await alice.post("/job/single", {"command": "x", "flavour": {"cpu": "8", "mem": "1Gi"}})).ok()["id"]
        shown = await until(alice, waits, "pending")
        assert "cpu" in shown["message"]
        assert shown["message"] == (await alice.get("/job")).ok()["jobList"][0]["message"]
        workshop.finish(f"{full}.worker-0.1")
        await until(alice, waits, "running")


async def test_a_workflow_cannot_run_here(alice: Api) -> None:
    answer = (await alice.post("/job/workflow", {})).refused(400, "JobInvalidField")
    assert "ExtensionTemplate for workflow job is needed, and now is empty" in answer["message"]
    (await alice.post("/job/workflow", {"extensionTemplate": {"kind": "Workflow"}})).refused(400, "JobInvalidField")
    assert await ids(alice) == []


async def test_ids_chosen_by_the_caller(alice: Api, bob: Api) -> None:
    assert (await alice.post("/job/single", {**JOB, "id": "mine"})).ok() == {"id": "mine"}
    for client in (alice, bob):
        answer = (await client.post("/job/single", {**JOB, "id": "mine"})).refused(409, "DuplicatedName")
        assert answer["details"][0]["where"] == "id"
    (await alice.post("/job/distributed", {**GANG, "id": "mine"})).refused(409, "DuplicatedName")
    answer = (await alice.post("/job/single", {**JOB, "id": "No Label"})).refused(400, "JobInvalidField")
    assert "ID[No Label] of Job is invalid, err: a lowercase RFC 1123 label must " in answer["message"]


async def test_queues_are_for_those_who_may_use_them(root: Api, alice: Api, database: Database) -> None:
    document = {"name": "private", "namespace": "default", "maxResources": {"cpu": "1", "mem": "1Gi"}}
    (await root.post("/queue", document)).ok()
    job = {**JOB, "schedulingPolicy": {"queue": "private"}}
    (await alice.post("/job/single", job)).refused(403, "AccessDenied")
    await database.write(grants.add, "alice", "queue", "private", 0.0)
    (await alice.post("/job/single", job)).ok()
    big = {**job, "flavour": {"cpu": "2", "mem": "1Gi"}}
    answer = (await alice.post("/job/single", big)).refused(400, "JobInvalidField")
    assert "the flavour[cpu: 2, mem: 1Gi] is larger than queue's [cpu: 1, mem: 1Gi]" in answer["message"]
    (await root.put("/queue/private", {"status": "closed"})).ok()
    (await alice.post("/job/single", job)).refused(400, "InvalidState")
    (await alice.post("/job/single", {**JOB, "schedulingPolicy": {"queue": "nope"}})).refused(400, "QueueNameNotFound")


@pytest.mark.usefixtures("bob")
async def test_storages_are_resolved_for_the_caller(
    root: Api, alice: Api, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = [tmp_path_factory.mktemp(name) for name in ("a", "b")]
    (await root.post("/fs", {"name": "team", "url": f"local://{folders[0]}", "username": "bobby"})).ok(201)
    (await root.post("/fs", {"name": "team", "url": f"local://{folders[1]}"})).ok(201)
    job = {**JOB, "fs": {"name": "team"}}
    answer = (await alice.post("/job/single", job)).refused(400, "JobInvalidField")
    assert answer["details"][0]["where"] == "fs.name"
    await database.write(grants.add, "alice", "fs", "fs-bobby-team", 0.0)
    shown = (await alice.get("/job/" + (await alice.post("/job/single", job)).ok()["id"])).ok()
    assert shown["fs"]["mountPath"] == "/home/paddleflow/storage/mnt/fs-bobby-team"
    await database.write(grants.add, "alice", "fs", "fs-root-team", 0.0)
    answer = (await alice.post("/job/single", job)).refused(400, "JobInvalidField")
    assert "fs-bobby-team, fs-root-team" in answer["hint"]


async def test_a_deep_template_breaks_no_list(alice: Api) -> None:
    deep: dict[str, Any] = {"kind": "Pod", "spec": {"containers": [{"command": ["true"]}]}}
    for _ in range(90):
        deep = {**deep, "metadata": deep} if "metadata" not in deep else {"x": deep, **deep}
    (await alice.post("/job/single", {"extensionTemplate": deep, "flavour": TINY})).ok()
    assert (await alice.get("/job")).ok()["jobList"][0]["extensionTemplate"] == deep


# ---- batches -------------------------------------------------------------------------------------------------------


async def test_a_batch_is_in_order(alice: Api) -> None:
    made = (await alice.post("/job/batch", {"jobs": [{**JOB, "id": "x"}, JOB, {**JOB, "name": "z"}]})).ok()["ids"]
    assert made[0] == "x"
    assert await ids(alice) == made[::-1]


async def test_a_batch_is_accepted_as_a_whole_or_not_at_all(alice: Api) -> None:
    jobs: list[dict[str, Any]] = [dict(JOB) for _ in range(20)]
    jobs[17] = {**JOB, "flavour": {"cpu": "1.5.2", "mem": "1Gi"}}
    jobs[3] = {**JOB, "schedulingPolicy": {"queue": "nope"}, "command": ""}
    answer = (await alice.post("/job/batch", {"jobs": jobs})).refused(400, "QueueNameNotFound")
    assert {fault["where"] for fault in answer["details"]} == {
        "jobs[3].schedulingPolicy.queue",
        "jobs[3].command",
        "jobs[17].flavour.cpu",
    }
    assert "jobs[17].flavour.cpu: quantity '1.5.2'" in answer["message"]
    jobs[5] = {**JOB, "port": -1}
    answer = (await alice.post("/job/batch", {"jobs": jobs})).refused(400, "JobInvalidField")
    assert [fault["where"] for fault in answer["details"]] == ["jobs[5].port"]
    assert await ids(alice) == []


async def test_ids_of_a_batch_are_new_and_different(alice: Api) -> None:
    (await alice.post("/job/single", {**JOB, "id": "taken"})).ok()
    jobs = [JOB, {**JOB, "id": "taken"}, {**JOB, "id": "twice"}, {**JOB, "id": "twice"}]
    answer = (await alice.post("/job/batch", {"jobs": jobs})).refused(409, "DuplicatedName")
    assert [(fault["where"], fault["message"]) for fault in answer["details"]] == [
        ("jobs[1].id", "job[taken] exists already"),
        ("jobs[3].id", "job[twice] is listed twice"),
    ]
    assert await ids(alice) == ["taken"]


async def test_a_batch_of_bad_jobs_does_not_answer_with_a_book(alice: Api) -> None:
    answer = await alice.post("/job/batch", {"jobs": [{**JOB, "command": ""}] * 3000})
    assert len(answer.refused(400, "JobInvalidField")["details"]) == 100
    assert len(answer.body) < 50_000
    (await alice.post("/job/batch", {"jobs": []})).refused(400, "JobInvalidField")


# ---- lists ---------------------------------------------------------------------------------------------------------


async def test_pages_are_newest_first_and_neither_repeat_nor_lose(alice: Api, bob: Api) -> None:
    made = (await alice.post("/job/batch", {"jobs": [JOB] * 120})).ok()["ids"]
    (await bob.post("/job/single", JOB)).ok()
    seen: list[str] = []
    marker: dict[str, object] = {}
    sizes = []
    for _ in range(3):
        answer = (await alice.get("/job", maxKeys=50, **marker)).ok()
        seen += [job["id"] for job in answer["jobList"]]
        sizes.append(len(answer["jobList"]))
        assert answer["maxKeys"] == 50
        assert answer["isTruncated"] == ("nextMarker" in answer)
        if not seen[50:]:  # somebody submits while we turn the page
            (await alice.post("/job/single", JOB)).ok()
        marker = {"marker": answer.get("nextMarker", "")}
    assert sizes == [50, 50, 20]
    assert seen == made[::-1]
    exact = (await alice.get("/job", maxKeys=121)).ok()
    assert (len(exact["jobList"]), exact["isTruncated"]) == (121, False)
    (await alice.get("/job", marker="nonsense")).refused(400, "InvalidMarker")


async def test_filters(alice: Api, root: Api, platform: Platform, workshop: Workshop, clock: ManualClock) -> None:
    document = {"name": "other", "namespace": "default", "maxResources": {"cpu": "1", "mem": "1Gi"}}
    (await root.post("/queue", document)).ok()
    a = (await root.post("/job/single", {**JOB, "labels": {"team": "blue", "x": "1"}})).ok()["id"]
    b = (await root.post("/job/single", {**JOB, "labels": {"team": "blue"}})).ok()["id"]
    c = (await root.post("/job/single", {**JOB, "schedulingPolicy": {"queue": "other"}})).ok()["id"]
    clock.advance(100)
    async with workshop.open(platform):
        await until(root, a, "running")
        await until(root, b, "running")
        await until(root, c, "running")
        clock.advance(100)
        workshop.finish(f"{a}.worker-0.1")
        await until(root, a, "succeeded")
    assert await ids(root, status="succeeded") == [a]
    assert await ids(root, status="running, succeeded") == [c, b, a]
    assert await ids(root, status="init") == []
    assert await ids(root, queue="other") == [c]
    assert await ids(root, queue="other,default-queue," + "x," * 3000) == [c, b, a]
    assert await ids(root, labels='{"team": "blue"}') == [b, a]
    assert await ids(root, labels='{"team": "blue", "x": "1"}') == [a]
    assert await ids(root, labels='{"team": "red"}') == []
    assert await ids(root, timestamp=int(clock.now())) == [a]
    assert await ids(root, timestamp=int(clock.now()) - 100) == [c, b, a]
    assert await ids(root, startTime=local_text(clock.now() - 100)) == [c, b, a]
    assert await ids(root, startTime=local_text(clock.now() - 99)) == []
    assert await ids(alice) == []


@pytest.mark.parametrize(
    "query",
    [{"status": "odd"}, {"labels": "[]"}, {"labels": "x"}, {"labels": '{"a": 1}'}, {"timestamp": "x"},
     {"startTime": "yesterday"}, {"maxKeys": 0}, {"maxKeys": 1001}],
)  # fmt: skip
async def test_bad_filters(alice: Api, query: dict[str, object]) -> None:
    answer = (await alice.get("/job", **query)).refused(400, "InvalidURI")
    assert answer["details"][0]["where"] == next(iter(query))


async def test_jobs_belong_to_their_owner_and_root(alice: Api, bob: Api, root: Api) -> None:
    job = (await alice.post("/job/single", JOB)).ok()["id"]
    assert await ids(bob) == []
    assert await ids(root) == await ids(alice) == [job]
    for method, path, query in (
        ("GET", f"/job/{job}", {}),
        ("PUT", f"/job/{job}", {"action": "stop"}),
        ("PUT", f"/job/{job}", {"action": "modify"}),
        ("DELETE", f"/job/{job}", {}),
        ("GET", f"/job/{job}/events", {}),
        ("GET", f"/job/{job}/log", {}),
        ("GET", "/log/job", {"jobID": job}),
        ("GET", f"/statistics/job/{job}", {}),
        ("GET", f"/statistics/jobDetail/{job}", {}),
    ):
        (await bob.call(method, path, query=query)).refused(403, "AccessDenied")
        unknown = {"jobID": "nope"} if query == {"jobID": job} else query
        (await bob.call(method, path.replace(job, "nope"), query=unknown)).refused(404, "JobNotFound")
    (await root.get(f"/job/{job}")).ok()
    (await root.put(f"/job/{job}", action="stop")).ok()


# ---- sizes ---------------------------------------------------------------------------------------------------------


async def test_what_no_process_could_be_started_with_is_refused(alice: Api) -> None:
    long = {**JOB, "env": {"LONG": "x" * (128 * 2**10 - 6)}}
    refused = (await alice.post("/job/single", long)).refused(400, "JobInvalidField")
    assert [fault["where"] for fault in refused["details"]] == ["env.LONG"]
    assert "has 131072 bytes, at most 131071 are possible" in refused["message"]
    many = {**GANG, "members": [{**WORKERS, "env": {f"V{n}": "x" * 60_000 for n in range(5)}}]}
    refused = (await alice.post("/job/distributed", many)).refused(400, "JobInvalidField")
    assert [fault["where"] for fault in refused["details"]] == ["members[0].env"]
    assert "at most 262144 are allowed" in refused["message"]
    (await alice.post("/job/single", {**JOB, "env": {"LONG": "x" * 120_000}})).ok()


async def test_a_job_beyond_the_limit_is_refused_by_itself_and_in_a_batch(alice: Api) -> None:
    large = {**JOB, "args": ["x" * 600_000]}
    refused = (await alice.post("/job/single", large)).refused(400, "JobInvalidField")
    assert "at most 524288 are allowed" in refused["message"]
    refused = (await alice.post("/job/batch", {"jobs": [JOB, large]})).refused(400, "JobInvalidField")
    assert refused["details"][0]["where"].startswith("jobs[1]")
    assert await ids(alice) == []


async def test_a_user_has_one_large_page_at_a_time(alice: Api, bob: Api, platform: Platform) -> None:
    await platform.large_pages.enter("alice")
    async with asyncio.TaskGroup() as group:
        large = group.create_task(alice.get("/job", maxKeys=1000))
        (await alice.get("/job", maxKeys=100)).ok()
        (await bob.get("/job", maxKeys=1000)).ok()
        assert not large.done()
        platform.large_pages.leave("alice")
    large.result().ok()


async def test_a_page_of_large_jobs_has_fewer_of_them_and_none_is_lost(alice: Api) -> None:
    made = [(await alice.post("/job/single", {**JOB, "args": ["x" * 200_000]})).ok()["id"] for _ in range(13)]
    first = (await alice.get("/job", maxKeys=13)).ok()
    assert (len(first["jobList"]), first["isTruncated"]) == (10, True)
    second = (await alice.get("/job", maxKeys=13, marker=first["nextMarker"])).ok()
    assert (len(second["jobList"]), second["isTruncated"]) == (3, False)
    assert [job["id"] for job in (*first["jobList"], *second["jobList"])] == made[::-1]
