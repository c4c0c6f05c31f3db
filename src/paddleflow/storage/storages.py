"""Transactions on storages, and who may use one.

The rule: a storage belongs to its owner. The owner and root change and delete it; a grant (resource type ``fs``) lets
another user see it and use it in jobs.
"""

from __future__ import annotations

import json
from dataclasses import replace

from paddleflow.base import names
from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.spec.faults import Faults
from paddleflow.spec.storage import NewStorage, StorageChange
from paddleflow.storage.model import Place, Storage, storage_id
from paddleflow.storage.places import parse_url
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "storages.sql")
_MANY = 1_000_000  #: more than anybody has; for lists that are not paged
LONGEST = 59  #: of a user's name and a storage's name together, so that ids fit the names of cluster objects


def place_of(document: NewStorage | StorageChange, user: str) -> Place | None:
    """The place that a document names, None when it names none; `Invalid` lists all that is wrong with it. Pure."""
    faults = Faults(StorageChange.code)
    if fault := names.STORAGE.fault(document.name):
        faults.add("name", fault, code="InvalidFileSystemFsName")
    elif len(user) + len(document.name) > LONGEST:
        message = f"user name and fs name have {len(user) + len(document.name)} characters together, at most {LONGEST}"
        faults.add("name", message, "choose a shorter name", "InvalidFileSystemFsName")
    local = document.url is None or document.url.startswith("local:")  # of other types the type itself is the fault
    if document.properties and local:
        given = ", ".join(sorted(document.properties))[:80]
        faults.add(
            "properties",
            f"storage of type local has none, found {given}",
            "leave properties out",
            "InvalidFileSystemParamsProperties",
        )
    place = None if document.url is None else parse_url(document.url, faults)
    faults.check()
    return place


def find_storage(tx: Tx, user: str, name: str) -> Storage | None:
    """The user's own storage of this name."""
    row = tx.one(SQL["storage_by_id"], id=storage_id(user, name))
    return storage_of(row) if row else None


def storage_by_id(tx: Tx, storage: str) -> Storage | None:
    """A storage by its id, whoever asks; None when there is none any more."""
    row = tx.one(SQL["storage_by_id"], id=storage)
    return storage_of(row) if row else None


def usable_storage(tx: Tx, user: str, root: bool, name: str) -> Storage | None:
    """The storage that a name stands for when this user says it: the user's own, else one granted to the user.

    A granted one may be named by its id, and must be when several owners granted one of the same name (`Invalid`). Root
    may name any by its id.
    """
    own = find_storage(tx, user, name)
    if own is not None:
        return own
    found = tx.all(SQL["storage_by_id"], id=name) if root else tx.all(SQL["granted"], user_name=user, name=name)
    if len(found) > 1:
        ids = ", ".join(row["id"] for row in found[:8])
        raise Invalid(
            f"fs[{name}] was granted by several users", code="InvalidFileSystemFsName", hint=f"say which: {ids}"
        )
    return storage_of(found[0]) if found else None


def get_storage(tx: Tx, user: str, root: bool, name: str) -> Storage:
    """As `usable_storage`, or `NotFound` that names the nearest."""
    return _there(tx, user, root, name, usable_storage(tx, user, root, name))


def _own_storage(tx: Tx, user: str, name: str) -> Storage:
    return _there(tx, user, False, name, find_storage(tx, user, name))


def _there(tx: Tx, user: str, root: bool, name: str, storage: Storage | None) -> Storage:
    if storage is None:
        raise NotFound(
            f"fs[{name[:80]}] of user[{user}] does not exist",
            code="FileSystemNotExist",
            hint=nearest(name, storage_names(tx, user, root)),
        )
    return storage


def storage_names(tx: Tx, user: str, root: bool) -> list[str]:
    """The names by which this user may name storages: own and granted ones; for root those of others are ids."""
    found = list_storages(tx, 0, _MANY, user=user, root=root)
    return [each.id if root and each.user != user else each.name for each in found]


