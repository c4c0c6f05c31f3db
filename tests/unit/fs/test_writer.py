"""What waits for its upload: notes that survive, conflicts, stores that come back, at every point of a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddleflow.errors import Conflict, Forbidden, NotFound, OverQuota, Unavailable
from paddleflow.fs.journal import MOST_CONTENT
from paddleflow.fs.writer import DRAIN_SECONDS, PART, STAGED, UPLOADS_AT_ONCE, WHOLE, Changed, Commit, Staging
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.s3 import S3Store
from paddleflow.objects.store import Entry, Part
from paddleflow.testing.stores import Faulty, fail_nth
from tests.patience import eventually
from tests.s3_servers import versitygw


def stage(staging: Staging, content: bytes, commit: Commit | None) -> Path:
    path = staging.new_path()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, content)
    if commit is not None:
        staging.commit(path, fd, commit)
    os.close(fd)
    return path


def content_of(store: MemoryStore) -> dict[str, bytes]:
    return {entry.key: store.read(entry.key, size=1000) for entry in store.list_entries()}


def test_what_has_a_note_is_uploaded_by_the_next_mount(tmp_path: Path) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    stage(staging, b"acknowledged", Commit("a", {"mode": "600"}, ""))
    stage(staging, b"not", None)
    assert Staging([tmp_path], store).recover() == 1
    assert content_of(store) == {"a": b"acknowledged"}
    assert store.stat("a").metadata["mode"] == "600"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_request_of_the_recovery_loses_nothing(tmp_path: Path, after: bool) -> None:
    for number in range(1, 8):
        store, folder = MemoryStore(), tmp_path / str(number)
        base = store.write("a", b"old").tag
        stage(Staging([folder], store), b"new", Commit("a", {}, base))
        Staging([folder], Faulty(store, fail_nth(number), after=after)).recover()
        Staging([folder], store).recover()
        assert content_of(store) == {"a": b"new"}, number
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("words", [{"mode": "600"}, {}])
def test_an_earlier_version_of_this_machine_is_no_conflict(tmp_path: Path, words: dict[str, str]) -> None:
    """Changed and committed again while an upload went on, which arrived, and then killed: nobody had written down its version."""
    store = MemoryStore()
    base, staging = store.write("a", b"old").tag, Staging([tmp_path], store)
    path = stage(staging, b"first", Commit("a", words, base))
    fd = os.open(path, os.O_RDWR)
    staging.upload(fd, Commit("a", words, base, path.stem))
    os.pwrite(fd, b"second", 0)
    staging.commit(path, fd, Commit("a", words, base, again=True))
    os.close(fd)
    assert Staging([tmp_path], store).recover() == 1
    assert content_of(store) == {"a": b"second"}


def test_a_version_of_somebody_else_is_kept(tmp_path: Path) -> None:
    store = MemoryStore()
    base = store.write("a", b"old").tag
    path = stage(Staging([tmp_path], store), b"mine", Commit("a", {}, base))
    store.write("a", b"theirs")
    Staging([tmp_path], store).recover()
    assert content_of(store) == {"a": b"theirs", f"a.conflict-{path.stem}": b"mine"}


def test_a_damaged_note_keeps_its_file(tmp_path: Path) -> None:
    staging = Staging([tmp_path], MemoryStore())
    content = bytes(MOST_CONTENT + 1)  # the note of a smaller one is also in the journal
    path = stage(staging, content, Commit("a", {}, ""))
    path.with_suffix(".note").write_text("{")
    assert staging.recover() == 0
    assert path.read_bytes() == content


def test_of_two_versions_of_a_staged_file_the_later_one_is_uploaded(tmp_path: Path) -> None:
    """Killed when the second had its note and the first still had its own."""
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    path = tmp_path / "ab.data"
    for content in (b"0", b"1", b"2"):
        path.write_bytes(content)
        with path.open("rb") as file:
            staging.commit(path, file.fileno(), Commit("a", {"mode": "600"}, ""))
        path = staging.new_path(after=path)
    assert path.name == "ab.3.data"
    assert Staging([tmp_path], store).recover() == 1
    assert content_of(store) == {"a": b"2"}
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_replaced_another_that_was_on_its_way_is_no_conflict(tmp_path: Path) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    old = stage(staging, b"old", None)
    with old.open("rb") as file:
        staging.upload(file.fileno(), Commit("a", {"mode": "600"}, "", old.stem))
    stage(staging, b"new", Commit("a", {"mode": "600"}, "the tag of an earlier version", over=old.stem))
    Staging([tmp_path], store).recover()
    assert content_of(store) == {"a": b"new"}


@pytest.mark.parametrize("size", [10, 5 * 2**20, 20 * 2**20])
def test_a_file_that_is_written_to_while_it_is_uploaded_is_not_seen(tmp_path: Path, size: int) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    path = stage(staging, bytes(size), None)
    answers = iter([size > WHOLE])  # a large one is looked at when it has been read, too
    with path.open("rb") as file, pytest.raises(Changed):
        staging.upload(file.fileno(), Commit("a", {}, ""), lambda: next(answers, False))
    assert content_of(store) == {}


def test_uploads_are_tried_until_the_store_is_back(tmp_path: Path) -> None:
    staging = Staging([tmp_path], MemoryStore())
    left = [Unavailable("away"), Unavailable("away")]
    done: list[int] = []

    def work() -> None:
        if left:
            raise left.pop()
        done.append(1)

    staging.upload_later(work, "a")
    eventually(lambda: done)
    eventually(lambda: staging.figures["waiting"] == 0)
    assert staging.figures["failed"] == 0


def test_an_unmount_does_not_wait_until_uploads_begin_by_themselves(tmp_path: Path) -> None:
    staging = Staging([tmp_path], MemoryStore(), later=DRAIN_SECONDS * 2)
    done: list[int] = []
    staging.upload_later(lambda: done.append(1), "a")
    assert not done
    staging.drain()
    assert done == [1]


def test_a_refused_upload_is_counted_and_kept(tmp_path: Path) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    path = stage(staging, b"x", Commit("a", {}, ""))

    def work() -> None:
        raise Forbidden("no")

    for _ in range(2 * UPLOADS_AT_ONCE):  # refused ones keep nobody from uploading
        staging.upload_later(work, "a")
    others: list[int] = []
    staging.upload_later(lambda: others.append(1), "b")
    eventually(lambda: others)
    eventually(lambda: staging.figures["failed"] == staging.figures["waiting"] == 2 * UPLOADS_AT_ONCE)
    staging.drain()
    assert path.exists()


def test_a_refused_upload_is_tried_again(tmp_path: Path) -> None:
    """Keys that have expired may be renewed, and a quota raised, while files wait."""
    staging = Staging([tmp_path], MemoryStore(), refused_pause=0.01)
    left = [Forbidden("expired"), OverQuota("full"), Forbidden("expired")]
    done: list[int] = []

    def work() -> None:
        if left:
            raise left.pop()
        done.append(1)

    staging.upload_later(work, "a")
    eventually(lambda: done)
    eventually(lambda: staging.figures["waiting"] == staging.figures["failed"] == 0)


class Late(MemoryStore):
    """A request of a worker that was killed arrives when the next one has looked at what the store has."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Callable[[], object]] = []

    def stat(self, key: str) -> Entry:
        found = super().stat(key)
        while self.late:
            self.late.pop()()
        return found


