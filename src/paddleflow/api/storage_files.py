"""Routes of the files in a storage: list, stat, make, remove, content by ranges, upload whole or by parts.

A caller sees the files of storages that it owns or was granted, and nothing outside of them. All work on the store is done in the
file pool; content is streamed in pieces of a bounded size, and every piece belongs to one version of its file. A range may be asked
for by the header ``Range``, as browsers do, or by ``offset`` and ``size``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import Field
from starlette.responses import StreamingResponse

from paddleflow.access.callers import is_root, require_storage
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.api.sse import while_connected
from paddleflow.base.quantity import parse_quantity
from paddleflow.errors import Invalid, PaddleFlowError, TooLarge
from paddleflow.objects.store import Entry, ObjectStore, changed
from paddleflow.spec import wire_storage as wire
from paddleflow.spec.document import Document
from paddleflow.spec.query import Query
from paddleflow.storage import files
from paddleflow.storage.file_pool import SlicedWork
from paddleflow.storage.model import Storage
from paddleflow.storage.storages import MOST_FOLDERS, get_storage, list_storages
from paddleflow.storage.stores import key_of
from paddleflow.storage.unfinished_uploads import measure

T = TypeVar("T")
MOST_ENTRIES = 1_000  #: of a page
_PATH = Field(default="", max_length=4096, description="of the file or folder, from the storage's root")
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class Unsatisfiable(Invalid):
    """A range that a file does not have."""

    status = 416
    default_code = "InvalidRange"

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size  #: bytes that the file has


class FileQuery(Query):
    """Routes of one file or folder"""

    path: str = _PATH
    username: str = Field(default="", description="whose storage it is; empty: the caller's own")


class FileListQuery(FileQuery):
    """GET /fs/{fsName}/files"""

    marker: str = Field(default="", max_length=1024, description="list what comes after this name")
    max_keys: int = Field(default=MOST_ENTRIES, ge=1, le=MOST_ENTRIES, description="most entries of the answer")


class FileRemovalQuery(FileQuery):
    """DELETE /fs/{fsName}/files"""

    recursive: bool = Field(default=False, description="a folder with everything in it")


class RenameQuery(FileQuery):
    """POST /fs/{fsName}/rename"""

    target: str = Field(default="", max_length=4096, description="the new path; a file that is there is replaced")


class ContentQuery(FileQuery):
    """GET /fs/{fsName}/content"""

    offset: int = Field(default=0, ge=0, description="first byte")
    size: int = Field(default=-1, ge=-1, description="how many bytes; -1: to the end")
    tag: str = Field(default="", max_length=200, description="only of this version, else 409 ContentChanged")


class WriteQuery(FileQuery):
    """A file that is made or replaced"""

    if_absent: bool = Field(default=False, description="refuse to replace a file")
    if_tag: str = Field(default="", max_length=200, description="replace only this version, else 409 ContentChanged")


class UploadQuery(WriteQuery):
    """Content that is sent"""

    sha256: str = Field(default="", max_length=64, description="of the content; checked when it arrives")
    part: int = Field(default=0, ge=0, le=files.MOST_PARTS, description="number of a part, from 1")


class FileContent(Document):
    """The bytes of a file, or of one part of an upload: at most 16 MiB."""


def _bytes(kind: type[Document], body: bytes, *, ignore_unknown: bool) -> bytes:
    if len(body) > files.MOST_PART:
        hint = "send larger content by parts"
        raise TooLarge(f"{len(body):,} bytes are more than {files.MOST_PART:,}", hint=hint)
    return body


async def _storage(platform: Platform, call: Call[Any, Any]) -> Storage:
    user = call.query.username or call.caller.name
    storage = await platform.database.read(get_storage, user, is_root(user), call.path["fsName"])
    require_storage(call.caller, storage.id)
    return storage


async def _open(platform: Platform, call: Call[Any, Any]) -> ObjectStore:
    storage = await _storage(platform, call)
    return await platform.files.of(call.caller.name).run(platform.stores.open, storage)


async def _with_store(platform: Platform, call: Call[Any, Any], work: Callable[[ObjectStore], T]) -> T:
    """Something short with the store of the request, in a thread."""
    store = await _open(platform, call)

    def run() -> T:
        try:
            return work(store)
        finally:
            store.close()

    return await platform.files.of(call.caller.name).run(run)


async def _in_slices(platform: Platform, call: Call[Any, Any], work: Callable[[ObjectStore], SlicedWork[T]]) -> T:
    """Something that may take long, in pieces."""
    store = await _open(platform, call)

    def run() -> SlicedWork[T]:
        try:
            return (yield from work(store))
        finally:
            store.close()

    return await platform.files.of(call.caller.name).run_in_slices(run())


def _key(call: Call[Any, Any]) -> str:
    key = key_of(call.query.path)
    if key.partition("/")[0] == files.UPLOADS:
        raise Invalid(f"path[{files.UPLOADS}] is where parts of uploads wait", hint="choose another name")
    return key


def _file_key(call: Call[Any, Any]) -> str:
    key = _key(call)
    if not key:
        raise Invalid("path names no file", hint="give path=folder/name")
    return key


async def list_files(platform: Platform, call: Call[NoBody, FileListQuery]) -> wire.FileList:
    key, query = _key(call), call.query
    found, more = await while_connected(
        call.request,
        lambda: _in_slices(platform, call, lambda store: files.list_page(store, key, query.marker, query.max_keys)),
    )
    marker = found[-1].key.rpartition("/")[2] if more else ""
    return {"files": [_shown(entry) for entry in found], "truncated": more, "nextMarker": marker}


async def stat_file(platform: Platform, call: Call[NoBody, FileQuery]) -> wire.File:
    key = _key(call)
    return _shown(await _with_store(platform, call, lambda store: store.stat(key)))


async def make_folder(platform: Platform, call: Call[NoBody, FileQuery]) -> None:
    key = _file_key(call)
    await _with_store(platform, call, lambda store: store.make_folder(key))


async def remove_files(platform: Platform, call: Call[NoBody, FileRemovalQuery]) -> wire.RemovedFiles:
    key = _file_key(call)
    return {"removed": await _in_slices(platform, call, lambda store: files.remove(store, key, call.query.recursive))}


async def rename_file(platform: Platform, call: Call[NoBody, RenameQuery]) -> wire.File:
    key, target = _file_key(call), key_of(call.query.target)
    if not target or target.partition("/")[0] == files.UPLOADS:
        raise Invalid(f"target[{call.query.target[:200]}] is not a valid file name", hint="give target=folder/name")
    return _shown(await _with_store(platform, call, lambda store: store.rename(key, target)))


async def file_content(platform: Platform, call: Call[NoBody, ContentQuery]) -> StreamingResponse:
    key, query, given = _file_key(call), call.query, call.request.headers.get("range", "")

    def choose(entry: Entry) -> tuple[int, int]:
        """Offset and size of what is asked for."""
        if query.tag and entry.tag != query.tag:
            raise changed(key)
        asked = _asked_range(given, entry.size) if given else (query.offset, query.size)
        if asked is None:
            raise Unsatisfiable(
                f"range[{given[:80]}] is not in {key[:200]!r}, which has {entry.size} bytes", entry.size
            )
        offset, size = asked
        return offset, max(0, min(entry.size - offset, size if size >= 0 else entry.size))

    store, threads = await _open(platform, call), platform.files.of(call.caller.name)
    try:
        begun = await threads.run(files.begin_content, store, key, choose)
    except BaseException:
        await threads.run(store.close)
        raise
    entry, offset, size = begun.entry, begun.offset, begun.size
    headers = {
        "accept-ranges": "bytes",
        "content-length": str(size),
        "etag": f'"{entry.tag}"',
        "content-disposition": f"attachment; filename*=UTF-8''{quote(key.rpartition('/')[2])}",
        "x-content-type-options": "nosniff",
    }
    if given or query.offset > 0 or query.size >= 0:
        headers["content-range"] = (
            f"bytes {offset}-{offset + size - 1}/{entry.size}" if size else f"bytes */{entry.size}"
        )
    return StreamingResponse(
        threads.iterate(files.pieces_of(store, begun), store.close),
        206 if given else 200,
        headers,
        "application/octet-stream",
    )


def _asked_range(header: str, length: int) -> tuple[int, int] | None:
    """Offset and size of a range header; None when it cannot be satisfied. Several ranges: the whole."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or found.group(0) == "bytes=-":
        return 0, length
    first, last = found.groups()
    if not first:
        size = min(int(last), length)
        return (length - size, size) if size else None
    if int(first) >= length:
        return None
    end = min(int(last), length - 1) if last else length - 1
    return (int(first), end - int(first) + 1) if end >= int(first) else None


