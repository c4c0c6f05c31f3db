"""HDFS against a real mini cluster: in whose name, which stage fails, and Kerberos with a real key server."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from paddleflow.errors import Forbidden, Invalid, Unavailable
from paddleflow.objects.check import Stage, Unreachable, check
from paddleflow.objects.store import BAD_CREDENTIALS, Kind
from paddleflow.objects.urls import open_store
from scripts.lib.hdfs import REALM, KeyServer, MiniCluster, key_server, mini_cluster
from scripts.lib.s3_servers import NotInstalled
from tests.hdfs_clusters import fresh_folder
from tests.ports import closed_port

pytestmark = pytest.mark.xdist_group("hdfs")


def failed_at(url: str, properties: dict[str, str]) -> Stage:
    with pytest.raises(Unreachable) as raised:
        check(url, properties, timeout=60)
    return raised.value.stage


def test_in_whose_name(hdfs_cluster: MiniCluster) -> None:
    url = f"hdfs://127.0.0.1:{hdfs_cluster.port}/{fresh_folder()}"
    adas = open_store(url, {"user": "ada", "group": "staff"})
    adas.make_folder("closed")
    adas.write("closed/a", b"one")
    with pytest.raises(Unavailable, match="in the name of ada"):
        open_store(url, {"user": "bob"})
    adas._client.set_permission(adas._path("closed"), 0o700)  # type: ignore[attr-defined]  # no call of the interface
    adas.close()
    adas.close()
    bobs = open_store(url, {"user": "bob"})
    with pytest.raises(Forbidden):
        bobs.read("closed/a", size=9)
    with pytest.raises(Forbidden):
        bobs.write("closed/b", b"x")
    assert failed_at(url + "/closed", {"user": "bob"}) is Stage.PERMISSION
    bobs.close()
    assert "HADOOP_USER_NAME" not in os.environ


def test_stages_of_a_check(hdfs_cluster: MiniCluster) -> None:
    node = f"127.0.0.1:{hdfs_cluster.port}"
    check(f"hdfs://{node}/", timeout=60)
    assert failed_at(f"hdfs://{node}/absent", {}) is Stage.PATH
    assert failed_at("hdfs://no-such-host.invalid:9000/", {}) is Stage.NAME
    with closed_port() as port:
        assert failed_at(f"hdfs://127.0.0.1:{port}/", {}) is Stage.PORT
        # Of two name nodes one may be down.
        check(f"hdfs://127.0.0.1:{port},{node}/", timeout=60)


def test_a_name_that_it_cannot_hold(hdfs_cluster: MiniCluster) -> None:
    store = open_store(f"hdfs://127.0.0.1:{hdfs_cluster.port}/{fresh_folder()}")
    with pytest.raises(Invalid, match="cannot be stored"):
        store.write("a:b", b"x")
    store.close()


@pytest.mark.parametrize(
    "properties",
    [
        {"kerberos.realm": "X"},
        {"kerberos.principal": "a@X", "kerberos.keytab.data": "?"},
        {"kerberos.principal": "a@X", "kerberos.data.transfer.protection": "none"},
    ],
)
def test_properties_that_cannot_be(properties: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        open_store("hdfs://127.0.0.1:9000/", properties)


@pytest.fixture(scope="module")
def realm() -> Iterator[KeyServer]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(key_server())
        except NotInstalled as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def secured(realm: KeyServer) -> Iterator[MiniCluster]:
    with ExitStack() as stack:
        try:
            yield stack.enter_context(mini_cluster(realm, protection="privacy"))
        except NotInstalled as error:
            pytest.skip(str(error))


@pytest.mark.slow
def test_kerberos(realm: KeyServer, secured: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keytab, a ticket, none, and one of somebody else."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/no-tickets")
    url = f"hdfs://localhost:{secured.port}/{fresh_folder()}"
    keytab = realm.keytab("ada.keytab", "ada")
    given = {"kerberos.principal": f"ada@{REALM}", "kerberos.data.transfer.protection": "privacy"}
    data = {"kerberos.keytab.data": base64.b64encode(keytab.read_bytes()).decode()}

    store = open_store(url, given | data)
    store.write("a/b", b"one")
    assert store.read("a/b", size=9) == b"one"
    assert store._client.get_file_info(store._path("a/b")).owner == "ada"  # type: ignore[attr-defined]
    store.close()
    check(url, given | data, timeout=60)

    assert failed_at(url, given) is Stage.CREDENTIALS
    assert failed_at(url, {}) is Stage.ANSWER  # the name node hangs up without a word
    wrong = {"kerberos.principal": f"bob@{REALM}"}
    assert failed_at(url, given | data | wrong) is Stage.CREDENTIALS

    tickets = f"FILE:{realm.folder}/tickets"
    subprocess.run(["kinit", "-c", tickets, "-k", "-t", str(keytab), f"ada@{REALM}"], check=True)
    monkeypatch.setenv("KRB5CCNAME", tickets)
    store = open_store(url, given)
    assert store.stat("a/b").kind is Kind.FILE
    store.close()


@pytest.mark.slow
def test_without_a_ticket_the_error_says_so(
    realm: KeyServer, secured: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/no-tickets")
    with pytest.raises(Forbidden) as raised:
        open_store(f"hdfs://localhost:{secured.port}/", {"kerberos.principal": f"ada@{REALM}"}).stat("")
    assert raised.value.code == BAD_CREDENTIALS
    assert "klist" in raised.value.hint
