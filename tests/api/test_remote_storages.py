"""Storages of S3 servers, with secrets, links and cache settings, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.objects.links import LinkedStore
from paddleflow.objects.s3 import S3Store
from paddleflow.storage.storages import get_storage
from paddleflow.store.database import Database, Tx
from paddleflow.store.statements import compose
from tests.api.client import Api
from tests.ports import free_ports
from tests.s3_servers import KEYS, S3Server, versitygw


@pytest.fixture
def database_url() -> str:
    """One engine: what is tried here is not the SQL, which `test_storages` tries on both."""
    return ""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as started:
        yield started


@pytest.fixture
def body(server: S3Server) -> dict[str, Any]:
    """A storage of a prefix that nobody else has."""
    bucket = server.bucket()
    properties = {"endpoint": server.endpoint, "accessKey": KEYS.access_key, "secretKey": KEYS.secret_key}
    return {"name": "sets", "url": f"s3://{bucket.name}/{bucket.prefix}", "properties": properties}


def all_text(tx: Tx) -> str:
    """Everything that the database holds about storages."""
    return json.dumps([tx.all(compose(f"select * from {table}")) for table in ("filesystems", "fs_links")])


async def test_a_storage_of_a_bucket(root: Api, alice: Api, database: Database, body: dict[str, Any]) -> None:
    made = await alice.post("/fs", body)
    assert made.ok(201) == {"fsName": "sets", "fsID": "fs-alice-sets"}
    shown = (await alice.get("/fs/sets")).ok()
    assert shown == {
        "id": "fs-alice-sets",
        "name": "sets",
        "serverAddress": body["properties"]["endpoint"],
        "type": "s3",
        "subPath": "/" + body["url"].split("/", 3)[3],
        "username": "alice",
        "properties": {
            "endpoint": body["properties"]["endpoint"],
            "accessKey": KEYS.access_key,
            "secretKey": "******",
            "bucket": "tests",
        },
        "independentMountProcess": False,
    }
    assert KEYS.secret_key not in json.dumps((await root.get("/fs")).ok())
    assert KEYS.secret_key not in await database.read(all_text)
    (await alice.delete("/fs/sets")).ok()


async def test_what_was_shown_can_be_given_back(alice: Api, platform: Platform, body: dict[str, Any]) -> None:
    (await alice.post("/fs", body)).ok(201)
    shown = (await alice.get("/fs/sets")).ok()
    (await alice.put("/fs", {"name": "sets", "properties": {**shown["properties"], "fileMode": "0640"}})).ok(201)
    assert (await alice.get("/fs/sets")).ok()["properties"]["fileMode"] == "0640"
    storage = await platform.database.read(get_storage, "alice", False, "sets")
    assert platform.stores.properties(storage)["secretKey"] == KEYS.secret_key
    refused = await alice.put("/fs", {"name": "sets", "properties": {"sessionToken": "******"}})
    refused.refused(400, "InvalidFileSystemParamsProperties")
    wrong = {**shown["properties"], "secretKey": "wrong"}
    said = (await alice.put("/fs", {"name": "sets", "properties": wrong})).refused(400, "ConnectivityFailed")
    assert "credentials" in said["message"]
    assert platform.stores.properties(await platform.database.read(get_storage, "alice", False, "sets"))[
        "secretKey"
    ] == (KEYS.secret_key)


async def test_keys_that_root_gave_are_for_what_root_named(
    root: Api, alice: Api, platform: Platform, body: dict[str, Any]
) -> None:
    """The owner would read the whole bucket with them, or have a password sent to another server."""
    (await root.post("/fs", {**body, "username": "alice"})).ok(201)
    kept = (await alice.get("/fs/sets")).ok()["properties"]
    (await alice.put("/fs", {"name": "sets"})).ok(201)
    (await alice.put("/fs", {"name": "sets", "properties": kept})).ok(201)
    bucket = body["url"].rpartition("/")[0]
    for change in (
        {"url": bucket},
        {"url": bucket, "properties": kept},
        {"properties": {**kept, "endpoint": "http://127.0.0.1:9"}},
    ):
        said = (await alice.put("/fs", {"name": "sets", **change})).refused(403, "AccessDenied")
        assert "set up by root" in said["message"]
    storage = await platform.database.read(get_storage, "alice", False, "sets")
    assert (storage.place.url, storage.confined) == (body["url"], False)
    (await alice.put("/fs", {"name": "sets", "url": bucket, "properties": body["properties"]})).ok(201)
    (await alice.put("/fs", {"name": "sets", "url": body["url"]})).ok(201)


async def test_what_failed_is_said_and_nothing_is_left(root: Api, body: dict[str, Any]) -> None:
    [unused] = free_ports(1)
    for change, words in (
        ({"endpoint": f"http://127.0.0.1:{unused}"}, "port: nothing listens"),
        ({"endpoint": "http://no-such-host.invalid"}, "name resolution"),
        ({"secretKey": "wrong"}, "credentials"),
        ({"accessKey": "nobody"}, "credentials"),
    ):
        given = {**body, "properties": {**body["properties"], **change}}
        refused = (await root.post("/fs", given)).refused(400, "ConnectivityFailed")
        assert words in refused["message"]
        assert KEYS.secret_key not in json.dumps(refused)
    gone = {**body, "url": "s3://no-such-bucket-here/x"}
    assert "bucket or path" in (await root.post("/fs", gone)).refused(400, "ConnectivityFailed")["message"]
    assert (await root.get("/fs")).ok()["fsList"] == []


@pytest.mark.parametrize(
    "properties",
    [
        {"endpoint": {"deep": {"deeper": "x"}}},
        {"endpoint": ["x"]},
        {"secretKey": "s" * (64 * 2**10 + 1)},
        {"x" * 129: "y"},
        {f"p{number}": "x" for number in range(257)},
        {"secretKey": "only half"},
    ],
)
async def test_hostile_properties(root: Api, body: dict[str, Any], properties: dict[str, Any]) -> None:
    answer = await root.post("/fs", {**body, "properties": properties})
    assert answer.status == 400
    assert answer.json["code"] in ("InvalidArguments", "InvalidFileSystemParamsProperties", "ConnectivityFailed")
    assert len(answer.body) < 20_000
    assert (await root.get("/fs")).ok()["fsList"] == []


async def test_a_bucket_that_vanished_is_said_when_it_is_used(
    root: Api, platform: Platform, server: S3Server, body: dict[str, Any]
) -> None:
    (await root.post("/fs", body)).ok(201)

    def vanish(tx: Tx) -> None:
        tx.run(compose("update filesystems set url = 's3://vanished-bucket/x' where name = 'sets'"))

    await platform.database.write(vanish)
    refused = await root.post("/run", {"fsName": "sets", "runYamlPath": "run.yaml"})
    said = refused.refused(400, "ReadYamlFileFailed")
    assert "vanished-bucket" in said["message"]
    assert "does not exist" in said["message"] or "No such file" in said["message"]


async def test_a_link_s_life(
    alice: Api, bob: Api, root: Api, platform: Platform, server: S3Server, body: dict[str, Any]
) -> None:
    (await alice.post("/fs", body)).ok(201)
    other = server.bucket()
    link = {"fsName": "sets", "fsPath": "/far/", "url": f"s3://tests/{other.prefix}", "properties": body["properties"]}
    assert (await alice.post("/link", link)).status == 201
    [shown] = (await alice.get("/link/sets")).ok()["linkList"]
    assert shown == {
        "fsName": "sets",
        "fsPath": "/far",
        "serverAddress": server.endpoint,
        "type": "s3",
        "username": "alice",
        "subPath": f"/{other.prefix}",
        "properties": {**body["properties"], "secretKey": "******", "bucket": "tests"},
    }
    assert KEYS.secret_key not in await platform.database.read(all_text)
    storage = await platform.database.read(get_storage, "alice", False, "sets")
    store = platform.stores.open(storage)
    assert isinstance(store, LinkedStore)
    store.write("far/x", b"linked")
    store.close()
    direct = S3Store(other)
    assert direct.read("x", size=10) == b"linked"
    direct.close()
    assert (await alice.get("/link/sets", fsPath="far")).ok()["linkList"] == [shown]
    assert (await alice.get("/link/sets", fsPath="no")).ok()["linkList"] == []
    (await bob.get("/link/sets")).refused(404, "FileSystemNotExist")
    (await bob.delete("/link/sets", fsPath="far")).refused(404, "LinkFileSystemNotExist")
    busy = (await alice.delete("/fs/sets")).refused(409, "FileSystemClientBusy")
    assert "links far" in busy["message"]
    (await alice.delete("/link/sets")).refused(400, "InvalidArguments")
    (await alice.delete("/link/sets", fsPath="nope")).refused(404, "LinkNotExist")
    (await alice.delete("/link/sets", fsPath="/far")).ok()
    (await alice.delete("/fs/sets")).ok()


async def test_bad_links(
    root: Api, alice: Api, platform: Platform, server: S3Server, body: dict[str, Any], tmp_path: Path
) -> None:
    (await root.post("/fs", body)).ok(201)
    (tmp_path / "plain").mkdir()
    (await root.post("/fs", {"name": "plain", "url": f"local://{tmp_path}/plain"})).ok(201)
    other = server.bucket()
    good = {"fsName": "sets", "fsPath": "far", "url": f"s3://tests/{other.prefix}", "properties": body["properties"]}
    store = platform.stores.open(await platform.database.read(get_storage, "root", True, "sets"))
    store.write("full/x", b"")
    store.write("file", b"")
    store.close()
    (await root.post("/link", good)).ok(201)
    for change, status, code in (
        ({}, 409, "LinkPathExist"),
        ({"fsPath": "far/deep"}, 409, "LinkPathExist"),
        ({"fsPath": "full"}, 409, "LinkPathMustBeEmpty"),
        ({"fsPath": "file"}, 409, "LinkPathMustBeEmpty"),
        ({"fsPath": "no/where"}, 404, "LinkFileSystemPathNotExist"),
        ({"fsPath": "a/../b"}, 400, "InvalidArguments"),
        ({"fsPath": "/"}, 400, "InvalidArguments"),
        ({"fsPath": "new", "url": "s4://x"}, 400, "InvalidLinkURL"),
        ({"fsPath": "new", "properties": {"x": "y"}}, 400, "InvalidLinkProperties"),
        ({"fsPath": "new", "url": "s3://no-such-bucket-here"}, 400, "ConnectivityFailed"),
        ({"fsName": "plain"}, 400, "InvalidLinkURL"),
        ({"fsName": "none"}, 404, "LinkFileSystemNotExist"),
    ):
        (await root.post("/link", {**good, **change})).refused(status, code)
    assert len((await root.get("/link/sets")).ok()["linkList"]) == 1
    (await root.post("/grant", {"userName": "alice", "resourceType": "fs", "resourceID": "fs-root-sets"})).ok()
    assert len((await alice.get("/link/sets")).ok()["linkList"]) == 1, "a grant shows links too"
    (await alice.post("/link", {**good, "fsPath": "mine"})).refused(404, "LinkFileSystemNotExist")


async def test_a_link_to_a_folder_stays_in_the_user_s_area(alice: Api, body: dict[str, Any], tmp_path: Path) -> None:
    (await alice.post("/fs", body)).ok(201)
    link = {"fsName": "sets", "fsPath": "near", "url": "local:///etc", "properties": {"debug": "true"}}
    (await alice.post("/link", link)).refused(403, "AccessDenied")
    own = tmp_path / "storage" / "alice" / "near"
    assert (await alice.post("/link", {**link, "url": f"local://{own}"})).status == 201
    assert own.is_dir()


async def test_cache_settings(root: Api, alice: Api, body: dict[str, Any], tmp_path: Path) -> None:
    (await root.post("/fs", body)).ok(201)
    (await root.get("/fsCache/sets")).refused(404, "RecordNotFound")
    settings = {
        "fsName": "sets", "cacheDir": "/nvme/cache", "quota": "20Gi", "metaDriver": "disk", "blockSize": 4096,
        "cleanCache": True, "resource": {"cpuLimit": "2", "memoryLimit": "8Gi"}, "extraConfig": {"a": "b"},
        "nodeTaintToleration": {"key": "x"},
    }  # fmt: skip
    assert (await root.post("/fsCache", settings)).status == 201
    (await root.post("/fsCache", settings)).refused(409, "DuplicatedName")
    shown = (await root.get("/fsCache/sets")).ok()
    assert set(shown) == {
        *("cacheDir", "quota", "metaDriver", "blockSize", "cleanCache", "resource", "nodeTaintToleration"),
        *("extraConfig", "fsName", "username", "createTime", "updateTime", "debug"),
    }
    assert (shown["quota"], shown["metaDriver"], shown["username"]) == (20 * 2**30, "disk", "root")
    (await root.put("/fsCache", {"fsName": "sets"})).ok()
    assert (await root.get("/fsCache/sets")).ok()["quota"] == 0
    for change in (
        {"cacheDir": "relative"}, {"cacheDir": "/a/../b"}, {"quota": -1}, {"quota": "lots"}, {"metaDriver": "badgerdb"},
        {"resource": {"cpuLimit": "3"}}, {"resource": {"memoryLimit": "9Gi"}}, {"blockSize": "x"},
    ):  # fmt: skip
        (await root.put("/fsCache", {**settings, **change})).refused(400, "InvalidArguments")
    (await alice.post("/fsCache", settings)).refused(403, "AccessDenied")
    (await alice.post("/fsCache", {"fsName": "sets"})).refused(404, "FileSystemNotExist")
    (await root.delete("/fsCache/sets")).ok()
    (await root.delete("/fsCache/sets")).refused(404, "RecordNotFound")
