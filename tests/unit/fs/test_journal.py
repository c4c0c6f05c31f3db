"""The journal of small files: what was acknowledged is there after a crash of the machine, and what was not is not made up."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from paddleflow.fs import journal
from paddleflow.fs.journal import Journal
from paddleflow.fs.writer import Commit, Staging
from paddleflow.objects.memory import MemoryStore


def contents(found: Journal) -> dict[str, bytes]:
    return {record.name: record.content for record in found.records()}


def crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine starts again: of what was not synced nothing has to be there."""
    for file in folder.iterdir():
        if file.name != journal.NAME:
            file.write_bytes(b"torn") if file.suffix == ".data" else file.unlink()
    monkeypatch.setattr(journal, "_boot", lambda: os.urandom(18).hex().encode())


def commit(staging: Staging, key: str, content: bytes) -> Path:
    path = staging.new_path()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, content)
        assert staging.commit(path, fd, Commit(key, {"pf-mode": "600"}, ""))
    finally:
        os.close(fd)
    return path


def test_acknowledged_small_files_survive_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    commit(staging, "a", b"acknowledged")
    staging.forget(commit(staging, "b", b"arrived"))
    crash(tmp_path, monkeypatch)
    assert Staging([tmp_path], store).recover() == 1
    assert {entry.key for entry in store.list_entries()} == {"a"}
    assert store.read("a", size=100) == b"acknowledged"
    assert store.stat("a").metadata["pf-mode"] == "600"
    assert list(tmp_path.iterdir()) == []


def test_the_latest_version_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    staging = Staging([tmp_path], store)
    path = commit(staging, "a", b"first")
    with path.open("r+b", buffering=0) as file:
        file.write(b"second")
        staging.commit(path, file.fileno(), Commit("a", {}, ""))
        file.write(b", never acknowledged")
    crash(tmp_path, monkeypatch)
    Staging([tmp_path], store).recover()
    assert store.read("a", size=100) == b"second"


def test_a_file_that_grew_is_no_longer_taken_from_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Staging([tmp_path], MemoryStore())
    path = commit(staging, "a", b"small")
    with path.open("r+b", buffering=0) as file:
        file.write(bytes(journal.MOST_CONTENT + 1))
        assert staging.commit(path, file.fileno(), Commit("a", {}, ""))
    monkeypatch.setattr(journal, "_boot", lambda: b"another".ljust(36))
    store = MemoryStore()
    assert Staging([tmp_path], store).recover() == 1
    assert store.stat("a").size == journal.MOST_CONTENT + 1


def test_after_kill_9_files_are_as_they_were_acknowledged(tmp_path: Path) -> None:
    store = MemoryStore()
    path = commit(Staging([tmp_path], store), "a", b"acknowledged")
    path.write_bytes(b"and half of")
    Staging([tmp_path], store).recover()
    assert store.read("a", size=100) == b"acknowledged"


def test_after_kill_9_what_has_arrived_stays_so(tmp_path: Path) -> None:
    """Killed between the end of the note and that of the record."""
    store = MemoryStore()
    path = commit(Staging([tmp_path], store), "a", b"acknowledged")
    path.with_suffix(".note").unlink()
    assert Staging([tmp_path], store).recover() == 0
    assert content_keys(store) == set()
    assert list(tmp_path.iterdir()) == []


def content_keys(store: MemoryStore) -> set[str]:
    return {entry.key for entry in store.list_entries()}


def test_a_record_that_was_cut_short_and_all_after_it_do_not_count(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    assert made.append("one", "{}", b"first")
    assert made.append("two", "{}", b"second")
    with (tmp_path / journal.NAME).open("r+b") as file:
        at = file.read().index(b"second")
        file.seek(at)
        file.write(b"damage")
    assert contents(Journal(tmp_path)) == {"one": b"first"}


def test_it_starts_over_when_everything_has_arrived(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    made.append("one", "{}", b"first" * 100)
    size = (tmp_path / journal.NAME).stat().st_size
    for number in range(100):
        made.forget("one" if not number else f"{number - 1}")
        assert made.append(f"{number}", "{}", bytes(journal.MOST_CONTENT))
    assert (tmp_path / journal.NAME).stat().st_size == size
    assert list(contents(Journal(tmp_path))) == ["99"]


def test_a_full_journal_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    made = Journal(tmp_path, most=100_000)
    assert made.append("one", "{}", bytes(60_000))
    assert not made.append("two", "{}", bytes(60_000))
    assert list(contents(Journal(tmp_path))) == ["one"]
    made.forget("one")
    assert made.append("two", "{}", bytes(60_000))


def test_many_at_once(tmp_path: Path) -> None:
    made = Journal(tmp_path)

    def append(first: int) -> None:
        for number in range(first, first + 25):
            assert made.append(f"{number}", "{}", b"%d" % number)

    threads = [threading.Thread(target=append, args=(first,)) for first in range(0, 200, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(Journal(tmp_path)) == {f"{number}": b"%d" % number for number in range(200)}


def test_a_journal_that_was_removed_under_us_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while records in it are wanted: they outlast nothing any more, and the next one must not be written after them."""
    store = MemoryStore()
    folder = tmp_path / "staging"
    staging = Staging([folder], store)
    commit(staging, "a", b"removed")
    shutil.rmtree(folder)
    commit(staging, "b", b"acknowledged")
    crash(folder, monkeypatch)
    assert Staging([folder], store).recover() == 1
    assert {entry.key: store.read(entry.key, size=99) for entry in store.list_entries()} == {"b": b"acknowledged"}
