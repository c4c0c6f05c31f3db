"""Requests on a mount whose files the kernel never opens: they wait for nobody else's, and what is being read stays open."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddleflow.fs import kernel, vfs
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.device import Device
from paddleflow.fs.index import Index
from paddleflow.fs.kernel import Op, Request
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.state import State, make_state_files
from paddleflow.fs.vfs import Vfs
from paddleflow.fs.writer import Staging
from paddleflow.objects.memory import MemoryStore
from tests.patience import eventually

LARGE = 5_000_000


class Slow(MemoryStore):
    """Content of the object `slow` comes when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.asked = threading.Event(), threading.Event()

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        if key == "slow":
            self.asked.set()
            self.gate.wait(60)
        return super().read(key, size=size, offset=offset, tag=tag)


class Mounted:
    """An immutable mount without a kernel."""

    def __init__(self, folder: Path, store: MemoryStore) -> None:
        self.state = State(make_state_files())
        self.tree = RemoteTree(
            store,
            DataCache([folder / "data"], 2**30),
            Staging([folder / "staging"], store),
            Defaults(0, 0),
            RemoteOptions(ttl=3600.0, immutable=True),
            self.state,
            Index(folder / "names.db", again=False, keep=True),
        )
        self.vfs = Vfs(self.tree, Device(-1), self.state, read_only=True)

    def ask(self, op: Op, node: int, body: bytes) -> bytes:
        answer = self.vfs.handle(Request(op, 2, node, 0, 0, 1), memoryview(body))
        return b"".join(answer) if isinstance(answer, tuple) else bytes(answer)

    def read(self, name: str, size: int) -> bytes:
        node = self.tree.lookup(kernel.ROOT, name.encode()).node
        return self.ask(Op.READ, node, kernel.READ_IN.pack(0, 0, size, 0, 0, 0, 0))

    def close(self) -> None:
        self.vfs.close()
        self.tree.close()
        self.state.unmap()


@pytest.fixture
def store() -> Slow:
    found = Slow()
    found.write("fast", b"fast")
    return found


@pytest.fixture
def mounted(tmp_path: Path, store: Slow) -> Iterator[Mounted]:
    made = Mounted(tmp_path, store)
    yield made
    store.gate.set()
    made.close()


def test_a_slow_object_holds_nobody_up(mounted: Mounted, store: Slow) -> None:
    store.write("slow", b"slow")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(mounted.read, "slow", 10)
        try:
            store.asked.wait(60)
            assert pool.submit(mounted.read, "fast", 10).result(60) == b"fast"
        finally:
            store.gate.set()
        assert slow.result(60) == b"slow"


def test_what_is_being_read_stays_open(mounted: Mounted, store: Slow) -> None:
    content = os.urandom(LARGE)
    store.write("slow", content)
    for number in range(vfs.MOST_IDLE_FILES + 1):
        store.write(f"{number}", b"%d" % number)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(mounted.read, "slow", 1000)
        store.asked.wait(60)
        for number in range(vfs.MOST_IDLE_FILES + 1):
            assert mounted.read(f"{number}", 10) == b"%d" % number
        store.gate.set()
        assert slow.result(60) == content[:1000]
    assert len(mounted.vfs._idle) == vfs.MOST_IDLE_FILES
    assert mounted.read("slow", 10) == content[:10]


def test_many_readers_of_one_file_open_it_once(mounted: Mounted, store: Slow) -> None:
    store.write("slow", b"slow")
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(mounted.read, "slow", 10) for _ in range(8)]
        eventually(store.asked.is_set)
        store.gate.set()
        assert {read.result(60) for read in reads} == {b"slow"}
    node = mounted.tree.lookup(kernel.ROOT, b"slow").node
    assert mounted.tree._nodes.get(node).handles == 1
    assert mounted.ask(Op.FSYNC, node, kernel.FSYNC_IN.pack(0, 0, 0)) == b""
