"""Routes of links: another store at a path inside a storage."""

from __future__ import annotations

from paddleflow.api.paging import page
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.api.storages import own_properties, prepare, shown_properties
from paddleflow.base.ids import new_short_id
from paddleflow.errors import Invalid, NotFound
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.faults import Faults
from paddleflow.spec.storage import LinkQuery, NewLink
from paddleflow.storage import links, places, secrets, storages
from paddleflow.storage.model import LOCAL, Link, Place, Storage
from paddleflow.store.database import Tx


async def create_link(platform: Platform, call: Call[NewLink, NoQuery]) -> None:
    body, user = call.body, call.body.username or call.caller.name
    path = links.link_path(body.fs_path)
    properties = own_properties(body.url, body.properties)
    if body.url.startswith("local:"):
        properties.pop("debug", None)  # the original asks for it
    place = _place(body.url, properties)
    storage = await platform.database.read(_own, user, body.fs_name)
    links.refuse_nested(storage, path)
    made = await prepare(platform, place, properties, user, confined=not call.caller.root)
    link_id = new_short_id("link")
    shown, hidden = secrets.separate(place.fs_type, properties)
    link = Link(
        id=link_id,
        storage=storage.id,
        path=path,
        user=call.caller.name,
        place=place,
        properties=shown,
        secrets=secrets.encrypt(platform.keyring, secrets.link_context(link_id), hidden),
        confined=not call.caller.root,
        created_at=platform.clock.now(),
    )
    try:
        await platform.store_checks.run(user, lambda: _check_path(platform, storage, path))
        await platform.database.write(_create, user, link, body.fs_name)
    except BaseException:
        places.unmake(made)
        raise


def _place(url: str, properties: dict[str, str]) -> Place:
    faults = Faults("InvalidArguments")
    place = storages.checked_place(url, properties, faults)
    codes = {
        "InvalidFileSystemParamsURL": "InvalidLinkURL",
        "InvalidFileSystemParamsProperties": "InvalidLinkProperties",
    }
    faults.codes = {codes.get(code, code) for code in faults.codes}
    faults.check()
    assert place is not None, "no place, and no fault"
    return place


def _check_path(platform: Platform, storage: Storage, path: str) -> None:
    store = platform.stores.open(storage)
    try:
        links.check_path(store, storage.name, path)
    finally:
        store.close()


def _own(tx: Tx, user: str, name: str) -> Storage:
    """Only the owner and root make links: whoever uses the storage sees them."""
    try:
        return storages.own_storage(tx, user, name)
    except NotFound as error:
        raise NotFound(error.message, code="LinkFileSystemNotExist", hint=error.hint) from error


def _create(tx: Tx, user: str, link: Link, name: str) -> None:
    links.create_link(tx, _own(tx, user, name), link)


async def list_links(platform: Platform, call: Call[NoBody, LinkQuery]) -> wire.LinkList:
    query, user = call.query, call.query.username or call.caller.name
    path = links.link_path(query.fs_path) if query.fs_path else ""

    def find(tx: Tx) -> tuple[Storage, list[Link]]:
        storage = storages.get_storage(tx, user, call.caller.root, call.path["name"])
        return storage, links.list_links(tx, storage.id, query.after, query.limit, path)

    storage, found = await platform.database.read(find)
    rows, truncated, marker = page(found, query)
    return {
        "marker": query.marker,
        "truncated": truncated,
        "nextMarker": marker,
        "linkList": [_answer(storage, row) for row in rows],
    }


async def delete_link(platform: Platform, call: Call[NoBody, LinkQuery]) -> None:
    query, user = call.query, call.query.username or call.caller.name
    if not query.fs_path:
        raise Invalid("fsPath says which link goes, and is empty", code="InvalidArguments")
    path, now = links.link_path(query.fs_path), platform.clock.now()

    def delete(tx: Tx) -> None:
        storage = _own(tx, user, call.path["name"])
        storages.refuse_busy(tx, storage, f"keeps its link at {path}", now, but="links")
        links.delete_link(tx, storage, path)

    await platform.database.write(delete)


def _answer(storage: Storage, link: Link) -> wire.Link:
    return {
        "fsName": storage.name,
        "fsPath": f"/{link.path}",
        "serverAddress": link.place.server_address,
        "type": link.place.fs_type,
        "username": link.user,
        "subPath": link.place.sub_path if link.place.fs_type == LOCAL else link.place.sub_path or "/",
        "properties": shown_properties(link.place, link.properties),
    }


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/link",
        create_link,
        "Make a link: another store at a path inside a storage, after trying it out",
        body=NewLink,
        status=201,
        errors=(
            "LinkFileSystemNotExist",
            "LinkFileSystemPathNotExist",
            "LinkPathExist",
            "LinkPathMustBeEmpty",
            "InvalidLinkURL",
            "InvalidLinkProperties",
            "ConnectivityFailed",
            "AccessDenied",
            "429 TooManyRequests",
        ),
    ),
    Route(
        "GET",
        "/link/{name}",
        list_links,
        "List the links of a storage, newest first, or show the one at a path",
        query=LinkQuery,
        answer=wire.LinkList,
        errors=("InvalidArguments", "FileSystemNotExist", "InvalidFileSystemFsName"),
    ),
    Route(
        "DELETE",
        "/link/{name}",
        delete_link,
        "Delete the link at a path while nothing uses the storage; the files of both stores stay",
        query=LinkQuery,
        errors=("InvalidArguments", "LinkFileSystemNotExist", "LinkNotExist", "FileSystemClientBusy"),
    ),
)
