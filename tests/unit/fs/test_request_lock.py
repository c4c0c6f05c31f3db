"""The lock of the thread that reads requests."""

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
from paddleflow.fs.request_lock import RequestLock
from paddleflow.fs.state import State, make_state_files
from paddleflow.fs.writer import Staging
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Entry

T = TypeVar("T")


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_thread_holds_it_until_it_releases_it() -> None:
    request_lock, taken = RequestLock(), threading.Event()
    request_lock.acquire()
    request_lock.acquire()  # still its own

    def other() -> None:
        request_lock.release()  # not its own: nothing changes
        request_lock.acquire()
        taken.set()
        request_lock.release()

    thread = _in_thread(other)
    assert request_lock.held
    assert not taken.is_set()
    request_lock.release()
    request_lock.release()
    assert taken.wait(60)
    thread.join()


def test_whoever_waits_for_a_lock_lets_others_read() -> None:
    """Otherwise the holder's own request could never be read."""
    request_lock, lock, reading = RequestLock(), threading.RLock(), threading.Event()
    lock.acquire()

    def waiter() -> None:
        request_lock.acquire()
        reading.set()
        with request_lock.guard(lock):
            pass

    thread = _in_thread(waiter)
    assert reading.wait(60)
    request_lock.acquire()  # would never come
    lock.release()
    request_lock.release()
    thread.join(60)
    assert not thread.is_alive()


def test_a_free_lock_releases_nothing() -> None:
    request_lock, lock = RequestLock(), threading.Lock()
    request_lock.acquire()
    with request_lock.guard(lock):
        assert request_lock.held
    assert not lock.locked()


class _Watched(MemoryStore):
    """Notes whether whoever asks it holds the request lock."""

    def __init__(self, request_lock: RequestLock) -> None:
        super().__init__()
        self.request_lock, self.held = request_lock, list[bool]()

    def stat(self, key: str) -> Entry:
        self.held.append(self.request_lock.held)
        return super().stat(key)

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        self.held.append(self.request_lock.held)
        return super().read(key, size=size, offset=offset, tag=tag)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        self.held.append(self.request_lock.held)
        return super().list_entries(folder, recursive=recursive)


def test_nobody_asks_the_store_with_the_request_lock(tmp_path: Path) -> None:
    request_lock = RequestLock()
    store = _Watched(request_lock)
    store.make_folder("folder")
    store.write("folder/file", b"content")
    state = State(make_state_files())
    cache, staging = (
        DataCache([tmp_path / "data"], 2**30, request_lock=request_lock),
        Staging([tmp_path / "staging"], store),
    )
    index = Index(tmp_path / "names.db", again=False, keep=False)
    tree = RemoteTree(store, cache, staging, Defaults(0, 0), RemoteOptions(ttl=3600.0), state, index, request_lock)
    store.held.clear()

    def act(work: Callable[[], T]) -> T:
        request_lock.acquire()
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
    assert request_lock.held  # all of it was in memory
    assert len(store.held) == asked
    file.release()
    tree.close()
    state.unmap()


def test_a_busy_cache_lets_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of a large file is compared under the cache's lock."""
    request_lock, checking, taken, gate = RequestLock(), threading.Event(), threading.Event(), threading.Event()
    cache = DataCache([tmp_path], 2**30, request_lock=request_lock)
    cache.close_file(cache.open("key", "tag", 4, lambda offset, size: b"text"))
    cache.close()
    again = DataCache([tmp_path], 2**30, request_lock=request_lock)

    def checksum(fd: int, size: int) -> int:
        checking.set()
        gate.wait(60)
        return zlib.crc32(b"text")

    monkeypatch.setattr(blocks, "checksum", checksum)
    first = _in_thread(lambda: again.open("key", "tag", 4, lambda offset, size: b""))
    assert checking.wait(60)

    def second() -> None:
        request_lock.acquire()
        taken.set()
        again.open("key", "tag", 4, lambda offset, size: b"")

    other = _in_thread(second)
    assert taken.wait(60)
    request_lock.acquire()  # would never come
    request_lock.release()
    gate.set()
    first.join(60)
    other.join(60)
    again.close()
