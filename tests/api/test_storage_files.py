"""Routes of the files in a storage: who sees what, ranges, uploads that go on after a break."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from paddleflow.base.clock import ManualClock
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import Entry, Kind
from paddleflow.settings import Settings
from paddleflow.storage.files import MOST_PART, MOST_PARTS, MOST_UPLOADS, UPLOAD_KEPT
from paddleflow.storage.mounts import LIFETIME
from paddleflow.storage.storages import MOUNT_LOST
from tests.api.client import Api
from tests.patience import soon


@pytest.fixture
async def folder(alice: Api, settings_area: Path) -> Path:
    (await alice.post("/fs", {"name": "team", "url": f"local://{settings_area}/alice/team"})).ok(201)
    return settings_area / "alice" / "team"


@pytest.fixture
def settings_area(tmp_path: Path) -> Path:
    return tmp_path / "storage"


async def names(api: Api, path: str = "", **query: object) -> list[str]:
    return [each["path"] for each in (await api.get("/fs/team/files", path=path, **query)).ok()["files"]]


async def test_files_come_and_go(alice: Api, folder: Path) -> None:
    made = (await alice.put("/fs/team/content", b"0123456789", path="a/b.txt")).ok()
    assert (made["path"], made["kind"], made["size"]) == ("a/b.txt", "file", 10)
    assert (folder / "a" / "b.txt").read_bytes() == b"0123456789"
    assert (await alice.get("/fs/team/stat", path="/a/b.txt")).ok() == made
    (await alice.post("/fs/team/folders", path="c/d")).ok()
    assert await names(alice) == ["a", "c"]
    assert await names(alice, "a") == ["a/b.txt"]
    assert (await alice.get("/fs/team/content", path="a/b.txt")).body == b"0123456789"
    (await alice.delete("/fs/team/files", path="c")).refused(409, "FolderNotEmpty")
    assert (await alice.delete("/fs/team/files", path="c", recursive="true")).ok() == {"removed": 0}
    assert (await alice.delete("/fs/team/files", path="a", recursive="true")).ok() == {"removed": 1}
    (await alice.get("/fs/team/stat", path="a")).refused(404, "ResourceNotFound")


async def test_pages_are_by_name(alice: Api, folder: Path) -> None:
    for number in range(25):
        (folder / f"{number:02d}").touch()
    found, marker = [], ""
    while True:
        page = (await alice.get("/fs/team/files", marker=marker, maxKeys=4)).ok()
        found += [each["path"] for each in page["files"]]
        marker = page["nextMarker"]
        if not page["truncated"]:
            break
    assert found == [f"{number:02d}" for number in range(25)]


@pytest.mark.usefixtures("folder")
async def test_a_listing_ends_when_its_client_has_left(alice: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is a server of the user's may list without end."""
    loop, begun, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def list_entries(self: LocalStore, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        loop.call_soon_threadsafe(begun.set)
        try:
            while True:
                yield Entry("same", Kind.FILE)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(LocalStore, "list_entries", list_entries)
    assert await alice.leave("GET", "/fs/team/files", begun) == []
    await soon(ended.is_set, "the listing has ended", seconds=30)


async def test_names_that_are_not_utf8_are_shown_and_hide_no_others(alice: Api, folder: Path) -> None:
    for name in (b"caf\xe9", b"a", b"z"):
        (folder / os.fsdecode(name)).touch()
    assert await names(alice) == ["a", "caf\\udce9", "z"]
    page = (await alice.get("/fs/team/files", maxKeys=2)).ok()
    assert (page["nextMarker"], await names(alice, marker=page["nextMarker"])) == ("caf\\udce9", ["z"])


async def test_ranges(alice: Api, folder: Path) -> None:
    (folder / "f").write_bytes(b"0123456789")
    for given, body, shown in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ):
        answer = await alice.call("GET", "/fs/team/content", query={"path": "f"}, headers={"range": given})
        assert (answer.status, answer.body, answer.headers["content-range"]) == (206, body, shown)
    for given in ("bytes=10-", "bytes=-0", "bytes=5-2"):
        answer = await alice.call("GET", "/fs/team/content", query={"path": "f"}, headers={"range": given})
        answer.refused(416, "InvalidRange")
        assert answer.headers["content-range"] == "bytes */10"
    answer = await alice.get("/fs/team/content", path="f", offset=3, size=4)
    assert (answer.body, answer.headers["content-length"]) == (b"3456", "4")
    tag = (await alice.get("/fs/team/stat", path="f")).ok()["tag"]
    (folder / "f").write_bytes(b"changed")
    (await alice.get("/fs/team/content", path="f", tag=tag)).refused(409, "ContentChanged")


