"""How requests are called in messages."""

from __future__ import annotations

import pytest

from paddleflow.kube.resources import LEASES, NODES, PODS, Resource, request_words


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("POST", PODS.path("team"), "create pods in namespace[team]"),
        ("DELETE", PODS.path("team", "a-0"), "delete pods/a-0 in namespace[team]"),
        ("POST", PODS.path("team", "a-0", "binding"), "create pods/a-0/binding in namespace[team]"),
        ("PATCH", LEASES.path("kube-system", "x") + "?fieldManager=m", "patch leases/x in namespace[kube-system]"),
        ("GET", PODS.path() + "?limit=5", "list pods"),
        ("GET", PODS.path("team") + "?watch=true", "watch pods in namespace[team]"),
        ("GET", NODES.path(name="n1"), "get nodes/n1"),
        ("PUT", Resource("", "v1", "namespaces", "Namespace", False).path(name="team"), "update namespaces/team"),
        ("GET", "/version", "GET /version"),
    ],
)
def test_requests_are_named_by_their_objects(method: str, path: str, words: str) -> None:
    assert request_words(method, path) == words
