"""Links: another store at a path inside a storage. Transactions; who opens a storage gets its links with it (`stores`).

The rules: the storage is not of type local, there are at most `MOST_LINKS` of them, no link lies in another one, and nothing may
lie at the path yet (`check_path`, which asks the store).
"""

from __future__ import annotations

import json

from paddleflow.errors import Conflict, Invalid, NotFound, PaddleFlowError
from paddleflow.objects.store import Kind, ObjectStore, check_key
from paddleflow.storage.model import Link, Place, Storage
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "links.sql")
MOST_LINKS = 64  #: of one storage


def link_path(text: str) -> str:
    """A path inside a storage as people write it, without slashes at its ends. Pure."""
    try:
        return check_key("/".join(part for part in text.split("/") if part not in ("", ".")))
    except Invalid as error:
        raise Invalid(f"fsPath[{text[:200]}]: {error.message}", code="InvalidArguments") from error


def refuse_nested(storage: Storage, path: str) -> None:
    """Refuse a link where there is one, in one, or around one. Pure."""
    if storage.local:
        raise Invalid(
            f"fs[{storage.name}] is of type local, which has no links",
            code="InvalidLinkURL",
            hint="create a storage for the other place and mount both",
        )
    if len(storage.links) >= MOST_LINKS:
        raise Conflict(f"fs[{storage.name}] has {MOST_LINKS} links, which is the most", code="LinkPathExist")
    for link in storage.links:
        if path == link.path or f"{path}/".startswith(f"{link.path}/") or f"{link.path}/".startswith(f"{path}/"):
            raise Conflict(
                f"fsPath[{path}] of fs[{storage.name}] meets the link at {link.path}: links do not lie in each other",
                code="LinkPathExist",
                hint=f"paddleflow fs unlink {storage.name} {link.path}",
            )


def check_path(store: ObjectStore, name: str, path: str) -> None:
    """Refuse a path whose parent is not there, or at which something is. Asks the store."""
    parent = path.rpartition("/")[0]
    try:
        if parent and store.stat(parent).kind is not Kind.FOLDER:
            raise NotFound(parent)
    except NotFound as error:
        raise NotFound(
            f"fsPath[{path}]: there is no folder {parent} in fs[{name}]",
            code="LinkFileSystemPathNotExist",
            hint="create the folder first",
        ) from error
    try:
        found = store.stat(path)
    except NotFound:
        return
    except PaddleFlowError as error:
        raise Invalid(f"fsPath[{path}] of fs[{name}]: {error.message}", code="ConnectivityFailed") from error
    if found.kind is not Kind.FOLDER or next(store.list_entries(path), None) is not None:
        raise Conflict(f"fsPath[{path}] of fs[{name}] is not empty", code="LinkPathMustBeEmpty")


def links_of(tx: Tx, storage: str) -> list[Link]:
    return [link_of(row) for row in tx.all(SQL["links_of"], fs_id=storage)]


def list_links(tx: Tx, storage: str, before: int, limit: int, path: str = "") -> list[Link]:
    """Links of a storage before the position `before` (0: all), newest first."""
    rows = tx.all(SQL["list_links"], fs_id=storage, before=before, limit=limit, fs_path=path)
    return [link_of(row) for row in rows]


def create_link(tx: Tx, storage: Storage, link: Link) -> None:
    """`storage` as it is in this transaction."""
    refuse_nested(storage, link.path)
    made = tx.run(
        SQL["insert_link"],
        id=link.id,
        fs_id=storage.id,
        fs_path=link.path,
        user_name=link.user,
        fs_type=link.place.fs_type,
        server_address=link.place.server_address,
        sub_path=link.place.sub_path,
        url=link.place.url,
        properties=json.dumps(dict(link.properties)),
        secrets=link.secrets,
        confined=int(link.confined),
        created_at=link.created_at,
    )
    assert made, "two links at one path"
    bump(tx, NAMED)


def delete_link(tx: Tx, storage: Storage, path: str) -> None:
    if not tx.run(SQL["delete_link"], fs_id=storage.id, fs_path=path):
        raise NotFound(
            f"fs[{storage.name}] has no link at {path[:200]}",
            code="LinkNotExist",
            hint=f"paddleflow fs listlink {storage.name} shows all",
        )
    bump(tx, NAMED)


def link_of(row: Row) -> Link:
    return Link(
        id=row["id"],
        storage=row["fs_id"],
        path=row["fs_path"],
        user=row["user_name"],
        place=Place(row["fs_type"], row["server_address"], row["sub_path"], row["url"]),
        properties=json.loads(row["properties"]),
        secrets=row["secrets"],
        confined=bool(row["confined"]),
        created_at=row["created_at"],
        seq=row["seq"],
    )
