"""Secrets over REST: set, listed without values, deleted; jobs name them and their logs hide them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddleflow.access.secrets import MOST_SECRETS
from paddleflow.api.platform import Platform, Streaming
from paddleflow.store.database import Database, Tx
from paddleflow.store.statements import Statement
from tests.api.client import Api
from tests.api.workshop import TINY, Workshop, until

pytestmark = pytest.mark.usefixtures("ready")

VALUE = "hf_0123456789"
JOB = {"id": "one", "command": "x", "flavour": TINY}


async def rows(database: Database, table: str) -> list[dict[str, Any]]:
    text = f"select * from {table}"

    def read(tx: Tx) -> list[dict[str, Any]]:
        return tx.all(Statement("all", "Everything.", text, text))

    return await database.read(read)


async def test_a_secret_is_set_listed_changed_and_deleted(alice: Api, bob: Api, root: Api) -> None:
    (await alice.put("/secret/HF_TOKEN", {"value": VALUE})).ok()
    (await alice.put("/secret/HF_TOKEN", {"value": "another"})).ok()
    (listed,) = (await alice.get("/secret")).ok()["secretList"]
    assert listed.keys() == {"name", "createTime", "updateTime"}
    for other in (bob, root):
        assert (await other.get("/secret")).ok()["secretList"] == []
    (await bob.delete("/secret/HF_TOKEN")).refused(404, "SecretNotFound")
    (await alice.delete("/secret/HF_TOKEN")).ok()
    assert (await alice.get("/secret")).ok()["secretList"] == []


async def test_secrets_that_are_refused(alice: Api) -> None:
    for name, value in (("a%20b", "x"), ("-a", "x"), ("A", ""), ("A", "x" * 65537)):
        refused = (await alice.put(f"/secret/{name}", {"value": value})).refused(400, "InvalidArguments")
        assert len(refused["message"]) < 400
    (await alice.with_token("").get("/secret")).refused(401, "AuthWithoutToken")


async def test_there_are_only_so_many(alice: Api) -> None:
    for number in range(MOST_SECRETS):
        (await alice.put(f"/secret/A{number}", {"value": "x"})).ok()
    refused = (await alice.put("/secret/B", {"value": "x"})).refused(400, "SecretOverQuota")
    assert f"{MOST_SECRETS} secrets" in refused["message"]
    (await alice.put("/secret/A0", {"value": "y"})).ok()


async def test_no_table_answer_or_event_holds_a_value(
    alice: Api, root: Api, platform: Platform, workshop: Workshop
) -> None:
    (await alice.put("/secret/HF_TOKEN", {"value": VALUE})).ok()
    job = {**JOB, "secrets": ["HF_TOKEN", {"name": "HF_TOKEN", "file": "token"}]}
    (await alice.post("/job/single", job)).ok()
    async with workshop.open(platform):
        shown = await until(alice, "one", "running")
    (launch,) = workshop.runtime.cluster.launched
    assert (launch.secret_env, launch.secret_files) == ({"HF_TOKEN": VALUE}, {"token": VALUE})
    assert VALUE not in repr(launch)
    assert VALUE not in launch.env.values()
    assert shown["secrets"] == [{"name": "HF_TOKEN", "env": "HF_TOKEN"}, {"name": "HF_TOKEN", "file": "token"}]
    await platform.audit.flush()
    for table in ("jobs", "tasks", "events", "audit", "secrets", "job_secrets"):
        found = await rows(platform.database, table)
        assert found
        assert VALUE not in json.dumps(found, default=str)
    audited = (await root.get("/audit")).ok()["auditList"]
    assert ("PUT", "/secret/HF_TOKEN") in [(entry["method"], entry["path"]) for entry in audited]


@pytest.mark.parametrize("streaming", [Streaming(log_chunk=1), Streaming(log_chunk=7), Streaming()])
async def test_logs_hide_what_the_job_was_given(alice: Api, platform: Platform, workshop: Workshop) -> None:
    """Also when the secret has another value by now, and wherever the log is cut."""
    (await alice.put("/secret/HF_TOKEN", {"value": VALUE})).ok()
    (await alice.post("/job/single", {**JOB, "secrets": ["HF_TOKEN"]})).ok()
    text = f"a {VALUE} b\n".encode() * 20
    hidden = text.replace(VALUE.encode(), b"*" * len(VALUE))
    async with workshop.open(platform):
        await until(alice, "one", "running")
        (await alice.put("/secret/HF_TOKEN", {"value": "another"})).ok()
        workshop.say("one.worker-0.1", text + VALUE.encode()[:6])
        assert (await alice.get("/job/one/log")).body == hidden, "the beginning of a value waits for its rest"
        workshop.say("one.worker-0.1", VALUE.encode()[6:])
        workshop.finish("one.worker-0.1")
        await until(alice, "one", "succeeded")
    (await alice.delete("/secret/HF_TOKEN")).ok()
    hidden += b"*" * len(VALUE)
    assert (await alice.get("/job/one/log")).body == hidden
    found = (await alice.get("/log/job", jobID="one")).ok()["taskList"][0]["logInfo"]["logContent"]
    assert found.encode() == hidden
    for offset in (5, -5):
        assert (await alice.get("/job/one/log", offset=offset)).body == hidden[offset:]
    (await alice.delete("/job/one")).ok()
    assert await rows(platform.database, "job_secrets") == []


async def test_a_job_whose_secret_does_not_exist_is_refused(alice: Api, bob: Api) -> None:
    (await bob.put("/secret/HF_TOKEN", {"value": VALUE})).ok()
    job = {"command": "x", "flavour": TINY, "secrets": ["HF_TOKEN"]}
    refused = (await alice.post("/job/single", job)).refused(404, "SecretNotFound")
    assert "secret[HF_TOKEN] does not exist for user[alice]" in refused["message"]
    for wrong, words in (
        (["a-b"], "write a-b=VARIABLE"),
        (["A", "B=A"], "variable[A] is given twice"),
        ([{"name": "A", "file": "../x"}], "file name[../x] is invalid"),
    ):
        answer = (await alice.post("/job/single", {**job, "secrets": wrong})).refused(400, "JobInvalidField")
        assert words in answer["message"]
    both = {**job, "env": {"HF_TOKEN": "x"}}
    assert "is set by env as well" in (await bob.post("/job/single", both)).refused(400, "JobInvalidField")["message"]


async def test_a_job_whose_secret_was_deleted_before_it_started_fails(
    alice: Api, platform: Platform, workshop: Workshop
) -> None:
    (await alice.put("/secret/A", {"value": VALUE})).ok()
    (await alice.post("/job/single", {**JOB, "secrets": ["A"]})).ok()
    (await alice.delete("/secret/A")).ok()
    async with workshop.open(platform):
        shown = await until(alice, "one", "failed")
    assert "secret[A] was deleted before the job started" in shown["message"]
