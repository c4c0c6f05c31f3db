"""Routes of the cache settings of storages (fsCache)."""

from __future__ import annotations

from pathlib import Path

from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import Forbidden
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.storage import CacheSettings, OwnerQuery
from paddleflow.storage import cache_settings, storages
from paddleflow.storage.cache_settings import StoredCacheSettings
from paddleflow.storage.model import Storage
from paddleflow.storage.places import area
from paddleflow.store.database import Tx


async def create_cache(platform: Platform, call: Call[CacheSettings, NoQuery]) -> None:
    await platform.files.of(call.caller.name).run(_check_folder, platform.settings.data_folder, call)
    user, now = call.body.username or call.caller.name, platform.clock.now()

    def create(tx: Tx) -> None:
        storage = storages.own_storage(tx, user, call.body.fs_name)
        cache_settings.create_cache_settings(tx, storage, call.body, call.caller.name, now)

    await platform.database.write(create)


async def change_cache(platform: Platform, call: Call[CacheSettings, NoQuery]) -> None:
    await platform.files.of(call.caller.name).run(_check_folder, platform.settings.data_folder, call)
    user, now = call.body.username or call.caller.name, platform.clock.now()

    def change(tx: Tx) -> None:
        cache_settings.change_cache_settings(tx, storages.own_storage(tx, user, call.body.fs_name), call.body, now)

    await platform.database.write(change)


def _check_folder(data: Path, call: Call[CacheSettings, NoQuery]) -> None:
    """Mounts write there as the server's account: only root may name any folder of the machine."""
    if call.caller.root or not call.body.cache_dir:
        return
    own, wanted = area(data, call.caller.name).resolve(), Path(call.body.cache_dir).resolve()
    if own != wanted and own not in wanted.parents:
        raise Forbidden(
            f"user[{call.caller.name}] may not cache in {call.body.cache_dir[:200]}",
            hint=f"leave cacheDir out, choose a folder in {own}, or ask root",
        )


async def show_cache(platform: Platform, call: Call[NoBody, OwnerQuery]) -> wire.Cache:
    user = call.query.username or call.caller.name

    def find(tx: Tx) -> tuple[Storage, StoredCacheSettings]:
        storage = storages.get_storage(tx, user, call.caller.root, call.path["name"])
        return storage, cache_settings.get_cache_settings(tx, storage)

    return cache_answer(*await platform.database.read(find))


async def delete_cache(platform: Platform, call: Call[NoBody, OwnerQuery]) -> None:
    user = call.query.username or call.caller.name

    def delete(tx: Tx) -> None:
        cache_settings.delete_cache_settings(tx, storages.own_storage(tx, user, call.path["name"]))

    await platform.database.write(delete)


def cache_answer(storage: Storage, found: StoredCacheSettings) -> wire.Cache:
    document = found.document
    return {
        "cacheDir": document.cache_dir,
        "quota": document.quota,
        "metaDriver": document.meta_driver,
        "blockSize": document.block_size,
        "debug": document.debug,
        "cleanCache": document.clean_cache,
        "resource": {"cpuLimit": document.resource.cpu_limit, "memoryLimit": document.resource.memory_limit},
        "nodeTaintToleration": dict(document.node_taint_toleration),
        "extraConfig": dict(document.extra_config),
        "fsName": storage.name,
        "username": storage.user,
        "createTime": local_text(found.created_at),
        "updateTime": local_text(found.updated_at),
    }


_MISSING = ("FileSystemNotExist", "RecordNotFound")
ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/fsCache",
        create_cache,
        "Say how mounts of a storage cache",
        body=CacheSettings,
        status=201,
        errors=("FileSystemNotExist", "DuplicatedName", "AccessDenied"),
    ),
    Route(
        "PUT",
        "/fsCache",
        change_cache,
        "Say it anew; mounts that are made from then on go by it",
        body=CacheSettings,
        errors=(*_MISSING, "AccessDenied"),
    ),
    Route(
        "GET",
        "/fsCache/{name}",
        show_cache,
        "Show the cache settings of a storage",
        query=OwnerQuery,
        answer=wire.Cache,
        errors=(*_MISSING, "InvalidFileSystemFsName"),
    ),
    Route(
        "DELETE",
        "/fsCache/{name}",
        delete_cache,
        "Delete the cache settings of a storage: mounts cache by the defaults again",
        query=OwnerQuery,
        errors=_MISSING,
    ),
)
