"""How `paddleflow.Client` behaves beside its single calls: login, errors, arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from paddleflow.sdk.legacy import Client, PaddleFlowSDKException
from tests.client_stub import Answer, Stub
from tests.ports import closed_port

Call = Callable[[Client], Any]


def test_statistics_over_time_return_three(stub: Stub, client: Client) -> None:
    series = {"taskName": "worker-0", "taskInfo": [{"metric": "cpu", "values": [[1, 2]]}]}
    stub.on("GET /statistics/jobDetail/j", {"result": [series], "truncated": True})
    ok, info, truncated = client.get_statistics_detail("j", 1, 2, 3)
    assert (ok, truncated, info.truncated) == (True, True, True)
    assert (info.result[0].task_name, info.result[0].task_info[0].metric) == ("worker-0", "cpu")
    assert info.result[0].task_info[0].values == [[1, 2]]


def test_a_refusal_raises_the_exception_of_old(stub: Stub, client: Client) -> None:
    stub.refuse("GET /job/j", 404, "JobNotFound", "job[j] is not there")
    with pytest.raises(PaddleFlowSDKException) as caught:
        client.show_job("j")
    error = caught.value
    assert (error.code, error.message, error.requestId) == ("JobNotFound", "job[j] is not there", "r-1")
    assert (error.get_code(), error.get_message(), error.get_request_id()) == (
        error.code,
        error.message,
        error.requestId,
    )
    assert str(error) == "[PaddleFlowSDKException] code:JobNotFound message:job[j] is not there requestId:r-1"


def test_a_job_may_have_a_message(stub: Stub, client: Client) -> None:
    stub.on("GET /job", {"jobList": [{"id": "j", "message": "waits"}], "message": "no failure"})
    assert client.list_job()[0] is True


def test_a_server_that_is_down_raises_it_too() -> None:
    with closed_port() as port:
        client = Client("127.0.0.1", "root", "paddleflow", port)
        client._flow.transport.sleep = lambda seconds: None
        with pytest.raises(PaddleFlowSDKException, match="cannot reach"):
            client.login("root", "paddleflow")


def test_login_comes_first() -> None:
    client = Client("http://127.0.0.1", "root", "paddleflow")
    with pytest.raises(PaddleFlowSDKException, match="paddleflow should login first"):
        client.list_user()


def test_the_host_may_carry_a_scheme() -> None:
    assert Client("http://httpbin.local", "a", "b")._flow.server == "http://httpbin.local:8999"
    assert Client("https://x", "a", "b", "9000")._flow.server == "https://x:9000"


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.list_user(0),
        lambda c: c.list_queue("many"),
        lambda c: c.list_cluster(True),
        lambda c: c.create_cluster("c", "e", "Local", credential="text"),
        lambda c: c.create_cluster("c", "e", "Local", namespacelist="a,b"),
        lambda c: c.create_job("batch", {}),
        lambda c: c.show_queue(""),
    ],
)
def test_wrong_arguments_raise_before_anything_is_sent(stub: Stub, client: Client, call: Call) -> None:
    with pytest.raises(PaddleFlowSDKException):
        call(client)
    assert stub.requests == []


def test_an_ended_token_is_renewed(stub: Stub, client: Client) -> None:
    stub.on("GET /user", Answer({"code": "AuthInvalidToken", "message": "ended"}, 401), {"userList": []})
    assert client.list_user() == (True, [])


#: The arguments of the reference, in their order.
ARGUMENTS = {
    "login": "user_name password",
    "add_user": "user_name password",
    "update_password": "name password",
    "list_user": "maxsize",
    "add_queue": "name namespace clusterName maxResources minResources schedulingPolicy location quotaType",
    "update_queue": "queuename maxResources minResources schedulingPolicy location",
    "grant_queue": "username queuename",
    "list_queue": "maxsize marker",
    "show_queue_grant": "username maxsize",
    "list_flavour": "maxsize marker clustername key",
    "add_flavour": "name cpu memory scalar_resources cluster_name",
    "add_fs": "fsname url username properties",
    "list_fs": "username maxsize",
    "create_cluster": (
        "clustername endpoint clustertype credential description source setting status namespacelist version"
    ),
    "list_cluster": "maxkeys marker clustername clusterstatus",
    "list_cluster_resource": "clustername",
    "list_cluster_resource_v2": "page_no page_size clusternames queuenaame labels",
    "create_job": "job_type job_request",
    "list_job": "status timestamp start_time queue labels maxkeys marker",
    "show_log_by_limit": ("job_id name namespace cluster_name read_from_tail line_limit size_limit type framework"),
    "get_statistics": "jobid",
    "get_statistics_detail": "jobid start end step",
    "get_cardtime_by_queue_name": "queue_names start_time end_time",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_have_their_names_and_order(name: str) -> None:
    found = list(inspect.signature(getattr(Client, name)).parameters)[1:]
    assert found == ARGUMENTS[name].split()
