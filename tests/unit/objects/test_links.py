"""A store with others inside: it behaves as one store, except between the stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.errors import Conflict, Invalid, NotFound, PaddleFlowError
from paddleflow.objects.links import CROSS_STORE, LinkedStore, LinkTarget, open_linked
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.store import Kind, ObjectStore

LINK = "sets/far"
KEYS = ["a", "sets/near", "sets/far/x", "sets/far/deep/y", "sets/far-away", "sets/farther/z"]


@pytest.fixture
def store() -> LinkedStore:
    made = LinkedStore(MemoryStore("host"), {LINK: MemoryStore("far")})
    made.host.make_folder("sets")
    return made


def do(store: ObjectStore, step: str, key: str) -> object:
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: store.write(key, key.encode()).key,
        "remove": lambda: store.remove(key),
        "make": lambda: store.make_folder(key),
        "unmake": lambda: store.remove_folder(key),
        "stat": lambda: store.stat(key).kind,
    }
    try:
        return calls[step]()
    except PaddleFlowError as error:
        return type(error)


def listing(store: ObjectStore, folder: str, recursive: bool) -> set[tuple[str, Kind, int]]:
    return {(entry.key, entry.kind, entry.size) for entry in store.list_entries(folder, recursive=recursive)}


@given(
    st.lists(st.tuples(st.sampled_from(["write", "remove", "make", "unmake"]), st.sampled_from(KEYS)), max_size=12),
    st.sampled_from(["", "sets", "sets/far", "sets/far/", "sets/far/deep", "sets/farther"]),
)
def test_keys_in_and_beside_a_link_are_those_of_one_store(steps: list[tuple[str, str]], folder: str) -> None:
    linked = LinkedStore(MemoryStore("host"), {LINK: MemoryStore("far")})
    linked.host.make_folder("sets")
    plain = MemoryStore("one")
    plain.make_folder(LINK)
    for step, key in steps:
        assert do(linked, step, key) == do(plain, step, key), (step, key)
        for recursive in (False, True):
            assert listing(linked, folder, recursive) == listing(plain, folder, recursive)
        assert do(linked, "stat", key) == do(plain, "stat", key)


def test_the_files_lie_in_the_other_store(store: LinkedStore) -> None:
    store.write("sets/far/x", b"far")
    store.write("sets/near", b"near")
    assert store.links[LINK].read("x", size=9) == b"far"
    with pytest.raises(NotFound):
        store.host.stat("sets/far/x")
    assert store.rename("sets/far/x", "sets/far/y").key == "sets/far/y"
    assert store.read("sets/far/y", size=9) == b"far"


@pytest.mark.parametrize(("source", "target"), [("sets/near", "sets/far/n"), ("sets/far/x", "x")])
def test_nothing_is_moved_between_stores(store: LinkedStore, source: str, target: str) -> None:
    store.write("sets/far/x", b"far")
    store.write("sets/near", b"near")
    for move in (store.rename, store.copy):
        with pytest.raises(Invalid) as caught:
            move(source, target)
        assert caught.value.code == CROSS_STORE
    assert store.read(source, size=9)
    with pytest.raises(NotFound):
        store.stat(target)


def test_a_link_and_what_holds_it_stay(store: LinkedStore) -> None:
    for remove in (store.remove, store.remove_folder):
        with pytest.raises(Conflict):
            remove(LINK)
    with pytest.raises(Conflict, match="holds a link"):
        store.remove_folder("sets")
    with pytest.raises(Conflict, match="is a link"):
        store.write(LINK, b"")
    with pytest.raises(Invalid, match="keep attributes"):
        store.make_folder(LINK, metadata={"mode": "0700"})
    store.make_folder(LINK)
    assert store.stat(LINK).kind is Kind.FOLDER


def test_capabilities_are_those_that_all_stores_have(store: LinkedStore) -> None:
    assert not store.capabilities.multipart
    host, far = store.host.capabilities, store.links[LINK].capabilities
    assert store.capabilities.copy == (host.copy and far.copy)


def test_what_the_host_has_below_a_link_is_not_seen(store: LinkedStore) -> None:
    store.host.write("sets/far/old", b"old")
    assert listing(store, "sets", True) == set()
    assert listing(store, "sets", False) == {("sets/far", Kind.FOLDER, 0)}


def test_links_by_url(tmp_path: object) -> None:
    made = open_linked("mock://host", {}, [LinkTarget("far", f"file://{tmp_path}")])
    made.write("far/x", b"1")
    assert made.read("far/x", size=2) == b"1"
    made.close()


def test_folders_above_a_link_are_there() -> None:
    host, other = MemoryStore("mock://host"), MemoryStore("mock://other")
    other.write("file", b"x")
    store = LinkedStore(host, {"a/b/c": other, "a/d": other})
    assert [(each.key, each.kind) for each in store.list_entries()] == [("a", Kind.FOLDER)]
    assert sorted(each.key for each in store.list_entries("a")) == ["a/b", "a/d"]
    assert store.stat("a/b").kind is Kind.FOLDER
    host.write("a/own", b"y")
    assert [each.key for each in store.list_entries()] == ["a"]
    with pytest.raises(NotFound):
        store.stat("a/x")
