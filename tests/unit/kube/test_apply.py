"""Whether a write would change anything, and the small pieces of manifests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.kube.apply import MARK, differences, digest, marked
from paddleflow.kube.client import Client
from paddleflow.kube.resources import CONFIG_MAPS, PODS, SERVICES, Object, version
from paddleflow.testing.api_server import MemoryApiServer


def pod(**container: Any) -> Object:
    return PODS.object("a", "default", spec={"containers": [{"name": "main", "image": "i", **container}]})


LIVE = pod(
    imagePullPolicy="Always",
    resources={"requests": {"cpu": "1", "memory": "1Gi"}},
    env=[{"name": "A", "value": "1"}, {"name": "B"}],
    ports=[{"containerPort": 80, "protocol": "TCP"}],
)


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (pod(), []),
        (pod(image="other"), ['spec.containers[{"name":"main"}].image']),
        (pod(resources={"requests": {"cpu": "1000m", "memory": "1024Mi"}}), []),
        (pod(resources={"requests": {"cpu": "1001m"}}), ['spec.containers[{"name":"main"}].resources.requests.cpu']),
        (pod(env=[{"name": "A", "value": "1"}]), []),
        (pod(env=[{"name": "B", "value": ""}]), []),
        (pod(env=[{"name": "C", "value": ""}]), ['spec.containers[{"name":"main"}].env[{"name":"C"}]']),
        (pod(ports=[{"containerPort": 80}]), []),
        (pod(command=[]), []),
        (pod(command=["x"]), ['spec.containers[{"name":"main"}].command']),
        (pod(securityContext={"privileged": False}), []),
        (pod(securityContext={"privileged": True}), ['spec.containers[{"name":"main"}].securityContext']),
        (PODS.object("a", "default", spec="nonsense"), ["spec"]),
    ],
)
def test_only_what_is_wanted_and_not_there_differs(wanted: Object, where: list[str]) -> None:
    assert differences(wanted, LIVE) == where


def test_lists_without_keys_are_compared_whole() -> None:
    live = {"metadata": {}, "args": ["a", "b"]}
    assert differences({"args": ["a", "b"]}, live) == []
    assert differences({"args": ["a"]}, live) == ["args"]
    assert differences({"args": ["b", "a"]}, live) == ["args[0]", "args[1]"]


def test_the_mark_depends_on_what_is_wanted_and_on_nothing_else() -> None:
    one = CONFIG_MAPS.object("a", "default", data={"x": "1", "y": "2"})
    two = {"data": {"y": "2", "x": "1"}, **{name: one[name] for name in ("metadata", "kind", "apiVersion")}}
    assert digest(one) == digest(two) == digest(marked(one))
    assert digest(one) != digest(CONFIG_MAPS.object("a", "default", data={"x": "1"}))
    assert MARK not in (one["metadata"].get("annotations") or {})
    assert marked(one)["metadata"]["annotations"] == {MARK: digest(one)}


WORDS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("123"))


@settings(max_examples=60)
@given(st.lists(st.tuples(WORDS, WORDS, st.lists(st.sampled_from([80, 81, 82]), unique=True)), min_size=1, max_size=6))
def test_an_apply_is_needed_exactly_when_it_changes_something(
    wishes: list[tuple[dict[str, str], Any, list[int]]],
) -> None:
    """`differences` against the server itself, over a history of wishes for one object and edits by somebody else."""

    async def scene() -> None:
        server = MemoryApiServer()
        client = Client(server)
        for labels, foreign, ports in wishes:
            spec = {"selector": labels, "ports": [{"port": port, "name": f"p{port}"} for port in ports]}
            wanted = marked({**SERVICES.object("a", "default", spec=spec)})
            live = await client.apply(SERVICES, wanted)
            assert differences(wanted, live) == []
            edited = await client.patch(SERVICES, "a", "default", body={"spec": {"selector": foreign or None}})
            needed = bool(differences(wanted, edited))
            after = await client.apply(SERVICES, wanted)
            if needed:
                assert version(after) != version(edited)
            assert differences(wanted, after) == []

    asyncio.run(scene())


def test_what_is_wanted_no_longer_is_found_by_the_mark() -> None:
    async def scene() -> None:
        client = Client(MemoryApiServer())
        first = marked(CONFIG_MAPS.object("a", "default", data={"x": "1", "y": "2"}))
        live = await client.apply(CONFIG_MAPS, first)
        second = marked(CONFIG_MAPS.object("a", "default", data={"x": "1"}))
        assert differences(second, live) == [f"metadata.annotations.{MARK}"]
        assert (await client.apply(CONFIG_MAPS, second))["data"] == {"x": "1"}

    asyncio.run(scene())
