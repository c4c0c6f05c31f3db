"""The data cache: one fetch per block, whole files only under their final names, eviction, damage, failures."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddleflow.errors import Unavailable
from paddleflow.fs import blocks
from paddleflow.fs.blocks import BLOCK, DataCache
from paddleflow.fs.reader import Reader

CONTENT = os.urandom(3 * BLOCK + 1000)


class Source:
    """Something to fetch from, that counts and can be held up or fail."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.open = threading.Event()
        self.open.set()
        self.fails = 0
        self.asked: list[int] = []

    def fetch(self, offset: int, size: int) -> bytes:
        self.asked.append(offset // BLOCK)
        self.open.wait(30)
        if self.fails:
            self.fails -= 1
            raise Unavailable("no answer")
        return self.content[offset : offset + size]


@pytest.fixture
def cache(tmp_path: Path) -> DataCache:
    return DataCache([tmp_path], 1 << 30)


def stored(folder: Path) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file()]


def test_many_readers_cost_one_fetch_per_block(cache: DataCache) -> None:
    source = Source()
    source.open.clear()
    file = cache.open("key", "tag", len(CONTENT), source.fetch)
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(file.read, 1000, BLOCK - 500) for _ in range(8)]
        source.open.set()
        assert {read.result() for read in reads} == {CONTENT[BLOCK - 500 : BLOCK + 500]}
    assert sorted(source.asked) == [0, 1]
    cache.close_file(file)


def test_a_whole_file_gets_its_name_and_is_found_again(cache: DataCache, tmp_path: Path) -> None:
    source = Source()
    file = cache.open("key", "tag", len(CONTENT), source.fetch)
    assert all(name.endswith(".filling") for name in stored(tmp_path))
    assert file.read(len(CONTENT), 0) == CONTENT
    file.make_whole()  # waits for the checksum, too
    assert file.whole
    assert [name.endswith(".filling") for name in stored(tmp_path)] == [False]
    cache.close_file(file)
    again = DataCache([tmp_path], 1 << 30).open("key", "tag", len(CONTENT), source.fetch)
    assert again.whole
    assert again.read(10, 5) == CONTENT[5:15]
    assert len(source.asked) == 4
    other = cache.open("key", "other tag", len(CONTENT), source.fetch)
    assert not other.whole


def test_a_file_that_is_closed_early_leaves_nothing(cache: DataCache, tmp_path: Path) -> None:
    source = Source()
    source.open.clear()
    file = cache.open("key", "tag", len(CONTENT), source.fetch)
    file.prefetch(0, 4)
    cache.close_file(file)  # while blocks are on their way
    assert os.fstat(file.fd).st_size == len(CONTENT)  # the descriptor is kept for them
    source.open.set()
    cache.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(file.fd)
    assert all(not name.endswith(".filling") for name in stored(tmp_path))


def test_a_failed_fetch_is_said_and_tried_again(cache: DataCache) -> None:
    source = Source()
    source.fails = 1
    file = cache.open("key", "tag", len(CONTENT), source.fetch)
    with pytest.raises(Unavailable):
        file.read(10, 0)
    assert file.read(10, 0) == CONTENT[:10]


def test_short_content_is_refused(cache: DataCache) -> None:
    file = cache.open("key", "tag", len(CONTENT), Source(CONTENT[:-1]).fetch)
    with pytest.raises(OSError, match="bytes came"):
        file.make_whole()
    assert not file.whole


def test_a_damaged_file_is_fetched_again(cache: DataCache, tmp_path: Path) -> None:
    source = Source(b"x" * 100)
    file = cache.open("key", "tag", 100, source.fetch)
    file.make_whole()
    cache.close_file(file)
    file.path.write_bytes(b"y" * 100)
    again = DataCache([tmp_path], 1 << 30).open("key", "tag", 100, source.fetch)
    assert again.read(100, 0) == b"x" * 100


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = DataCache([tmp_path], 250)
    for name in ("a", "b", "a", "c"):
        file = cache.open(name, "tag", 100, Source(name.encode() * 100).fetch)
        file.make_whole()
        cache.close_file(file)
    assert cache.path("a", "tag").exists()
    assert not cache.path("b", "tag").exists()
    assert cache.figures["evicted"] == 1
    kept = cache.open("a", "tag", 100, Source().fetch)
    for name in ("d", "e", "f"):
        file = cache.open(name, "tag", 100, Source(name.encode() * 100).fetch)
        file.make_whole()
        cache.close_file(file)
    assert kept.path.exists()  # open files are not evicted


def test_a_file_larger_than_the_cache_goes_when_it_is_closed(tmp_path: Path) -> None:
    cache = DataCache([tmp_path], BLOCK)
    first = cache.open("key", "tag", len(CONTENT), Source().fetch)
    second = cache.open("key", "tag", len(CONTENT), Source().fetch)
    assert first.read(len(CONTENT), 0) == CONTENT
    first.make_whole()
    cache.close_file(first)
    assert second.read(10, 2 * BLOCK) == CONTENT[2 * BLOCK : 2 * BLOCK + 10]
    assert cache.stats()["bytes cached"] == len(CONTENT)
    cache.close_file(second)
    assert cache.stats()["bytes cached"] == 0
    assert stored(tmp_path) == []


def test_content_follows_a_renamed_object(cache: DataCache) -> None:
    file = cache.open("old", "tag", 100, Source(b"x" * 100).fetch)
    file.make_whole()
    cache.close_file(file)
    cache.rename("old", "tag", "new", "other")
    assert cache.open("new", "other", 100, Source().fetch).whole


def test_sequential_reads_find_the_next_blocks_on_their_way(cache: DataCache) -> None:
    source = Source(bytes(10 * BLOCK))
    file = cache.open("key", "tag", 10 * BLOCK, source.fetch)
    reader = Reader(file)
    for at in range(0, 3 * BLOCK, BLOCK // 2):
        reader.read(BLOCK // 2, at)
    cache.close()
    assert max(source.asked) >= 6
    assert len(source.asked) == len(set(source.asked))


def test_random_reads_fetch_nothing_extra(cache: DataCache) -> None:
    source = Source(bytes(40 * BLOCK))
    file = cache.open("key", "tag", 40 * BLOCK, source.fetch)
    reader = Reader(file)
    for block in (30, 10, 20):
        reader.read(100, block * BLOCK)
    cache.close()
    assert sorted(source.asked) == [10, 20, 30]


def test_the_last_read_does_not_wait_for_the_checksum(
    cache: DataCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    real = blocks.checksum

    def slow(fd: int, size: int) -> int:
        gate.wait(60)
        return real(fd, size)

    monkeypatch.setattr(blocks, "checksum", slow)
    file = cache.open("key", "tag", len(CONTENT), Source().fetch)
    assert file.read(len(CONTENT), 0) == CONTENT
    assert [name.endswith(".filling") for name in stored(tmp_path)] == [True]
    gate.set()
    file.make_whole()  # whoever moves the file waits until it has its name
    assert [name.endswith(".filling") for name in stored(tmp_path)] == [False]
    cache.close_file(file)
