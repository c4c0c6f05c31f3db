"""Files of runs on stores: absent is not unreadable, links are never followed out, and what is huge is done in pieces."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from paddleflow.errors import Forbidden, Invalid, NotFound, TooLarge, Unavailable
from paddleflow.objects.local import LocalStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry, ObjectStore
from paddleflow.runs import archive, files
from paddleflow.runs.facts import Measurement
from paddleflow.storage import files as stored_files
from paddleflow.storage.file_pool import SlicedWork

T = TypeVar("T")


class Away(MemoryStore):
    """A store that does not answer."""

    def stat(self, key: str) -> Entry:
        raise Unavailable("the store does not answer")


def done(work: Generator[object, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            value: T = stop.value
            return value


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    (tmp_path / "store").mkdir()
    return LocalStore(tmp_path / "store")


def test_what_is_absent_is_missing_and_what_does_not_answer_is_an_error(store: ObjectStore) -> None:
    assert done(files.measure(store, "a/b")) == Measurement("missing")
    assert done(files.signature(store, "a/b")) == "missing"
    ask: tuple[Callable[[], object], ...] = (
        lambda: done(files.measure(Away(), "a")),
        lambda: done(files.signature(Away(), "a")),
    )
    for each in ask:
        with pytest.raises(Invalid, match="a could not be read: the store does not answer"):
            each()


def test_files_and_folders_are_measured_by_content(store: ObjectStore) -> None:
    store.write("one/x", b"abc")
    store.write("one/deep/y", b"de")
    store.write("two/x", b"abc")
    store.write("two/deep/y", b"de")
    one, two = done(files.measure(store, "one")), done(files.measure(store, "two"))
    assert (one.kind, one.size) == ("folder", 5)
    assert one == two
    store.write("two/deep/y", b"df")
    assert done(files.measure(store, "two")) != one
    assert done(files.measure(store, "one/x")).hash == done(files.measure(store, "two/x")).hash


def test_signatures_change_with_files_but_not_with_what_runs_write(store: ObjectStore) -> None:
    store.write("a/x", b"1")
    before = done(files.signature(store, "/"))
    store.write(".pipeline/run/x", b"1")
    assert done(files.signature(store, "/")) == before
    store.write("a/x", b"2")
    assert done(files.signature(store, "/")) != before


def test_places_of_outputs_are_emptied(store: ObjectStore) -> None:
    store.write("run/out/old/file", b"1")
    store.write("run/other", b"1")
    done(files.make_places(store, ["run/out", "new/out"]))
    assert [entry.key for entry in store.list_entries(recursive=True)] == ["run/other"]
    assert store.stat("new").kind.value == "folder"


@pytest.mark.parametrize(
    "remove", [partial(files.remove_tree, at_once=3), partial(stored_files.remove, recursive=True, at_once=3)]
)
def test_a_folder_is_removed_a_few_entries_at_a_time(
    remove: Callable[[ObjectStore, str], SlicedWork[object]], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries there are, few are in memory."""
    taken = []
    listed = type(store).list_entries

    def counted(self: ObjectStore, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        taken.append(0)
        for entry in listed(self, folder, recursive=recursive):
            taken[-1] += 1
            yield entry

    monkeypatch.setattr(type(store), "list_entries", counted)
    for name in ("a", "b/x", "b/y", "c/d/e", "f", "g", "h/i", "j", "k/l", "m/n"):
        store.write(f"top/{name}", b"1")
    done(remove(store, "top"))
    assert max(taken) <= 3
    with pytest.raises(NotFound):
        store.stat("top")


def test_removing_takes_links_away_and_not_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "file").write_text("1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to("../keep")
    os.mkfifo(tmp_path / "out" / "pipe")
    store = LocalStore(tmp_path)
    done(files.remove_tree(store, "out"))
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "keep" / "file").read_text() == "1"


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a\0b"])
def test_paths_that_leave_are_refused(store: ObjectStore, path: str) -> None:
    with pytest.raises(Invalid):
        done(files.measure(store, path))


def test_texts_are_bounded_and_named(store: ObjectStore) -> None:
    store.write("good", b" 7 \n")
    store.write("big", b"x" * 10)
    store.write("odd", b"\xff")
    assert files.read_texts(store, {"n": "good"}, 10) == {"n": "7"}
    for path, fault in (("big", "too large"), ("odd", "UTF-8"), ("none", "does not exist"), ("a,b", "not one file")):
        with pytest.raises(Invalid, match=rf"artifact\[n\].*{fault}"):
            files.read_texts(store, {"n": path}, 10)


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    store = LocalStore(tmp_path)
    with pytest.raises(Invalid, match="neither a file nor a folder"):
        done(files.measure(store, "pipe"))
    with pytest.raises(Invalid, match="neither a file nor a folder"):
        files.existing(store, "pipe")
    with pytest.raises(Invalid, match="cannot be read"):
        files.read_texts(store, {"n": "pipe"}, 10)


def test_a_tar_holds_files_and_what_links_inside_lead_to(store: ObjectStore) -> None:
    store.write("run/out/a", b"1" * 600)
    store.write("run/out/deep/b", b"2")
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive.tar(store, "run/out")))) as opened:
        found = {member.name: (opened.extractfile(member) or io.BytesIO()).read() for member in opened}
    assert found == {"a": b"1" * 600, "deep/b": b"2"}


def test_a_folder_of_too_many_files_is_not_sent(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    with pytest.raises(TooLarge, match="more than 2 files"):
        list(archive.tar(LocalStore(tmp_path), "", most=2))
    (tmp_path / "c").unlink()
    assert list(archive.tar(LocalStore(tmp_path), "", most=2))


def test_a_name_that_is_swapped_for_a_link_while_a_tar_is_read_gains_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "store" / "out"
    folder.mkdir(parents=True)
    (folder / "a").write_text("first")
    (folder / "b").write_text("second")
    stream = archive.tar(LocalStore(tmp_path / "store"), "out")
    got = [next(stream)]
    (folder / "b").unlink()
    (folder / "b").symlink_to(tmp_path / "secret")
    with pytest.raises(Forbidden, match="leads out"):
        got += stream
    assert b"secret" not in b"".join(got)
