"""Transfers that are interrupted at any request go on where they were, and never mix two versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, NotFound, Unavailable
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.s3 import S3Store
from paddleflow.objects.store import CHUNK, Part
from paddleflow.objects.transfer import download, upload
from paddleflow.testing.stores import Counted, Faulty, fail_nth
from tests.s3_servers import versitygw

LEAST_PART = 5 * 2**20  #: that S3 takes


def test_a_download_goes_on_where_it_was(tmp_path: Path) -> None:
    store, content = MemoryStore(), os.urandom(3 * CHUNK + 5)
    store.write("a", content)
    target = tmp_path / ("n" * 255)
    with pytest.raises(Unavailable):
        download(Faulty(store, fail_nth(4)), "a", target)  # stat, two reads, and no more
    assert not target.exists()
    counted, told = Counted(store), [0]
    download(counted, "a", target, lambda size: told.append(size))
    assert target.read_bytes() == content
    assert counted.calls["read"] == 2
    assert sum(told) == len(content)
    assert list(tmp_path.iterdir()) == [target]


def test_a_part_of_another_version_is_not_used(tmp_path: Path) -> None:
    store = MemoryStore()
    store.write("a", b"1" * (2 * CHUNK))
    with pytest.raises(Unavailable):
        download(Faulty(store, fail_nth(3)), "a", tmp_path / "file")
    store.write("a", b"2" * (2 * CHUNK))
    download(store, "a", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"2" * (2 * CHUNK)


def test_what_is_replaced_while_it_comes_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    store.write("a", b"1" * (2 * CHUNK))

    def replace(size: int) -> None:
        store.write("a", b"2" * (2 * CHUNK))

    with pytest.raises(Conflict):
        download(store, "a", tmp_path / "file", replace)
    assert not (tmp_path / "file").exists()
    with pytest.raises(NotFound):
        download(store, "absent", tmp_path / "absent")


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Store]:
    with versitygw() as server:
        store = S3Store(server.bucket())
        yield store
        store.close()


class _Counted:
    """Counts parts that arrive, and lets one of them fail."""

    def __init__(self, store: S3Store, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
        self.numbers: list[int] = []
        real = store.write_part

        def write_part(key: str, upload: str, number: int, content: bytes) -> Part:
            if number == fails:
                raise Conflict("the store refuses this part")
            self.numbers.append(number)
            return real(key, upload, number, content)

        monkeypatch.setattr(store, "write_part", write_part)


def test_an_upload_sends_only_what_the_store_lacks(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * LEAST_PART + 1)
    (tmp_path / "file").write_bytes(content)
    with monkeypatch.context() as patched:
        _Counted(bucket, patched, fails=3)
        with pytest.raises(Conflict):
            upload(bucket, tmp_path / "file", "large", tmp_path / "notes", part=LEAST_PART, at_once=1)
    with pytest.raises(NotFound):
        bucket.stat("large")
    told = [0]
    with monkeypatch.context() as patched:
        counted = _Counted(bucket, patched, fails=0)
        upload(
            bucket,
            tmp_path / "file",
            "large",
            tmp_path / "notes",
            lambda size: told.append(size),
            part=LEAST_PART,
            at_once=1,
        )
    assert 3 in counted.numbers
    assert not {1, 2} & set(counted.numbers)
    assert sum(told) == len(content)
    assert bucket.read("large", size=len(content) + 1) == content
    assert list((tmp_path / "notes").iterdir()) == []


def test_an_upload_that_the_store_forgot_starts_anew(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(LEAST_PART + 1)
    (tmp_path / "file").write_bytes(content)
    started: list[str] = []
    real = bucket.start_upload

    def start_upload(key: str, **rest: object) -> str:
        started.append(real(key))
        return started[-1]

    monkeypatch.setattr(bucket, "start_upload", start_upload)
    with monkeypatch.context() as patched:
        _Counted(bucket, patched, fails=2)
        with pytest.raises(Conflict):
            upload(bucket, tmp_path / "file", "again", tmp_path / "notes", part=LEAST_PART)
    bucket.abort_upload("again", started[0])
    upload(bucket, tmp_path / "file", "again", tmp_path / "notes", part=LEAST_PART)
    assert bucket.read("again", size=len(content)) == content
    assert len(started) == 2


def test_a_file_that_changes_under_its_upload_is_refused(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * LEAST_PART))
    os.utime(tmp_path / "file", (1, 1))
    with pytest.raises(Conflict, match="changed while"):
        upload(
            bucket,
            tmp_path / "file",
            "moving",
            tmp_path / "notes",
            lambda size: os.utime(tmp_path / "file"),
            part=LEAST_PART,
        )
    with pytest.raises(NotFound):
        bucket.stat("moving")
