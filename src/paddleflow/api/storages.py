"""Routes of storages (fs). `storage.places` says which folders may be named, `storage.storages` who may use which."""

from __future__ import annotations

import asyncio
from pathlib import Path

from paddleflow.api.paging import page
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, Caller, NoBody, NoQuery, Route
from paddleflow.errors import Conflict, NotFound
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.storage import NewStorage, OwnerQuery, StorageChange, StorageQuery
from paddleflow.storage import places, storages
from paddleflow.storage.model import Place, Storage
from paddleflow.store.database import Tx


async def create_storage(platform: Platform, call: Call[NewStorage, NoQuery]) -> wire.StorageMade:
    user = _owner(call.caller, call.body.username)
    place = storages.place_of(call.body, user)
    await platform.database.read(_refuse_early, user, call.body.name)
    return await _with_folder(platform, call, user, place)


def _refuse_early(tx: Tx, user: str, name: str) -> None:
    """Before a folder is made: what the transaction would refuse anyway."""
    storages.require_user(tx, user)
    storages.refuse_duplicate(tx, user, name)


async def change_storage(platform: Platform, call: Call[StorageChange, NoQuery]) -> wire.StorageMade:
    user = _owner(call.caller, call.body.username)
    return await _with_folder(platform, call, user, storages.place_of(call.body, user))


async def _with_folder(
    platform: Platform, call: Call[NewStorage, NoQuery] | Call[StorageChange, NoQuery], user: str, place: Place | None
) -> wire.StorageMade:
    """Check the folder, make it where that is allowed, then write; a refused write takes made folders away again."""
    confined, now = not call.caller.root, platform.clock.now()
    made: list[Path] = []
    if place is not None:
        made = await asyncio.to_thread(_prepare, place, platform.settings.data_folder, user, confined)
    try:
        if isinstance(call.body, NewStorage) and place is not None:
            create = storages.create_storage
            storage = await platform.database.write(create, call.body, place, user, confined, now)
        else:
            change = storages.change_storage
            storage = await platform.database.write(change, call.body, place, user, confined, now)
    except (Conflict, NotFound):  # refused; after anything else the row may be there
        await asyncio.to_thread(places.unmake, made)
        raise
    return {"fsName": storage.name, "fsID": storage.id}


def _prepare(place: Place, data: Path, user: str, confined: bool) -> list[Path]:
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
    await platform.database.write(storages.delete_storage, user, call.path["name"])


def _owner(caller: Caller, named: str) -> str:
    """Whose storage is meant. The application has refused callers who name another without being root."""
    return named or caller.name


def storage_answer(storage: Storage) -> wire.Storage:
    return {
        "id": storage.id,
        "name": storage.name,
        "serverAddress": storage.server_address,
        "type": storage.fs_type,
        "subPath": storage.sub_path,
        "username": storage.user,
        "properties": dict(storage.properties),
        "independentMountProcess": storage.independent,
    }


_REFUSED = (
    "InvalidFileSystemFsName",
    "InvalidFileSystemParamsURL",
    "InvalidFileSystemParamsProperties",
    "FileTypeNotSupported",
    "ConnectivityFailed",
    "AccessDenied",
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/fs",
        create_storage,
        "Make a storage of type local; users other than root name folders in their own area <data>/storage/<user>",
        body=NewStorage,
        answer=wire.StorageMade,
        status=201,
        errors=("DuplicatedName", "UserNotExist", *_REFUSED),
    ),
    Route(
        "PUT",
        "/fs",
        change_storage,
        "Change a storage; it moves to another folder only while no active job uses it",
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
        "Delete a storage that no active job uses, with its grants; the files stay",
        query=OwnerQuery,
        errors=("FileSystemNotExist", "FileSystemClientBusy"),
    ),
)
