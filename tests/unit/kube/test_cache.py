"""The watch cache: whatever breaks in between, in the end it is what the server has, and every change was reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from random import Random
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.errors import Forbidden, NotFound, PaddleFlowError
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.queue import Backoff
from paddleflow.kube.resources import CONFIG_MAPS, Object, Resource, key, owner, uid, version
from paddleflow.kube.transport import Request, Response
from paddleflow.testing.api_server import MemoryApiServer
from tests.kube_objects import owner_reference
from tests.patience import soon

OWNERS = [
    {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
    for name in ("x", "y")
]


class CacheFixture:
    """A server, a client that writes, and a cache with a mirror that is fed by its callbacks alone."""

    def __init__(self, **options: Any) -> None:
        self.server = MemoryApiServer()
        self.client = Client(self.server)
        options = {"backoff": Backoff(0.0002, 0.001), "random": Random(1), "page": 3, **options}
        self.cache: Cache[Object] = Cache(Client(self.server), CONFIG_MAPS, "default", **options)
        self.mirror: dict[str, str] = {}
        self.fed: Cache[str] = Cache(Client(self.server), CONFIG_MAPS, "default", transform=version)
        self.cache.feed(self.fed)
        self.owners: set[str] = set()  # owners reported since they were last checked
        self.cache.subscribe(self.on_change)
        self.cache.subscribe_owners("Thing", self.owners.add)

    def on_change(self, name: str, old: Object | None, new: Object | None) -> None:
        assert (old is None) == (name not in self.mirror), f"{name} was reported out of order"
        if old is not None:
            assert version(old) == self.mirror[name]
        if new is None:
            del self.mirror[name]
        else:
            assert key(new) == name
            assert "managedFields" not in new["metadata"]
            self.mirror[name] = version(new)

    async def state(self) -> dict[str, Object]:
        return {key(item): item for item in (await self.client.list(CONFIG_MAPS, "default")).items}

    async def settle(self) -> None:
        """Waits until cache and server agree, and compares everything that follows from it."""
        self.server.refuse = lambda request: None
        wanted = {name: version(obj) for name, obj in (await self.state()).items()}
        await soon(lambda: self.cache.synced.is_set() and self.mirror == wanted, f"{wanted}, found {self.mirror}")
        assert sorted(self.cache.keys()) == sorted(wanted)
        assert {name: self.fed.get(name) for name in self.fed.keys()} == wanted  # noqa: SIM118  a cache is no dictionary
        assert self.fed.error is self.cache.error
        for each in OWNERS:
            children = [obj for obj in self.cache.all() if (found := owner(obj)) and found.uid == uid(each)]
            assert sorted(map(key, children)) == [key(obj) for obj in self.cache.by_owner(uid(each))]


@asynccontextmanager
async def running(fixture: CacheFixture) -> AsyncIterator[CacheFixture]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(fixture.cache.run())
        yield fixture
        task.cancel()


NAMES = st.sampled_from("abcde")
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from([None, 0, 1]), st.booleans()),
    st.tuples(st.just("delete"), NAMES, st.none(), st.booleans()),
    st.tuples(st.sampled_from(["drop", "forget", "run", "run", "fail watch", "fail list", "throttle", "gone"])),
)


async def play(fixture: CacheFixture, step: tuple[Any, ...]) -> None:
    """One thing that happens to a server or its connections."""
    match step:
        case "write", name, parent, tell:
            obj = CONFIG_MAPS.object(name, "default", data={"n": str(len(fixture.server.writes))})
            if parent is not None:
                obj["metadata"]["ownerReferences"] = [owner_reference(OWNERS[parent])]
            made = await fixture.client.apply(CONFIG_MAPS, obj)
            if tell:
                fixture.cache.record_write(made)
        case "delete", name, _, tell:
            try:
                there = await fixture.client.get(CONFIG_MAPS, name, "default")
                await fixture.client.delete(CONFIG_MAPS, name, "default")
            except NotFound:
                return
            if tell:
                fixture.cache.record_delete(there)
        case ("drop",):
            fixture.server.drop_watches()
        case ("forget",):
            fixture.server.forget()
        case ("run",):
            for _ in range(20):
                await asyncio.sleep(0)
        case (fault,):
            fixture.server.refuse = refusing(fault)


def refusing(fault: str) -> Callable[[Request], Response | None]:
    """Refuses some of what the cache asks; what the test writes and reads itself passes."""
    status = {"throttle": 429, "gone": 410}.get(fault, 503)

    def refuse(request: Request) -> Response | None:
        watch = "watch=1" in request.path
        if request.method != "GET" or not (watch or "limit=3" in request.path) or (fault == "fail list" and watch):
            return None
        if fault == "fail watch" and not watch:
            return None
        body = orjson.dumps({"message": fault, "reason": "Expired" if status == 410 else "Busy"})
        return Response(status, {}, body)

    return refuse


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=25))
def test_in_the_end_it_is_what_the_server_has(steps: list[tuple[Any, ...]]) -> None:
    async def scene() -> None:
        async with running(CacheFixture()) as fixture:
            for step in steps:
                if step == ("throttle",):
                    step = ("fail watch",)  # a real second of patience is tried below, once
                await play(fixture, step)
            await fixture.settle()

    asyncio.run(scene())


async def test_what_is_there_is_told_first_and_later_subscribers_are_told_too() -> None:
    fixture = CacheFixture()
    for number in range(7):
        await play(fixture, ("write", f"c{number}", number % 2, False))
    async with running(fixture):
        await fixture.settle()
        assert fixture.owners == {"default/x", "default/y"}
        late: list[str] = []
        fixture.cache.subscribe(lambda name, old, new: late.append(name))
        assert sorted(late) == [f"default/c{number}" for number in range(7)]
        owners: list[str] = []
        fixture.cache.subscribe_owners("Thing", owners.append)
        fixture.cache.subscribe_owners("Other", owners.append)
        assert sorted(owners) == ["default/x", "default/y"]


async def test_a_broken_watch_goes_on_where_it_was_without_a_list() -> None:
    async with running(CacheFixture()) as fixture:
        await fixture.settle()
        for name in "abc":
            fixture.server.drop_watches()
            await play(fixture, ("write", name, None, False))
            await fixture.settle()
        assert fixture.cache.lists == 1
        assert fixture.cache.watches >= 4


async def test_bookmarks_carry_a_quiet_cache_over_forgotten_history() -> None:
    fixture = CacheFixture()
    fixture.server.bookmark_every = 0.01
    async with running(fixture):
        await fixture.settle()
        other = Resource("", "v1", "secrets", "Secret")
        for number in range(20):
            await fixture.client.create(other, other.object(f"s{number}", "default"))
        now = fixture.server._registry.version
        await soon(lambda: int(fixture.cache._position) >= now, "a bookmark")
        fixture.server.forget()
        fixture.server.drop_watches()
        await play(fixture, ("write", "a", None, False))
        await fixture.settle()
        assert fixture.cache.lists == 1


async def test_forgotten_history_means_a_new_list_and_what_went_is_told() -> None:
    async with running(CacheFixture()) as fixture:
        await play(fixture, ("write", "a", 0, False))
        await play(fixture, ("write", "b", 0, False))
        await fixture.settle()
        fixture.server.refuse = refusing("fail watch")
        fixture.server.drop_watches()
        await play(fixture, ("delete", "a", None, False))
        await play(fixture, ("write", "c", None, False))
        fixture.server.forget()
        fixture.owners.clear()
        await fixture.settle()
        assert fixture.owners == {"default/x"}
        assert fixture.cache.lists >= 2


async def test_a_write_of_ours_is_there_at_once_and_is_not_told_twice() -> None:
    async with running(CacheFixture()) as fixture:
        await fixture.settle()
        reported: list[tuple[str, str]] = []
        fixture.cache.subscribe(lambda name, old, new: reported.append((name, version(new) if new else "gone")))
        made = await fixture.client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
        fixture.cache.record_write(made)
        assert fixture.cache.get("default/a") is not None
        assert "managedFields" in made["metadata"]
        await play(fixture, ("write", "b", None, False))
        await fixture.settle()
        assert [name for name, _ in reported] == ["default/a", "default/b"]
        await fixture.client.delete(CONFIG_MAPS, "a", "default")
        fixture.cache.record_delete(made)
        assert fixture.cache.get("default/a") is None
        await play(fixture, ("write", "a", None, False))  # another one of the same name
        await fixture.settle()
        assert [name for name, _ in reported] == ["default/a", "default/b", "default/a", "default/a"]


async def test_an_answer_that_comes_later_than_the_watch_brings_nothing_back() -> None:
    async with running(CacheFixture()) as fixture:
        made = await fixture.client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
        await fixture.client.delete(CONFIG_MAPS, "a", "default")
        await play(fixture, ("write", "b", None, False))
        await fixture.settle()
        fixture.cache.record_write(made)
        assert fixture.cache.get("default/a") is None


async def test_a_server_that_was_put_back_is_believed() -> None:
    fixture = CacheFixture()
    async with running(fixture):
        for name in "abc":
            await play(fixture, ("write", name, None, False))
        await fixture.settle()
        restored = MemoryApiServer()  # a backup of an earlier day: lower versions
        fixture.server.refuse = refusing("gone")
        before = fixture.cache.lists
        fixture.server._registry = restored._registry
        fixture.server._registry.on_change = fixture.server._notify
        fixture.server.drop_watches()
        await play(fixture, ("write", "a", None, False))
        await soon(lambda: fixture.cache.lists > before, "a new list")
        await fixture.settle()


class Disordered:
    """`Transport`: an empty list, then these events."""

    def __init__(self, events: list[tuple[str, str, int]]) -> None:
        self._events = events

    async def send(self, request: Request) -> Response:
        found = {"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []}
        return Response(200, {}, orjson.dumps(found))

    async def stream(self, request: Request, quiet: float) -> AsyncGenerator[Response | bytes, None]:
        yield Response(200)
        for kind, name, number in self._events:
            obj = CONFIG_MAPS.object(name, "default")
            obj["metadata"] |= {"uid": name, "resourceVersion": str(number)}
            yield orjson.dumps({"type": kind, "object": obj}) + b"\n"
        await asyncio.Event().wait()

    async def close(self) -> None:
        return


@st.composite
def disordered_events(draw: st.DrawFn) -> tuple[dict[str, str], list[tuple[str, str, int]]]:
    """What is there in the end, and what happened: twice here and there, and in any order."""
    there: dict[str, str] = {}
    events = []
    for number, name in enumerate(draw(st.lists(NAMES, min_size=1, max_size=12)), 2):
        kind = draw(st.sampled_from(("MODIFIED", "DELETED"))) if name in there else "ADDED"
        events.append((kind, name, number))
        there[name] = str(number)
        if kind == "DELETED":
            del there[name]
    again = draw(st.lists(st.sampled_from(events), max_size=4))
    late = [("ADDED", "gone before the list", 1)] if draw(st.booleans()) else []
    return there, draw(st.permutations([*events, *again, *late]))


@given(disordered_events())
async def test_events_that_come_twice_or_late_change_nothing(
    told: tuple[dict[str, str], list[tuple[str, str, int]]],
) -> None:
    there, events = told
    last = CONFIG_MAPS.object("last", "default")
    cache: Cache[str] = Cache(Client(Disordered([*events, ("ADDED", "last", 1000)])), CONFIG_MAPS, transform=version)
    task = asyncio.create_task(cache.run())
    await soon(lambda: cache.get(key(last)) is not None, "all events")
    task.cancel()
    found = {name.removeprefix("default/"): cache.get(name) for name in cache.keys()}  # noqa: SIM118  a cache is no dictionary
    assert found == {**there, "last": "1000"}


async def test_throttled_it_waits_as_long_as_it_was_told() -> None:
    fixture = CacheFixture()
    fixture.server.refuse = refusing("throttle")
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with running(fixture):
        await soon(lambda: fixture.cache.error is not None, "trouble")
        assert fixture.cache.error is not None
        assert fixture.cache.error.code == "Busy"
        fixture.server.refuse = lambda request: None
        await fixture.settle()
        assert loop.time() - began >= 1.0
        await soon(lambda: fixture.cache.error is None, "no trouble any more")


async def test_a_kind_that_is_missing_or_forbidden_is_waited_for() -> None:
    fixture = CacheFixture()
    refused: PaddleFlowError | None = None
    fixture.server.refuse = lambda request: Response(403, {}, b'{"message": "no", "reason": "Forbidden"}')
    async with running(fixture):
        await soon(lambda: fixture.cache.error is not None, "trouble")
        refused = fixture.cache.error
        assert not fixture.cache.synced.is_set()
        await fixture.settle()
    assert isinstance(refused, Forbidden)


async def test_only_what_is_pruned_is_kept() -> None:
    server = MemoryApiServer()
    client = Client(server)
    await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default", data={"x": "1"}))
    cache: Cache[str] = Cache(client, CONFIG_MAPS, "default", transform=lambda obj: str(obj["data"]["x"]))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(cache.run())
        await cache.synced.wait()
        assert cache.all() == ["1"]
        assert cache.get("default/a") == "1"
        task.cancel()


async def test_a_change_of_which_nothing_is_kept_is_not_reported() -> None:
    server = MemoryApiServer()
    client = Client(server)
    await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default", data={"x": "1", "beat": "1"}))
    cache: Cache[str] = Cache(
        client, CONFIG_MAPS, "default", transform=lambda obj: str(obj["data"]["x"]), backoff=Backoff(0.0002, 0.001)
    )
    told: list[tuple[str | None, str | None]] = []
    cache.subscribe(lambda _, old, new: told.append((old, new)))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(cache.run())
        await cache.synced.wait()
        await client.patch(CONFIG_MAPS, "a", "default", body={"data": {"beat": "2"}})
        await client.patch(CONFIG_MAPS, "a", "default", body={"data": {"x": "2"}})
        await soon(lambda: cache.get("default/a") == "2", "the new value")
        assert told == [(None, "1"), ("1", "2")]
        # Another object of the name is news, however much it looks like the one before.
        server.refuse = refusing("fail watch")
        server.drop_watches()
        await client.delete(CONFIG_MAPS, "a", "default")
        await client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default", data={"x": "2"}))
        server.forget()
        server.refuse = lambda request: None
        await soon(lambda: len(told) > 2, "the other object")
        assert told[2:] == [("2", "2")]
        task.cancel()


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_all_the_time() -> None:
    server = MemoryApiServer()
    asked = 0

    def end(request: Request) -> Response | None:
        nonlocal asked
        if "watch=1" in request.path:
            asked += 1
            return Response(200, {}, b"")
        return None

    server.refuse = end
    cache: Cache[Object] = Cache(Client(server), CONFIG_MAPS, backoff=Backoff(600.0, 600.0))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(cache.run())
        await soon(lambda: asked, "a watch")
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
    assert asked == 1


async def test_a_watch_that_is_ended_in_the_midst_of_events_goes_on_without_a_pause() -> None:
    """API servers under load end the watch of a reader that falls behind, and say nothing."""
    server = MemoryApiServer()
    client = Client(server)
    follow = server.stream

    async def one_event_only(request: Request, quiet: float) -> AsyncGenerator[Response | bytes, None]:
        async with aclosing(follow(request, quiet)) as parts:
            async for part in parts:
                yield part
                if isinstance(part, bytes):
                    return

    server.stream = one_event_only  # type: ignore[method-assign]  # what such a server does
    cache: Cache[Object] = Cache(Client(server), CONFIG_MAPS, backoff=Backoff(600.0, 600.0))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(cache.run())
        await cache.synced.wait()
        for number in range(5):
            await client.create(CONFIG_MAPS, CONFIG_MAPS.object(f"c{number}", "default"))
        while len(cache) < 5:
            await asyncio.sleep(0)
        task.cancel()
    assert cache.lists == 1
    assert cache.watches >= 5
