"""Read-ahead of folders: who opens small files in order finds the next ones, and others cost nothing."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddleflow.fs import kernel
from paddleflow.fs.blocks import SMALL, DataCache, Fetch
from paddleflow.fs.index import Index, Row
from paddleflow.fs.meta import Node, Nodes
from paddleflow.fs.reader import LEAST_FILES_AHEAD, NEAR, REST, FolderReader
from paddleflow.fs.state import State, make_state_files
from tests.patience import eventually

FOLDER, OTHER = kernel.ROOT, 2


class NotedCache(DataCache):
    """Only notes what it is to bring."""

    in_memory = False

    def __init__(self, folder: Path) -> None:
        super().__init__([folder], 1 << 30)
        self.brought: list[str] = []

    def bring(self, key: str, tag: str, size: int, fetch: Fetch) -> bool:
        self.brought.append(key)
        return not self.in_memory


class Scene:
    """A folder of 200 small files, and which of them were brought."""

    def __init__(self, folder: Path) -> None:
        self.index = Index(folder / "names.db", again=False, keep=False)
        self.rows = [self._row(f"{number:03}") for number in range(200)]
        self.index.put(self.rows)
        self.state = State(make_state_files())
        nodes = Nodes(Node(FOLDER, None, "", stat.S_IFDIR | 0o755), self.state, self.index)
        self.cache = NotedCache(folder / "data")
        self.reader = FolderReader(nodes, self.cache, lambda key, tag: lambda offset, size: b"")

    def _row(self, name: str, folder: int = FOLDER, size: int = 10, mode: int = stat.S_IFREG | 0o644) -> Row:
        return Row(self.index.new_number(), folder, name, mode, 0, 0, size, 0, 0, 0, 0.0, 1.0, 0.0, "tag", b"", 0)

    @property
    def brought(self) -> list[int]:
        names = [row.name for row in self.rows]
        return [names.index(key) for key in self.cache.brought]

    def open(self, *numbers: int) -> None:
        for number in numbers:
            self.reader.opened(FOLDER, self.rows[number].id)

    def close(self) -> None:
        self.reader.close()
        self.cache.close()
        self.index.close()
        self.state.unmap()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_files_that_follow_are_brought_once_each(scene: Scene) -> None:
    scene.open(*range(100))
    eventually(lambda: len(scene.brought) >= 98)
    scene.reader.close()
    assert scene.brought[0] == 3  # it takes three to see an order
    assert sorted(scene.brought) == list(range(3, 3 + len(scene.brought)))


def test_readers_side_by_side_are_in_order(scene: Scene) -> None:
    scene.open(0, 2, 1, 4, 3, 6, 5)
    eventually(lambda: LEAST_FILES_AHEAD + 2 in scene.brought)


def test_a_random_order_brings_nothing(scene: Scene) -> None:
    scene.open(*(number * (NEAR + 1) % 200 for number in range(200)))
    scene.reader.close()
    assert scene.brought == []


def test_files_in_memory_are_left_alone_for_a_while(scene: Scene) -> None:
    scene.cache.in_memory = True
    scene.open(0, 1, 2)
    eventually(lambda: len(scene.brought) == LEAST_FILES_AHEAD)
    run = scene.reader._runs[FOLDER]
    eventually(lambda: run.prepared >= REST)
    scene.open(*range(3, REST))
    assert len(scene.brought) == LEAST_FILES_AHEAD


def test_only_small_files_of_the_folder_are_brought(scene: Scene) -> None:
    others = [
        scene._row("large", size=SMALL + 1),
        scene._row("empty", size=0),
        scene._row("folder", mode=stat.S_IFDIR | 0o755),
        scene._row("elsewhere", folder=OTHER),
    ]
    last = scene._row("z")
    scene.index.put([*others, last])
    scene.rows += [*others, last]
    scene.open(196, 197, 198, 199)
    eventually(lambda: 204 in scene.brought)
    assert not {200, 201, 202, 203} & set(scene.brought)


def test_what_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    """Not fetched a second time; and where it fails, who wanted it tries again."""
    cache = DataCache([tmp_path], 1 << 30)
    began, gate = threading.Event(), threading.Event()
    fetched: list[str] = []

    def first(offset: int, size: int) -> bytes:
        fetched.append("first")
        began.set()
        gate.wait(60)
        if broken:
            raise OSError("gone")
        return b"content"

    def second(offset: int, size: int) -> bytes:
        fetched.append("second")
        return b"content"

    for broken, expected in ((False, ["first"]), (True, ["first", "second"])):
        began.clear()
        gate.clear()
        fetched.clear()
        assert cache.bring("key", f"{broken}", 7, first)
        assert began.wait(60)
        assert not cache.bring("key", f"{broken}", 7, second)
        opened: list[bytes] = []
        reader = threading.Thread(
            target=lambda tag=f"{broken}", found=opened: found.append(
                bytes(cache.open("key", tag, 7, second).read(7, 0))
            )
        )
        reader.start()
        gate.set()
        reader.join(60)
        assert (opened, fetched) == ([b"content"], expected)
    assert not cache.bring("key", "False", 7, second)  # in memory
    cache.close()