async def test_an_upload_by_parts_goes_on_where_it_was(alice: Api, folder: Path) -> None:
    upload = (await alice.post("/fs/team/uploads", path="big")).ok()["uploadID"]
    where = f"/fs/team/uploads/{upload}"
    parts = [b"a" * 100_000, b"b" * 70_000, b"c"]
    for number in (1, 3):
        content = parts[number - 1]
        good = hashlib.sha256(content).hexdigest()
        assert (await alice.put(where, content, part=number, sha256=good)).ok() == {
            "part": number,
            "size": len(content),
        }
    (await alice.put(where, parts[1], part=2, sha256="0" * 64)).refused(400, "BadDigest")
    (await alice.post(where, path="big")).refused(409, "UploadIncomplete")
    assert [each["part"] for each in (await alice.get(where)).ok()["parts"]] == [1, 3]
    assert await names(alice) == []
    (await alice.put(where, parts[1], part=2)).ok()
    assert (await alice.post(where, path="big")).ok()["size"] == 170_001
    assert (folder / "big").read_bytes() == b"".join(parts)
    (await alice.post(where, path="big")).refused(404, "UploadNotFound")
    assert not list((folder / ".pf-uploads").iterdir())


async def test_an_upload_that_is_given_up(alice: Api, folder: Path) -> None:
    upload = (await alice.post("/fs/team/uploads", path="big")).ok()["uploadID"]
    (await alice.put(f"/fs/team/uploads/{upload}", b"x", part=1)).ok()
    for _ in range(2):
        (await alice.delete(f"/fs/team/uploads/{upload}")).ok()
    assert not list((folder / ".pf-uploads").iterdir())
    (await alice.put("/fs/team/uploads/..", b"x", part=1)).refused(400, "InvalidArguments")
    (await alice.put(f"/fs/team/uploads/{upload}", b"x", part=0)).refused(400, "InvalidArguments")
    (await alice.put(f"/fs/team/uploads/{upload}", b"x", part=MOST_PARTS + 1)).refused(400, "InvalidURI")


async def test_a_part_that_a_job_put_there_is_no_larger_than_others(alice: Api, folder: Path) -> None:
    """A sparse file costs its writer nothing, and would be written out byte by byte when the upload is finished."""
    upload = (await alice.post("/fs/team/uploads", path="big")).ok()["uploadID"]
    with (folder / ".pf-uploads" / upload / "00001").open("wb") as file:
        file.truncate(MOST_PART + 1)
    answer = (await alice.post(f"/fs/team/uploads/{upload}", path="big")).refused(400, "InvalidArguments")
    assert "part 1 of upload" in answer["message"]
    assert not (folder / "big").exists()


@pytest.mark.usefixtures("folder")
async def test_the_token_of_a_mount_is_for_one_storage_and_for_an_hour(
    alice: Api, settings_area: Path, clock: ManualClock
) -> None:
    (await alice.post("/fs", {"name": "other", "url": f"local://{settings_area}/alice/other"})).ok(201)
    machine = {"node": "n", "folder": "/mnt"}
    team, other = [(await alice.post(f"/fs/{name}/mounts", machine)).ok(201) for name in ("team", "other")]
    reader = (await alice.post("/fs/team/mounts", {**machine, "readOnly": True})).ok(201)
    mount, reading = alice.with_token(team["token"]), alice.with_token(reader["token"])
    (await mount.put("/fs/team/content", b"x", path="f")).ok()
    assert (await reading.get("/fs/team/content", path="f")).body == b"x"
    for answer in (
        await mount.put("/fs/other/content", b"x", path="f"),
        await mount.put(f"/fs/other/mounts/{other['mountID']}", {}),
        await mount.delete(f"/fs/other/mounts/{other['mountID']}"),
    ):
        assert "is for a mount of" in answer.refused(403, "AccessDenied")["message"]
    (await reading.put("/fs/team/content", b"x", path="f")).refused(403, "TokenScopeTooSmall")
    (await reading.post("/fs/team/uploads", path="f")).refused(403, "TokenScopeTooSmall")
    (await reading.post("/fs/team/mounts", machine)).refused(403, "TokenScopeTooSmall")
    clock.advance(LIFETIME + 1)
    (await mount.get("/fs/team/content", path="f")).refused(401, "AuthInvalidToken")
    (await mount.put(f"/fs/team/mounts/{team['mountID']}", {})).refused(401, "AuthInvalidToken")


