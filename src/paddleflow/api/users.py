"""Routes of logins, users and the version."""

from __future__ import annotations

import platform as machine

from paddleflow import __version__
from paddleflow.access import users
from paddleflow.access.callers import require_owner
from paddleflow.api import requests
from paddleflow.api.paging import page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import rfc3339
from paddleflow.base.host import host_fingerprint
from paddleflow.spec import wire
from paddleflow.spec.access import LoginDocument, PasswordDocument, UserDocument, UserQuery


async def login(platform: Platform, call: Call[LoginDocument, NoQuery]) -> wire.Authorization:
    address = call.request.client.host if call.request.client else ""
    return {"authorization": await platform.sessions.login(call.body.username, call.body.password, address)}


async def logout(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    """Ends the token that the request carries; other tokens of the user stay valid."""
    await platform.sessions.logout(requests.token(dict(call.request.scope["headers"])))


async def who_am_i(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.WhoAmI:
    session = await platform.sessions.look_up(requests.token(dict(call.request.scope["headers"])))
    return {
        "name": session.caller.name,
        "root": session.caller.root,
        "expires": rfc3339(session.expires_at),
        # Isolated jobs see none of the caller's folders, so nobody but root may name them.
        "host": host_fingerprint() if session.caller.root or platform.settings.local.isolation == "off" else "",
    }


async def create_user(platform: Platform, call: Call[UserDocument, NoQuery]) -> wire.Username:
    name = call.body.username
    users.check_new(name, call.body.password)
    password_hash = await platform.sessions.passwords.hash(call.body.password)
    await platform.user_folders.follow()  # what an earlier user of this name left is nobody's before this one comes
    await platform.database.write(users.add, name, password_hash, platform.clock.now())
    return {"username": name}


async def list_users(platform: Platform, call: Call[NoBody, UserQuery]) -> wire.UserList:
    """Every user but root, in order of creation."""
    query = call.query
    if query.user:
        row = await platform.database.read(users.require, query.user)
        return {**page_fields(query, False, ""), "userList": [_user(row)]}
    rows, truncated, marker = page(await platform.database.read(users.list_users, query.after, query.limit), query)
    return {**page_fields(query, truncated, marker), "userList": [_user(row) for row in rows]}


async def change_password(platform: Platform, call: Call[PasswordDocument, NoQuery]) -> None:
    """Root changes anybody's, others their own. Every token of that user ends."""
    name = call.path["username"]
    require_owner(call.caller, name, f"user[{name}]")
    users.check_password(call.body.password)
    await platform.database.read(users.require, name)
    password_hash = await platform.sessions.passwords.hash(call.body.password)
    await platform.database.write(users.set_password, name, password_hash, platform.clock.now())
    platform.sessions.forget()


async def delete_user(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    """With all tokens and grants. Refused for root, and while jobs of the user have not ended."""
    await platform.database.write(users.remove, call.path["username"], platform.clock.now())
    platform.sessions.forget()
    await platform.user_folders.follow()


async def version(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Version:
    return {
        "gitVersion": __version__,
        "gitCommit": "",
        "gitBranch": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": f"{machine.python_implementation()} {machine.python_version()}",
        "platform": f"{machine.system().lower()}/{machine.machine()}",
    }


def _user(user: users.User) -> wire.User:
    return {"name": user.name, "createTime": rfc3339(user.created_at)}


_WEAK = ("UserPasswordWeak",)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/login",
        login,
        "Change a user name and password for a token",
        body=LoginDocument,
        answer=wire.Authorization,
        open=True,
        errors=("AuthFailed", "429 AuthFailed"),
    ),
    Route("POST", "/logout", logout, "End the token that the request carries", scope="read"),
    Route("GET", "/whoami", who_am_i, "Whose token this is, and until when", answer=wire.WhoAmI),
    Route(
        "POST",
        "/user",
        create_user,
        "Create a user",
        body=UserDocument,
        answer=wire.Username,
        root=True,
        errors=("UserNameDuplicated", "InvalidNamePattern", *_WEAK),
    ),
    Route(
        "GET",
        "/user",
        list_users,
        "List users",
        query=UserQuery,
        answer=wire.UserList,
        root=True,
        errors=("UserNotExist",),
    ),
    Route(
        "PUT",
        "/user/{username}",
        change_password,
        "Change a user's password",
        body=PasswordDocument,
        scope="admin",
        errors=("AccessDenied", "UserNotExist", *_WEAK),
    ),
    Route(
        "DELETE",
        "/user/{username}",
        delete_user,
        "Delete a user",
        root=True,
        errors=("UserNotExist", "403 ActionNotAllowed", "409 ActionNotAllowed"),
    ),
    Route("GET", "/version", version, "What runs here", answer=wire.Version),
)
