"""The areas of the client: which request each call makes, and what it gives back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import paddleflow
from paddleflow.errors import Invalid, Unauthenticated
from paddleflow.sdk import contexts
from paddleflow.sdk.client import _AREAS, PaddleFlow
from paddleflow.sdk.contexts import Context
from paddleflow.sdk.queues import Queue
from tests.client_stub import Answer, Stub

Call = Callable[[PaddleFlow], Any]
Line = tuple[str, str, dict[str, str], Any]

CALLS: dict[str, tuple[Call, Line]] = {
    "user create": (
        lambda pf: pf.users.create("alice", "secret1"),
        ("POST", "/user", {}, {"username": "alice", "password": "secret1"}),
    ),
    "user password": (
        lambda pf: pf.users.set_password("a/b", "secret1"),
        ("PUT", "/user/a%2Fb", {}, {"password": "secret1"}),
    ),
    "user delete": (lambda pf: pf.users.delete("alice"), ("DELETE", "/user/alice", {}, None)),
    "user page": (
        lambda pf: pf.users.page(max_keys=5, marker="m", name="alice"),
        ("GET", "/user", {"maxKeys": "5", "marker": "m", "user": "alice"}, None),
    ),
    "grant create": (
        lambda pf: pf.grants.create("alice", "team"),
        ("POST", "/grant", {}, {"userName": "alice", "resourceType": "queue", "resourceID": "team"}),
    ),
    "grant delete": (
        lambda pf: pf.grants.delete("alice", "data", resource_type="fs"),
        ("DELETE", "/grant", {"username": "alice", "resourceType": "fs", "resourceID": "data"}, None),
    ),
    "grant list": (
        lambda pf: list(pf.grants.list(user="alice")),
        ("GET", "/grant", {"username": "alice", "maxKeys": "500"}, None),
    ),
    "queue create": (
        lambda pf: pf.queues.create(
            "team",
            "default",
            {"cpu": "4", "mem": "8Gi"},
            cluster="c",
            scheduling_policy=["priority"],
            location={"a": "b"},
        ),
        (
            "POST",
            "/queue",
            {},
            {
                "name": "team",
                "namespace": "default",
                "clusterName": "c",
                "maxResources": {"cpu": "4", "mem": "8Gi"},
                "schedulingPolicy": ["priority"],
                "location": {"a": "b"},
            },
        ),
    ),
    "queue update": (
        lambda pf: pf.queues.update("team", minimum={"cpu": "1"}),
        ("PUT", "/queue/team", {}, {"minResources": {"cpu": "1"}}),
    ),
    "queue in the tree": (
        lambda pf: pf.queues.update("team", parent="lab", weight=2, order="fair"),
        ("PUT", "/queue/team", {}, {"parent": "lab", "weight": 2, "order": "fair"}),
    ),
    "queue usage": (
        lambda pf: list(pf.queues.list(usage=True)),
        ("GET", "/queue", {"maxKeys": "500", "usage": "true"}, None),
    ),
    "job why": (lambda pf: pf.jobs.handle("j").why(), ("GET", "/job/j/why", {}, None)),
    "queue get": (lambda pf: pf.queues.get("team"), ("GET", "/queue/team", {}, None)),
    "flavour create": (
        lambda pf: pf.flavours.create("f", "1", "1Gi", scalars={"nvidia.com/gpu": "1"}),
        ("POST", "/flavour", {}, {"name": "f", "cpu": "1", "mem": "1Gi", "scalarResources": {"nvidia.com/gpu": "1"}}),
    ),
    "flavour update": (lambda pf: pf.flavours.update("f", cpu="2"), ("PUT", "/flavour/f", {}, {"cpu": "2"})),
    "flavour list": (
        lambda pf: list(pf.flavours.list(cluster="c", name="f")),
        ("GET", "/flavour", {"clusterName": "c", "name": "f", "maxKeys": "500"}, None),
    ),
    "cluster create": (
        lambda pf: pf.clusters.create("c", endpoint="e", type="Local", namespaces=["a"], version=None),
        ("POST", "/cluster", {}, {"clusterName": "c", "endpoint": "e", "clusterType": "Local", "namespaceList": ["a"]}),
    ),
    "cluster update": (
        lambda pf: pf.clusters.update("c", status="offline"),
        ("PUT", "/cluster/c", {}, {"status": "offline"}),
    ),
    "cluster list": (
        lambda pf: list(pf.clusters.list(names=["a", "b"], status="online")),
        ("GET", "/cluster", {"clusterNames": "a,b", "clusterStatus": "online", "maxKeys": "500"}, None),
    ),
    "cluster resources": (
        lambda pf: pf.clusters.resources(["a"]),
        ("GET", "/cluster/resource", {"clusterNames": "a"}, None),
    ),
    "cluster allocation": (
        lambda pf: pf.clusters.allocation(names=["a"], queue="q", page_no=1),
        ("POST", "/cluster/resource", {}, {"clusterNames": ["a"], "queueName": "q", "pageNo": 1}),
    ),
    "cluster nodes": (
        lambda pf: pf.clusters.nodes("c", page_no=2),
        ("GET", "/cluster/c/nodeInfos", {"pageNo": "2"}, None),
    ),
    "job page": (
        lambda pf: pf.jobs.page(status="running,failed", queue="q", labels={"a": "b"}, timestamp=5, max_keys=7),
        (
            "GET",
            "/job",
            {"status": "running,failed", "queue": "q", "labels": '{"a": "b"}', "timestamp": "5", "maxKeys": "7"},
            None,
        ),
    ),
    "job stop": (lambda pf: pf.jobs.handle("j").stop(), ("PUT", "/job/j", {"action": "stop"}, None)),
    "job update": (
        lambda pf: pf.jobs.handle("j").update(priority="high", labels={"a": "b"}),
        ("PUT", "/job/j", {"action": "modify"}, {"priority": "high", "labels": {"a": "b"}}),
    ),
    "job delete": (lambda pf: pf.jobs.handle("j").delete(), ("DELETE", "/job/j", {}, None)),
    "log": (
        lambda pf: pf.logs.job("j", read_from_tail=True, line_limit=5, size_limit="1M"),
        ("GET", "/log/job", {"jobID": "j", "readFromTail": "true", "lineLimit": "5", "sizeLimit": "1M"}, None),
    ),
    "statistics": (lambda pf: pf.statistics.job("j"), ("GET", "/statistics/job/j", {}, None)),
    "statistics detail": (
        lambda pf: pf.statistics.detail("j", start=1, end=2, step=3),
        ("GET", "/statistics/jobDetail/j", {"start": "1", "end": "2", "step": "3"}, None),
    ),
    "card time": (
        lambda pf: pf.statistics.card_time(["q"], "a", "b"),
        ("POST", "/statistics/cardTime", {}, {"queueNames": ["q"], "startTime": "a", "endTime": "b"}),
    ),
    "fs create": (
        lambda pf: pf.storages.create("data", "local:///d", properties={"a": "b"}, user="alice"),
        ("POST", "/fs", {}, {"name": "data", "url": "local:///d", "properties": {"a": "b"}, "username": "alice"}),
    ),
    "fs get": (lambda pf: pf.storages.get("data", user="alice"), ("GET", "/fs/data", {"username": "alice"}, None)),
    "fs delete": (lambda pf: pf.storages.delete("data"), ("DELETE", "/fs/data", {}, None)),
    "version": (lambda pf: pf.version(), ("GET", "/version", {}, None)),
    "whoami": (lambda pf: pf.whoami(), ("GET", "/whoami", {}, None)),
    "logout": (lambda pf: pf.logout(), ("POST", "/logout", {}, None)),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_makes_its_request(stub: Stub, pf: PaddleFlow, name: str) -> None:
    call, line = CALLS[name]
    stub.on(f"{line[0]} {line[1]}", {})
    call(pf)
    assert stub.lines() == [line]


def test_a_list_fetches_its_pages_when_they_are_reached(stub: Stub, pf: PaddleFlow) -> None:
    pages = [
        {"queueList": [{"name": "a"}, {"name": "b"}], "isTruncated": True, "nextMarker": "m1"},
        {"queueList": [{"name": "c"}], "isTruncated": True, "nextMarker": "m2"},
        {"queueList": [{"name": "d"}], "isTruncated": False, "nextMarker": "never"},
    ]
    stub.on("GET /queue", *pages)
    found = pf.queues.list()
    assert next(found) == Queue(name="a")
    assert len(stub.requests) == 1
    assert [queue.name for queue in found] == ["b", "c", "d"]
    assert [seen.query.get("marker") for seen in stub.requests] == [None, "m1", "m2"]


def test_storage_lists_say_truncated(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /fs", {"fsList": [{"name": "a"}], "truncated": True, "nextMarker": "2026"}, {"fsList": []})
    assert [storage.name for storage in pf.storages.list()] == ["a"]
    assert len(stub.requests) == 2


def test_a_job_from_keywords(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("POST /job/single", {"id": "x"})
    job = pf.jobs.submit(
        name="train", queue="team", priority="HIGH", command=["a", "b"], env={"A": "1"}, flavour="f1", fs="data", port=0
    )
    body = stub.requests[0].body
    assert job.id == body.pop("id")
    assert job.id.startswith("job-")
    assert len(job.id) == 28
    assert body == {
        "name": "train",
        "schedulingPolicy": {"queue": "team", "priority": "HIGH"},
        "command": ["a", "b"],
        "env": {"A": "1"},
        "flavour": {"name": "f1"},
        "fs": {"name": "data"},
        "port": 0,
    }


def test_keywords_go_over_the_document(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("POST /job/distributed", {"id": "x"})
    document = {"id": "mine", "name": "a", "framework": "paddle", "schedulingPolicy": {"queue": "q", "priority": "LOW"}}
    job = pf.jobs.submit(document, name="b", priority="HIGH", members=[{"role": "worker", "replicas": 2}])
    assert job.id == "mine"
    assert stub.requests[0].body == {
        "id": "mine",
        "name": "b",
        "framework": "paddle",
        "schedulingPolicy": {"queue": "q", "priority": "HIGH"},
        "members": [{"role": "worker", "replicas": 2}],
    }
    assert document["name"] == "a", "the document is left alone"


def test_a_submit_is_safe_to_send_again(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("POST /job/single", Answer(drop=True), Answer({"code": "x", "message": "exists"}, 409))
    job = pf.jobs.submit(command="true")
    assert [seen.body["id"] for seen in stub.requests] == [job.id, job.id]


def test_an_unknown_kind_is_refused_here(pf: PaddleFlow) -> None:
    with pytest.raises(Invalid, match=r"job type\[batch\]"):
        pf.jobs.submit(command="true", kind="batch")


def test_many_jobs_in_one_request(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("POST /job/batch", {"ids": ["a", "b"]})
    jobs = pf.jobs.submit_many({"command": f"echo {n}"} for n in range(3))
    sent = stub.requests[0].body["jobs"]
    assert [job.id for job in jobs] == [document["id"] for document in sent]
    assert len({job.id for job in jobs}) == 3
    assert pf.jobs.submit_many([]) == []
    assert len(stub.requests) == 1


def test_a_listed_job_knows_itself_and_can_ask_again(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /job", {"jobList": [{"id": "j", "status": "running"}]})
    stub.on("GET /job/j", {"id": "j", "status": "succeeded"})
    (job,) = pf.jobs.list(status="running")
    assert job.status == "running"
    assert len(stub.requests) == 1
    assert job.refresh().succeeded


def test_a_log_by_limits(stub: Stub, pf: PaddleFlow) -> None:
    info = {"logContent": "hello\n", "hasNextPage": True, "truncated": False}
    stub.on("GET /log/job", {"jobID": "j", "taskList": [{"taskID": "t", "logInfo": info}], "eventList": ["e"]})
    log = pf.logs.job("j")
    assert [(task.task_id, task.content, task.has_next_page, task.truncated) for task in log.tasks] == [
        ("t", "hello\n", True, False)
    ]
    assert log.events == ("e",)


def test_statistics_are_read(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("GET /statistics/job/j", {"metricsInfo": {"cpu_usage_rate": "12.34%"}})
    series = {"taskName": "worker-0", "taskInfo": [{"metric": "cpu", "values": [[1, 2.5]]}]}
    stub.on("GET /statistics/jobDetail/j", {"result": [series], "truncated": True})
    user = {"userName": "alice", "jobCount": 2, "totalCardTime": 1.5, "jobInfoList": []}
    stub.on("POST /statistics/cardTime", {"data": [{"queueName": "q", "cardTime": 1.5, "detail": [user]}]})
    assert pf.statistics.job("j") == {"cpu_usage_rate": "12.34%"}
    detail = pf.statistics.detail("j")
    assert (detail.truncated, detail.tasks[0].task, detail.tasks[0].series[0].values) == (True, "worker-0", ([1, 2.5],))
    (queue,) = pf.statistics.card_time(["q"], "a", "b")
    assert (queue.hours, queue.users[0].user, queue.users[0].job_count) == (1.5, "alice", 2)


def test_logging_out_forgets_the_token(stub: Stub, pf: PaddleFlow) -> None:
    stub.on("POST /logout", None)
    pf.logout()
    assert pf.transport.token == ""


def test_the_areas_are_the_client_s_attributes(pf: PaddleFlow) -> None:
    for name in _AREAS:
        assert getattr(pf, name) is getattr(pf, name)
        assert name in dir(pf)
    with pytest.raises(AttributeError, match="no attribute 'robots'"):
        _ = pf.robots  # type: ignore[attr-defined]  # there is no such area
    with pf as same:
        assert same is pf


def test_username_and_password_win_over_a_saved_token(stub: Stub) -> None:
    stub.on("POST /login", {"authorization": "fresh"})
    stub.on("GET /whoami", {"name": "alice", "root": False, "expires": "2026-12-01T00:00:00Z"})
    client = paddleflow.connect(stub.url, username="alice", password="secret1")
    assert client.whoami().name == "alice"
    assert [seen.path for seen in stub.requests] == ["/login", "/whoami"]


def test_a_token_saved_meanwhile_is_taken_up(stub: Stub) -> None:
    contexts.save("one", Context(stub.url, "alice", "old"), current=True)
    stub.on("GET /whoami", Answer({"code": "AuthInvalidToken", "message": "ended"}, 401), {"name": "alice"})
    client = paddleflow.connect()
    contexts.save("one", Context(stub.url, "alice", "new"), current=True)
    assert client.whoami().name == "alice"
    assert [seen.headers["x-pf-authorization"] for seen in stub.requests] == ["old", "new"]


def test_a_token_that_was_given_is_not_replaced(stub: Stub) -> None:
    contexts.save("one", Context(stub.url, "alice", "other"), current=True)
    stub.refuse("GET /whoami", 401, "AuthInvalidToken", "ended")
    with pytest.raises(Unauthenticated):
        paddleflow.connect(stub.url, token="given").whoami()
    assert len(stub.requests) == 1


def test_importing_the_package_imports_no_client() -> None:
    code = "import paddleflow, sys; print([m for m in ('http.client', 'click', 'rich', 'paddleflow.sdk') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
