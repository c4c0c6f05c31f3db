"""The number of elastic trainers in a real etcd: that of the test cluster."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from paddleflow.errors import Invalid, Unavailable
from paddleflow.operator.etcd import Etcd, Keys, np_key
from scripts.lib.cluster.paths import PROGRAMS
from tests.cluster_fixture import LiveCluster
from tests.patience import eventually
from tests.ports import closed_port, free_ports

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
    assert await Etcd(etcd).set_workers("space", job, 3)
    assert value(ask, job) == "3"


async def test_a_number_that_nobody_put_there_is_not_made(etcd: str, ask: Ask, job: str) -> None:
    assert not await Etcd(etcd).set_workers("space", job, 3)
    assert value(ask, job) is None


async def test_the_first_endpoint_that_answers_is_used(etcd: str, ask: Ask, job: str) -> None:
    ask("put", key=coded(np_key("space", job)), value=coded("2"))
    with closed_port() as nobody:
        dead = f"127.0.0.1:{nobody}"
        assert await Etcd(f"{dead}, {etcd}/,").set_workers("space", job, 4)
        assert value(ask, job) == "4"
        with pytest.raises(Unavailable, match=f"does not answer: {dead}: .*refused; not-a-port:x: "):
            await Etcd(f"{dead},not-a-port:x").set_workers("space", job, 5)
    assert value(ask, job) == "4"


async def test_an_answer_that_is_none_is_named(control_plane: LiveCluster) -> None:
    api = control_plane.api.removeprefix("https://")  # speaks TLS, and is no etcd
    with pytest.raises(Unavailable, match=f"{api}: answered 400: "):
        await Etcd(api).set_workers("space", "job", 1)


@pytest.fixture(scope="module")
def guarded(control_plane: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An etcd that shows a certificate and wants one; those of the test cluster will do."""
    ports = free_ports(2)
    inside, peers = f"https://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
    keys = control_plane.kubeconfig.parent / "keys"
    command = [
        *(str(PROGRAMS / "etcd"), "--data-dir", str(tmp_path_factory.mktemp("etcd")), "--unsafe-no-fsync"),
        *("--listen-client-urls", inside, "--advertise-client-urls", inside, "--listen-peer-urls", peers),
        *("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}", "--log-level", "error"),
        *("--cert-file", f"{keys}/apiserver.crt", "--key-file", f"{keys}/apiserver.key"),
        *("--client-cert-auth", "--trusted-ca-file", f"{keys}/ca.crt"),
    ]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: answers(ports[0]), "etcd listens")
            yield inside
        finally:
            process.terminate()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def keys(control_plane: LiveCluster) -> Path:
    return control_plane.kubeconfig.parent / "keys"


async def test_an_etcd_with_certificates_is_spoken_to(guarded: str, keys: Path) -> None:
    ours = Keys(str(keys / "ca.crt"), str(keys / "kubelet-client.crt"), str(keys / "kubelet-client.key"))
    etcd = Etcd(guarded, ours)
    assert not await etcd.set_workers("space", "job", 3), "nobody made the key"
    body = {"key": coded(np_key("space", "job")), "value": coded("2")}
    etcd._post(guarded, "/v3/kv/put", body)
    assert await etcd.set_workers("space", "job", 3)
    found = etcd._post(guarded, "/v3/kv/range", {"key": body["key"]})["kvs"]
    assert base64.b64decode(found[0]["value"]) == b"3"


@pytest.mark.parametrize(
    "known", [False, True], ids=["an authority that we do not know", "without a certificate of ours"]
)
async def test_whoever_cannot_prove_itself_is_refused(guarded: str, keys: Path, known: bool) -> None:
    ours = Keys(str(keys / "ca.crt") if known else "")
    with pytest.raises(Unavailable, match=f"{guarded}: .*{'' if known else 'CERTIFICATE_VERIFY_FAILED'}"):
        await Etcd(guarded, ours).set_workers("space", "job", 3)


def test_files_that_are_no_keys_are_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="one of them is missing"):
        Etcd("https://127.0.0.1:1", Keys(certificate="a.crt"))
    with pytest.raises(Invalid, match="nothing"):
        Etcd("https://127.0.0.1:1", Keys(authority=str(tmp_path / "nothing.crt")))
    Etcd("127.0.0.1:1", Keys(authority=str(tmp_path / "nothing.crt")))  # nothing to prove
