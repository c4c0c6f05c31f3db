"""Routes of registered pipelines, on each engine."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from paddleflow.base.clock import ManualClock
from tests.api.client import Api

TEXT = """\
name: {name}
entry_points:
  main:
    command: echo hello
    docker_env: python:3.11
"""


def raw(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def body(name: str = "flow", **more: Any) -> dict[str, Any]:
    return {"yamlRaw": raw(TEXT.format(name=name)), **more}


@pytest.fixture
async def folder(root: Api, tmp_path: Path) -> Path:
    """A storage of root's with files of all kinds."""
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    (folder / "run.yaml").write_text(TEXT.format(name="flow"))
    (folder / "deep" / "other.yaml").write_text(TEXT.format(name="other"))
    (folder / "out.yaml").symlink_to("/etc/hostname")
    (await root.post("/fs", {"name": "files", "url": f"local://{folder}"})).ok(201)
    return folder


async def test_a_pipeline_s_life(alice: Api, clock: ManualClock) -> None:
    made = (await alice.post("/pipeline", body(desc="first"))).ok(201)
    assert made == {"pipelineID": "ppl-000001", "pipelineVersionID": "1", "name": "flow"}
    clock.advance(60)
    assert (await alice.post("/pipeline/ppl-000001", body())).ok(201) == {
        "pipelineID": "ppl-000001",
        "pipelineVersionID": "2",
    }
    shown = (await alice.get("/pipeline/ppl-000001")).ok()
    pipeline = shown["pipeline"]
    assert (pipeline["name"], pipeline["desc"], pipeline["username"]) == ("flow", "first", "alice")
    assert pipeline["updateTime"] > pipeline["createTime"]
    versions = shown["pplVersions"]["pplVersionList"]
    assert [(v["pipelineVersionID"], v["pipelineID"], v["fsName"], v["yamlPath"], v["username"]) for v in versions] == [
        ("1", "ppl-000001", "", "", "alice"),
        ("2", "ppl-000001", "", "", "alice"),
    ]
    one = (await alice.get("/pipeline/ppl-000001/2")).ok()
    assert one["pipeline"] == pipeline
    assert one["pipelineVersion"]["pipelineYaml"] == TEXT.format(name="flow")
    deleted = await alice.delete("/pipeline/ppl-000001")
    assert (deleted.status, deleted.body) == (200, b"")
    for call in (
        alice.get("/pipeline/ppl-000001"),
        alice.delete("/pipeline/ppl-000001"),
        alice.post("/pipeline/ppl-000001", body()),
    ):
        (await call).refused(404, "PipelineNotFound")
    assert (await alice.post("/pipeline", body())).ok(201)["pipelineID"] == "ppl-000002", "numbers are not used again"


async def test_numbers_of_versions_count_the_deleted_ones_and_the_last_stays(alice: Api) -> None:
    for path in ("/pipeline", "/pipeline/ppl-000001", "/pipeline/ppl-000001"):
        (await alice.post(path, body())).ok(201)
    for version in ("3", "1"):
        assert (await alice.delete(f"/pipeline/ppl-000001/{version}")).ok() is None
    (await alice.delete("/pipeline/ppl-000001/2")).refused(409, "ActionNotAllowed")
    (await alice.delete("/pipeline/ppl-000001/3")).refused(404, "PipelineNotFound")
    assert (await alice.post("/pipeline/ppl-000001", body())).ok(201)["pipelineVersionID"] == "4"
    assert (await alice.get("/pipeline/ppl-000001/5")).refused(404, "PipelineNotFound")["hint"] == "known: 2, 4"


async def test_names_are_unique_per_user_and_stay(alice: Api, bob: Api) -> None:
    (await alice.post("/pipeline", body())).ok(201)
    refused = (await alice.post("/pipeline", body())).refused(409, "DuplicatedName")
    assert "user[alice] already has pipeline[flow], cannot create again, use update instead!" in refused["message"]
    (await bob.post("/pipeline", body())).ok(201)
    refused = (await alice.post("/pipeline/ppl-000001", body("other"))).refused(400, "InvalidArguments")
    assert "pplname[other] in yaml not the same as [flow] of pipeline[ppl-000001]" in refused["message"]