async def write_file(platform: Platform, call: Call[bytes, UploadQuery]) -> wire.File:
    key, query = _file_key(call), call.query

    def write(store: ObjectStore) -> Entry:
        files.check_sum(call.body, query.sha256)
        return store.write(key, call.body, if_absent=query.if_absent, if_tag=query.if_tag)

    return _shown(await _with_store(platform, call, write))


async def start_upload(platform: Platform, call: Call[NoBody, FileQuery]) -> wire.Upload:
    _file_key(call)
    upload = await _in_slices(platform, call, lambda store: files.start_upload(store, platform.clock.now()))
    return {"uploadID": upload, "parts": []}


async def write_part(platform: Platform, call: Call[bytes, UploadQuery]) -> wire.UploadPart:
    query, storage = call.query, await _storage(platform, call)
    if storage.local:
        limit = parse_quantity(platform.settings.server.max_unfinished_uploads)
        await platform.uploads.count(
            storage.user, len(call.body), limit, lambda: _measure_uploads(platform, call.caller.name, storage.user)
        )

    def write(store: ObjectStore) -> files.StoredPart:
        files.check_sum(call.body, query.sha256)
        return files.write_part(store, call.path["id"], query.part, call.body)

    part = await _with_store(platform, call, write)
    return {"part": part.number, "size": part.size}


