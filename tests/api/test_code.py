"""Routes of code snapshots: send, keep, use in a job, give back."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddleflow.api.platform import Platform
from paddleflow.jobs.code import FOLDER, CodeStore
from paddleflow.spec.code import CodeFile, Manifest, Part, pack_chunk
from tests.api.client import Api
from tests.patience import soon

CONTENT = b"print('hello')"
NAME = hashlib.sha256(CONTENT).hexdigest()
MANIFEST = Manifest((CodeFile("train.py", len(CONTENT), False, (Part(NAME, 0, len(CONTENT)),)),))


async def sent(api: Api) -> str:
    assert (await api.post("/code/missing", MANIFEST.to_json())).ok() == {"id": MANIFEST.id, "missing": [NAME]}
    assert (await api.post("/code/chunks", pack_chunk(CONTENT))).ok() == {"stored": 1}
    made = (await api.post("/code", MANIFEST.to_json())).ok()
    assert made == {"id": MANIFEST.id, "files": 1, "size": len(CONTENT)}
    return str(made["id"])


@pytest.mark.usefixtures("ready")
async def test_a_job_s_code_can_be_had_again(alice: Api, bob: Api, root: Api) -> None:
    code = {"snapshot": await sent(alice), "git": {"commit": "ab12", "dirty": True}}
    job = (await alice.post("/job/single", {"command": "python train.py", "code": code})).ok()["id"]
    assert (await alice.get(f"/job/{job}")).ok()["code"] == code
    for api in (alice, root):
        answer = await api.get(f"/job/{job}/code")
        with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
            found = archive.extractfile("train.py")
            assert found is not None
            assert found.read() == CONTENT
    (await bob.get(f"/job/{job}/code")).refused(403, "AccessDenied")
    assert (await bob.post("/code/missing", MANIFEST.to_json())).ok()["missing"] == [NAME], (
        "what others sent is not shown"
    )


@pytest.mark.usefixtures("ready")
async def test_it_is_kept_and_read_by_the_user_s_threads_for_files(alice: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which each user has a few: large snapshots of one keep nobody's small files waiting."""
    threads: set[str] = set()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            threads.add(threading.current_thread().name.partition("_")[0])
            return function(*args)

        return call

    for name in ("missing", "put_chunk", "put_manifest", "contents"):
        monkeypatch.setattr(CodeStore, name, noted(getattr(CodeStore, name)))
    job = (await alice.post("/job/single", {"command": "true", "code": {"snapshot": await sent(alice)}})).ok()["id"]
    assert (await alice.get(f"/job/{job}/code")).status == 200
    assert threads == {"files"}


@pytest.mark.usefixtures("ready")
async def test_no_request_leaves_a_descriptor_open(alice: Api, platform: Platform) -> None:
    """Of which a server has a few thousand; what is closed by whoever waits for a thread is closed soon."""
    snapshot = await sent(alice)
    job = (await alice.post("/job/single", {"command": "true", "code": {"snapshot": snapshot}})).ok()["id"]
    folder = str(platform.settings.files_folder / FOLDER)

    def opened() -> int:
        return sum(os.path.realpath(each) == folder for each in Path("/proc/self/fd").iterdir())

    for _ in range(5):
        (await alice.post("/code/missing", MANIFEST.to_json())).ok()
        (await alice.post("/code/chunks", pack_chunk(CONTENT))).ok()
        (await alice.post("/code", MANIFEST.to_json())).ok()
        assert (await alice.get(f"/job/{job}/code")).status == 200
    await soon(lambda: not opened(), "all are closed")


@pytest.mark.usefixtures("ready")
async def test_members_have_the_job_s_code(alice: Api) -> None:
    members = [{"role": "worker", "replicas": 2, "command": "true"}]
    document = {"framework": "pytorch", "members": members, "code": {"path": "/srv/project"}}
    job = (await alice.post("/job/distributed", document)).ok()["id"]
    assert (await alice.get(f"/job/{job}")).ok()["members"][0]["code"] == {"path": "/srv/project"}


@pytest.mark.usefixtures("ready")
async def test_a_job_without_a_snapshot_has_none_to_give(alice: Api) -> None:
    job = (await alice.post("/job/single", {"command": "true"})).ok()["id"]
    (await alice.get(f"/job/{job}/code")).refused(404, "CodeNotFound")
    (await alice.get("/job/absent/code")).refused(404, "JobNotFound")


async def test_what_is_not_whole_is_not_kept(alice: Api) -> None:
    (await alice.post("/code", MANIFEST.to_json())).refused(409, "CodeIncomplete")
    (await alice.post("/code/chunks", b"nonsense")).refused(400, "InvalidCode")
    (await alice.post("/code/chunks", bytes(17 * 2**20))).refused(413, "InvalidHTTPRequest")
    (await alice.post("/code", {"files": [["../x", 0, False, []]]})).refused(400, "InvalidCode")
    (await alice.post("/code", b"{")).refused(400, "MalformedJSON")


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    "code",
    [
        {"snapshot": "x"},
        {"snapshot": "a" * 64, "path": "/x"},
        {},
        {"path": "relative"},
        {"path": "/x", "workdir": "../y"},
        {"path": "/x", "git": {"commit": "no hash"}},
    ],
)
async def test_references_that_mean_nothing(alice: Api, code: dict[str, Any]) -> None:
    (await alice.post("/job/single", {"command": "true", "code": code})).refused(400, "JobInvalidField")


async def test_who_shares_files_is_told(root: Api, alice: Api) -> None:
    """Jobs of others are isolated: they would not find a folder of the caller's."""
    assert len((await root.get("/whoami")).ok()["host"]) == 64
    assert (await alice.get("/whoami")).ok()["host"] == ""


async def test_manifests_and_the_number_of_files_count(alice: Api, platform: Platform) -> None:
    """Many snapshots may share one small chunk, and a chunk may be one byte: both would fill the disk for everybody."""
    object.__setattr__(platform.settings.jobs, "code_limit", "320Ki")  # five files
    await sent(alice)
    for number in range(3):
        file = CodeFile(f"{number}.py", len(CONTENT), False, MANIFEST.files[0].parts)
        (await alice.post("/code", Manifest((file,)).to_json())).ok()
    (await alice.post("/code/chunks", pack_chunk(b"1"))).refused(400, "CodeOverQuota")
    file = CodeFile("more.py", len(CONTENT), False, MANIFEST.files[0].parts)
    (await alice.post("/code", Manifest((file,)).to_json())).refused(400, "CodeOverQuota")
    (await alice.post("/code", MANIFEST.to_json())).ok()  # it is there already