async def test_a_pipeline_belongs_to_its_owner(root: Api, alice: Api, bob: Api) -> None:
    (await alice.post("/pipeline", body())).ok(201)
    for call in (
        bob.get("/pipeline/ppl-000001"),
        bob.get("/pipeline/ppl-000001/1"),
        bob.post("/pipeline/ppl-000001", body()),
        bob.delete("/pipeline/ppl-000001/1"),
        bob.delete("/pipeline/ppl-000001"),
    ):
        refused = (await call).refused(403, "AccessDenied")
        assert "user[bobby] has no access to resource[pipeline] with ID[ppl-000001]" in refused["message"]
    (await root.get("/pipeline/ppl-000001/1")).ok()
    (await bob.post("/pipeline", body(username="alice"))).refused(403, "AuthIllegalUser")
    (await root.post("/pipeline", body("mine", username="alice"))).ok(201)
    listed = (await alice.get("/pipeline")).ok()["pipelineList"]
    assert [item["name"] for item in listed] == ["flow", "mine"]
    assert (await bob.get("/pipeline")).ok()["pipelineList"] == []


async def test_lists_are_paged_and_filtered(root: Api, alice: Api, bob: Api) -> None:
    for n in range(5):
        (await alice.post("/pipeline", body(f"a{n}"))).ok(201)
        (await bob.post("/pipeline", body(f"b{n}"))).ok(201)
    found, marker, pages = [], "", 0
    while True:
        page = (await alice.get("/pipeline", maxKeys=2, marker=marker)).ok()
        found += [item["name"] for item in page["pipelineList"]]
        pages += 1
        assert page["maxKeys"] == 2
        assert page["isTruncated"] is ("nextMarker" in page)
        if not page["isTruncated"]:
            break
        marker = page["nextMarker"]
    assert (found, pages) == ([f"a{n}" for n in range(5)], 3)
    assert len((await root.get("/pipeline")).ok()["pipelineList"]) == 10
    named = (await root.get("/pipeline", userFilter="alice,bobby", nameFilter="a1,b3,a")).ok()["pipelineList"]
    assert [item["name"] for item in named] == ["a1", "b3"]
    assert len((await root.get("/pipeline", userFilter="bobby")).ok()["pipelineList"]) == 5
    (await alice.get("/pipeline", userFilter="bobby")).refused(403, "OnlyRootAllowed")
    for _ in range(3):
        (await alice.post("/pipeline/ppl-000001", body("a0"))).ok(201)
    page = (await alice.get("/pipeline/ppl-000001", maxKeys=3)).ok()["pplVersions"]
    assert [v["pipelineVersionID"] for v in page["pplVersionList"]] == ["1", "2", "3"]
    rest = (await alice.get("/pipeline/ppl-000001", maxKeys=3, marker=page["nextMarker"])).ok()["pplVersions"]
    assert ([v["pipelineVersionID"] for v in rest["pplVersionList"]], rest["isTruncated"]) == (["4"], False)


@pytest.mark.usefixtures("folder")
async def test_documents_are_read_from_a_storage(root: Api) -> None:
    (await root.post("/pipeline", {"fsname": "files"})).ok(201)
    (await root.post("/pipeline", {"fsName": "files", "yamlPath": "deep/other.yaml"})).ok(201)
    version = (await root.get("/pipeline/ppl-000001")).ok()["pplVersions"]["pplVersionList"][0]
    assert (version["fsName"], version["yamlPath"]) == ("files", "./run.yaml")
    (await root.post("/pipeline/ppl-000001", body())).ok(201)
    filtered = (await root.get("/pipeline/ppl-000001", fsFilter="files")).ok()["pplVersions"]["pplVersionList"]
    assert [v["pipelineVersionID"] for v in filtered] == ["1"]


@pytest.mark.usefixtures("folder")
async def test_files_that_cannot_be_read_are_refused_in_words(root: Api, alice: Api) -> None:
    async def read(path: str) -> Any:
        return await root.post("/pipeline", {"fsName": "files", "yamlPath": path})

    assert "No such file" in (await read("none.yaml")).refused(400, "ReadYamlFileFailed")["message"]
    (await read("../../etc/passwd")).refused(400, "ReadYamlFileFailed")
    (await read("out.yaml")).refused(403, "AccessDenied")
    (await read("deep")).refused(400, "ReadYamlFileFailed")
    (await alice.post("/pipeline", {"fsName": "files"})).refused(404, "FileSystemNotExist")
    assert (await root.get("/pipeline")).ok()["pipelineList"] == []


