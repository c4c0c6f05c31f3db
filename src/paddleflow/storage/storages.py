"""Transactions on storages, and who may use one.

The rule: a storage belongs to its owner. The owner and root change and delete it; a grant (resource type ``fs``) lets
another user see it and use it in jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from paddleflow.base import names
from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.objects.urls import INVALID_PROPERTIES, SCHEMES, check_properties
from paddleflow.spec.faults import Faults
from paddleflow.spec.storage import StorageChange
from paddleflow.storage.links import links_of
from paddleflow.storage.model import CLAIM, MOCK, Place, Storage, storage_id
from paddleflow.storage.places import parse_url
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "storages.sql")
MOUNT_LOST = 180.0  #: seconds after which a mount that does not report is gone
_TOLD = 5  #: users of one kind that a refusal names
MOST_FOLDERS = 10_000  #: that are hidden from isolated jobs
_MANY = 1_000_000  #: more than anybody has; for lists that are not paged
LONGEST = 59  #: of a user's name and a storage's name together, so that ids fit the names of cluster objects


def place_of(name: str, url: str, properties: Mapping[str, str], user: str) -> Place:
    """The place that a document names; `Invalid` lists all that is wrong with name, url and properties. Pure."""
    faults = Faults(StorageChange.code)
    if fault := names.STORAGE.fault(name):
        faults.add("name", fault, code="InvalidFileSystemFsName")
    elif len(user) + len(name) > LONGEST:
        message = f"user name and fs name have {len(user) + len(name)} characters together, at most {LONGEST}"
        faults.add("name", message, "choose a shorter name", "InvalidFileSystemFsName")
    place = checked_place(url, properties, faults)
    faults.check()
    assert place is not None, "no place, and no fault"
    return place


def checked_place(url: str, properties: Mapping[str, str], faults: Faults) -> Place | None:
    """The place of a url with its properties; None, and faults, for one that cannot be used. Pure."""
    place = parse_url(url, properties, faults)
    scheme = place.fs_type if place is not None else url.partition("://")[0].lower()
    if scheme in SCHEMES:
        try:
            check_properties(scheme, properties)
        except Invalid as error:
            for fault in error.details:
                faults.add(fault.where, fault.message, fault.hint, error.code)
    if scheme == MOCK and (missing := [name for name in CLAIM if not properties.get(name)]):
        message = f"a storage of type {MOCK} is a claim of Kubernetes and needs {' and '.join(missing)}"
        faults.add("properties", message, "such as pvc=data and namespace=team", INVALID_PROPERTIES)
    return place


def find_storage(tx: Tx, user: str, name: str) -> Storage | None:
    """The user's own storage of this name."""
    return storage_by_id(tx, storage_id(user, name))


def storage_by_id(tx: Tx, storage: str) -> Storage | None:
    """A storage by its id, whoever asks; None when there is none any more."""
    row = tx.one(SQL["storage_by_id"], id=storage)
    return _with_links(tx, row) if row else None


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
    return _with_links(tx, found[0]) if found else None


def get_storage(tx: Tx, user: str, root: bool, name: str) -> Storage:
    """As `usable_storage`, or `NotFound` that names the nearest."""
    return _there(tx, user, root, name, usable_storage(tx, user, root, name))


def own_storage(tx: Tx, user: str, name: str) -> Storage:
    """The user's own storage, or `NotFound`: what may be changed."""
    return _there(tx, user, False, name, find_storage(tx, user, name))


def _where(tx: Tx, user: str, root: bool, name: str) -> str:
    granted = tx.all(SQL["granted"], user_name=user, name=name)
    if granted:
        return "it is granted to you: its owner alone can change it"
    return nearest(name, storage_names(tx, user, root))


