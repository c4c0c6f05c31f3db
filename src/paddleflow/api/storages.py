"""Routes of storages (fs). `storage.places` says which folders may be named, `storage.storages` who may use which.

A storage of type local is a folder that is checked and made; any other one is tried out before its row is written, so a wrong name,
key or bucket is said at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paddleflow.api.paging import page
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Caller, NoBody, NoQuery, Route
from paddleflow.errors import Conflict, Forbidden, NotFound
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.storage import NewStorage, OwnerQuery, StorageChange, StorageQuery
from paddleflow.storage import places, secrets, storages
from paddleflow.storage.model import MOCK, Place, Storage, storage_id
from paddleflow.storage.storages import Wanted
from paddleflow.store.database import Tx

BUCKET = "bucket"  #: a property of answers: existing clients read the url's bucket there


async def create_storage(platform: Platform, call: Call[NewStorage, NoQuery]) -> wire.StorageMade:
    body, user = call.body, _owner(call.caller, call.body.username)
    properties = own_properties(body.url, body.properties or {})
    place = storages.place_of(body.name, body.url, properties, user)
    await platform.database.read(_refuse_early, user, body.name)
    wanted = _wanted(
        platform, call, user, place, properties, bool(body.independent_mount_process), not call.caller.root
    )
    made = await prepare(platform, place, properties, user, confined=wanted.confined)
    try:
        storage = await platform.database.write(storages.create_storage, wanted, platform.clock.now())
    except (Conflict, NotFound):  # refused; after anything else the row may be there
        await platform.files.of(user).run(places.unmake, made)
        raise
    return {"fsName": storage.name, "fsID": storage.id}


def _refuse_early(tx: Tx, user: str, name: str) -> None:
    """Before a folder is made or a store tried: what the transaction would refuse anyway."""
    storages.require_user(tx, user)
    storages.refuse_duplicate(tx, user, name)


async def change_storage(platform: Platform, call: Call[StorageChange, NoQuery]) -> wire.StorageMade:
    body, user = call.body, _owner(call.caller, call.body.username)
    old = await platform.database.read(storages.own_storage, user, body.name)
    present = old.place.url or f"local://{old.place.sub_path}"
    url = body.url or present
    kept = platform.stores.properties(old)
    given = own_properties(url, old.properties if body.properties is None else body.properties)
    same = (url, given) == (present, dict(old.properties))
    if not (same or old.confined or call.caller.root) and secrets.MASK in given.values():
        raise Forbidden(
            f"fs[{old.name}] was set up by root, whose keys and passwords are for what root named",
            hint="give your own with the change, or ask root to make it",
        )
    properties = secrets.unmask(given, kept)
    place = storages.place_of(body.name, url, properties, user)
    independent = old.independent if body.independent_mount_process is None else body.independent_mount_process
    confined = not call.caller.root and (old.confined or not same)
    wanted = _wanted(platform, call, user, place, properties, independent, confined)
    made: list[Path] = []
    if place != old.place or properties != kept:
        made = await prepare(platform, place, properties, user, confined=wanted.confined)
    try:
        storage = await platform.database.write(storages.change_storage, wanted, platform.clock.now())
    except (Conflict, NotFound):
        await platform.files.of(user).run(places.unmake, made)
        raise
    return {"fsName": storage.name, "fsID": storage.id}


def _wanted(
    platform: Platform,
    call: Call[NewStorage, NoQuery] | Call[StorageChange, NoQuery],
    user: str,
    place: Place,
    properties: Mapping[str, str],
    independent: bool,
    confined: bool,
) -> Wanted:
    shown, hidden = secrets.separate(place.fs_type, properties)
    context = secrets.storage_context(storage_id(user, call.body.name))
    token = secrets.encrypt(platform.keyring, context, hidden)
    return Wanted(call.body.name, user, place, shown, token, independent, confined)


def own_properties(url: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Without the bucket that answers have, when it says what the url says."""
    bucket = url.partition("://")[2].partition("/")[0]
    return {name: value for name, value in properties.items() if (name, value) != (BUCKET, bucket)}


