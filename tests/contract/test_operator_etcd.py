"""The number of elastic trainers in a real etcd: that of the test cluster."""

from __future__ import annotations

import base64
import json
import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from paddleflow.errors import Unavailable
from paddleflow.operator.etcd import Etcd, np_key
from tests.cluster_fixture import LiveCluster

Ask = Callable[..., dict[str, Any]]


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def etcd(control_plane: LiveCluster) -> str:
    return control_plane.etcd


@pytest.fixture
def ask(etcd: str) -> Ask:
    """etcd itself, without what is tested."""

    def ask(path: str, **body: Any) -> dict[str, Any]:
        with urlopen(Request(f"{etcd}/v3/kv/{path}", json.dumps(body).encode()), timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    return ask


@pytest.fixture
def job(ask: Ask) -> Iterator[str]:
    name = f"job-{uuid.uuid4().hex[:8]}"
    yield name
    ask("deleterange", key=coded(np_key("space", name)))


def value(ask: Ask, name: str) -> str | None:
    found = ask("range", key=coded(np_key("space", name))).get("kvs", [])
    return base64.b64decode(found[0]["value"]).decode() if found else None


async def test_a_number_that_the_launcher_put_there_is_changed(etcd: str, ask: Ask, job: str) -> None:
    ask("put", key=coded(np_key("space", job)), value=coded("2"))
    assert await Etcd(etcd).tell("space", job, 3)
    assert value(ask, job) == "3"


async def test_a_number_that_nobody_put_there_is_not_made(etcd: str, ask: Ask, job: str) -> None:
    assert not await Etcd(etcd).tell("space", job, 3)
    assert value(ask, job) is None


async def test_the_first_endpoint_that_answers_is_used(etcd: str, ask: Ask, job: str) -> None:
    ask("put", key=coded(np_key("space", job)), value=coded("2"))
    with socket.socket() as nobody:  # bound, but nobody listens
        nobody.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert await Etcd(f"{dead}, {etcd}/,").tell("space", job, 4)
        assert value(ask, job) == "4"
        with pytest.raises(Unavailable, match=f"does not answer: {dead}: .*refused; not-a-port:x: "):
            await Etcd(f"{dead},not-a-port:x").tell("space", job, 5)
    assert value(ask, job) == "4"


async def test_an_answer_that_is_none_is_named(control_plane: LiveCluster) -> None:
    api = control_plane.api.removeprefix("https://")  # speaks TLS, and is no etcd
    with pytest.raises(Unavailable, match=f"{api}: answered 400: "):
        await Etcd(api).tell("space", "job", 1)
