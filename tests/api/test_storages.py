"""Routes of storages, on each engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddleflow.access import grants
from paddleflow.base.clock import ManualClock
from paddleflow.storage.model import Place
from paddleflow.storage.storages import Wanted, create_storage, storage_names, usable_storage
from paddleflow.store.database import Database, Tx
from paddleflow.store.statements import compose
from tests.api.access_rows import granted
from tests.api.client import Api
from tests.api.job_rows import add_job, end_jobs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the machine outside of everybody's area."""
    made = tmp_path / "shared" / "set1"
    made.mkdir(parents=True)
    return made


async def grant(root: Api, user: str, storage: str) -> None:
    (await root.post("/grant", {"userName": user, "resourceType": "fs", "resourceID": storage})).ok()


async def test_a_storage_s_life(root: Api, folder: Path) -> None:
    made = await root.post("/fs", {"name": "set1", "url": f"local://{folder}/."})
    assert made.ok(201) == {"fsName": "set1", "fsID": "fs-root-set1"}
    shown = (await root.get("/fs/set1")).ok()
    assert shown == {
        "id": "fs-root-set1",
        "name": "set1",
        "serverAddress": "",
        "type": "local",
        "subPath": str(folder),
        "username": "root",
        "properties": {},
        "independentMountProcess": False,
    }
    other = folder.parent / "set2"
    other.mkdir()
    changed = await root.put("/fs", {"name": "set1", "url": f"local://{other}", "independentMountProcess": True})
    assert changed.ok(201) == {"fsName": "set1", "fsID": "fs-root-set1"}
    assert (await root.get("/fs/set1")).ok() == {**shown, "subPath": str(other), "independentMountProcess": True}
    (folder / "file").write_text("kept")
    assert (await root.delete("/fs/set1")).body == b""
    assert (folder / "file").exists()
    assert other.exists()
    for call in (root.get("/fs/set1"), root.delete("/fs/set1"), root.put("/fs", {"name": "set1"})):
        (await call).refused(404, "FileSystemNotExist")


async def test_the_same_name_again(root: Api, folder: Path) -> None:
    body = {"name": "set1", "url": f"local://{folder}"}
    (await root.post("/fs", body)).ok(201)
    refused = (await root.post("/fs", body)).refused(409, "DuplicatedName")
    assert refused["message"].startswith("fsID[fs-root-set1] is exists (hint: ")


async def test_bad_storages(root: Api, folder: Path, tmp_path: Path) -> None:
    refused = (await root.post("/fs", {"name": "a/b", "url": "local:///", "properties": {"k": "v"}})).refused(
        400, "InvalidArguments"
    )
    assert [fault["where"] for fault in refused["details"]] == ["name", "url", "properties"]
    good = {"name": "set1", "url": f"local://{folder}"}
    for change, code in (
        ({"name": "x" * 64}, "InvalidFileSystemFsName"),
        ({"name": "x" * 56}, "InvalidFileSystemFsName"),
        ({"url": f"local://{folder}/../set1"}, "InvalidFileSystemParamsURL"),
        ({"url": str(folder)}, "InvalidFileSystemParamsURL"),
        ({"url": "s3://bucket/path", "properties": {"accesKey": "x"}}, "InvalidFileSystemParamsProperties"),
        ({"url": "s3://", "properties": {}}, "InvalidFileSystemParamsURL"),
        ({"url": "s3://key:secret@bucket/path"}, "InvalidFileSystemParamsURL"),
        ({"url": "s4://bucket/path"}, "InvalidFileSystemParamsURL"),
        ({"properties": {"accessKey": "x"}}, "InvalidFileSystemParamsProperties"),
        ({"properties": []}, "InvalidArguments"),
        ({"url": 7}, "InvalidArguments"),
        ({"nam": "x"}, "InvalidArguments"),
        ({"url": f"local://{folder}/no"}, "ConnectivityFailed"),
        ({"url": "local:///" + "a/" * 2040}, "ConnectivityFailed"),
    ):
        (await root.post("/fs", {**good, **change})).refused(400, code)
    (await root.post("/fs", {"name": "set1"})).refused(400, "InvalidArguments")
    missing = (await root.post("/fs", {**good, "url": f"local://{folder}/no"})).refused(400, "ConnectivityFailed")
    assert missing["hint"] == f"mkdir -p {folder}/no"
    (await root.post("/fs", {**good, "username": "nobody1"})).refused(404, "UserNotExist")
    assert (await root.get("/fs")).ok()["fsList"] == []
    assert not (tmp_path / "storage").exists()


