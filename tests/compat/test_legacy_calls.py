"""Each call of `paddleflow.Client` makes the request that the reference documents and returns what scripts unpack."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from paddleflow.sdk.legacy import Client
from tests.client_stub import Stub

Call = Callable[[Client], Any]
Line = tuple[str, str, dict[str, str], Any]
PAGE: dict[str, Any] = {"maxKeys": 100, "isTruncated": True, "nextMarker": "m2"}

#: call → (request, answer, payload or the check of it)
DONE: dict[str, tuple[Call, Line, Any]] = {
    "add_user": (
        lambda c: c.add_user("alice", "secret1"),
        ("POST", "/user", {}, {"username": "alice", "password": "secret1"}),
        {"username": "alice"},
    ),
    "del_user": (lambda c: c.del_user("alice"), ("DELETE", "/user/alice", {}, None), None),
    "update_password": (
        lambda c: c.update_password("alice", "secret2"),
        ("PUT", "/user/alice", {}, {"password": "secret2"}),
        None,
    ),
    "add_queue": (
        lambda c: c.add_queue(
            name="q",
            namespace="default",
            clusterName="c",
            maxResources={"cpu": 4, "mem": "8Gi"},
            minResources={"cpu": 1, "mem": "1Gi"},
            schedulingPolicy=["priority"],
            location={"a": "b"},
            quotaType="elasticQuota",
        ),
        (
            "POST",
            "/queue",
            {},
            {
                "name": "q",
                "namespace": "default",
                "clusterName": "c",
                "maxResources": {"cpu": 4, "mem": "8Gi"},
                "minResources": {"cpu": 1, "mem": "1Gi"},
                "schedulingPolicy": ["priority"],
                "location": {"a": "b"},
                "quotaType": "elasticQuota",
            },
        ),
        {"name": "q"},
    ),
    "add_queue, least": (
        lambda c: c.add_queue("q", "default", None, {"cpu": 4, "mem": "8Gi"}),
        ("POST", "/queue", {}, {"name": "q", "namespace": "default", "maxResources": {"cpu": 4, "mem": "8Gi"}}),
        {"name": "q"},
    ),
    "update_queue": (
        lambda c: c.update_queue("q", {"cpu": 5}, {}, None, {"a": ""}),
        ("PUT", "/queue/q", {}, {"maxResources": {"cpu": 5}, "location": {"a": ""}}),
        {"name": "q"},
    ),
    "del_queue": (lambda c: c.del_queue("q"), ("DELETE", "/queue/q", {}, None), None),
    "grant_queue": (
        lambda c: c.grant_queue("alice", "q"),
        ("POST", "/grant", {}, {"userName": "alice", "resourceType": "queue", "resourceID": "q"}),
        {"grantID": "g"},
    ),
    "ungrant_queue": (
        lambda c: c.ungrant_queue("alice", "q"),
        ("DELETE", "/grant", {"username": "alice", "resourceType": "queue", "resourceID": "q"}, None),
        None,
    ),
    "add_flavour": (
        lambda c: c.add_flavour("f", "1", "1Gi", {"nvidia.com/gpu": "1"}, "c"),
        (
            "POST",
            "/flavour",
            {},
            {"name": "f", "cpu": "1", "mem": "1Gi", "scalarResources": {"nvidia.com/gpu": "1"}, "clusterName": "c"},
        ),
        {"name": "f"},
    ),
    "del_flavour": (lambda c: c.del_flavour("f"), ("DELETE", "/flavour/f", {}, None), None),
    "add_fs": (
        lambda c: c.add_fs("data", "local:///d", "alice", {"a": "b"}),
        ("POST", "/fs", {}, {"name": "data", "url": "local:///d", "username": "alice", "properties": {"a": "b"}}),
        {"fsName": "data", "fsID": "fs-alice-data"},
    ),
    "delete_fs": (lambda c: c.delete_fs("data", "alice"), ("DELETE", "/fs/data", {"username": "alice"}, None), None),
    "update_job": (
        lambda c: c.update_job("j", "HIGH", {"a": "b"}, {"c": "d"}),
        ("PUT", "/job/j", {"action": "modify"}, {"priority": "HIGH", "labels": {"a": "b"}, "annotations": {"c": "d"}}),
        None,
    ),
    "stop_job": (lambda c: c.stop_job("j"), ("PUT", "/job/j", {"action": "stop"}, None), None),
    "delete_job": (lambda c: c.delete_job("j"), ("DELETE", "/job/j", {}, None), None),
}


@pytest.mark.parametrize("name", DONE)
def test_what_is_done_returns_true_and_none(stub: Stub, client: Client, name: str) -> None:
    call, line, answer = DONE[name]
    stub.on(f"{line[0]} {line[1]}", answer)
    assert call(client) == (True, None)
    assert stub.lines() == [line]


#: call → (request, answer, what is checked of the payload, its value)
FOUND: dict[str, tuple[Call, Line, Any, Callable[[Any], Any], Any]] = {
    "get_version": (
        lambda c: c.get_version(),
        ("GET", "/version", {}, None),
        {"gitVersion": "2"},
        lambda p: p,
        {"gitVersion": "2"},
    ),
    "list_user": (
        lambda c: c.list_user(),
        ("GET", "/user", {"maxKeys": "100"}, None),
        {"userList": [{"name": "alice", "createTime": "2026"}]},
        lambda p: [(user.name, user.create_time) for user in p],
        [("alice", "2026")],
    ),
    "show_queue": (
        lambda c: c.show_queue("q"),
        ("GET", "/queue/q", {}, None),
        {"name": "q", "usedResources": {"cpu": "1"}, "schedulingPolicy": ["priority"], "createTime": "t"},
        lambda p: (p.name, p.usedResources, p.schedulingPolicy, p.createTime, p.minResources),
        ("q", {"cpu": "1"}, ["priority"], "t", {}),
    ),
    "show_queue_grant": (
        lambda c: c.show_queue_grant("alice", 5),
        ("GET", "/grant", {"username": "alice", "maxKeys": "5"}, None),
        {
            "grantList": [
                {"userName": "alice", "resourceType": "queue", "resourceID": "q"},
                {"userName": "alice", "resourceType": "fs", "resourceID": "data"},
            ]
        },
        lambda p: [(grant.username, grant.resourceName) for grant in p],
        [("alice", "q")],
    ),
    "show_flavour": (
        lambda c: c.show_flavour("f"),
        ("GET", "/flavour/f", {}, None),
        {"name": "f", "cpu": "1", "mem": "1Gi", "scalarResources": {"g": "1"}, "createTime": "t"},
        lambda p: (p.name, p.cpu, p.mem, p.scalar_resources, p.cluster_name, p.createtime),
        ("f", "1", "1Gi", '{"g": "1"}', "", "t"),
    ),
    "update_flavour": (
        lambda c: c.update_flavour("f", cpu="2"),
        ("PUT", "/flavour/f", {}, {"cpu": "2"}),
        {"name": "f"},
        lambda p: p,
        "f",
    ),
    "show_fs": (
        lambda c: c.show_fs("data"),
        ("GET", "/fs/data", {}, None),
        {"name": "data", "type": "local", "serverAddress": "s", "subPath": "/d", "username": "root"},
        lambda p: [(fs.name, fs.owner, fs.fstype, fs.server_adddress, fs.subpath, fs.properties) for fs in p],
        [("data", "root", "local", "s", "/d", {})],
    ),
    "list_fs": (
        lambda c: c.list_fs("alice", 7),
        ("GET", "/fs", {"username": "alice", "maxKeys": "7"}, None),
        {"fsList": [{"name": "data"}], "truncated": False},
        lambda p: [fs.name for fs in p],
        ["data"],
    ),
    "create_cluster": (
        lambda c: c.create_cluster("c", "e", "Kubernetes", b"kube", "d", "AWS", "{}", "online", ["ns"], "v1"),
        (
            "POST",
            "/cluster",
            {},
            {
                "clusterName": "c",
                "endpoint": "e",
                "clusterType": "Kubernetes",
                "credential": base64.b64encode(b"kube").decode(),
                "description": "d",
                "source": "AWS",
                "setting": "{}",
                "status": "online",
                "namespaceList": ["ns"],
                "version": "v1",
            },
        ),
        {"id": "cluster-1"},
        lambda p: p,
        "cluster-1",
    ),
    "update_cluster": (
        lambda c: c.update_cluster("c", status="offline"),
        ("PUT", "/cluster/c", {}, {"status": "offline"}),
        {"id": "cluster-1"},
        lambda p: p,
        "cluster-1",
    ),
    "show_cluster": (
        lambda c: c.show_cluster("c"),
        ("GET", "/cluster/c", {}, None),
        {"id": "i", "clusterName": "c", "credential": base64.b64encode(b"kube").decode(), "namespaceList": None},
        lambda p: (p.clusterid, p.clustername, p.credential, p.namespacelist),
        ("i", "c", "kube", []),
    ),
    "delete_cluster": (lambda c: c.delete_cluster("c"), ("DELETE", "/cluster/c", {}, None), None, lambda p: p, "c"),
    "list_cluster_resource": (
        lambda c: c.list_cluster_resource("a,b"),
        ("GET", "/cluster/resource", {"clusterNames": "a,b"}, None),
        {"a": {"summary": {}}},
        lambda p: p,
        {"a": {"summary": {}}},
    ),
    "list_cluster_resource_v2": (
        lambda c: c.list_cluster_resource_v2(1, 10, ["a"], queuenaame="q", labels="l=1"),
        (
            "POST",
            "/cluster/resource",
            {},
            {"pageNo": 1, "pageSize": 10, "clusterNames": ["a"], "queueName": "q", "labels": "l=1"},
        ),
        {"a": {}},
        lambda p: p,
        {"a": {}},
    ),
    "create_job": (
        lambda c: c.create_job("distributed", {"id": "j", "framework": "paddle", "members": [{"role": "worker"}]}),
        ("POST", "/job/distributed", {}, {"id": "j", "framework": "paddle", "members": [{"role": "worker"}]}),
        {"id": "j"},
        lambda p: p,
        "j",
    ),
    "show_job": (
        lambda c: c.show_job("j"),
        ("GET", "/job/j", {}, None),
        {
            "id": "j",
            "name": "n",
            "UserName": "alice",
            "schedulingPolicy": {"queue": "q"},
            "message": "exit code 1",
            "args": ["a"],
            "runtime": {"role": "worker"},
        },
        lambda p: (p.job_id, p.job_name, p.username, p.queue, p.message, p.args_list, p.runtime, p.member_list),
        ("j", "n", "alice", "q", "exit code 1", ["a"], {"role": "worker"}, None),
    ),
    "show_log_by_limit": (
        lambda c: c.show_log_by_limit(job_id="j", read_from_tail=True, line_limit="5", framework="paddle"),
        ("GET", "/log/job", {"jobID": "j", "readFromTail": "true", "lineLimit": "5", "framework": "paddle"}, None),
        {
            "jobID": "j",
            "name": "n",
            "taskList": [{"taskID": "t", "logInfo": {"logContent": "x", "hasNextPage": False, "truncated": True}}],
            "eventList": ["e"],
        },
        lambda p: (
            p["eventList"],
            [(i.job_id, i.task_id, i.log_content, i.truncated, i.line_limit) for i in p["logs"]],
        ),
        (["e"], [("j", "t", "x", True, 5)]),
    ),
    "get_statistics": (
        lambda c: c.get_statistics("j"),
        ("GET", "/statistics/job/j", {}, None),
        {"metricsInfo": {"gpu_util": "1%"}},
        lambda p: p.metrics_info,
        {"gpu_util": "1%"},
    ),
    "get_cardtime_by_queue_name": (
        lambda c: c.get_cardtime_by_queue_name(["q"], "2026-11-01 00:00:00", "2026-12-01 00:00:00"),
        (
            "POST",
            "/statistics/cardTime",
            {},
            {"queueNames": ["q"], "startTime": "2026-11-01 00:00:00", "endTime": "2026-12-01 00:00:00"},
        ),
        {"data": [{"queueName": "q"}]},
        lambda p: p.data,
        [{"queueName": "q"}],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_returns_true_and_it(stub: Stub, client: Client, name: str) -> None:
    call, line, answer, check, wanted = FOUND[name]
    stub.on(f"{line[0]} {line[1]}", answer)
    ok, payload = call(client)
    assert ok is True
    assert check(payload) == wanted
    assert stub.lines() == [line]


#: call → (request, answer, check of the middle part)
TRIPLES: dict[str, tuple[Call, Line, Any, Callable[[Any], Any]]] = {
    "list_queue": (
        lambda c: c.list_queue(10, "m1"),
        ("GET", "/queue", {"maxKeys": "10", "marker": "m1"}, None),
        {"queueList": [{"name": "x"}], **PAGE},
        lambda p: [queue.name for queue in p],
    ),
    "list_flavour": (
        lambda c: c.list_flavour(10, marker="m1", clustername="c", key="k"),
        ("GET", "/flavour", {"maxKeys": "10", "marker": "m1", "clusterName": "c", "name": "k"}, None),
        {"flavourList": [{"name": "x"}], **PAGE},
        lambda p: [flavour.name for flavour in p],
    ),
    "list_cluster": (
        lambda c: c.list_cluster(10, "m1", "a,b", "online"),
        ("GET", "/cluster", {"maxKeys": "10", "marker": "m1", "clusterNames": "a,b", "clusterStatus": "online"}, None),
        {"clusterList": [{"clusterName": "x"}], **PAGE},
        lambda p: [cluster.clustername for cluster in p],
    ),
    "list_job": (
        lambda c: c.list_job("running", 5, "2026-11-16 10:00:00", "q", {"a": "b"}, 10, "m1"),
        (
            "GET",
            "/job",
            {
                "status": "running",
                "timestamp": "5",
                "startTime": "2026-11-16 10:00:00",
                "queue": "q",
                "labels": '{"a": "b"}',
                "maxKeys": "10",
                "marker": "m1",
            },
            None,
        ),
        {"jobList": [{"id": "x"}], **PAGE},
        lambda p: [job.job_id for job in p],
    ),
}


@pytest.mark.parametrize("name", TRIPLES)
def test_lists_return_three(stub: Stub, client: Client, name: str) -> None:
    call, line, answer, check = TRIPLES[name]
    stub.on(f"{line[0]} {line[1]}", answer)
    ok, payload, marker = call(client)
    assert (ok, check(payload), marker) == (True, ["x"], "m2")
    assert stub.lines() == [line]
