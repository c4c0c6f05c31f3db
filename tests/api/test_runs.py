"""The routes of runs, over the real engine on a runtime without processes."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddleflow.api.application import build
from paddleflow.api.peers import Peers
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Route
from paddleflow.base.clock import ManualClock
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.runtimes.memory import EXIT
from paddleflow.store import leases, servers
from paddleflow.store.database import Tx
from paddleflow.store.statements import parse
from tests.api.client import Api
from tests.api.workshop import Workshop, eventually_answers
from tests.client_stub import Answer, Stub

pytestmark = pytest.mark.usefixtures("ready")

GOOD = f"""
name: good
docker_env: x
entry_points:
  a: {{command: 'echo {{{{p}}}}', parameters: {{p: 5}}, env: {{{EXIT}: '0'}}}}
  d:
    deps: a
    loop_argument: [1, 2]
    entry_points:
      b: {{command: 'true', env: {{{EXIT}: '0'}}}}
"""
SQL = parse(
    "test_runs.py",
    "-- name: a_job\n-- One of a run.\nselect min(id) from jobs where run_id = :run\n\n"
    "-- name: move_job\n-- As if it had run on another cluster.\nupdate jobs set cluster = 'other' where id = :id\n",
)
FINAL = {"succeeded", "failed", "terminated", "skipped"}


def raw(yaml: str) -> str:
    return base64.b64encode(yaml.encode()).decode()


async def created(api: Api, yaml: str, **fields: Any) -> str:
    run: str = (await api.post("/run", {"runYamlRaw": raw(yaml), **fields})).ok(201)["runID"]
    return run


async def ended(api: Api, run: str) -> dict[str, Any]:
    return await eventually_answers(api, f"/run/{run}", lambda view: view["status"] in FINAL)


async def test_a_run_from_its_text_to_its_end(alice: Api, platform: Platform, workshop: Workshop) -> None:
    async with workshop.open(platform):
        run = await created(alice, GOOD, name="mine", desc="words", parameters={"a.p": 7})
        view = await ended(alice, run)
    assert run == "run-000001"
    assert (view["name"], view["description"], view["status"]) == ("mine", "words", "succeeded")
    step = view["runtime"]["a"][0]
    assert (step["command"], step["parameters"]) == ("echo 7", {"p": "7"})
    assert step["jobID"].startswith("job-run-000001-a-")
    assert [each["name"] for each in view["runtime"]["d"]] == ["run-000001-d", "run-000001-d-1"]
    inner = view["runtime"]["d"][1]["entryPoints"]["b"][0]
    assert (inner["fullName"], inner["parentDagID"]) == ("d-1.b", view["runtime"]["d"][1]["id"])
    listed = (await alice.get("/run", statusFilter="final")).ok()["runList"]
    assert [each["runID"] for each in listed] == [run]
    assert (await alice.get("/run", statusFilter="active")).ok()["runList"] == []
    wrong = (await alice.get("/run", statusFilter="failed,done")).refused(400, "InvalidURI")
    assert "status[done] is not one of initiating, pending" in str(wrong)
    jobs = (await alice.get("/job")).ok()["jobList"]
    assert {job["status"] for job in jobs} == {"succeeded"}
    assert len(jobs) == 3
    told = (await alice.get(f"/run/{run}/events", follow="false")).body.decode()
    assert told.index('"initiating"') < told.index('"running"') < told.rindex('"succeeded"')
    assert '"step":"d-1.b"' in told


async def test_runs_belong_to_their_owner_and_root(
    alice: Api, bob: Api, root: Api, platform: Platform, workshop: Workshop
) -> None:
    run = await created(alice, GOOD)
    for path in (f"/run/{run}", f"/run/{run}/graph", f"/log/run/{run}", f"/run/{run}/events"):
        (await bob.get(path)).refused(403, "AccessDenied")
    (await bob.put(f"/run/{run}", action="stop")).refused(403, "AccessDenied")
    (await bob.delete(f"/run/{run}")).refused(403, "AccessDenied")
    assert (await bob.get("/run")).ok()["runList"] == []
    assert len((await root.get("/run")).ok()["runList"]) == 1
    (await bob.post("/run", {"runYamlRaw": raw(GOOD), "username": "alice"})).refused(403, "AuthIllegalUser")
    other = (await root.post("/run", {"runYamlRaw": raw(GOOD), "username": "alice"})).ok(201)["runID"]
    assert (await alice.get(f"/run/{other}")).ok()["username"] == "alice"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "InvalidArguments"),
        ({"runYamlRaw": "%%%"}, 400, "Decode base64"),
        ({"runYamlRaw": base64.b64encode(b"\xff\xfe").decode()}, 400, "MalformedYaml"),
        ({"runYamlRaw": raw("a: [")}, 400, "MalformedYaml"),
        ({"runYamlRaw": raw("name: x\nentry_points: {a: {command: x, deps: a}}")}, 400, "InvalidPipeline"),
        ({"runYamlRaw": raw(GOOD), "parameters": {"nothing": 1}}, 400, "InvalidPipeline"),
        ({"runYamlRaw": raw(GOOD), "disabled": "nothing"}, 400, "InvalidPipeline"),
        ({"runYamlRaw": raw(GOOD), "fsName": "nowhere"}, 400, "FileSystemNotExist"),
        ({"runYamlRaw": raw(GOOD), "breakpoints": ["nothing"]}, 400, "InvalidArguments"),
        ({"runYamlRaw": raw(GOOD), "desc": "x" * 2000}, 400, "InvalidArguments"),
        ({"pipelineID": "ppl-000009"}, 404, "PipelineNotFound"),
        ({"fsName": "nowhere", "runYamlPath": "a.yaml"}, 404, "FileSystemNotExist"),
    ],
)
async def test_what_cannot_run_is_refused_and_nothing_is_made(
    alice: Api, body: dict[str, Any], status: int, code: str
) -> None:
    (await alice.post("/run", body)).refused(status, code)
    assert (await alice.get("/run")).ok()["runList"] == []


ASKING = """
name: asking
docker_env: none
fs_options: {extra_fs: [{name: nowhere}]}
disabled: unused
entry_points:
  a: {command: x, queue: default-quue}
  b: {command: x, env: {PF_JOB_FLAVOUR: huge}}
  c: {command: x, parameters: {q: default-queue}, env: {PF_JOB_QUEUE_NAME: '{{q}}'}}
  d:
    entry_points:
      e:
        job: {framework: padle, members: [{role: worker, replicas: 2, command: x}]}
      f:
        job:
          framework: paddle
          members: [{role: wroker, replicas: 2, command: x, flavour: {name: flavor1}}]
  unused: {command: x, queue: nothing}
  h: {reference: {component: shared}}
