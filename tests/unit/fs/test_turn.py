"""Whose turn it is to read the next request."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from paddleflow.fs import blocks, kernel
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.index import Index
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import State, make_state_files
from paddleflow.fs.turn import Turn
from paddleflow.fs.writer import Staging
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry

T = TypeVar("T")


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_thread_keeps_the_turn_until_it_passes_it_on() -> None:
    turn, taken = Turn(), threading.Event()
    turn.take()
    turn.take()  # still its own

    def other() -> None:
        turn.pass_on()  # not its own: nothing changes
        turn.take()
        taken.set()
        turn.pass_on()

    thread = _in_thread(other)
    assert turn.held
    assert not taken.is_set()
    turn.pass_on()
    turn.pass_on()
    assert taken.wait(60)
    thread.join()


def test_whoever_waits_for_a_lock_holds_no_turn() -> None:
    """Otherwise the holder's own request could never be read."""
    turn, lock, reading = Turn(), threading.RLock(), threading.Event()
    lock.acquire()

    def waiter() -> None:
        turn.take()
        reading.set()
        with turn.guard(lock):
            pass

    thread = _in_thread(waiter)
    assert reading.wait(60)
    turn.take()  # would never come
    lock.release()
    turn.pass_on()
    thread.join(60)
    assert not thread.is_alive()


def test_a_free_lock_costs_no_turn() -> None:
    turn, lock = Turn(), threading.Lock()
    turn.take()
    with turn.guard(lock):
        assert turn.held
    assert not lock.locked()


class _Watched(MemoryStore):
    """Notes whether whoever asks it has the turn."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn, self.held = turn, list[bool]()

    def stat(self, key: str) -> Entry:
        self.held.append(self.turn.held)
        return super().stat(key)

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        self.held.append(self.turn.held)
        return super().read(key, size=size, offset=offset, tag=tag)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        self.held.append(self.turn.held)
        return super().list_entries(folder, recursive=recursive)


def test_nobody_asks_the_store_with_the_turn(tmp_path: Path) -> None:
    turn = Turn()
    store = _Watched(turn)
    store.make_folder("folder")
    store.write("folder/file", b"content")
    state = State(make_state_files())
    cache, staging = DataCache([tmp_path / "data"], 2**30, turn=turn), Staging([tmp_path / "staging"], store)
    index = Index(tmp_path / "names.db", again=False, keep=False)
    tree = RemoteTree(store, cache, staging, Defaults(0, 0), RemoteOptions(ttl=3600.0), state, index, turn)
    store.held.clear()

    def act(work: Callable[[], T]) -> T:
        turn.take()
        return work()

    folder = act(lambda: tree.lookup(kernel.ROOT, b"folder")).node
    assert [entry.name for entry in act(lambda: list(tree.listdir(folder, look_up=lambda: False)))] == [b"file"]
    node = act(lambda: tree.lookup(folder, b"file")).node
    file = act(lambda: tree.open(node, os.O_RDONLY))
    assert store.held
    assert not any(store.held)
    asked = len(store.held)
    assert act(lambda: file.read(100, 0)) == b"content"
    act(lambda: tree.lookup(folder, b"file"))
    act(lambda: tree.open(node, os.O_RDONLY)).release()
    assert turn.held  # all of it was in memory
    assert len(store.held) == asked
    file.release()
    tree.close()
    state.unmap()


def test_a_cache_that_is_busy_takes_nobody_s_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of a large file is compared under the cache's lock."""
    turn, checking, taken, gate = Turn(), threading.Event(), threading.Event(), threading.Event()
    cache = DataCache([tmp_path], 2**30, turn=turn)
    cache.close_file(cache.open("key", "tag", 4, lambda offset, size: b"text"))
    cache.close()
    again = DataCache([tmp_path], 2**30, turn=turn)

    def checksum(fd: int, size: int) -> int:
        checking.set()
        gate.wait(60)
        return zlib.crc32(b"text")

    monkeypatch.setattr(blocks, "checksum", checksum)
    first = _in_thread(lambda: again.open("key", "tag", 4, lambda offset, size: b""))
    assert checking.wait(60)

    def second() -> None:
        turn.take()
        taken.set()
        again.open("key", "tag", 4, lambda offset, size: b"")

    other = _in_thread(second)
    assert taken.wait(60)
    turn.take()  # would never come
    turn.pass_on()
    gate.set()
    first.join(60)
    other.join(60)
    again.close()