async def _measure_uploads(platform: Platform, caller: str, owner: str) -> int:
    """The bytes of unfinished uploads to all storages of an owner that are folders of this machine."""
    found = await platform.database.read(list_storages, 0, MOST_FOLDERS, user=owner, root=True, owner=owner)
    threads, total = platform.files.of(caller), 0
    for storage in found:
        if not storage.local:
            continue
        try:
            store = await threads.run(platform.stores.open, storage)
        except PaddleFlowError:
            continue  # its folder is gone, or may not be used any more
        try:
            total += await threads.run_in_slices(measure(store))
        finally:
            await threads.run(store.close)
    return total


async def show_upload(platform: Platform, call: Call[NoBody, FileQuery]) -> wire.Upload:
    upload = call.path["id"]
    parts = await _with_store(platform, call, lambda store: files.show_upload(store, upload))
    return {"uploadID": upload, "parts": [{"part": part.number, "size": part.size} for part in parts]}


async def finish_upload(platform: Platform, call: Call[NoBody, WriteQuery]) -> wire.File:
    key, upload, query = _file_key(call), call.path["id"], call.query

    def finish(store: ObjectStore) -> Entry:
        return files.finish_upload(store, upload, key, if_absent=query.if_absent, if_tag=query.if_tag)

    return _shown(await _with_store(platform, call, finish))


async def abort_upload(platform: Platform, call: Call[NoBody, FileQuery]) -> None:
    upload = call.path["id"]
    await _with_store(platform, call, lambda store: files.abort_upload(store, upload))


def _shown(entry: Entry) -> wire.File:
    return {
        "path": entry.key,
        "kind": entry.kind.value,
        "size": entry.size,
        "modifiedAt": entry.modified_at,
        "tag": entry.tag,
    }


_ERRORS = (
    "400 OperationNotSupported",
    "404 FileSystemNotExist", "InvalidFileSystemFsName", "404 ResourceNotFound", "InvalidArguments", "403 AccessDenied",
    "409 ActionNotAllowed", "ConnectivityFailed", "InvalidFileSystemParamsURL", "InvalidFileSystemParamsProperties",
)  # fmt: skip
_CONTENT = (*_ERRORS, "400 BadDigest", "409 AlreadyExists", "409 ContentChanged", "413 InvalidHTTPRequest")
_FS = "/fs/{fsName}"
_UPLOAD = "/fs/{fsName}/uploads/{id}"

ROUTES = (
    Route(
        "GET", f"{_FS}/files", list_files, "What lies in a folder of a storage, by name.",
        query=FileListQuery, answer=wire.FileList, mounts=True, errors=_ERRORS,
    ),
    Route(
        "DELETE", f"{_FS}/files", remove_files, "Remove a file or a folder.",
        query=FileRemovalQuery, answer=wire.RemovedFiles, mounts=True, errors=(*_ERRORS, "409 FolderNotEmpty"),
    ),
    Route("GET", f"{_FS}/stat", stat_file, "One file or folder.", query=FileQuery, answer=wire.File, mounts=True, errors=_ERRORS),
    Route("POST", f"{_FS}/folders", make_folder, "Make a folder, and those above it.", query=FileQuery, mounts=True, errors=_ERRORS),
    Route(
        "POST", f"{_FS}/rename", rename_file, "Give a file another path, replacing what is there.",
        query=RenameQuery, answer=wire.File, mounts=True, errors=_ERRORS,
    ),
    Route(
        "GET", f"{_FS}/content", file_content, "The bytes of a file, or of a range of it.",
        query=ContentQuery, media_type="application/octet-stream", mounts=True, errors=(*_ERRORS, "409 ContentChanged", "416 InvalidRange"),
    ),
    Route(
        "PUT", f"{_FS}/content", write_file, "Write a file of at most 16 MiB, whole.",
        body=FileContent, reader=_bytes, binary=True, bulk=True, query=UploadQuery, answer=wire.File, mounts=True, errors=_CONTENT,
    ),
    Route(
        "POST", f"{_FS}/uploads", start_upload, "Start an upload by parts.",
        query=FileQuery, answer=wire.Upload, mounts=True, errors=(*_ERRORS, "400 TooManyUploads"),
    ),
    Route(
        "GET", _UPLOAD, show_upload, "Which parts of an upload have arrived.",
        query=FileQuery, answer=wire.Upload, mounts=True, errors=(*_ERRORS, "404 UploadNotFound"),
    ),
    Route(
        "PUT", _UPLOAD, write_part, "Send a part of at most 16 MiB; the same number again replaces it.",
        body=FileContent, reader=_bytes, binary=True, bulk=True, query=UploadQuery, answer=wire.UploadPart,
        mounts=True, errors=(*_CONTENT, "404 UploadNotFound", "413 UploadsOverQuota"),
    ),
    Route(
        "POST", _UPLOAD, finish_upload, "Make the file of its parts, whole.",
        query=WriteQuery, answer=wire.File, mounts=True,
        errors=(*_ERRORS, "404 UploadNotFound", "409 UploadIncomplete", "409 AlreadyExists", "409 ContentChanged"),
    ),
    Route("DELETE", _UPLOAD, abort_upload, "Give up an upload.", query=FileQuery, mounts=True, errors=_ERRORS),
)  # fmt: skip
