"""Routes of artifacts: records, content, where they came from."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import StreamingResponse

from paddleflow.access.callers import Caller, is_root
from paddleflow.api.paging import listed, page, page_fields
from paddleflow.api.pipelines import filtered_users
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.base.clock import local_text
from paddleflow.errors import NotFound
from paddleflow.objects.store import Entry, Kind, ObjectStore
from paddleflow.runs import archive, files
from paddleflow.runs.artifacts import (
    Artifact,
    ArtifactFilter,
    Lineage,
    find_artifacts,
    lineage,
    remove_artifact,
    require_artifact,
)
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import ArtifactDeletionQuery, ArtifactListQuery, ArtifactQuery
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import get_storage
from paddleflow.storage.stores import Stores
from paddleflow.store.database import Tx


async def list_artifacts(platform: Platform, call: Call[NoBody, ArtifactListQuery]) -> wire.ArtifactEventList:
    query = call.query
    wanted = ArtifactFilter(
        filtered_users(call.caller, query.user_filter),
        listed(query.fs_filter),
        listed(query.run_filter),
        listed(query.type_filter),
        listed(query.path_filter),
    )
    rows = await platform.database.read(find_artifacts, wanted, query.after, query.limit)
    shown, truncated, marker = page(rows, query)
    return {**page_fields(query, truncated, marker), "artifactEventList": [_event(row) for row in shown]}


async def artifact_content(platform: Platform, call: Call[NoBody, ArtifactQuery]) -> StreamingResponse:
    query = call.query

    def find(tx: Tx) -> Storage:
        storage = _storage(tx, call.caller, query.username, query.fs_name)
        require_artifact(tx, storage.id, query.path)
        return storage

    storage = await platform.database.read(find)
    store, entry = await platform.files.of(call.caller.name).run(_open, platform.stores, storage, query.path)
    folder = entry.kind is Kind.FOLDER
    name = entry.key.rpartition("/")[2] or storage.name
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(f'{name}.tar' if folder else name)}"}
    content = archive.tar(store, entry.key) if folder else files.content(store, entry.key)
    kind = "application/x-tar" if folder else "application/octet-stream"
    stream = platform.files.of(call.caller.name).iterate(content, store.close)
    return StreamingResponse(stream, media_type=kind, headers=headers)


def _open(stores: Stores, storage: Storage, path: str) -> tuple[ObjectStore, Entry]:
    store = stores.open(storage)
    try:
        return store, files.existing(store, path)
    except BaseException:
        store.close()
        raise


async def artifact_lineage(platform: Platform, call: Call[NoBody, ArtifactQuery]) -> wire.Lineage:
    query = call.query

    def find(tx: Tx) -> Lineage:
        found = lineage(tx, _storage(tx, call.caller, query.username, query.fs_name).id, query.path)
        if found.maker is None:
            raise NotFound(
                f"no step made what lies at {query.path[:200]} on fs[{query.fs_name[:80]}]",
                code="ArtifactEventNotFound",
                hint="paddleflow artifact list -o wide shows what steps made",
            )
        return found

    return _lineage(await platform.database.read(find), query.fs_name)


async def remove_artifact_event(platform: Platform, call: Call[NoBody, ArtifactDeletionQuery]) -> None:
    query = call.query

    def remove(tx: Tx) -> None:
        remove_artifact(tx, _storage(tx, call.caller, query.username, query.fs_name).id, query.run_id, query.path)

    await platform.database.write(remove)


def _storage(tx: Tx, caller: Caller, username: str, name: str) -> Storage:
    user = username or caller.name
    return get_storage(tx, user, is_root(user), name)


def _event(row: Artifact) -> wire.ArtifactEvent:
    return {
        "runID": row.run_id,
        "fsname": row.fs_name,
        "username": row.user,
        "artifactPath": row.path,
        "step": row.step,
        "jobID": row.job_id,
        "type": row.kind,
        "artifactName": row.name,
        "meta": row.meta,
        "hash": row.hash,
        "size": row.size,
        "createTime": local_text(row.created_at),
        "updateTime": local_text(row.updated_at),
    }


def _lineage(found: Lineage, fs_name: str) -> wire.Lineage:
    maker = found.maker
    inputs: list[Any] = [_lineage(each, fs_name) for each in found.inputs]
    return {
        "fsname": fs_name,
        "path": found.path,
        "name": found.name,
        "runID": "" if maker is None else maker.run_id,
        "step": "" if maker is None else maker.step,
        "jobID": "" if maker is None else maker.job_id,
        "hash": "" if maker is None else maker.hash,
        "size": 0 if maker is None else maker.size,
        "createTime": local_text(None if maker is None else maker.created_at),
        "inputs": inputs,
    }


_STORAGE = ("404 FileSystemNotExist", "InvalidFileSystemFsName", "404 ArtifactEventNotFound")

ROUTES = (
    Route(
        "GET", "/artifact", list_artifacts, "What steps read and made, newest first.",
        query=ArtifactListQuery, answer=wire.ArtifactEventList, errors=("403 OnlyRootAllowed",),
    ),
    Route(
        "DELETE", "/artifact", remove_artifact_event, "Forget the records of a path in a run; its files stay.",
        query=ArtifactDeletionQuery, errors=_STORAGE,
    ),
    Route(
        "GET", "/artifact/content", artifact_content, "The bytes of an artifact; a folder comes as a tar file.",
        query=ArtifactQuery, media_type="application/octet-stream",
        errors=(*_STORAGE, "InvalidArguments", "ConnectivityFailed", "403 AccessDenied"),
    ),
    Route(
        "GET", "/artifact/lineage", artifact_lineage, "Which step of which run made it, and what that was made of.",
        query=ArtifactQuery, answer=wire.Lineage, errors=_STORAGE,
    ),
)  # fmt: skip