def list_storages(
    tx: Tx, before: int, limit: int, *, user: str, root: bool, owner: str = "", name: str = ""
) -> list[Storage]:
    """Storages that the user may see, before the position `before` (0: all), newest first."""
    rows = tx.all(
        SQL["list_storages"], before=before, limit=limit, user_name="" if root else user, owner=owner, name=name
    )
    return [storage_of(row) for row in rows]


def require_user(tx: Tx, user: str) -> None:
    """Refuse a storage in the name of nobody."""
    if tx.value(SQL["user_exists"], name=user) is None:
        raise NotFound(f"user[{user[:80]}] does not exist", code="UserNotExist")


def refuse_duplicate(tx: Tx, user: str, name: str) -> None:
    if find_storage(tx, user, name) is not None:
        raise Conflict(
            f"fsID[{storage_id(user, name)}] is exists", code="DuplicatedName", hint="choose another name, or update it"
        )


def create_storage(tx: Tx, document: NewStorage, place: Place, user: str, confined: bool, now: float) -> Storage:
    """The folder has been checked before: a transaction does not touch the disk."""
    require_user(tx, user)
    storage = Storage(
        id=storage_id(user, document.name),
        name=document.name,
        user=user,
        fs_type=place.fs_type,
        server_address=place.server_address,
        sub_path=place.sub_path,
        properties={},
        independent=bool(document.independent_mount_process),
        confined=confined,
        created_at=now,
        updated_at=now,
    )
    row = _columns(storage)
    if not tx.run(SQL["insert_storage"], **row, name=storage.name, user_name=user, created_at=now):
        refuse_duplicate(tx, user, document.name)
    bump(tx, NAMED)
    return storage


def change_storage(
    tx: Tx, document: StorageChange, place: Place | None, user: str, confined: bool, now: float
) -> Storage:
    """Another folder only while no active job uses the storage."""
    storage = _own_storage(tx, user, document.name)
    changed = storage
    if place is not None and place.sub_path != storage.sub_path:
        _refuse_busy(tx, storage, "cannot be moved")
        changed = replace(
            changed,
            fs_type=place.fs_type,
            server_address=place.server_address,
            sub_path=place.sub_path,
            confined=confined,
        )
    if document.independent_mount_process is not None:
        changed = replace(changed, independent=document.independent_mount_process)
    changed = replace(changed, updated_at=now)
    tx.run(SQL["update_storage"], **_columns(changed))
    bump(tx, NAMED)
    return changed


def delete_storage(tx: Tx, user: str, name: str) -> None:
    """Take the record and its grants away; the files stay."""
    storage = _own_storage(tx, user, name)
    _refuse_busy(tx, storage, "cannot be deleted")
    tx.run(SQL["delete_storage"], id=storage.id)
    tx.run(SQL["delete_storage_grants"], id=storage.id)
    bump(tx, NAMED)


def _refuse_busy(tx: Tx, storage: Storage, what: str) -> None:
    jobs = int(tx.value(SQL["count_active_jobs"], id=storage.id))
    if jobs:
        raise Conflict(
            f"fs[{storage.name}] {what}: {jobs} jobs that have not ended use it",
            code="FileSystemClientBusy",
            hint="wait for them, or stop them",
        )


def storage_of(row: Row) -> Storage:
    return Storage(
        id=row["id"],
        name=row["name"],
        user=row["user_name"],
        fs_type=row["fs_type"],
        server_address=row["server_address"],
        sub_path=row["sub_path"],
        properties=json.loads(row["properties"]),
        independent=bool(row["independent"]),
        confined=bool(row["confined"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        seq=row["seq"],
    )


def _columns(storage: Storage) -> dict[str, Value]:
    """The id and all columns that may change."""
    return {
        "id": storage.id,
        "fs_type": storage.fs_type,
        "server_address": storage.server_address,
        "sub_path": storage.sub_path,
        "properties": json.dumps(storage.properties),
        "independent": int(storage.independent),
        "confined": int(storage.confined),
        "updated_at": storage.updated_at,
    }
