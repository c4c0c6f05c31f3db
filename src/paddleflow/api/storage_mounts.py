"""Routes of the mounts of a storage: a client gets a token for its files, and says from time to time that it still mounts it.

The token is good for the files of one storage and nothing else, and runs out an hour after the mount last reported. So a client holds
no key of the store, and what it may do ends with the user's grant, with the mount, with the named token that the mount was made with, or with time.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paddleflow.access import tokens
from paddleflow.access.callers import is_root, mount_scope, require_storage
from paddleflow.api import requests
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Forbidden
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.document import Document
from paddleflow.spec.storage import OwnerQuery
from paddleflow.storage import mounts, node_caches
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import get_storage
from paddleflow.store.database import Tx


class NewMount(Document):
    """POST /fs/{fsName}/mounts"""

    node: Annotated[str, Field(max_length=253)] = Field(description="name of the machine that mounts, for people")
    folder: Annotated[str, Field(max_length=4096)] = Field(description="where on that machine, for people")
    read_only: bool = Field(default=False, description="the token may change nothing")


class MountReport(Document):
    """PUT /fs/{fsName}/mounts/{id}"""

    cached_bytes: int = Field(default=-1, ge=-1, le=2**62, description="of the storage on that machine; -1: not known")


async def start_mount(platform: Platform, call: Call[NewMount, OwnerQuery]) -> wire.MountMade:
    body, user, now = call.body, call.query.username or call.caller.name, platform.clock.now()
    made_with = requests.token(dict(call.request.scope["headers"]))

    def start(tx: Tx) -> tuple[Storage, mounts.StorageMount, str]:
        storage = get_storage(tx, user, call.caller.root, call.path["fsName"])
        mounts.make_room(tx, call.caller.name, platform.settings.server.max_mounts, now)
        scope = mount_scope(storage.id, read_only=body.read_only)
        token = tokens.issue(tx, call.caller.name, now, mounts.LIFETIME / 3600, scope=scope, made_with=made_with)
        made = mounts.add_mount(tx, storage, call.caller.name, body.node, body.folder, tokens.digest(token), now)
        return storage, made, token

    storage, made, token = await platform.database.write(start)
    return {
        "mountID": made.id,
        "fsID": storage.id,
        "type": storage.place.fs_type,
        "token": token,
        "expiresIn": int(mounts.LIFETIME),
    }


async def renew_mount(platform: Platform, call: Call[MountReport, OwnerQuery]) -> wire.MountRenewed:
    now, held = platform.clock.now(), call.body.cached_bytes

    def renew(tx: Tx) -> None:
        storage, mount = _own(tx, call)
        mounts.see_mount(tx, mount, now)
        tokens.extend(tx, mount.digest, now + mounts.LIFETIME)
        if held >= 0:
            node_caches.report_caches(tx, mount.node, {storage.id: held}, now)

    await platform.database.write(renew)
    return {"expiresIn": int(mounts.LIFETIME)}


async def end_mount(platform: Platform, call: Call[NoBody, OwnerQuery]) -> None:
    def end(tx: Tx) -> None:
        _, mount = _own(tx, call)
        tokens.end(tx, mount.digest)
        mounts.remove_mount(tx, mount)

    await platform.database.write(end)
    platform.sessions.forget()


def _own(tx: Tx, call: Call[MountReport, OwnerQuery] | Call[NoBody, OwnerQuery]) -> tuple[Storage, mounts.StorageMount]:
    """A mount of the caller's, or of a storage of the caller's; root may name any."""
    caller = call.caller
    user = call.query.username or caller.name
    storage = get_storage(tx, user, is_root(user), call.path["fsName"])
    require_storage(caller, storage.id)
    mount = mounts.get_mount(tx, storage, call.path["id"])
    if not caller.root and caller.name not in (storage.user, mount.user):
        raise Forbidden(f"mount[{mount.id}] belongs to another user")
    return storage, mount


async def list_mounts(platform: Platform, call: Call[NoBody, OwnerQuery]) -> wire.MountList:
    user, now = call.query.username or call.caller.name, platform.clock.now()

    def find(tx: Tx) -> tuple[list[mounts.StorageMount], list[node_caches.NodeCache]]:
        storage = get_storage(tx, user, call.caller.root, call.path["fsName"])
        return mounts.mounts_of(tx, storage, now), node_caches.caches_of(tx, storage.id)

    found, caches = await platform.database.read(find)
    return {
        "mountList": [
            {
                "mountID": each.id,
                "username": each.user,
                "node": each.node,
                "folder": each.folder,
                "createTime": local_text(each.created_at),
                "seenTime": local_text(each.seen_at),
            }
            for each in found
        ],
        "cacheList": [
            {"node": each.node, "cachedBytes": each.bytes, "seenTime": local_text(each.seen_at)} for each in caches
        ],
    }


_ERRORS = ("404 FileSystemNotExist", "InvalidFileSystemFsName")
ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/fs/{fsName}/mounts",
        start_mount,
        "A token for the files of a storage, for a client that mounts it",
        body=NewMount,
        query=OwnerQuery,
        answer=wire.MountMade,
        status=201,
        errors=(*_ERRORS, "400 TooManyMounts"),
    ),
    Route(
        "GET",
        "/fs/{fsName}/mounts",
        list_mounts,
        "Who mounts a storage, and which nodes hold how much of it",
        query=OwnerQuery,
        answer=wire.MountList,
        errors=_ERRORS,
    ),
    Route(
        "PUT",
        "/fs/{fsName}/mounts/{id}",
        renew_mount,
        "A mount lives: its token counts for longer",
        body=MountReport,
        query=OwnerQuery,
        answer=wire.MountRenewed,
        audited=False,
        mounts=True,
        errors=(*_ERRORS, "404 RecordNotFound", "AccessDenied"),
    ),
    Route(
        "DELETE",
        "/fs/{fsName}/mounts/{id}",
        end_mount,
        "End a mount: its token counts no more",
        query=OwnerQuery,
        mounts=True,
        errors=(*_ERRORS, "404 RecordNotFound", "AccessDenied"),
    ),
)
