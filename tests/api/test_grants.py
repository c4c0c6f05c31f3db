"""Grants over REST: each rule, on each engine."""

from __future__ import annotations

import pytest

from paddleflow.api import grants as grant_routes
from paddleflow.api import users as user_routes
from paddleflow.api.routing import Route
from paddleflow.store.database import Database
from tests.api.access_rows import add_queue, add_storage, granted
from tests.api.client import Api


@pytest.fixture
def routes() -> list[Route]:
    """Only the routes of this package: its tests hold whatever else is there."""
    return [*user_routes.ROUTES, *grant_routes.ROUTES]


@pytest.mark.usefixtures("alice", "bob")
async def test_grants_are_given_listed_used_and_taken(root: Api, database: Database) -> None:
    await add_queue(database, "gpu")
    storage = await add_storage(database, "bobby", "data")
    given = [("queue", "gpu"), ("fs", storage), ("user", "bobby")]
    ids = []
    for kind, name in given:
        assert name not in await granted(database, "alice", kind)
        document = {"username": "alice", "resourceType": kind, "resourceid": name}
        ids.append((await root.post("/grant", document)).ok()["grantID"])
        assert await granted(database, "alice", kind) == [name]
        assert await granted(database, "bobby", kind) == []
    listed = (await root.get("/grant", username="alice")).ok()["grantList"]
    assert [(row["resourceType"], row["resourceID"]) for row in listed] == given
    assert listed[0] == {
        "grantID": ids[0],
        "userName": "alice",
        "resourceType": "queue",
        "resourceID": "gpu",
        "createTime": "2023-11-14T22:13:20.000Z",
        "updateTime": "2023-11-14T22:13:20.000Z",
    }
    assert (await root.get("/grant", username="bobby")).ok()["grantList"] == []
    assert (await root.delete("/grant", username="alice", resourceType="queue", resourceID="gpu")).ok() is None
    assert await granted(database, "alice", "queue") == []
    missing = await root.delete("/grant", username="alice", resourceType="queue", resourceID="gpu")
    assert "grantlist" in missing.refused(404, "GrantNotFound")["hint"]
    assert [row["resourceType"] for row in (await root.get("/grant")).ok()["grantList"]] == ["fs", "user"]


@pytest.mark.usefixtures("alice")
async def test_grants_that_are_refused(root: Api, database: Database) -> None:
    await add_queue(database, "gpu")
    good = {"userName": "alice", "resourceType": "queue", "resourceID": "gpu"}
    (await root.post("/grant", good)).ok()
    for change, status, code in (
        ({}, 409, "GrantAlreadyExist"),
        ({"userName": "nobody"}, 404, "UserNotExist"),
        ({"userName": "root"}, 400, "GrantRootActionNotSupport"),
        ({"userName": "Root"}, 400, "GrantRootActionNotSupport"),
        ({"resourceType": "cluster"}, 400, "GrantResourceTypeNotFound"),
        ({"resourceID": "cpu"}, 404, "QueueNameNotFound"),
        ({"resourceType": "fs"}, 404, "FileSystemNotExist"),
        ({"resourceType": "user"}, 404, "UserNotExist"),
    ):
        (await root.post("/grant", good | change)).refused(status, code)
    assert len((await root.get("/grant")).ok()["grantList"]) == 1


async def test_grants_are_for_root(alice: Api) -> None:
    document = {"userName": "alice", "resourceType": "queue", "resourceID": "gpu"}
    (await alice.post("/grant", document)).refused(403, "OnlyRootAllowed")
    (await alice.get("/grant")).refused(403, "OnlyRootAllowed")
    (await alice.delete("/grant", username="alice", resourceType="queue", resourceID="x")).refused(
        403, "OnlyRootAllowed"
    )


async def test_the_grant_to_take_back_is_named_in_full(root: Api) -> None:
    answer = (await root.delete("/grant", username="alice")).refused(400, "InvalidURI")
    assert {fault["where"] for fault in answer["details"]} == {"resourceType", "resourceID"}