def test_a_request_that_arrives_late_does_not_replace_a_later_version(tmp_path: Path) -> None:
    store = Late()
    base = store.write("a", b"old").tag
    path = stage(Staging([tmp_path], store), b"second", Commit("a", {"mode": "600"}, base))
    words = {"mode": "600", STAGED: path.stem}
    store.late.append(lambda: store.write("a", b"first", metadata=words, if_tag=base))
    assert Staging([tmp_path], store).recover() == 1
    assert content_of(store) == {"a": b"second"}
    with pytest.raises(Conflict):
        store.write("a", b"first", metadata=words, if_tag=base)


@pytest.mark.parametrize("there", [False, True])
def test_the_last_close_wins(tmp_path: Path, there: bool) -> None:
    store = MemoryStore()
    replaces = store.write("a", b"old").tag if there else ""
    store.write("a", b"theirs")
    staging = Staging([tmp_path], store)
    path = stage(staging, b"mine", None)
    with path.open("rb") as file:
        entry = staging.upload(file.fileno(), Commit("a", {}, replaces))
    assert (store.read("a", size=10), store.stat("a").tag) == (b"mine", entry.tag)


def test_a_lost_answer_is_no_conflict(tmp_path: Path) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], Faulty(store, fail_nth(1), after=True))
    path = stage(staging, b"mine", None)
    with path.open("rb") as file:
        staging.upload(file.fileno(), Commit("a", {}, ""))
    assert content_of(store) == {"a": b"mine"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Store]:
    with versitygw() as server:
        store = S3Store(server.bucket())
        yield store
        store.close()