def _there(tx: Tx, user: str, root: bool, name: str, storage: Storage | None) -> Storage:
    if storage is None:
        raise NotFound(
            f"fs[{name[:80]}] of user[{user}] does not exist",
            code="FileSystemNotExist",
            hint=_where(tx, user, root, name),
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


def local_folders(tx: Tx) -> list[str]:
    """Folders of this machine that are storages of anybody; who may not use one should not see it."""
    return [str(row["sub_path"]) for row in tx.all(SQL["local_folders"], limit=MOST_FOLDERS)]


def require_user(tx: Tx, user: str) -> None:
    """Refuse a storage in the name of nobody."""
    if tx.value(SQL["user_exists"], name=user) is None:
        raise NotFound(f"user[{user[:80]}] does not exist", code="UserNotExist")


def refuse_duplicate(tx: Tx, user: str, name: str) -> None:
    if find_storage(tx, user, name) is not None:
        raise Conflict(
            f"fsID[{storage_id(user, name)}] is exists", code="DuplicatedName", hint="choose another name, or update it"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A storage as it is to be: checked, tried, its secrets encrypted. A transaction touches neither disk nor network."""

    name: str
    user: str
    place: Place
    properties: Mapping[str, str]  #: secrets are masked
    secrets: str  #: token
    independent: bool
    confined: bool


def create_storage(tx: Tx, wanted: Wanted, now: float) -> Storage:
    require_user(tx, wanted.user)
    storage = Storage(
        id=storage_id(wanted.user, wanted.name),
        name=wanted.name,
        user=wanted.user,
        place=wanted.place,
        properties=wanted.properties,
        secrets=wanted.secrets,
        independent=wanted.independent,
        confined=wanted.confined,
        created_at=now,
        updated_at=now,
    )
    row = _columns(storage)
    if not tx.run(SQL["insert_storage"], **row, name=storage.name, user_name=storage.user, created_at=now):
        refuse_duplicate(tx, storage.user, storage.name)
    bump(tx, NAMED)
    return storage


def change_storage(tx: Tx, wanted: Wanted, now: float) -> Storage:
    """Another place only while nothing uses the storage; other keys and passwords at any time."""
    storage = own_storage(tx, wanted.user, wanted.name)
    if (wanted.place.fs_type, wanted.place.sub_path, wanted.place.url) != (
        storage.place.fs_type, storage.place.sub_path, storage.place.url,
    ):  # fmt: skip
        refuse_busy(tx, storage, "cannot be moved", now)
    changed = replace(
        storage,
        place=wanted.place,
        properties=wanted.properties,
        secrets=wanted.secrets,
        independent=wanted.independent,
        confined=wanted.confined,
        updated_at=now,
    )
    tx.run(SQL["update_storage"], **_columns(changed))
    bump(tx, NAMED)
    return changed


def delete_storage(tx: Tx, user: str, name: str, now: float) -> None:
    """Take the record away, with its grants and the settings of its cache; the files stay."""
    storage = own_storage(tx, user, name)
    refuse_busy(tx, storage, "cannot be deleted", now)
    for statement in ("delete_storage", "delete_storage_grants", "delete_storage_cache", "delete_storage_mounts",
                      "delete_storage_nodes"):  # fmt: skip
        tx.run(SQL[statement], id=storage.id)
    bump(tx, NAMED)


#: What may use a storage → the statement that names some.
_USERS = {
    "jobs": SQL["active_jobs"],
    "runs": SQL["active_runs"],
    "schedules": SQL["active_schedules"],
    "mounts": SQL["live_mounts"],
    "links": SQL["link_paths"],
}


def refuse_busy(tx: Tx, storage: Storage, what: str, now: float, *, but: str = "") -> None:
    """`Conflict` that names who uses a storage. `but`: users that do not matter here."""
    params: dict[str, Value] = {
        "id": storage.id,
        "name": storage.name,
        "owner": storage.user,
        "since": now - MOUNT_LOST,
        "limit": _TOLD + 1,
    }
    users = []
    for kind, statement in _USERS.items():
        wanted = {name: value for name, value in params.items() if f":{name}" in statement.sqlite}
        found = [] if kind == but else [row["name"] for row in tx.all(statement, **wanted)]
        if found:
            more = " and more" if len(found) > _TOLD else ""
            users.append(f"{kind} {', '.join(found[:_TOLD])}{more}")
    if users:
        raise Conflict(
            f"fs[{storage.name}] {what}: it is used by {'; '.join(users)}",
            code="FileSystemClientBusy",
            hint="wait for them or stop them; paddleflow fs umount DIR and fs unlink end mounts and links",
        )


def _with_links(tx: Tx, row: Row) -> Storage:
    """A local storage has no links, and costs no further statement."""
    storage = storage_of(row)
    return storage if storage.local else replace(storage, links=tuple(links_of(tx, storage.id)))


def storage_of(row: Row) -> Storage:
    return Storage(
        id=row["id"],
        name=row["name"],
        user=row["user_name"],
        place=Place(row["fs_type"], row["server_address"], row["sub_path"], row["url"]),
        properties=json.loads(row["properties"]),
        secrets=row["secrets"],
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
        "fs_type": storage.place.fs_type,
        "server_address": storage.place.server_address,
        "sub_path": storage.place.sub_path,
        "url": storage.place.url,
        "properties": json.dumps(dict(storage.properties)),
        "secrets": storage.secrets,
        "independent": int(storage.independent),
        "confined": int(storage.confined),
        "updated_at": storage.updated_at,
    }