@pytest.mark.usefixtures("folder")
async def test_a_mount_made_with_a_named_token_ends_with_it(alice: Api, clock: ManualClock) -> None:
    """Whoever stole a token would keep the files by reports of a mount, after it was revoked or has run out."""
    machine = {"node": "n", "folder": "/mnt"}
    for name in ("revoked", "run-out"):
        token = (await alice.post("/token", {"name": name, "hours": 0.5})).ok()["token"]
        made = (await alice.with_token(token).post("/fs/team/mounts", machine)).ok(201)
        mount = alice.with_token(made["token"])
        (await mount.put(f"/fs/team/mounts/{made['mountID']}", {})).ok()
        (await mount.get("/fs/team/files")).ok()
        if name == "revoked":
            (await alice.delete(f"/token/{name}")).ok()
        else:
            clock.advance(1801)
        (await mount.get("/fs/team/files")).refused(401, "AuthInvalidToken")


@pytest.mark.usefixtures("folder")
async def test_the_mounts_of_a_user_are_limited(alice: Api, bob: Api, settings: Settings, clock: ManualClock) -> None:
    """Those that do not report any more make room, and their tokens end; others are untouched."""
    machine, most = {"node": "n", "folder": "/mnt"}, settings.server.max_mounts
    made = [(await alice.post("/fs/team/mounts", machine)).ok(201) for _ in range(most)]
    answer = (await alice.post("/fs/team/mounts", machine)).refused(400, "TooManyMounts")
    assert answer["message"].startswith(f"user[alice] has {most} mounts, the most that a user may have")
    (await bob.post("/fs", {"name": "own", "url": f"local://{settings.data_folder}/storage/bobby/own"})).ok(201)
    (await bob.post("/fs/own/mounts", machine)).ok(201)
    (await alice.delete(f"/fs/team/mounts/{made[0]['mountID']}")).ok()
    made[0] = (await alice.post("/fs/team/mounts", machine)).ok(201)
    clock.advance(MOUNT_LOST - 1)
    await _report(alice, made[0])
    clock.advance(2)
    (await alice.post("/fs/team/mounts", machine)).ok(201)
    await _report(alice, made[0])
    (await alice.with_token(made[1]["token"]).get("/fs/team/files")).refused(401, "AuthInvalidToken")
    listed = (await alice.get("/fs/team/mounts")).ok()["mountList"]
    assert len(listed) == 2


async def _report(alice: Api, mount: dict[str, str]) -> None:
    (await alice.with_token(mount["token"]).put(f"/fs/team/mounts/{mount['mountID']}", {})).ok()


async def test_an_upload_that_was_never_started_takes_nothing(alice: Api, folder: Path) -> None:
    where = f"/fs/team/uploads/{'0' * 32}"
    (await alice.put(where, b"x", part=1)).refused(404, "UploadNotFound")
    (await alice.get(where)).refused(404, "UploadNotFound")
    assert not (folder / ".pf-uploads").exists()


async def test_uploads_that_are_never_finished_are_bounded_and_removed(
    alice: Api, folder: Path, clock: ManualClock
) -> None:
    given_up, goes_on = [(await alice.post("/fs/team/uploads", path="big")).ok()["uploadID"] for _ in range(2)]
    place = folder / ".pf-uploads"
    for number in range(MOST_UPLOADS - 2):
        (place / f"{number:032x}").mkdir()
        (place / f"{number:032x}" / "00001").touch()
    (place / "not-an-upload").touch()
    (await alice.post("/fs/team/uploads", path="big")).refused(400, "TooManyUploads")
    long_ago = clock.now() - UPLOAD_KEPT - 1
    for each in sorted(place.rglob("*"), reverse=True):
        os.utime(each, (long_ago, long_ago))
    (await alice.put(f"/fs/team/uploads/{goes_on}", b"x", part=1)).ok()
    new = (await alice.post("/fs/team/uploads", path="big")).ok()["uploadID"]
    assert {each.name for each in place.iterdir()} == {goes_on, new, "not-an-upload"}
    (await alice.put(f"/fs/team/uploads/{given_up}", b"x", part=1)).refused(404, "UploadNotFound")