async def prepare(
    platform: Platform, place: Place, properties: Mapping[str, str], user: str, *, confined: bool
) -> list[Path]:
    """Refuse a place that cannot be used now; folders that were made for it."""
    places.check_right(place, user=user, confined=confined)
    if place.fs_type == MOCK:  # its cluster says whether the claim is there, when a job uses it
        return []
    if place.url:
        await platform.store_checks.check(user, place.url, properties)
        return []
    await platform.user_folders.follow()
    return await platform.files.of(user).run(_prepare_folder, place, platform.settings.data_folder, user, confined)


def _prepare_folder(place: Place, data: Path, user: str, confined: bool) -> list[Path]:
    real = places.check_folder(place.sub_path, data=data, user=user, confined=confined)
    return [] if real.is_dir() else places.make_folder(real)


async def list_storages(platform: Platform, call: Call[NoBody, StorageQuery]) -> wire.StorageList:
    query, caller = call.query, call.caller
    found = await platform.database.read(
        storages.list_storages,
        query.after,
        query.limit,
        user=caller.name,
        root=caller.root,
        owner=query.username if caller.root else "",
        name=query.fs_name,
    )
    rows, truncated, marker = page(found, query)
    return {
        "marker": query.marker,
        "truncated": truncated,
        "nextMarker": marker,
        "fsList": [storage_answer(row) for row in rows],
    }


async def show_storage(platform: Platform, call: Call[NoBody, OwnerQuery]) -> wire.Storage:
    user = _owner(call.caller, call.query.username)
    return storage_answer(await platform.database.read(storages.get_storage, user, call.caller.root, call.path["name"]))


async def delete_storage(platform: Platform, call: Call[NoBody, OwnerQuery]) -> None:
    user = _owner(call.caller, call.query.username)
    await platform.database.write(storages.delete_storage, user, call.path["name"], platform.clock.now())


def _owner(caller: Caller, named: str) -> str:
    """Whose storage is meant. The application has refused callers who name another without being root."""
    return named or caller.name


def storage_answer(storage: Storage) -> wire.Storage:
    return {
        "id": storage.id,
        "name": storage.name,
        "serverAddress": storage.place.server_address,
        "type": storage.place.fs_type,
        "subPath": storage.place.sub_path,
        "username": storage.user,
        "properties": shown_properties(storage.place, storage.properties),
        "independentMountProcess": storage.independent,
    }


def shown_properties(place: Place, properties: Mapping[str, str]) -> dict[str, str]:
    """With the bucket, where there is one: neither serverAddress nor subPath has it."""
    shown = dict(properties)
    if place.fs_type in ("s3", "bos"):
        shown[BUCKET] = place.url.partition("://")[2].partition("/")[0]
    return shown


_REFUSED = (
    "InvalidFileSystemFsName",
    "InvalidFileSystemParamsURL",
    "InvalidFileSystemParamsProperties",
    "ConnectivityFailed",
    "AccessDenied",
    "429 TooManyRequests",
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/fs",
        create_storage,
        "Make a storage, after trying it out; of type local, users other than root name folders in their own area <data>/storage/<user>",
        body=NewStorage,
        answer=wire.StorageMade,
        status=201,
        errors=("DuplicatedName", "UserNotExist", *_REFUSED),
    ),
    Route(
        "PUT",
        "/fs",
        change_storage,
        "Change a storage; it moves to another place only while nothing uses it. A secret given as ****** stays",
        body=StorageChange,
        answer=wire.StorageMade,
        status=201,
        errors=("FileSystemNotExist", "FileSystemClientBusy", *_REFUSED),
    ),
    Route(
        "GET",
        "/fs",
        list_storages,
        "List storages, newest first: root all, others their own and those granted to them",
        query=StorageQuery,
        answer=wire.StorageList,
    ),
    Route(
        "GET",
        "/fs/{name}",
        show_storage,
        "Show a storage of the caller's, or one that was granted, by name or id",
        query=OwnerQuery,
        answer=wire.Storage,
        errors=("FileSystemNotExist", "InvalidFileSystemFsName"),
    ),
    Route(
        "DELETE",
        "/fs/{name}",
        delete_storage,
        "Delete a storage that nothing uses, with its grants; the files stay",
        query=OwnerQuery,
        errors=("FileSystemNotExist", "FileSystemClientBusy"),
    ),
)
