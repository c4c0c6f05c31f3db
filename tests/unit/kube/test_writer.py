"""Writes whose response was lost are checked before they are repeated."""

from __future__ import annotations

import asyncio

import pytest

from paddleflow.errors import Conflict, Unavailable
from paddleflow.kube.apply import marked
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import CONFIG_MAPS, PODS, Object, Resource
from paddleflow.kube.transport import Request, Response
from paddleflow.kube.writer import Writer
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon


class LossyWire(MemoryApiServer):
    """Does what it is asked, and drops the responses to writes while `losing` is set."""

    losing = False

    async def send(self, request: Request) -> Response:
        answer = await super().send(request)
        if self.losing and request.method != "GET":
            raise Unavailable("the answer was lost")
        return answer


class Scene:
    def __init__(self, resource: Resource = CONFIG_MAPS) -> None:
        self.server = LossyWire()
        self.client = Client(self.server)
        self.cache: Cache[Object] = Cache(self.client, resource, "default")
        self.writer = Writer(self.client, self.cache)

    def changed(self) -> list[bool]:
        return [write.changed for write in self.server.writes]


@pytest.fixture
async def scene() -> Scene:
    """With a cache that has listed, and whose watch then brings nothing any more."""
    scene = Scene()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(scene.cache.run())
        await scene.cache.synced.wait()
        task.cancel()
    return scene


WANTED = marked(CONFIG_MAPS.object("a", "default", data={"x": "1"}))


async def test_what_was_written_is_in_the_cache_at_once(scene: Scene) -> None:
    made = await scene.writer.apply(WANTED)
    assert scene.cache.get("default/a") is not None
    await scene.writer.delete(made)
    assert scene.cache.get("default/a") is None
    await scene.writer.delete(made)  # gone already


@pytest.mark.parametrize("way", ["apply", "create"])
async def test_a_lost_answer_is_looked_after_and_not_repeated(scene: Scene, way: str) -> None:
    write = getattr(scene.writer, way)
    scene.server.losing = True
    with pytest.raises(Unavailable):
        await write(WANTED)
    scene.server.losing = False
    assert scene.cache.get("default/a") is None
    assert (await write(WANTED))["data"] == {"x": "1"}
    assert scene.cache.get("default/a") is not None
    assert scene.changed() == [True]


async def test_a_write_that_was_lost_before_it_was_done_is_done_again(scene: Scene) -> None:
    scene.server.refuse = lambda request: Response(503, {}, b"")
    with pytest.raises(Unavailable):
        await scene.writer.apply(WANTED)
    with pytest.raises(Unavailable):  # still in doubt: nobody could read it
        await scene.writer.apply(WANTED)
    scene.server.refuse = lambda request: None
    await scene.writer.apply(WANTED)
    assert scene.changed() == [True]


async def test_in_doubt_a_wish_that_changed_meanwhile_is_written(scene: Scene) -> None:
    scene.server.losing = True
    with pytest.raises(Unavailable):
        await scene.writer.apply(WANTED)
    scene.server.losing = False
    other = marked(CONFIG_MAPS.object("a", "default", data={"x": "2"}))
    assert (await scene.writer.apply(other))["data"] == {"x": "2"}
    assert scene.changed() == [True, True]


async def test_a_name_taken_by_another_is_an_error_also_in_doubt(scene: Scene) -> None:
    scene.server.refuse = lambda request: Response(503, {}, b"")
    with pytest.raises(Unavailable):
        await scene.writer.create(WANTED)
    scene.server.refuse = lambda request: None
    await scene.client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default", data={"y": "2"}))
    with pytest.raises(AlreadyExists):
        await scene.writer.create(WANTED)


async def test_a_lost_deletion_spares_another_object_of_the_same_name(scene: Scene) -> None:
    made = await scene.writer.apply(WANTED)
    scene.server.losing = True
    with pytest.raises(Unavailable):
        await scene.writer.delete(made)
    scene.server.losing = False
    assert scene.cache.get("default/a") is not None
    await scene.client.create(CONFIG_MAPS, CONFIG_MAPS.object("a", "default"))
    scene.server.writes.clear()
    await scene.writer.delete(made)
    assert scene.server.writes == []
    with pytest.raises(Conflict):
        await Writer(scene.client, scene.cache).delete(made)


async def test_a_deletion_that_conflicts_is_not_believed_to_be_done(scene: Scene) -> None:
    made = await scene.writer.apply(WANTED)
    scene.server.refuse = lambda request: Response(409, {}, b'{"reason": "Conflict"}')
    with pytest.raises(Conflict):
        await scene.writer.delete(made)
    assert scene.cache.get("default/a") is not None


async def test_a_pod_that_waits_for_its_node_stays_in_the_cache() -> None:
    scene = Scene(PODS)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(scene.cache.run())
        await scene.cache.synced.wait()
        made = await scene.writer.create(PODS.object("a", "default", spec={"nodeName": "n"}))
        await scene.writer.delete(made)
        assert "deletionTimestamp" in (scene.cache.get("default/a") or {})["metadata"]
        await scene.writer.delete(made, grace=0)
        await soon(lambda: scene.cache.get("default/a") is None, "the pod's end")
        task.cancel()
