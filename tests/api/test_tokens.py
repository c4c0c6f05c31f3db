"""Tokens for scripts, their scopes, and the audit log over REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from paddleflow.access.audit import MOST_WAITING, AuditEntry, AuditLog
from paddleflow.base.clock import ManualClock
from paddleflow.errors import Unavailable
from paddleflow.store.database import Database
from tests.api.client import Api
from tests.api.workshop import TINY

pytestmark = pytest.mark.usefixtures("ready")


async def made(client: Api, name: str, scope: str) -> Api:
    return client.with_token((await client.post("/token", {"name": name, "scope": scope})).ok()["token"])


async def test_a_token_is_made_listed_used_and_revoked(alice: Api, bob: Api, clock: ManualClock) -> None:
    script = await made(alice, "nightly", "submit")
    assert (await script.get("/whoami")).ok()["name"] == "alice"
    (listed,) = (await alice.get("/token")).ok()["tokenList"]
    assert (listed["name"], listed["scope"]) == ("nightly", "submit")
    assert "token" not in listed
    assert (await bob.get("/token")).ok()["tokenList"] == []
    (await alice.post("/token", {"name": "nightly"})).refused(409, "DuplicatedName")
    (await bob.delete("/token/nightly")).refused(404, "TokenNotFound")
    (await alice.delete("/token/nightly")).ok()
    (await script.get("/whoami")).refused(401, "AuthInvalidToken")
    short = alice.with_token((await alice.post("/token", {"name": "short", "hours": 1})).ok()["token"])
    clock.advance(3601)
    (await short.get("/whoami")).refused(401, "AuthInvalidToken")


async def test_a_scope_bounds_what_a_token_may_do(root: Api, alice: Api) -> None:
    reader, submitter = await made(alice, "r", "read"), await made(alice, "s", "submit")
    job = {"command": "x", "flavour": TINY}
    refused = (await reader.post("/job/single", job)).refused(403, "TokenScopeTooSmall")
    assert "of scope read" in refused["message"]
    (await submitter.post("/job/single", job)).ok()
    (await reader.get("/job")).ok()
    for client in (reader, submitter):
        (await client.post("/token", {"name": "more", "scope": "admin"})).refused(403, "TokenScopeTooSmall")
        (await client.put("/user/alice", {"password": "changed1"})).refused(403, "TokenScopeTooSmall")
    admin = await made(root, "look", "read")
    (await admin.get("/user")).ok()
    (await admin.delete("/user/alice")).refused(403, "TokenScopeTooSmall")
    (await reader.post("/logout")).ok()
    (await reader.get("/job")).refused(401, "AuthInvalidToken")


async def test_tokens_that_are_refused(alice: Api) -> None:
    for wrong in ({"name": ""}, {"name": "a b"}, {"name": "x", "scope": "root"}, {"name": "x", "hours": 0}):
        (await alice.post("/token", wrong)).refused(400, "InvalidArguments")


async def test_changes_are_in_the_audit_log(root: Api, alice: Api, nobody: Api) -> None:
    (await nobody.post("/login", {"username": "alice", "password": "wrong1"})).refused(401, "AuthFailed")
    (await root.post("/user", {"username": "bob", "password": "secret1"})).ok()
    (await alice.delete("/user/bob")).refused(403, "OnlyRootAllowed")
    (await alice.get("/queue")).ok()
    (await alice.post("/job/single", {"command": "x", "flavour": TINY})).ok()
    found = (await root.get("/audit")).ok()["auditList"]
    assert [(each["userName"], each["method"], each["path"], each["status"]) for each in found] == [
        ("alice", "DELETE", "/user/bob", 403),
        ("root", "POST", "/user", 200),
        ("alice", "POST", "/login", 401),
    ]
    assert [each["status"] for each in (await root.get("/audit", user="alice")).ok()["auditList"]] == [403, 401]
    (await alice.get("/audit")).refused(403, "OnlyRootAllowed")
    first = (await root.get("/audit", maxKeys=2)).ok()
    rest = (await root.get("/audit", maxKeys=2, marker=first["nextMarker"])).ok()
    assert [each["path"] for each in rest["auditList"]] == ["/login"]


async def test_users_of_one_name_differ_in_the_audit_log(root: Api, nobody: Api) -> None:
    """Also when the entries of both are written after the first one was deleted."""
    for number in (1, 2):
        (await root.post("/user", {"username": "carol", "password": "secret1"})).ok()
        carol = await nobody.login("carol", "secret1")
        (await carol.delete("/user/alice")).refused(403, "OnlyRootAllowed")
        if number == 1:
            (await root.delete("/user/carol")).ok()
    found = (await root.get("/audit", user="carol")).ok()["auditList"]
    later, earlier = [each["userID"] for each in found if each["path"] == "/user/alice"]
    assert 0 < earlier < later
    assert found[1]["path"] == "/login"
    assert found[1]["userID"] == later, "of a login the name is known, and whose it is when the entry is written"


async def test_who_is_not_known_cannot_fill_the_audit_log(root: Api, nobody: Api) -> None:
    for _ in range(3):
        (await nobody.delete("/user/alice")).refused(401, "AuthWithoutToken")
    (await nobody.post("/login", {"username": "\x1b[2J", "password": "wrong1"})).refused(401, "AuthFailed")
    statuses = [(await nobody.post("/login", {"username": "nemo", "password": "wrong1"})).status for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429], "as many as `login_attempts` are tried, the others are too early"
    found = (await root.get("/audit")).ok()["auditList"]
    assert [(each["userName"], each["status"]) for each in found] == [("nemo", 401)] * 3


async def test_entries_wait_for_a_database_that_is_away_up_to_a_limit() -> None:
    database = _Away()
    audit = AuditLog(cast(Database, database))
    entry = AuditEntry(at=1.0, user_name="ada", address="", method="POST", path="/user", status=200, request_id="r")
    for _ in range(MOST_WAITING + 5):
        audit.record(entry)
    with pytest.raises(Unavailable):
        await audit.flush()
    audit.record(entry)
    database.away = False
    await audit.flush()
    assert database.written == [MOST_WAITING]


class _Away:
    """A database that fails until it is told not to, and counts what is written."""

    def __init__(self) -> None:
        self.away, self.written = True, list[int]()

    async def write(self, function: object, entries: Sequence[AuditEntry]) -> None:
        if self.away:
            raise Unavailable("the database is away")
        self.written.append(len(entries))


async def test_short_names_and_dots_are_names(root: Api, nobody: Api) -> None:
    for name in ("bo", "j.smith", "j_smith", "1st", "x" * 32):
        (await root.post("/user", {"username": name, "password": "secret1"})).ok()
        await nobody.login(name, "secret1")
    for name in ("x", ".a", "a.", "a-b", "a~1", "x" * 33, "ä1"):
        (await root.post("/user", {"username": name, "password": "secret1"})).refused(400, "InvalidNamePattern")
