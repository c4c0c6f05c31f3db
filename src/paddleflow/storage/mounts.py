"""Mounts of storages by clients of the server: transactions. `api.storage_mounts` gives each its token."""

from __future__ import annotations

import secrets

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound, OverQuota
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import MOUNT_LOST
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "mounts.sql")
LIFETIME = 3600.0  #: seconds that a token counts after the mount last reported
MOST_MOUNTS = 1_000  #: of one storage that are listed


@dataclass(frozen=True, slots=True)
class StorageMount:
    """A storage mounted by a client."""

    id: str
    storage: str  #: id
    user: str
    node: str
    folder: str
    digest: str  #: of its token
    created_at: float
    seen_at: float


def make_room(tx: Tx, user: str, most: int, now: float) -> None:
    """Let a user have one more mount; those that do not report any more go for it. `OverQuota`: it has `most`."""
    of_user = {"user_name": user}
    if tx.value(SQL["count_mounts"], **of_user) < most:
        return
    for statement in ("end_lost_tokens", "remove_lost_mounts_of"):
        tx.run(SQL[statement], **of_user, since=now - MOUNT_LOST)
    if tx.value(SQL["count_mounts"], **of_user) >= most:
        raise OverQuota(
            f"user[{user}] has {most:,} mounts, the most that a user may have",
            code="TooManyMounts",
            hint="paddleflow fs umount DIR ends one; the setting server.max_mounts says how many there may be",
        )


def add_mount(tx: Tx, storage: Storage, user: str, node: str, folder: str, digest: str, now: float) -> StorageMount:
    """A new mount; `digest` is that of its token."""
    tx.run(SQL["remove_lost_mounts"], before=now - LIFETIME)
    mount = f"mount-{secrets.token_hex(4)}"
    tx.run(
        SQL["add_mount"], id=mount, fs_id=storage.id, user_name=user, node=node, folder=folder, digest=digest, now=now
    )
    return StorageMount(mount, storage.id, user, node, folder, digest, now, now)


def see_mount(tx: Tx, mount: StorageMount, now: float) -> None:
    """It has reported."""
    tx.run(SQL["see_mount"], id=mount.id, now=now)


def remove_mount(tx: Tx, mount: StorageMount) -> None:
    """It has ended."""
    tx.run(SQL["remove_mount"], id=mount.id)


def get_mount(tx: Tx, storage: Storage, mount: str) -> StorageMount:
    row = tx.one(SQL["mount_by_id"], id=mount, fs_id=storage.id)
    if row is None:
        raise NotFound(f"fs[{storage.name}] has no mount[{mount[:80]}]", code="RecordNotFound")
    return _mount(row)


def mounts_of(tx: Tx, storage: Storage, now: float) -> list[StorageMount]:
    """Those that reported lately."""
    rows = tx.all(SQL["mounts_of"], fs_id=storage.id, since=now - MOUNT_LOST, limit=MOST_MOUNTS)
    return [_mount(row) for row in rows]


def _mount(row: Row) -> StorageMount:
    return StorageMount(
        row["id"],
        row["fs_id"],
        row["user_name"],
        row["node"],
        row["folder"],
        row["digest"],
        row["created_at"],
        row["seen_at"],
    )