async def test_who_has_no_storage_is_told_how_to_make_one(alice: Api) -> None:
    refused = await alice.post("/job/single", {"command": "x", "fs": {"name": "work"}})
    hint = next(fault["hint"] for fault in refused.json["details"] if fault["where"] == "fs.name")
    assert hint == "there is none yet; create one with paddleflow fs create NAME local:///FOLDER"


async def test_a_user_has_an_area(alice: Api, tmp_path: Path) -> None:
    own = tmp_path / "storage" / "alice"
    (await alice.post("/fs", {"name": "mine", "url": f"local://{own}/deep/set"})).ok(201)
    assert (own / "deep" / "set").is_dir()
    (await alice.put("/fs", {"name": "mine", "url": f"local://{own}/other"})).ok(201)
    assert (own / "other").is_dir()


async def test_a_user_stays_in_the_area(alice: Api, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "storage" / "alice"
    own.mkdir(parents=True)
    (own / "out").symlink_to(folder)
    for path in (folder, own / "out", own / "out" / "new", tmp_path, tmp_path / "storage" / "bobby", Path("/etc")):
        refused = (await alice.post("/fs", {"name": "x", "url": f"local://{path}"})).refused(403, "AccessDenied")
        assert str(own) in refused["hint"]
    (await alice.post("/fs", {"name": "ok", "url": f"local://{own}/ok"})).ok(201)
    (await alice.put("/fs", {"name": "ok", "url": f"local://{folder}"})).refused(403, "AccessDenied")
    assert not (folder / "new").exists()
    assert not (tmp_path / "storage" / "bobby").exists()


async def test_a_refused_storage_leaves_no_folder(alice: Api, tmp_path: Path) -> None:
    own = tmp_path / "storage" / "alice"
    (await alice.post("/fs", {"name": "mine", "url": f"local://{own}/one"})).ok(201)
    (await alice.post("/fs", {"name": "mine", "url": f"local://{own}/two"})).refused(409, "DuplicatedName")
    (await alice.put("/fs", {"name": "nope", "url": f"local://{own}/three/deep"})).refused(404, "FileSystemNotExist")
    assert sorted(path.name for path in own.iterdir()) == ["one"]


async def test_root_acts_for_a_user(root: Api, alice: Api, bob: Api, folder: Path) -> None:
    (await root.post("/fs", {"name": "set1", "url": f"local://{folder}", "username": "alice"})).ok(201)
    assert (await alice.get("/fs/set1")).ok()["username"] == "alice"
    (await root.get("/fs/set1")).refused(404, "FileSystemNotExist")
    assert (await root.get("/fs/set1", username="alice")).ok()["id"] == "fs-alice-set1"
    assert (await root.get("/fs/fs-alice-set1")).ok()["id"] == "fs-alice-set1"
    (await bob.post("/fs", {"name": "x", "url": "local:///x", "userName": "alice"})).refused(403, "AuthIllegalUser")
    (await bob.get("/fs/set1", username="alice")).refused(403, "AuthIllegalUser")
    (await bob.delete("/fs/set1", username="alice")).refused(403, "AuthIllegalUser")
    (await bob.delete("/fs/set1")).refused(404, "FileSystemNotExist")
    (await root.delete("/fs/set1", username="alice")).ok()


async def test_a_grant_lets_see_and_use_but_not_change(
    root: Api, alice: Api, bob: Api, database: Database, folder: Path
) -> None:
    (await root.post("/fs", {"name": "set1", "url": f"local://{folder}"})).ok(201)
    (await alice.get("/fs/set1")).refused(404, "FileSystemNotExist")
    await grant(root, "alice", "fs-root-set1")
    assert (await alice.get("/fs/set1")).ok()["id"] == "fs-root-set1"
    assert [item["id"] for item in (await alice.get("/fs")).ok()["fsList"]] == ["fs-root-set1"]
    assert (await bob.get("/fs")).ok()["fsList"] == []
    found = await database.read(usable_storage, "alice", False, "set1")
    assert found is not None
    assert found.source == str(folder)
    assert await database.read(usable_storage, "bobby", False, "set1") is None
    assert await database.read(storage_names, "alice", False) == ["set1"]
    refused = (await alice.delete("/fs/set1")).refused(404, "FileSystemNotExist")
    assert refused["hint"] == "it is granted to you: its owner alone can change it"
    (await alice.put("/fs", {"name": "set1", "independentMountProcess": True})).refused(404, "FileSystemNotExist")
    (await root.delete("/fs/set1")).ok()
    assert await granted(database, "alice", "fs") == []


async def test_a_name_granted_twice_needs_the_id(root: Api, alice: Api, bob: Api, folder: Path) -> None:
    for user in ("root", "bobby"):
        (await root.post("/fs", {"name": "set1", "url": f"local://{folder}", "username": user})).ok(201)
        await grant(root, "alice", f"fs-{user}-set1")
    refused = (await alice.get("/fs/set1")).refused(400, "InvalidFileSystemFsName")
    assert refused["hint"] == "say which: fs-root-set1, fs-bobby-set1"
    assert (await alice.get("/fs/fs-bobby-set1")).ok()["username"] == "bobby"


async def test_a_storage_in_use_stays(root: Api, database: Database, folder: Path) -> None:
    (await root.post("/fs", {"name": "set1", "url": f"local://{folder}"})).ok(201)
    await database.write(add_job, "job-1", "default-queue", "pending", storage="fs-root-set1")
    (await root.delete("/fs/set1")).refused(409, "FileSystemClientBusy")
    (await root.put("/fs", {"name": "set1", "url": f"local://{folder.parent}"})).refused(409, "FileSystemClientBusy")
    (await root.put("/fs", {"name": "set1", "url": f"local://{folder}", "independentMountProcess": True})).ok(201)
    await database.write(end_jobs)
    (await root.delete("/fs/set1")).ok()


async def test_pages_newest_first_and_each_once(
    root: Api, alice: Api, bob: Api, database: Database, clock: ManualClock
) -> None:
    def fill(tx: Tx) -> None:
        for number in range(120):
            user = "bobby" if number % 4 == 0 else "alice"
            wanted = Wanted(f"s{number}", user, Place("local", "", "/data"), {}, "", independent=False, confined=False)
            create_storage(tx, wanted, clock.now())
        grants.add(tx, "alice", "fs", "fs-bobby-s8", clock.now())

    await database.write(fill)  # all in one moment of the clock: the order must not depend on it
    newest_first = [f"s{number}" for number in reversed(range(120))]
    assert await walk(root) == newest_first
    assert await walk(alice) == [name for name in newest_first if int(name[1:]) % 4 or name == "s8"]
    assert await walk(bob) == newest_first[3::4]
    assert await walk(root, username="bobby") == newest_first[3::4]
    assert await walk(root, fsName="s7") == ["s7"]
    for bad in ("x", "2023-01-01 00:00:00"):
        (await root.get("/fs", marker=bad)).refused(400, "InvalidMarker")
    (await root.get("/fs", maxKeys=0)).refused(400, "InvalidURI")


async def walk(api: Api, **query: object) -> list[str]:
    names: list[str] = []
    query["maxKeys"] = 13
    while True:
        page = (await api.get("/fs", **query)).ok()
        assert page["marker"] == query.get("marker", "")
        names += [item["name"] for item in page["fsList"]]
        assert page["truncated"] == bool(page["nextMarker"])
        if not page["truncated"]:
            return names
        query["marker"] = page["nextMarker"]


async def test_who_uses_a_storage_is_said(root: Api, database: Database, clock: ManualClock, folder: Path) -> None:
    (await root.post("/fs", {"name": "sets", "url": f"local://{folder}"})).ok(201)
    await database.write(add_job, "job-1", "default-queue", "pending", storage="fs-root-sets")

    def use(tx: Tx) -> None:
        tx.run(
            compose(
                "insert into fs_mounts (id, fs_id, user_name, node, folder, digest, created_at, seen_at) "
                "values ('mount-1', 'fs-root-sets', 'root', 'node-7', '/mnt/sets', 'x', 0, :now)"
            ),
            now=clock.now(),
        )
        tx.run(
            compose(
                "insert into pipelines (seq, name, description, user_name, versions, created_at, updated_at) "
                "values (7, 'p', '', 'root', 1, 0, 0)"
            )
        )
        tx.run(
            compose(
                "insert into pipeline_versions (pipeline, number, fs_name, yaml_path, yaml, user_name, created_at) "
                "values (7, 1, 'sets', 'a.yaml', '', 'root', 0)"
            )
        )
        tx.run(
            compose(
                "insert into schedules (name, description, pipeline, version, user_name, crontab, timezone, catchup, "
                "expire_interval, concurrency, policy, anchor_at, status, message, suspended, created_at, updated_at) "
                "values ('nightly', '', 'ppl-000007', '1', 'root', '@daily', '', 0, 0, 0, 'skip', 0, 'running', '', 0, 0, 0)"
            )
        )

    await database.write(use)
    refused = (await root.delete("/fs/sets")).refused(409, "FileSystemClientBusy")
    assert "jobs job-1; schedules nightly; mounts node-7:/mnt/sets" in refused["message"]
    moved = {"name": "sets", "url": f"local://{folder.parent}"}
    (await root.put("/fs", moved)).refused(409, "FileSystemClientBusy")
    (await root.put("/fs", {"name": "sets", "independentMountProcess": True})).ok(201)
    await database.write(end_jobs)
    clock.at += 3600
    await database.write(lambda tx: tx.run(compose("update schedules set status = 'terminated'")))
    (await root.delete("/fs/sets")).ok()
    assert await database.read(lambda tx: tx.all(compose("select * from fs_mounts"))) == []


async def test_hdfs_is_for_root_and_its_realms_are_words(root: Api, alice: Api) -> None:
    document = {"name": "lake", "url": "hdfs://no-such-host.invalid:9000/"}
    keytab = {"kerberos.principal": "ada@EXAMPLE.COM", "kerberos.keytab.data": "BQI="}
    for properties in ({}, {"user": "hdfs"}, keytab):
        refused = (await alice.post("/fs", {**document, "properties": properties})).refused(403, "AccessDenied")
        assert "trusts what a name node answers" in refused["message"]
        answer = await root.post("/fs", {**document, "properties": properties, "username": "alice"})
        assert "name resolution" in answer.refused(400, "ConnectivityFailed")["message"]
    for name, value in (("realm", "A = {"), ("realm", "[libdefaults]"), ("kdc", "x }"), ("kdc", "-x:1")):
        wrong = {**document, "properties": {**keytab, f"kerberos.{name}": value}}
        (await root.post("/fs", wrong)).refused(400, "InvalidFileSystemParamsProperties")


async def test_types_whose_servers_trust_the_machine_are_made_by_root(root: Api, alice: Api) -> None:
    for url in ("cfs://nas.example/team", "glusterfs://gluster.example:team", "afs://far.example/team"):
        refused = (await alice.post("/fs", {"name": "far", "url": url, "properties": {}})).refused(403, "AccessDenied")
        assert "trusts this machine" in refused["message"]
        assert "-u alice" in refused["hint"]
    for url, words in (
        ("glusterfs://no-such-host.invalid:team", "name resolution"),
        ("cfs://no-such-host.invalid/team", "name resolution"),
        ("afs://far.example/team", "needs username and password"),
        ("glusterfs://gluster.example", "names no volume"),
    ):
        answer = await root.post("/fs", {"name": "far", "url": url, "username": "alice"})
        assert answer.status == 400
        assert words in answer.json["message"]


async def test_a_claim_of_kubernetes(alice: Api) -> None:
    refused = await alice.post("/fs", {"name": "data", "url": "mock://data", "properties": {"pvc": "data"}})
    assert "needs namespace" in refused.refused(400, "InvalidFileSystemParamsProperties")["message"]
    strange = await alice.post(
        "/fs", {"name": "data", "url": "mock://data", "properties": {"pvc": "../x", "namespace": "T"}}
    )
    assert "not a valid Kubernetes name" in strange.refused(400, "InvalidFileSystemParamsProperties")["message"]
    claim = {"pvc": "data", "namespace": "team"}
    (await alice.post("/fs", {"name": "data", "url": "mock://data", "properties": claim})).ok(201)
    shown = (await alice.get("/fs/data")).ok()
    assert (shown["type"], shown["serverAddress"], shown["subPath"]) == ("mock", "", "/data")
    assert shown["properties"] == claim
    answer = await alice.get("/fs/data/files")
    assert answer.status == 400
    assert "only pods can use its files" in answer.json["message"]