async def test_bad_documents_are_refused_whole(alice: Api) -> None:
    (await alice.post("/pipeline", {"yamlRaw": "%%%"})).refused(400, "Decode base64")
    (await alice.post("/pipeline", {"yamlRaw": raw("a: b: c")})).refused(400, "MalformedYaml")
    (await alice.post("/pipeline", {"yamlRaw": base64.b64encode(b"\xff\xfe").decode()})).refused(400, "MalformedYaml")
    refused = (await alice.post("/pipeline", {"yamlRaw": raw("name: a\nentry_point: {}\ncolour: red\n")})).refused(
        400, "InvalidPipeline"
    )
    assert len(refused["details"]) >= 2
    both = (await alice.post("/pipeline", body(fsName="x"))).refused(400, "InvalidArguments")
    assert both["message"].startswith("you cannot specify FsName while you specified YamlRaw (hint: ")
    path = (await alice.post("/pipeline", body(yamlPath="x"))).refused(400, "InvalidArguments")
    assert path["message"].startswith("you cannot specify YamlPath while you specified YamlRaw (hint: ")
    neither = (await alice.post("/pipeline", {})).refused(400, "InvalidArguments")
    assert "fsname shall not be empty" in neither["message"]
    desc = (await alice.post("/pipeline", body(desc="x" * 257))).refused(400, "InvalidArguments")
    assert "desc too long, should be less than 256" in desc["message"]
    (await alice.post("/pipeline", body(desc="x" * 256))).ok(201)
    assert len((await alice.get("/pipeline")).ok()["pipelineList"]) == 1


ARTIFACT = """\
name: art
{fs}entry_points:
  main:
    command: echo hi > {{{{ out }}}}
    docker_env: python:3.11
    artifacts: {{output: [out]}}
"""


@pytest.mark.usefixtures("folder")
async def test_the_storage_of_the_file_is_not_the_main_storage(root: Api, folder: Path) -> None:
    (folder / "run.yaml").write_text(ARTIFACT.format(fs=""))
    refused = (await root.post("/pipeline", {"fsName": "files"})).refused(400, "InvalidPipeline")
    assert "with no Fs mounted" in refused["message"]
    (folder / "run.yaml").write_text(ARTIFACT.format(fs="fs_options: {main_fs: {name: files}}\n"))
    (await root.post("/pipeline", {"fsName": "files"})).ok(201)
    other = ARTIFACT.format(fs="fs_options: {main_fs: {name: filed}, extra_fs: [{name: nowhere, mount_path: /x}]}\n")
    refused = (await root.post("/pipeline", {"yamlRaw": raw(other)})).refused(400, "FileSystemNotExist")
    assert len(refused["details"]) == 2
    assert refused["hint"] == "did you mean files?"


async def test_a_check_registers_nothing(alice: Api) -> None:
    assert (await alice.post("/pipeline/check", body())).ok() == {"name": "flow"}
    bad = (await alice.post("/pipeline/check", {"yamlRaw": raw("name: 1x\nsteps: {}\n")})).refused(
        400, "InvalidPipeline"
    )
    assert len(bad["details"]) >= 2
    (await alice.post("/pipeline/check", {"yamlRaw": "?"})).refused(400, "Decode base64")
    (await alice.post("/pipeline/check", {})).refused(400, "InvalidArguments")
    assert (await alice.get("/pipeline")).ok()["pipelineList"] == []


async def test_ids_that_are_none(alice: Api) -> None:
    for id in ("ppl-1", "ppl-000009", "ppl-0000001", "x", "ppl-" + "9" * 30):
        (await alice.get(f"/pipeline/{id}")).refused(404, "PipelineNotFound")
    (await alice.post("/pipeline", body())).ok(201)
    for version in ("0", "01", "x", "9" * 30):
        (await alice.get(f"/pipeline/ppl-000001/{version}")).refused(404, "PipelineNotFound")
