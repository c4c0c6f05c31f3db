"""Routes of artifacts: records, content, where they came from."""

from __future__ import annotations

import asyncio
from pathlib import Path
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
from paddleflow.runs import archive, files
from paddleflow.runs.artifacts import ArtifactFilter, find_artifacts, lineage, remove_artifact, require_artifact
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import ArtifactDeletionQuery, ArtifactListQuery, ArtifactQuery
from paddleflow.storage.model import Storage
from paddleflow.storage.places import check_folder
from paddleflow.storage.storages import get_storage
from paddleflow.store.database import Row, Tx


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
    place = await asyncio.to_thread(_place, platform.settings.data_folder, storage, query.path)
    folder = await asyncio.to_thread(place.is_dir)
    name = f"{place.name}.tar" if folder else place.name
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    chunks = archive.tar(place) if folder else archive.file(place)
    kind = "application/x-tar" if folder else "application/octet-stream"
    return StreamingResponse(chunks, media_type=kind, headers=headers)


def _place(data: Path, storage: Storage, path: str) -> Path:
    folder = check_folder(storage.folder, data=data, user=storage.user, confined=storage.confined)
    return files.existing(folder, path)


async def artifact_lineage(platform: Platform, call: Call[NoBody, ArtifactQuery]) -> wire.Lineage:
    query = call.query

    def find(tx: Tx) -> Row:
        found = lineage(tx, _storage(tx, call.caller, query.username, query.fs_name).id, query.path)
        if not found["run_id"]:
            raise NotFound(
                f"no step made what lies at {query.path[:200]} on fs[{query.fs_name[:80]}]",
                code="ArtifactEventNotFound",
                hint="paddleflow run listartifact shows what steps made",
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


def _event(row: Row) -> wire.ArtifactEvent:
    return {
        "runID": row["run_id"],
        "fsname": row["fs_name"],
        "username": row["user_name"],
        "artifactPath": row["path"],
        "step": row["step"],
        "jobID": row["job_id"],
        "type": row["kind"],
        "artifactName": row["name"],
        "meta": row["meta"],
        "hash": row["hash"],
        "size": row["size"],
        "createTime": local_text(row["created_at"]),
        "updateTime": local_text(row["updated_at"]),
    }


def _lineage(row: Row, fs_name: str) -> wire.Lineage:
    inputs: list[Any] = [_lineage(each, fs_name) for each in row["inputs"]]
    return {
        "fsname": fs_name,
        "path": row["path"],
        "name": row["name"],
        "runID": row["run_id"],
        "step": row.get("step", ""),
        "jobID": row.get("job_id", ""),
        "hash": row.get("hash", ""),
        "size": row.get("size", 0),
        "createTime": local_text(row.get("created_at")),
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
