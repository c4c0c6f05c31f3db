"""Logins, tokens, users and grants over REST: each rule of the access package, on each engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

import pytest
from starlette.types import ASGIApp

from paddleflow.access import sessions
from paddleflow.api import grants as grant_routes
from paddleflow.api import users as user_routes
from paddleflow.api.application import build
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Route
from paddleflow.base.clock import ManualClock
from paddleflow.errors import TooMany, Unauthenticated
from paddleflow.settings import Settings
from paddleflow.store.bus import LocalBus
from paddleflow.store.database import Database, Row, Tx, Value
from paddleflow.store.statements import compose
from tests.api.access_rows import add_queue, granted, insert
from tests.api.client import Api
from tests.patience import soon

PASSWORD = "paddleflow1"
P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture
def routes() -> list[Route]:
    """Only the routes of this package: its tests hold whatever else is there."""
    return [*user_routes.ROUTES, *grant_routes.ROUTES]


def rows(tx: Tx, sql: str) -> list[Row]:
    return tx.all(compose(sql))


async def add_job(database: Database, user: str, status: str) -> None:
    names = (
        "name",
        "queue",
        "kind",
        "framework",
        "priority",
        "message",
        "members",
        "member_sets",
        "labels",
        "annotations",
    )
    numbers = dict.fromkeys(("cpu", "memory", "accepted_at", "updated_at"), 1)
    values = {"id": f"job-{user}-{status}", "user_name": user, "status": status, "scalars": "{}"}
    await database.write(insert, "jobs", {**values, **dict.fromkeys(names, "x"), **numbers})


# ---- logins and tokens --------------------------------------------------------------------------------------------


async def test_login_gives_a_token_that_both_headers_carry(alice: Api, nobody: Api) -> None:
    token = (await nobody.post("/login", {"username": "alice", "password": PASSWORD})).ok()["authorization"]
    for headers in ({"x-pf-authorization": token}, {"Authorization": f"Bearer {token}"}):
        answer = (await nobody.call("GET", "/whoami", headers=headers)).ok()
        assert answer.pop("host") == "", "isolated jobs see none of her folders"
        assert answer == {"name": "alice", "root": False, "expires": "2023-11-15T00:13:20.000Z"}


@pytest.mark.usefixtures("alice")
async def test_wrong_password_and_unknown_user_get_the_same_answer(nobody: Api) -> None:
    wrong = (await nobody.post("/login", {"username": "alice", "password": "nope12"})).refused(401, "AuthFailed")
    unknown = (await nobody.post("/login", {"username": "nobody", "password": "nope12"})).refused(401, "AuthFailed")
    assert wrong["hint"] == "a forgotten one is set anew by root: paddleflow user set NAME"
    strange = (await nobody.post("/login", {"username": "'; --", "password": "nope12"})).refused(401, "AuthFailed")
    assert wrong["message"] == unknown["message"] == strange["message"]


@pytest.mark.usefixtures("root")
async def test_root_is_root_in_any_capitals(nobody: Api) -> None:
    root = await nobody.login("Root", PASSWORD)
    answer = (await root.get("/whoami")).ok()
    assert (answer["name"], answer["root"]) == ("root", True)


async def test_missing_and_bad_tokens(nobody: Api) -> None:
    (await nobody.get("/whoami")).refused(401, "AuthWithoutToken")
    basic = await nobody.call("GET", "/whoami", headers={"Authorization": "Basic eDp5"})
    basic.refused(401, "AuthWithoutToken")
    assert basic.headers["www-authenticate"].startswith("Bearer")
    (await nobody.with_token("pf-made-up").get("/whoami")).refused(401, "AuthInvalidToken")
    (await nobody.with_token("pf-\xe4").get("/whoami")).refused(401, "AuthInvalidToken")


async def test_a_path_that_ends_in_login_is_not_open(nobody: Api) -> None:
    (await nobody.put("/user/login", {"password": "abcde1"})).refused(401, "AuthWithoutToken")


async def test_only_the_hash_of_a_token_is_stored(alice: Api, database: Database) -> None:
    stored = repr(await database.read(rows, "select * from tokens"))
    assert alice.token.startswith("pf-")
    assert len(alice.token) >= 40
    assert alice.token not in stored
    assert alice.token[3:] not in stored


async def test_a_token_runs_out(alice: Api, clock: ManualClock) -> None:
    (await alice.get("/whoami")).ok()
    clock.advance(2 * 3600 - 1)
    (await alice.get("/whoami")).ok()
    clock.advance(1)
    (await alice.get("/whoami")).refused(401, "AuthInvalidToken")


@pytest.mark.usefixtures("alice")
async def test_tokens_that_ran_out_are_removed_at_a_login(nobody: Api, database: Database, clock: ManualClock) -> None:
    clock.advance(3 * 3600)
    await nobody.login("alice", PASSWORD)
    assert len(await database.read(rows, "select * from tokens")) == 1


async def test_logout_ends_this_token_only(alice: Api, nobody: Api) -> None:
    other = await nobody.login("alice", PASSWORD)
    (await alice.get("/whoami")).ok()
    answer = await alice.post("/logout")
    assert (answer.ok(), answer.body) == (None, b"")
    (await alice.get("/whoami")).refused(401, "AuthInvalidToken")
    (await other.get("/whoami")).ok()


async def test_another_replica_believes_an_ended_token_for_a_moment_only(
    alice: Api, platform: Platform, settings: Settings, database: Database, clock: ManualClock, routes: list[Route]
) -> None:
    replica = Platform(settings=settings, database=database, clock=clock, bus=LocalBus())
    there = Api(build(replica, [routes]), routes, alice.token)
    (await there.get("/version")).ok()
    (await alice.post("/logout")).ok()
    (await alice.get("/version")).refused(401, "AuthInvalidToken")
    clock.advance(sessions.TTL)
    (await there.get("/version")).refused(401, "AuthInvalidToken")


class SlowReads:
    """A database whose next read answers only after something else has happened."""

    def __init__(self, inner: Database) -> None:
        self.dialect = inner.dialect
        self.write = inner.write
        self.write_soon = inner.write_soon
        self.close = inner.close
        self._inner = inner
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def peek(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._inner.peek(fn, *args, **kwargs)

    async def read(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer = await self._inner.read(fn, *args, **kwargs)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return answer


async def test_a_look_up_that_began_before_a_logout_is_not_remembered(
    alice: Api, settings: Settings, database: Database, clock: ManualClock
) -> None:
    slow = SlowReads(database)
    known = sessions.Sessions(slow, clock, settings.access)
    slow.meanwhile = lambda: known.logout(alice.token)
    await known.look_up(alice.token)  # asked while it still counted
    assert known.cached(alice.token) is None
    with pytest.raises(Unauthenticated):
        await known.look_up(alice.token)


# ---- limits of logins ---------------------------------------------------------------------------------------------


async def test_failed_logins_make_the_next_one_wait_longer_each_time(
    alice: Api, nobody: Api, clock: ManualClock
) -> None:
    for _ in range(3):
        (await nobody.post("/login", {"username": "alice", "password": "wrong1"})).refused(401, "AuthFailed")
        clock.advance(10)
    for pause in (2, 4, 8, 16):
        (await nobody.post("/login", {"username": "alice", "password": "wrong1"})).refused(401, "AuthFailed")
        clock.advance(0.5)
        answer = await nobody.post("/login", {"username": "alice", "password": PASSWORD})
        assert answer.refused(429, "AuthFailed")["hint"] == f"try again in {pause} seconds"
        assert answer.headers["retry-after"] == str(pause)
        clock.advance(pause)
    (await alice.get("/whoami")).ok()  # tokens go on
    (await nobody.post("/login", {"username": "nobody", "password": "wrong1"})).refused(401, "AuthFailed")
    await nobody.login("alice", PASSWORD)


@pytest.mark.usefixtures("alice")
async def test_nobody_locks_out_who_comes_from_elsewhere(
    settings: Settings, database: Database, clock: ManualClock
) -> None:
    known = sessions.Sessions(database, clock, settings.access)
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await known.login("alice", "wrong1", "10.0.0.9")
    with pytest.raises(TooMany):
        await known.login("alice", PASSWORD, "10.0.0.9")
    assert await known.login("alice", PASSWORD, "10.0.0.1")


async def test_who_tries_many_names_waits_as_well(settings: Settings, database: Database, clock: ManualClock) -> None:
    known = sessions.Sessions(database, clock, settings.access)
    for number in range(30):
        with pytest.raises(Unauthenticated):
            await known.login(f"user{number}", "wrong1", "10.0.0.9")
    with pytest.raises(TooMany):
        await known.login("another", "wrong1", "10.0.0.9")


@pytest.mark.usefixtures("alice")
async def test_a_good_login_forgets_failed_ones(nobody: Api) -> None:
    for _ in range(3):
        for _ in range(2):
            (await nobody.post("/login", {"username": "alice", "password": "wrong1"})).refused(401, "AuthFailed")
        await nobody.login("alice", PASSWORD)


@pytest.mark.usefixtures("alice")
async def test_many_logins_at_once_do_not_slip_under_the_limit(nobody: Api, database: Database) -> None:
    document = {"username": "alice", "password": "wrong1"}
    answers = await asyncio.gather(*(nobody.post("/login", document) for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [401] * 3 + [429] * 5
    assert len(await database.read(rows, "select * from login_failures")) == 3


async def test_an_address_has_few_logins_at_once(
    settings: Settings, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = sessions.Sessions(database, clock, settings.access)
    hashed, begun = asyncio.Event(), list[str]()

    async def matches(stored: str, password: str) -> bool:
        begun.append(password)
        await hashed.wait()
        return False

    monkeypatch.setattr(known.passwords, "matches", matches)
    attempts = [
        asyncio.create_task(known.login(f"user{number}", "wrong1", "10.0.0.9"))
        for number in range(sessions.MOST_PENDING)
    ]
    await soon(lambda: len(begun) == sessions.MOST_PENDING, "all of them are tried")
    with pytest.raises(TooMany, match="at once from this address"):
        await known.login("alice", PASSWORD, "10.0.0.9")
    elsewhere = asyncio.create_task(known.login("alice", PASSWORD, "10.0.0.1"))
    await soon(lambda: begun[-1] == PASSWORD, "another address is not held up")
    hashed.set()
    for attempt in (*attempts, elsewhere):
        with pytest.raises(Unauthenticated):
            await attempt


async def test_failures_of_unknown_names_count_but_do_not_pile_up(
    nobody: Api, database: Database, clock: ManualClock
) -> None:
    for _ in range(3):
        (await nobody.post("/login", {"username": "ghost", "password": "wrong1"})).refused(401, "AuthFailed")
    (await nobody.post("/login", {"username": "ghost", "password": "wrong1"})).refused(429, "AuthFailed")
    (await nobody.post("/login", {"username": "no such pattern", "password": "x"})).refused(401, "AuthFailed")
    clock.advance(61)
    (await nobody.post("/login", {"username": "other", "password": "wrong1"})).refused(401, "AuthFailed")
    assert [row["user_name"] for row in await database.read(rows, "select * from login_failures")] == ["other"]


# ---- users --------------------------------------------------------------------------------------------------------


async def test_a_user_is_made_listed_and_deleted(root: Api, nobody: Api) -> None:
    assert (await root.post("/user", {"UserName": "carol", "PASSWORD": "secret1"})).ok() == {"username": "carol"}
    carol = await nobody.login("carol", "secret1")
    (await carol.get("/whoami")).ok()
    listed = (await root.get("/user")).ok()
    created = "2023-11-14T22:13:20.000Z"
    assert listed == {"maxKeys": 50, "isTruncated": False, "userList": [{"name": "carol", "createTime": created}]}
    assert (await root.delete("/user/carol")).ok() is None
    (await carol.get("/whoami")).refused(401, "AuthInvalidToken")
    (await root.delete("/user/carol")).refused(404, "UserNotExist")
    assert (await root.get("/user")).ok()["userList"] == []


async def test_names_are_taken_once(root: Api, alice: Api) -> None:
    (await root.post("/user", {"username": "alice", "password": "secret1"})).refused(403, "UserNameDuplicated")
    (await root.post("/user", {"username": "ROOT", "password": "secret1"})).refused(403, "UserNameDuplicated")
    (await alice.get("/whoami")).ok()


async def test_names_against_the_pattern(root: Api) -> None:
    for name in ("a", "a" * 33, "has-dash", "has space", "ümlaut", "", "tail\n"):
        (await root.post("/user", {"username": name, "password": "secret1"})).refused(400, "InvalidNamePattern")


async def test_weak_passwords(root: Api, alice: Api) -> None:
    for password in ("abc1", "abcdefg", "1234567", "ABCDEF1", "", "１２３abc"):
        made = (await root.post("/user", {"username": "carol", "password": password})).refused(400, "UserPasswordWeak")
        changed = (await alice.put("/user/alice", {"password": password})).refused(400, "UserPasswordWeak")
        for answer in (made, changed):
            assert not password or password not in str(answer)
    assert len((await root.get("/user")).ok()["userList"]) == 1


async def test_all_faults_of_a_new_user_at_once(root: Api) -> None:
    answer = (await root.post("/user", {"username": "x y", "password": "z"})).refused(400, "InvalidNamePattern")
    assert [fault["where"] for fault in answer["details"]] == ["username", "password"]


async def test_the_list_of_users_pages_without_gaps(root: Api, database: Database, clock: ManualClock) -> None:
    names = [f"user{number:02}" for number in range(7)]
    for name in names:
        await database.write(_add_user, name, clock.now())
    seen: list[str] = []
    marker = ""
    for size in (3, 3, 1):
        answer = (await root.get("/user", maxKeys=3, marker=marker)).ok()
        assert len(answer["userList"]) == size
        seen += [user["name"] for user in answer["userList"]]
        assert answer["isTruncated"] == (size == 3)
        assert ("nextMarker" in answer) == (size == 3)
        marker = answer.get("nextMarker", "")
    assert seen == names
    exact = (await root.get("/user", maxKeys=7)).ok()
    assert (exact["isTruncated"], "nextMarker" in exact) == (False, False)
    assert [user["name"] for user in (await root.get("/user", user="user03")).ok()["userList"]] == ["user03"]
    (await root.get("/user", user="user99")).refused(404, "UserNotExist")


def _add_user(tx: Tx, name: str, now: float) -> None:
    insert(tx, "users", {"name": name, "password_hash": "", "created_at": now, "updated_at": now})


async def test_users_are_for_root(alice: Api) -> None:
    (await alice.post("/user", {"username": "alice", "password": "secret1"})).refused(403, "OnlyRootAllowed")
    (await alice.get("/user")).refused(403, "OnlyRootAllowed")
    (await alice.delete("/user/alice")).refused(403, "OnlyRootAllowed")


async def test_a_new_password_ends_every_token_of_that_user(root: Api, alice: Api, bob: Api, nobody: Api) -> None:
    other = await nobody.login("alice", PASSWORD)
    (await alice.put("/user/alice", {"password": "changed1"})).ok()
    (await alice.get("/whoami")).refused(401, "AuthInvalidToken")
    (await other.get("/whoami")).refused(401, "AuthInvalidToken")
    (await bob.get("/whoami")).ok()
    (await nobody.post("/login", {"username": "alice", "password": PASSWORD})).refused(401, "AuthFailed")
    again = await nobody.login("alice", "changed1")
    (await root.put("/user/alice", {"password": "changed2"})).ok()
    (await again.get("/whoami")).refused(401, "AuthInvalidToken")
    await nobody.login("alice", "changed2")


async def test_a_new_password_opens_a_closed_name(root: Api, alice: Api, nobody: Api) -> None:
    for _ in range(3):
        (await nobody.post("/login", {"username": "alice", "password": "wrong1"})).refused(401, "AuthFailed")
    (await root.put("/user/alice", {"password": "changed1"})).ok()
    await nobody.login("alice", "changed1")


async def test_passwords_of_others_are_not_changed(root: Api, alice: Api, bob: Api) -> None:
    (await alice.put("/user/bobby", {"password": "changed1"})).refused(403, "AccessDenied")
    (await alice.put("/user/root", {"password": "changed1"})).refused(403, "AccessDenied")
    (await root.put("/user/nobody", {"password": "changed1"})).refused(404, "UserNotExist")
    (await bob.get("/whoami")).ok()


async def test_who_cannot_be_deleted(root: Api, alice: Api, database: Database) -> None:
    (await root.delete("/user/root")).refused(403, "ActionNotAllowed")
    (await root.delete("/user/ROOT")).refused(403, "ActionNotAllowed")
    await add_job(database, "alice", "succeeded")
    await add_job(database, "alice", "running")
    answer = (await root.delete("/user/alice")).refused(409, "ActionNotAllowed")
    assert "1 jobs that have not ended" in answer["message"]
    (await alice.get("/whoami")).ok()


@pytest.mark.usefixtures("alice", "bob")
async def test_an_owner_of_a_storage_that_others_use_stays(root: Api, database: Database) -> None:
    """A later user of the same name could make a storage of the same name, and the waiting job would find its files there."""
    words = ("name", "fs_type", "server_address", "sub_path", "properties", "secrets", "url")
    storage: dict[str, Value] = {"id": "fs-alice-data", "user_name": "alice", **dict.fromkeys(words, "x")}
    numbers = dict.fromkeys(("independent", "confined", "created_at", "updated_at"), 1)
    await database.write(insert, "filesystems", {**storage, **numbers})
    await add_job(database, "bobby", "pending")
    await database.write(insert, "job_storages", {"job_id": "job-bobby-pending", "fs_id": "fs-alice-data"})
    answer = (await root.delete("/user/alice")).refused(409, "ActionNotAllowed")
    assert "1 jobs that have not ended" in answer["message"]
    assert "on storages of the user" in answer["message"]


async def test_a_user_made_again_inherits_nothing(root: Api, alice: Api, database: Database) -> None:
    await add_queue(database, "gpu")
    (await root.post("/grant", {"userName": "alice", "resourceType": "queue", "resourceID": "gpu"})).ok()
    (await root.delete("/user/alice")).ok()
    (await root.post("/user", {"username": "alice", "password": "secret1"})).ok()
    (await alice.get("/whoami")).refused(401, "AuthInvalidToken")
    assert await granted(database, "alice", "queue") == []


async def test_what_a_deleted_user_leaves_belongs_to_nobody_who_comes_later(
    root: Api, alice: Api, database: Database, nobody: Api
) -> None:
    await add_job(database, "alice", "succeeded")
    (await root.delete("/user/alice")).ok()
    (await root.post("/user", {"username": "alice", "password": "secret1"})).ok()
    owners = [row["user_name"] for row in await database.read(rows, "select user_name from jobs")]
    assert owners == ["alice~2"]
    (await root.post("/user", {"username": owners[0], "password": "secret1"})).refused(400, "InvalidNamePattern")


@pytest.mark.usefixtures("alice")
async def test_a_user_with_an_active_run_or_schedule_stays(root: Api, database: Database) -> None:
    texts = (
        "name source fs_id fs_name description document pipeline parameters docker_env disabled schedule_id retry_of "
        "breakpoints message"
    )
    values: dict[str, Value] = {"id": "run-1", "user_name": "alice", "status": "running"}
    values |= {**dict.fromkeys(texts.split(), ""), "created_at": 1, "updated_at": 1}
    await database.write(insert, "runs", values)
    answer = (await root.delete("/user/alice")).refused(409, "ActionNotAllowed")
    assert "1 runs that have not ended" in answer["message"]


# ---- root and version ---------------------------------------------------------------------------------------------


async def test_root_is_made_once_and_its_password_can_be_fixed(
    database: Database, clock: ManualClock, nobody: Api
) -> None:
    assert await sessions.ensure_root(database, clock, "first1")
    assert not await sessions.ensure_root(database, clock, "other1")
    root = await nobody.login("root", "first1")
    await sessions.ensure_root(database, clock, "first1", fixed=True)
    (await root.get("/whoami")).ok()  # nothing has changed, so the token goes on
    await sessions.ensure_root(database, clock, "fixed1", fixed=True)
    await nobody.login("root", "fixed1")
    (await nobody.post("/login", {"username": "root", "password": "first1"})).refused(401, "AuthFailed")


async def test_version_needs_a_token(alice: Api, nobody: Api, app: ASGIApp) -> None:
    (await nobody.get("/version")).refused(401, "AuthWithoutToken")
    keys = {"gitVersion", "gitCommit", "gitBranch", "buildDate", "goVersion", "compiler", "platform"}
    answer = (await alice.get("/version")).ok()
    assert answer.keys() == keys
    assert answer["gitVersion"]