async def test_unfinished_uploads_of_a_user_are_bounded_in_bytes(
    alice: Api, bob: Api, folder: Path, settings: Settings
) -> None:
    """Of all storages together; those that were finished or given up do not count, and nobody else is refused."""
    (await alice.post("/fs", {"name": "other", "url": f"local://{folder.parent}/other"})).ok(201)
    content, where = b"x" * 700_000, []
    for name in ("team", "other", "team"):
        upload = (await alice.post(f"/fs/{name}/uploads", path="big")).ok()["uploadID"]
        where.append(f"/fs/{name}/uploads/{upload}")
    for each in where[:2]:
        (await alice.put(each, content, part=1)).ok()
    refused = (await alice.put(where[2], content, part=1)).refused(413, "UploadsOverQuota")
    assert "unfinished uploads of user[alice] have" in refused["message"]
    (await bob.post("/fs", {"name": "own", "url": f"local://{settings.data_folder}/storage/bobby/own"})).ok(201)
    upload = (await bob.post("/fs/own/uploads", path="big")).ok()["uploadID"]
    (await bob.put(f"/fs/own/uploads/{upload}", content, part=1)).ok()
    (await alice.post(where[0], path="big")).ok()
    (await alice.put(where[2], content, part=1)).ok()
    (await alice.put(where[2], content, part=2)).refused(413, "UploadsOverQuota")
    (await alice.delete(where[1])).ok()
    (await alice.put(where[2], content, part=2)).ok()


async def test_nobody_sees_what_is_not_theirs(alice: Api, bob: Api, root: Api, folder: Path, tmp_path: Path) -> None:
    (folder / "f").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "out").symlink_to(tmp_path / "secret")
    (await bob.get("/fs/team/content", path="f")).refused(404, "FileSystemNotExist")
    (await bob.get("/fs/team/content", path="f", username="alice")).refused(403, "AuthIllegalUser")
    (await alice.get("/fs/team/content", path="out")).refused(403, "AccessDenied")
    for path in ("../secret", "a/../../secret"):
        (await alice.get("/fs/team/content", path=path)).refused(400, "InvalidArguments")
        (await alice.put("/fs/team/content", b"x", path=path)).refused(400, "InvalidArguments")
    (await alice.get("/fs/team/content", path=".pf-uploads/x")).refused(400, "InvalidArguments")
    (await root.post("/grant", {"userName": "bobby", "resourceType": "fs", "resourceID": "fs-alice-team"})).ok()
    assert (await bob.get("/fs/team/content", path="f")).body == b"x"


async def test_wrong_kinds(alice: Api, folder: Path) -> None:
    (folder / "d").mkdir()
    (await alice.get("/fs/team/content", path="d")).refused(409, "ActionNotAllowed")
    (await alice.put("/fs/team/content", b"x", path="d")).refused(409, "ActionNotAllowed")
    (await alice.put("/fs/team/content", b"x")).refused(400, "InvalidArguments")
    (await alice.put("/fs/team/content", b"x", path="f")).ok()
    (await alice.put("/fs/team/content", b"y", path="f", ifAbsent="true")).refused(409, "AlreadyExists")
    assert (folder / "f").read_bytes() == b"x"


async def test_what_was_asked_for_by_head_alone_is_closed(alice: Api, folder: Path) -> None:
    """Sixteen downloads at once are all that a user has, and each holds a descriptor."""
    (folder / "f").write_bytes(b"0123456789")
    for _ in range(40):
        answer = await alice.call("HEAD", "/fs/team/content", query={"path": "f"})
        assert (answer.status, answer.headers["content-length"]) == (200, "10")
    await soon(lambda: not any(f"{folder}" in target for target in open_files()), "no descriptor is left")


def open_files() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(link.readlink()))
    return found


async def test_hostile_files_and_paths(alice: Api, folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("..")
    with (folder / "sparse").open("wb") as file:
        file.truncate(8 * 2**40)
    (await alice.get("/fs/team/content", path="fifo")).refused(409, "ActionNotAllowed")
    (await alice.put("/fs/team/content", b"x", path="fifo")).ok()  # replaced, not written into
    for path in ("out", "up/../passwd", "../secret", "a/../../b", "up/other", "a\0b"):
        answer = await alice.get("/fs/team/content", path=path)
        assert answer.status in (400, 403, 404, 409), (path, answer.status)
        assert b"root:" not in answer.body
    answer = await alice.get("/fs/team/content", path="sparse", offset=8 * 2**40 - 3)
    assert answer.body == b"\0\0\0"
    huge = {"range": f"bytes={'9' * 5000}-"}
    assert (await alice.call("HEAD", "/fs/team/content", query={"path": "sparse"}, headers=huge)).status == 206
    upload = (await alice.post("/fs/team/uploads", path="new")).ok()["uploadID"]
    (await alice.put(f"/fs/team/uploads/{upload}", b"x", path="new", part=1)).ok()
    (folder / ".pf-uploads" / upload / "not a part").touch()
    assert (await alice.get(f"/fs/team/uploads/{upload}", path="new")).ok()["parts"] == [{"part": 1, "size": 1}]
    assert (await alice.post(f"/fs/team/uploads/{upload}", path="new")).ok()["size"] == 1