def parts_of(store: S3Store, monkeypatch: pytest.MonkeyPatch, fails: int = 0) -> list[int]:
    """The numbers of parts that are sent from now on; one of them is refused."""
    numbers: list[int] = []
    real = S3Store.write_part

    def write_part(self: S3Store, key: str, upload: str, number: int, content: bytes) -> Part:
        if number == fails:
            raise Forbidden("the store refuses this part")
        numbers.append(number)
        return real(self, key, upload, number, content)

    monkeypatch.setattr(S3Store, "write_part", write_part)
    return numbers


def uploads_in(store: S3Store) -> bytes:
    return store._ask("GET", "", {"uploads": ""}).body


def test_a_large_upload_goes_on_with_the_parts_that_are_lacking(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * PART + 1)
    staging = Staging([tmp_path], bucket)
    path = stage(staging, content, Commit("large", {"mode": "600"}, ""))
    with path.open("rb") as file, monkeypatch.context() as patched:
        parts_of(bucket, patched, fails=4)
        with pytest.raises(Forbidden):
            staging.upload(file.fileno(), Commit("large", {"mode": "600"}, "", path.stem))
    sent = parts_of(bucket, monkeypatch)
    assert Staging([tmp_path], bucket).recover() == 1
    assert sent == [4]
    assert bucket.read("large", size=len(content) + 1) == content
    assert bucket.stat("large").metadata == {"mode": "600", STAGED: path.stem}
    assert list(tmp_path.iterdir()) == []


def test_the_parts_of_a_file_that_was_not_acknowledged_are_given_up(
    bucket: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = Staging([tmp_path], bucket)
    path = stage(staging, bytes(3 * PART), None)
    with path.open("rb") as file, monkeypatch.context() as patched:
        parts_of(bucket, patched, fails=3)
        with pytest.raises(Forbidden):
            staging.upload(file.fileno(), Commit("given-up", {}, "", path.stem))
    assert b"given-up" in uploads_in(bucket)
    assert Staging([tmp_path], bucket).recover() == 0
    assert b"given-up" not in uploads_in(bucket)
    assert list(tmp_path.iterdir()) == []


def test_a_large_file_that_changes_while_it_is_uploaded_is_not_seen(bucket: S3Store, tmp_path: Path) -> None:
    staging = Staging([tmp_path], bucket)
    path = stage(staging, bytes(3 * PART), None)
    with path.open("rb") as file, pytest.raises(Changed):
        staging.upload(file.fileno(), Commit("changing", {}, ""), lambda: False)
    assert b"changing" not in uploads_in(bucket)
    with pytest.raises(NotFound):
        bucket.stat("changing")


def test_a_large_file_replaces_only_the_version_it_knows(bucket: S3Store, tmp_path: Path) -> None:
    base = bucket.write("known", b"old").tag
    path = stage(Staging([tmp_path], bucket), bytes(3 * PART), Commit("known", {"mode": "600"}, base))
    bucket.write("known", b"theirs")
    Staging([tmp_path], bucket).recover()
    assert bucket.read("known", size=100) == b"theirs"
    assert bucket.stat(f"known.conflict-{path.stem}").size == 3 * PART
