"""Wrappers of stores: what is retried and what is not, limits, figures, faults on purpose."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from paddleflow.errors import Conflict, Invalid, NotFound, TooMany, Unavailable
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Part
from paddleflow.objects.urls import open_store
from paddleflow.objects.wrappers import Figures, Metered, RateLimit, RateLimited, Retrying
from paddleflow.testing.stores import Faulty, fail_nth


def test_what_may_help_is_tried_again_with_growing_pauses() -> None:
    pauses: list[float] = []
    inner = Faulty(MemoryStore(), lambda _, number: Unavailable("down") if number <= 3 else None)
    store = Retrying(inner, first_pause=1.0, sleep=pauses.append)
    store.write("a", b"x")
    assert store.read("a", size=1) == b"x"
    assert [0.5 * 2**n <= pause <= 2**n for n, pause in enumerate(pauses)] == [True] * 3


def test_it_gives_up_in_the_end() -> None:
    pauses: list[float] = []
    store = Retrying(Faulty(MemoryStore(), lambda *_: Unavailable("down")), attempts=4, sleep=pauses.append)
    with pytest.raises(Unavailable, match="down"):
        store.stat("a")
    assert len(pauses) == 3


def test_permanent_errors_are_said_at_once() -> None:
    pauses: list[float] = []
    store = Retrying(MemoryStore(), sleep=pauses.append)
    with pytest.raises(NotFound):
        store.stat("a")
    with pytest.raises(Invalid):
        store.stat("a//b")
    assert pauses == []


def test_a_stream_is_sent_again_from_where_it_began() -> None:
    store = Retrying(Faulty(MemoryStore(), fail_nth(1), after=True), sleep=lambda _: None)
    stream = io.BytesIO(b"skipped content")
    stream.seek(8)
    store.write("a", stream)
    assert store.read("a", size=100) == b"content"


@pytest.mark.parametrize("call", ["if_absent", "if_tag", "pipe"])
def test_what_may_not_be_called_twice_is_not(call: str) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    memory = MemoryStore()
    tag = memory.write("a", b"x").tag
    store = Retrying(Faulty(memory, fail_nth(1), after=True), sleep=lambda _: pytest.fail("tried again"))
    calls: dict[str, Callable[[], object]] = {
        "if_absent": lambda: store.write("b", b"x", if_absent=True),
        "if_tag": lambda: store.write("a", b"x", if_tag=tag),
        "pipe": lambda: store.write("b", Pipe(b"x")),
    }
    with pytest.raises(Unavailable):
        calls[call]()


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_rename_is_tried_again(atomic: bool, after: bool, nth: int) -> None:
    memory = MemoryStore()
    memory.capabilities = replace(memory.capabilities, atomic_rename=atomic)
    memory.write("a", b"x")
    memory.write("b", b"old")
    store = Retrying(Faulty(memory, fail_nth(nth), after=after), sleep=lambda _: None)
    assert store.rename("a", "b").size == 1
    assert [entry.key for entry in memory.list_entries()] == ["b"]
    assert memory.read("b", size=10) == b"x"


def test_a_rename_of_nothing_is_refused() -> None:
    memory = MemoryStore()
    memory.write("b", b"old")
    with pytest.raises(NotFound):
        Retrying(memory).rename("a", "b")


def test_a_store_that_asks_for_patience_gets_it() -> None:
    pauses: list[float] = []
    slow = TooMany("slow down")
    slow.retry_after = 3
    store = Retrying(Faulty(MemoryStore(), lambda _, n: slow if n == 1 else None), sleep=pauses.append)
    store.write("a", b"")
    assert pauses == [3.0]


def test_stores_share_a_limit_of_calls_and_bytes() -> None:
    now, pauses = [100.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)

    limit = RateLimit(calls=10, bytes_=1000, now=lambda: now[0], sleep=sleep)
    store, other = RateLimited(MemoryStore(), limit), RateLimited(MemoryStore(), limit)
    store.write("a", b"x" * 100)  # costs 0.1 s for the call and 0.1 s for the bytes
    other.write("b", io.BytesIO(b"x" * 50))
    store.stat("a")
    assert pauses == pytest.approx([0.2, 0.35])
    now[0] += 10
    store.stat("a")
    assert len(pauses) == 2


def test_no_limit_never_waits() -> None:
    store = RateLimited(MemoryStore(), RateLimit(sleep=lambda seconds: pytest.fail(f"waited for {seconds} s")))
    store.write("a", b"x" * 10_000)
    assert store.read("a", size=10_000) == b"x" * 10_000


def test_figures() -> None:
    now, figures = [0.0], Figures()

    def tick() -> float:
        now[0] += 0.5
        return now[0]

    store = Metered(MemoryStore(), figures, now=tick)
    store.write("a", b"12345")
    store.read("a", size=3)
    list(store.list_entries())
    with pytest.raises(NotFound):
        store.stat("b")
    with pytest.raises(Unavailable):
        Metered(Faulty(MemoryStore(), fail_nth(1)), figures, now=tick).copy("a", "b")
    once = {"count": 1, "failed": 0, "seconds": 0.5}
    assert figures.as_dict() == {"write": once, "read": once, "list": once, "stat": once, "copy": {**once, "failed": 1}}


class _Parts(MemoryStore):
    """Takes an upload of parts; the first attempt of each call fails."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write_part(self, key: str, upload: str, number: int, content: bytes) -> Part:
        self.calls.append(f"{key} {upload} {number} {len(content)}")
        if len(self.calls) == 1:
            raise Unavailable("no answer")
        return Part(number, "tag")


def test_parts_pass_through_all_wrappers() -> None:
    parts, figures = _Parts(), Figures()
    pauses: list[float] = []
    limit = RateLimit(bytes_=10, now=lambda: 0.0, sleep=pauses.append)
    store = Metered(Retrying(RateLimited(parts, limit), sleep=lambda seconds: None), figures)
    assert store.write_part("a", "up", 1, b"12345") == Part(1, "tag")
    assert parts.calls == ["a up 1 5"] * 2
    assert pauses == [0.5]  # the second attempt waits for the bytes of the first
    assert figures.as_dict()["write_part"]["count"] == 1


def test_a_fault_before_or_after_the_call() -> None:
    memory = MemoryStore()
    with pytest.raises(Unavailable):
        Faulty(memory, fail_nth(1)).write("before", b"")
    with pytest.raises(Unavailable):
        Faulty(memory, fail_nth(1), after=True).write("after", b"")
    assert [entry.key for entry in memory.list_entries()] == ["after"]


def test_stores_by_url(tmp_path: object) -> None:
    store = open_store(f"file://{tmp_path}")
    store.write("a", b"x")
    assert open_store(f"local:///{tmp_path}").read("a", size=1) == b"x"
    assert open_store("mock://team").name == "mock://team"
    for wrong in ("nonsense", "s4://bucket", "/data"):
        with pytest.raises(Invalid, match=wrong):
            open_store(wrong)
    with pytest.raises(Conflict):
        store.make_folder("a")
