"""What a client may rely on: the API server in memory and the real one answer alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.kube.client import Client, WatchEvent
from paddleflow.kube.config import from_kubeconfig
from paddleflow.kube.errors import AlreadyExists, Gone
from paddleflow.kube.lease import Lease, LeaseTiming
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import CONFIG_MAPS, EVENTS, LEASES, PADDLEJOBS, PODS, SERVICES, Object, uid, version
from paddleflow.testing.api_server import MemoryApiServer
from tests.cluster_fixture import LiveCluster
from tests.kube_server import connected, own_namespace

REAL = pytest.param(
    "cluster", marks=[pytest.mark.cluster, pytest.mark.xdist_group("control-plane"), pytest.mark.timeout(400)]
)


@pytest.fixture(params=["memory", REAL])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    if request.param == "memory":
        yield Client(MemoryApiServer(), manager="kube-tests")
        return
    real: LiveCluster = request.getfixturevalue("control_plane")
    async with connected(from_kubeconfig(real.kubeconfig)) as client:
        yield client


@pytest.fixture
async def space(client: Client) -> AsyncIterator[str]:
    async with own_namespace(client) as name:
        yield name


def config(space: str, name: str, **data: str) -> Object:
    return CONFIG_MAPS.object(name, space, data=data)


def pod(space: str, name: str) -> Object:
    container = {"name": "main", "image": "none:1", "ports": [{"containerPort": 80}]}
    return PODS.object(name, space, spec={"schedulerName": "nobody", "containers": [container]})


# ---- objects -------------------------------------------------------------------------------------------------------


async def test_what_is_created_can_be_read(client: Client, space: str) -> None:
    made = await client.create(CONFIG_MAPS, config(space, "a", x="1"))
    assert uid(made)
    assert version(made)
    assert await client.get(CONFIG_MAPS, "a", space) == made
    assert made["data"] == {"x": "1"}


async def test_a_taken_name_is_refused(client: Client, space: str) -> None:
    await client.create(CONFIG_MAPS, config(space, "a"))
    with pytest.raises(AlreadyExists, match='"a" already exists') as caught:
        await client.create(CONFIG_MAPS, config(space, "a"))
    assert caught.value.code == "AlreadyExists"


async def test_what_is_not_there_is_not_found(client: Client, space: str) -> None:
    with pytest.raises(NotFound, match=r'get configmaps/a in namespace\[.*\]: configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a", space)
    with pytest.raises(NotFound):
        await client.delete(CONFIG_MAPS, "a", space)
    with pytest.raises(NotFound, match="namespaces"):
        await client.create(CONFIG_MAPS, config("nowhere-at-all", "a"))


async def test_a_wrong_name_is_refused_with_its_field(client: Client, space: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(CONFIG_MAPS, config(space, "Not_A_Name"))
    assert [fault.where for fault in caught.value.details] == ["metadata.name"]
    assert caught.value.code == "Invalid"


async def test_a_write_to_an_old_version_is_a_conflict(client: Client, space: str) -> None:
    made = await client.create(CONFIG_MAPS, config(space, "a", x="1"))
    changed = await client.update(CONFIG_MAPS, {**made, "data": {"x": "2"}})
    assert version(changed) != version(made)
    with pytest.raises(Conflict) as caught:
        await client.update(CONFIG_MAPS, {**made, "data": {"x": "3"}})
    assert caught.value.code == "Conflict"
    assert (await client.get(CONFIG_MAPS, "a", space))["data"] == {"x": "2"}


async def test_a_write_that_changes_nothing_keeps_the_version(client: Client, space: str) -> None:
    made = await client.create(CONFIG_MAPS, config(space, "a", x="1"))
    assert version(await client.update(CONFIG_MAPS, made)) == version(made)
    patched = await client.patch(CONFIG_MAPS, "a", space, body={"data": {"x": "1"}})
    assert version(patched) == version(made)


async def test_only_the_very_object_is_deleted(client: Client, space: str) -> None:
    made = await client.create(CONFIG_MAPS, config(space, "a"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", space, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", space, version="1")
    await client.delete(CONFIG_MAPS, "a", space, uid=uid(made))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", space)


async def test_a_finalizer_keeps_an_object_until_it_goes(client: Client, space: str) -> None:
    wanted = config(space, "a")
    wanted["metadata"]["finalizers"] = ["example.org/hold"]
    made = await client.create(CONFIG_MAPS, wanted)
    await client.delete(CONFIG_MAPS, "a", space)
    held = await client.get(CONFIG_MAPS, "a", space)
    assert held["metadata"]["deletionTimestamp"]
    assert uid(held) == uid(made)
    await client.patch(CONFIG_MAPS, "a", space, body={"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", space)


async def test_status_is_a_half_of_its_own(client: Client, space: str) -> None:
    made = await client.create(PODS, {**pod(space, "a"), "status": {"message": "made up"}})
    assert (made.get("status") or {}).get("message") is None
    seen = await client.patch(PODS, "a", space, body={"status": {"message": "hello"}}, subresource="status")
    assert seen["status"]["message"] == "hello"
    labelled = {**seen, "status": {"message": "by the wrong subresource"}}
    labelled["metadata"] = {**seen["metadata"], "labels": {"a": "b"}}
    seen = await client.update(PODS, labelled)
    assert (seen["status"]["message"], seen["metadata"]["labels"]) == ("hello", {"a": "b"})
    again = await client.update(PODS, {**seen, "status": {**seen["status"], "message": "bye"}}, subresource="status")
    assert again["status"]["message"] == "bye"


async def test_patches(client: Client, space: str) -> None:
    await client.create(CONFIG_MAPS, config(space, "a", x="1", y="2"))
    merged = await client.patch(CONFIG_MAPS, "a", space, body={"data": {"x": None, "z": "3"}})
    assert merged["data"] == {"y": "2", "z": "3"}
    steps = [{"op": "test", "path": "/data/y", "value": "2"}, {"op": "replace", "path": "/data/y", "value": "4"}]
    assert (await client.patch(CONFIG_MAPS, "a", space, body=steps, kind="json"))["data"] == {"y": "4", "z": "3"}
    with pytest.raises(Invalid):
        await client.patch(CONFIG_MAPS, "a", space, body=steps, kind="json")


async def test_kinds_that_the_server_does_not_know(client: Client, space: str) -> None:
    assert await client.serves(LEASES)
    strange = PADDLEJOBS.__class__("nobody.example.org", "v1", "things", "Thing")
    assert not await client.serves(strange)
    with pytest.raises(NotFound):
        await client.list(strange, space)


async def test_nothing_is_written_behind_a_fence(client: Client, space: str) -> None:
    def refuse() -> None:
        raise Conflict("the lease is lost")

    client.fence = refuse
    with pytest.raises(Conflict, match="the lease is lost"):
        await client.create(CONFIG_MAPS, config(space, "a"))
    client.fence = None
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", space)


async def test_a_lease_is_taken_renewed_and_given_back(client: Client, space: str) -> None:
    terms = LeaseTiming(duration=30, renew_within=20.0, every=0.5)
    seen: list[str] = []

    async def work() -> None:
        for _ in range(2):  # two renewals
            before = version(await client.get(LEASES, "boss", space))
            while version(found := await client.get(LEASES, "boss", space)) == before:
                await asyncio.sleep(0.02)
            seen.append(found["spec"]["holderIdentity"])

    async with asyncio.timeout(90):
        await Lease(client, "boss", space, "one", SystemClock(), terms).lead(work)
        await Lease(client, "boss", space, "two", SystemClock(), terms).lead(work)
    assert seen == ["one", "one", "two", "two"]
    assert (await client.get(LEASES, "boss", space))["spec"]["leaseTransitions"] == 1


async def test_events_are_counted(client: Client, space: str) -> None:
    made = await client.create(CONFIG_MAPS, config(space, "a"))

    async def found() -> list[Object]:
        return list((await client.list(EVENTS, space, fields="involvedObject.name=a")).items)

    for number in (1, 2):
        recorder = Recorder(client, "tests", SystemClock())
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(recorder.run())
            recorder.record(made, "Scaled", "from 2 to 3", warning=True)
            while [event["count"] for event in await found()] != [number]:
                await asyncio.sleep(0.02)
            task.cancel()
    (event,) = await found()
    assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("Scaled", "Warning", uid(made))


# ---- server-side apply ---------------------------------------------------------------------------------------------


async def test_apply_creates_changes_and_takes_away(client: Client, space: str) -> None:
    first = await client.apply(CONFIG_MAPS, config(space, "a", x="1", y="2"), field_manager="one")
    assert first["data"] == {"x": "1", "y": "2"}
    second = await client.apply(CONFIG_MAPS, config(space, "a", x="3"), field_manager="one")
    assert second["data"] == {"x": "3"}
    assert uid(second) == uid(first)


async def test_an_apply_that_changes_nothing_keeps_the_version(client: Client, space: str) -> None:
    first = await client.apply(CONFIG_MAPS, config(space, "a", x="1"), field_manager="one")
    second = await client.apply(CONFIG_MAPS, config(space, "a", x="1"), field_manager="one")
    assert version(second) == version(first)


async def test_apply_leaves_what_others_own(client: Client, space: str) -> None:
    await client.apply(CONFIG_MAPS, config(space, "a", x="1"), field_manager="one")
    await client.apply(CONFIG_MAPS, config(space, "a", y="2"), field_manager="two")
    last = await client.apply(CONFIG_MAPS, config(space, "a", x="3"), field_manager="one")
    assert last["data"] == {"x": "3", "y": "2"}


async def test_a_field_of_another_owner_is_a_conflict_unless_forced(client: Client, space: str) -> None:
    await client.apply(CONFIG_MAPS, config(space, "a", x="1"), field_manager="one")
    with pytest.raises(Conflict, match="one") as caught:
        await client.apply(CONFIG_MAPS, config(space, "a", x="2"), field_manager="two", force=False)
    assert not isinstance(caught.value, AlreadyExists)
    assert caught.value.details
    taken = await client.apply(CONFIG_MAPS, config(space, "a", x="2"), field_manager="two")
    assert taken["data"] == {"x": "2"}
    assert (await client.apply(CONFIG_MAPS, config(space, "a"), field_manager="one"))["data"] == {"x": "2"}


async def test_items_of_keyed_lists_are_merged(client: Client, space: str) -> None:
    def service(*ports: int) -> Object:
        spec = {"selector": {"a": "b"}, "ports": [{"name": f"p{port}", "port": port} for port in ports]}
        return SERVICES.object("a", space, spec=spec)

    await client.apply(SERVICES, service(80, 81), field_manager="one")
    await client.apply(SERVICES, service(82), field_manager="two")
    last = await client.apply(SERVICES, service(80), field_manager="one")
    assert sorted(port["port"] for port in last["spec"]["ports"]) == [80, 82]


async def test_status_is_applied_apart(client: Client, space: str) -> None:
    await client.apply(PODS, pod(space, "a"), field_manager="one")
    conditions = [{"type": "example.org/Fine", "status": "True"}]
    seen = await client.apply_status(PODS, PODS.object("a", space, status={"conditions": conditions}))
    assert "example.org/Fine" in [each["type"] for each in seen["status"]["conditions"]]
    assert seen["spec"]["containers"][0]["image"] == "none:1"


# ---- lists and watches ---------------------------------------------------------------------------------------------


async def test_lists_come_in_pages_and_by_selectors(client: Client, space: str) -> None:
    for number in range(7):
        wanted = config(space, f"c{number}")
        wanted["metadata"]["labels"] = {"odd": str(number % 2), "n": str(number)}
        await client.create(CONFIG_MAPS, wanted)

    async def names(**selectors: str) -> list[str]:
        page = await client.list(CONFIG_MAPS, space, **selectors)
        return [name for item in page.items if (name := item["metadata"]["name"]).startswith("c")]

    assert await names() == [f"c{number}" for number in range(7)]
    assert await names(labels="odd=1,n!=3") == ["c1", "c5"]
    assert await names(labels="n in (0,1,2),odd notin (1)") == ["c0", "c2"]
    assert await names(labels="!odd") == []
    assert await names(fields="metadata.name=c4") == ["c4"]
    sizes = [len(page.items) async for page in client.pages(CONFIG_MAPS, space, labels="odd", limit=3)]
    assert sizes == [3, 3, 1]
    page = await client.list(CONFIG_MAPS, space, labels="odd")
    assert {(item["apiVersion"], item["kind"]) for item in page.items} == {("v1", "ConfigMap")}


async def gather(client: Client, space: str, since: str, count: int, labels: str = "") -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with asyncio.timeout(20), aclosing(client.watch(CONFIG_MAPS, space, version=since, labels=labels)) as events:
        async for event in events:
            if event.type != "BOOKMARK":
                found.append(event)
            if len(found) == count:
                break
    return found


async def test_a_watch_tells_what_happened_since_a_list(client: Client, space: str) -> None:
    since = (await client.list(CONFIG_MAPS, space)).version
    made = await client.create(CONFIG_MAPS, {**config(space, "a", x="1")})
    changed = await client.patch(CONFIG_MAPS, "a", space, body={"data": {"x": "2"}})
    await client.delete(CONFIG_MAPS, "a", space)
    seen = [e for e in await gather(client, space, since, 3) if e.object["metadata"]["name"] == "a"]
    if len(seen) < 3:  # a real cluster puts a config map of its own into each namespace
        seen = [e for e in await gather(client, space, since, 4) if e.object["metadata"]["name"] == "a"]
    assert [event.type for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.object["data"]["x"] for event in seen] == ["1", "2", "2"]
    assert [version(event.object) for event in seen[:2]] == [version(made), version(changed)]
    assert int(version(seen[2].object)) > int(version(changed))


async def test_leaving_a_selector_is_told_as_a_deletion(client: Client, space: str) -> None:
    since = (await client.list(CONFIG_MAPS, space)).version
    wanted = config(space, "a")
    await client.create(CONFIG_MAPS, wanted)
    for value in ("yes", "no"):
        await client.patch(CONFIG_MAPS, "a", space, body={"metadata": {"labels": {"seen": value}}})
    seen = await gather(client, space, since, 2, labels="seen=yes")
    assert [event.type for event in seen] == ["ADDED", "DELETED"]


async def test_a_watch_ends_when_its_time_is_over(client: Client, space: str) -> None:
    since = (await client.list(CONFIG_MAPS, space)).version
    async with asyncio.timeout(20):
        kinds = [event.type async for event in client.watch(CONFIG_MAPS, space, version=since, seconds=1)]
    assert set(kinds) <= {"BOOKMARK", "ADDED"}


async def test_watches_that_were_cancelled_leave_the_client_whole(client: Client, space: str) -> None:
    """Each is ended in another moment: before it is answered, while it waits, in the midst of what it tells."""
    since = (await client.list(CONFIG_MAPS, space)).version
    arrived = asyncio.Event()

    async def watch() -> None:
        async for event in client.watch(CONFIG_MAPS, space, version=since):
            if event.object["metadata"]["name"] == "a":
                arrived.set()

    for number in range(3):
        task = asyncio.create_task(watch())
        await asyncio.sleep(0)  # it has begun
        if number == 1:
            await client.create(CONFIG_MAPS, config(space, "a", x="1"))
        if number > 0:
            async with asyncio.timeout(20):
                await arrived.wait()
        arrived.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    names = [event.object["metadata"]["name"] for event in await gather(client, space, since, 1)]
    assert names
    made = await client.create(CONFIG_MAPS, config(space, "b"))
    assert await client.get(CONFIG_MAPS, "b", space) == made


async def test_a_forgotten_version_is_gone() -> None:
    """In memory only: a real one forgets after minutes, or when it restarts (tests/fault/test_kube_chaos.py)."""
    server = MemoryApiServer()
    client = Client(server)
    server.forget()
    server.forget()
    with pytest.raises(Gone) as caught:
        await gather(client, "default", "1", 1)
    assert caught.value.code == "Expired"
