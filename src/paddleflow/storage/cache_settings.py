"""How mounts of a storage cache: transactions. Whoever mounts a storage asks for them (`find_cache_settings`)."""

from __future__ import annotations

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound
from paddleflow.spec.document import decode
from paddleflow.spec.storage import CacheSettings
from paddleflow.storage.model import Storage
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "cache_settings.sql")


@dataclass(frozen=True, slots=True)
class StoredCacheSettings:
    """The settings of one storage."""

    user: str  #: who made them
    document: CacheSettings
    created_at: float
    updated_at: float


def find_cache_settings(tx: Tx, storage: str) -> StoredCacheSettings | None:
    row = tx.one(SQL["cache_settings"], fs_id=storage)
    if row is None:
        return None
    document = decode(CacheSettings, row["document"].encode(), ignore_unknown=True)
    return StoredCacheSettings(row["user_name"], document, row["created_at"], row["updated_at"])


def get_cache_settings(tx: Tx, storage: Storage) -> StoredCacheSettings:
    found = find_cache_settings(tx, storage.id)
    if found is None:
        raise _none(storage)
    return found


def create_cache_settings(tx: Tx, storage: Storage, document: CacheSettings, user: str, now: float) -> None:
    text = document.model_dump_json(by_alias=True)
    if not tx.run(SQL["insert_cache_settings"], fs_id=storage.id, user_name=user, document=text, now=now):
        raise Conflict(
            f"fs[{storage.name}] has cache settings already",
            code="DuplicatedName",
            hint="PUT changes them; paddleflow fs deletefscache deletes them",
        )


def change_cache_settings(tx: Tx, storage: Storage, document: CacheSettings, now: float) -> None:
    text = document.model_dump_json(by_alias=True)
    if not tx.run(SQL["update_cache_settings"], fs_id=storage.id, document=text, now=now):
        raise _none(storage)


def delete_cache_settings(tx: Tx, storage: Storage) -> None:
    if not tx.run(SQL["delete_cache_settings"], fs_id=storage.id):
        raise _none(storage)


def _none(storage: Storage) -> NotFound:
    return NotFound(
        f"fs[{storage.name}] has no cache settings",
        code="RecordNotFound",
        hint=f"paddleflow fs createfscache {storage.name} sets them; without them, mounts use the defaults",
    )