components:
  shared: {command: x, env: {PF_JOB_FLAVOUR: small}}
post_process:
  g: {command: x, queue: mine}
"""


def _place(word: str) -> str:
    """Line and column of a word that stands once in `ASKING`."""
    before, _, _ = ASKING.partition(word)
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


async def test_everything_that_steps_name_and_is_not_there_is_told_when_the_run_is_made(alice: Api, root: Api) -> None:
    (await root.post("/queue", {"name": "mine", "namespace": "default", "clusterName": "default-cluster",
                                "maxResources": {"cpu": "1", "mem": "1Gi"}})).ok()  # fmt: skip
    answer = await alice.post("/run", {"runYamlRaw": raw(ASKING)})
    answer.refused(400, "InvalidPipeline")
    assert [fault["where"] for fault in answer.json["details"]] == [
        f"{_place(word)} {path}"
        for word, path in {
            "nowhere": "fs_options.extra_fs[0].name",
            "default-quue": "entry_points.a.env.PF_JOB_QUEUE_NAME",
            "huge": "entry_points.b.env.PF_JOB_FLAVOUR",
            "padle": "entry_points.d.entry_points.e.job.framework",
            "{name: flavor1}": "entry_points.d.entry_points.f.job.members[0].flavour",
            "wroker": "entry_points.d.entry_points.f.job.members[0].role",
            "small": "entry_points.h.env.PF_JOB_FLAVOUR",
            "mine": "post_process.g.env.PF_JOB_QUEUE_NAME",
        }.items()
    ]
    told = answer.body.decode()
    for words in (
        "default-queue",
        "framework[padle] is not supported",
        "user[alice] may not use queue[mine]",
        "flavour1",
    ):
        assert words in told
    assert (await alice.get("/run")).ok()["runList"] == []


async def test_a_file_on_a_storage_runs_but_nothing_outside_of_it(root: Api, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "run.yaml").write_text(GOOD)
    (tmp_path / "outside.yaml").write_text(GOOD)
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (await root.post("/fs", {"name": "store", "url": f"local://{folder}"})).ok(201)
    run = (await root.post("/run", {"fsName": "store"})).ok(201)["runID"]
    view = (await root.get(f"/run/{run}")).ok()
    assert (view["source"], view["fsName"], view["fsOptions"]["mainFS"]["id"]) == (
        "./run.yaml",
        "store",
        "fs-root-store",
    )
    for path in ("../outside.yaml", "missing.yaml"):
        (await root.post("/run", {"fsName": "store", "runYamlPath": path})).refused(400, "ReadYamlFileFailed")
    (await root.post("/run", {"fsName": "store", "runYamlPath": "link.yaml"})).refused(403, "AccessDenied")


async def test_a_registered_pipeline_runs_by_its_id(alice: Api) -> None:
    made = (await alice.post("/pipeline", {"yamlRaw": raw(GOOD)})).ok(201)
    run = (await alice.post("/run", {"pipelineID": made["pipelineID"]})).ok(201)["runID"]
    assert (await alice.get(f"/run/{run}")).ok()["source"] == "ppl-000001-1"


async def test_a_pipeline_as_json(alice: Api, platform: Platform, workshop: Workshop) -> None:
    document = {
        "name": "json",
        "description": "words",
        "dockerEnv": "x",
        "entryPoints": {"a": {"command": "true", "env": {EXIT: "0"}}},
    }
    async with workshop.open(platform):
        run = (await alice.post("/runjson", document)).ok(201)["runID"]
        view = await ended(alice, run)
    assert (view["name"], view["description"], view["status"]) == ("json", "words", "succeeded")
    (await alice.post("/runjson", {**document, "desc": "x"})).refused(400, "InvalidPipeline")


async def test_stop_before_anything_began_and_after_the_end(alice: Api, platform: Platform, workshop: Workshop) -> None:
    run = await created(alice, GOOD)
    (await alice.put(f"/run/{run}", action="nonsense")).refused(400, "InvalidArguments")
    (await alice.put(f"/run/{run}", action="retry")).refused(409, "ActionNotAllowed")
    (await alice.delete(f"/run/{run}")).refused(409, "ActionNotAllowed")
    assert (await alice.put(f"/run/{run}", action="stop")).ok() is None
    (await alice.put(f"/run/{run}", action="stop")).refused(409, "ActionNotAllowed")
    async with workshop.open(platform):
        view = await ended(alice, run)
    assert (view["status"], view["runMsg"]) == ("terminated", "stopped by alice")
    assert workshop.runtime.cluster.launched == []
    (await alice.put(f"/run/{run}", action="stop")).refused(409, "ActionNotAllowed")
    assert (await alice.delete(f"/run/{run}")).ok() is None
    (await alice.get(f"/run/{run}")).refused(404, "RunNotFound")


async def test_pictures_of_a_run(alice: Api, platform: Platform, workshop: Workshop) -> None:
    run = await created(alice, GOOD)
    graph = (await alice.get(f"/run/{run}/graph")).ok()
    assert [(node["id"], node["status"], node["parent"]) for node in graph["nodes"]] == [
        ("a", "init", ""),
        ("d", "init", ""),
        ("d.b", "init", "d"),
    ]
    assert graph["edges"] == [["a", "d"]]
    drawn = await alice.get(f"/run/{run}/graph", format="svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.body.startswith(b"<svg")
    text = (await alice.get(f"/run/{run}/graph", format="mermaid")).body.decode()
    assert text.startswith("flowchart LR\n")
    other = await created(alice, GOOD.replace("5", "6"), parameters={"p": 1})
    found = (await alice.get(f"/run/{run}/diff", **{"with": other})).ok()
    assert found["parameters"] == {"p": [None, 1]}
    assert any(line.startswith("+") for line in found["document"])
    (await alice.get(f"/run/{run}/diff", **{"with": "run-000099"})).refused(404, "RunNotFound")


async def test_caches_and_artifacts_of_nobody(alice: Api, root: Api, tmp_path: Path) -> None:
    assert (await alice.get("/runCache")).ok()["runCacheList"] == []
    (await alice.get("/runCache/cch-000001")).refused(404, "RunCacheNotFound")
    (await alice.delete("/runCache/cch-000001")).refused(404, "RunCacheNotFound")
    (await alice.get("/runCache", userFilter="root")).refused(403, "OnlyRootAllowed")
    assert (await alice.get("/artifact")).ok()["artifactEventList"] == []
    (await root.post("/fs", {"name": "store", "url": f"local://{tmp_path}"})).ok(201)
    place = "fsname=store&path=secret"
    (tmp_path / "secret").write_text("no artifact")
    (await root.get(f"/artifact/content?{place}")).refused(404, "ArtifactEventNotFound")
    (await root.get(f"/artifact/lineage?{place}")).refused(404, "ArtifactEventNotFound")
    (await root.delete(f"/artifact?runID=run-000001&{place}")).refused(404, "ArtifactEventNotFound")
    (await alice.get(f"/artifact/content?{place}")).refused(404, "FileSystemNotExist")


def two(first: str, second: str, more: str = "") -> str:
    """Two steps, the second after the first; each with its exit code."""
    return f"""
name: two
docker_env: x
entry_points:
  first: {{command: '{first}', env: {{{EXIT}: '0'}}}}
  second: {{command: '{second}', deps: first, env: {{{EXIT}: '{0 if second == "good" else 1}'}}}}
  beside: {{command: 'true', env: {{{EXIT}: '0'}}}}
{more}"""


async def test_a_retry_with_a_changed_document_runs_what_it_changes(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    async with workshop.open(platform):
        old = await created(alice, two("same", "bad"))
        await ended(alice, old)

        async def retried(document: str) -> tuple[dict[str, Any], dict[str, str]]:
            made = (await alice.put(f"/run/{old}", {"runYamlRaw": raw(document)}, action="retry")).ok()["runID"]
            view = await ended(alice, made)
            return view, {name: views[0]["reusedFrom"] for name, views in view["runtime"].items()}

        view, reused = await retried(two("same", "good"))
        assert (view["status"], view["retryOf"]) == ("succeeded", old)
        assert reused == {"first": old, "second": "", "beside": old}
        assert view["runYaml"] == two("same", "good")
        _, reused = await retried(two("other", "good"))
        assert reused == {"first": "", "second": "", "beside": old}
        view, reused = await retried(two("same", "good", f"  last: {{command: x, env: {{{EXIT}: '0'}}}}\n"))
        assert reused == {"first": old, "second": "", "beside": old, "last": ""}
        refused = await alice.put(f"/run/{old}", {"runYamlRaw": raw("name: [")}, action="retry")
        assert refused.refused(400, "MalformedYaml")


async def test_a_step_that_waits_says_why_and_which_job_it_is(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    """More than the machine has free, while another one holds it."""
    held = "name: big\ndocker_env: x\nentry_points:\n  a: {command: hold, env: {PF_JOB_FLAVOUR: flavour1}}\n"
    wide = "name: wide\ndocker_env: x\nentry_points:\n" + "".join(
        f"  s{n}: {{command: hold, env: {{PF_JOB_FLAVOUR: flavour1}}}}\n" for n in range(12)
    )
    async with workshop.open(platform):
        await created(alice, held)
        run = await created(alice, wide)

        def waits(view: dict[str, Any]) -> bool:
            return any(views[0]["reason"] for views in view["runtime"].values())

        view = await eventually_answers(alice, f"/run/{run}", waits)
        step = next(views[0] for views in view["runtime"].values() if views[0]["reason"])
        assert step["status"] == "pending"
        job = (await alice.get(f"/job/{step['jobID']}")).ok()
        assert step["reason"] == job["message"]


async def test_logs_of_steps_come_from_every_server_that_runs_one(
    alice: Api, platform: Platform, workshop: Workshop, routes: list[Route], clock: ManualClock, stub: Stub
) -> None:
    """The second server stands in for one that runs the cluster of one step."""
    async with workshop.open(platform):
        run = await created(alice, GOOD)
        await ended(alice, run)

    def move(tx: Tx) -> str:
        job = str(tx.value(SQL["a_job"], run=run))
        tx.run(SQL["move_job"], id=job)
        servers.announce(tx, "server-2", stub.url, clock.now())
        leases.acquire(tx, "engine:other", "server-2", clock.now(), 60.0)
        leases.acquire(tx, f"engine:{DEFAULT_CLUSTER}", "server-1", clock.now(), 60.0)
        return job

    moved = await platform.database.write(move)
    log = {"taskID": f"{moved}.worker-0", "logInfo": {"logContent": "x\n", "hasNextPage": False, "truncated": False}}
    there = {"jobID": moved, "name": "n", "type": "single", "taskList": [log], "eventList": []}
    answer = {"submitLog": "", "runID": run, "runLog": [there, {**there, "jobID": "another"}]}
    stub.on(f"GET /log/run/{run}", answer, Answer(drop=True))
    peers = Peers(platform.database, clock, "server-1", DEFAULT_CLUSTER)
    api = Api(build(replace(platform, peers=peers), [routes], ()), routes, alice.token)
    found = (await api.get(f"/log/run/{run}", pageSize=7)).ok()["runLog"]
    assert len(found) == 3, "one entry for each job, those of others left out"
    assert [each for each in found if each["jobID"] == moved] == [there]
    (seen,) = stub.requests
    assert (seen.query, seen.headers["x-pf-forwarded"]) == ({"pageSize": "7"}, "server-1")
    assert seen.headers["x-pf-authorization"] == alice.token
    (await api.get(f"/log/run/{run}", jobID=next(each["jobID"] for each in found if each["jobID"] != moved))).ok()
    assert len(stub.requests) == 1, "a job of this server is nobody else's concern"
    away = (await api.get(f"/log/run/{run}")).refused(503, "InternalError")
    assert "server[server-2]" in away["message"]
