"""Route of the files that a job left: one file below its working directory, as bytes.

Served is what lies in the job's own folder on this server's machine: its work folder, or the unpacked snapshot of its code. The
store is opened at the job's folder, which the server made, and resolves every name beneath it, so that no link, nor a work folder
that was swapped for one, leads out. A folder of the caller (`code.path`) is served for jobs of root, which see the server's files
anyway; jobs of others may name a folder that they cannot read. A storage has ways of its own. Read in `Platform.files`, piece by
piece.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from pydantic import Field
from starlette.responses import StreamingResponse

from paddleflow.access.callers import Caller, is_root
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.errors import Invalid, NotFound
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import Kind
from paddleflow.runs import files
from paddleflow.spec.query import Query
from paddleflow.storage.stores import key_of
from paddleflow.store.database import Tx

CODE, WORK = "code", "work"  #: folders of a job: see `runtimes.runtime.Runtime.folder_on_disk`
MOST_NAMES = 20  #: of a folder that are shown when it is asked for as a file
_HINT = "only files that the job wrote to its work folder or to the snapshot of its code can be downloaded"


class JobFileQuery(Query):
    """GET /job/{id}/file"""

    path: str = Field(min_length=1, max_length=4096, description="file, relative to the folder that the job started in")


class _Place(NamedTuple):
    """Where the files of a job are."""

    cluster: str
    start: str  #: the folder that it started in, below `folder`
    hint: str  #: what to say when a file is not there
    folder: str = ""  #: empty: the job's own, which the runtime knows


def _place(tx: Tx, caller: Caller, job: str) -> _Place:
    row = owned_job(tx, caller, job)
    documents = [member["document"] for member in json.loads(row.members)]
    codes = [document["code"] for document in documents if document.get("code")]
    if snapshot := next((code for code in codes if code.get("snapshot")), None):
        return _Place(row.cluster, f"{CODE}/{key_of(snapshot.get('workdir') or '')}".rstrip("/"), _HINT)
    if own := next((code for code in codes if code.get("path")), None):
        hint = f"the job ran in the folder {own['path'][:200]} of its machine: its files are there"
        if is_root(row.user_name):
            return _Place(row.cluster, key_of(own.get("workdir") or ""), hint, own["path"])
        return _Place(row.cluster, WORK, hint)
    if name := next((document["fs"]["name"] for document in documents if (document.get("fs") or {}).get("name")), ""):
        hint = f"the job started in its storage: its files are on fs[{name[:80]}], see paddleflow fs mount"
        return _Place(row.cluster, WORK, hint)
    return _Place(row.cluster, WORK, _HINT)


async def job_file(platform: Platform, call: Call[NoBody, JobFileQuery]) -> StreamingResponse:
    job, path = call.path["id"], call.query.path
    place = await platform.database.read(_place, call.caller, job)
    own = platform.jobs_run_here.folder_on_disk(place.cluster, job)
    folder = Path(place.folder) if own is not None and place.folder else own
    if folder is None:
        raise _absent(job, path, "the files of this job are not on the server's machine")
    store, key = await platform.files.of(call.caller.name).run(_open, job, folder, place, path)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(key.rpartition('/')[2], errors='replace')}",
        "cache-control": "no-store",
    }
    content = platform.files.of(call.caller.name).iterate(files.content(store, key), store.close)
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)


def _open(job: str, folder: Path, place: _Place, path: str) -> tuple[LocalStore, str]:
    """In a thread: the store and the key of a regular file."""
    key = f"{place.start}/{key_of(path)}".strip("/")
    try:
        store = LocalStore(folder, name=f"the files of job[{job}]")
    except NotFound as error:
        raise _absent(job, path, "the job has not started, or its files were removed") from error
    try:
        try:
            entry = store.stat(key)
        except NotFound as error:
            raise _absent(job, path, place.hint) from error
        if entry.kind is Kind.FOLDER:
            names = sorted(each.key.rpartition("/")[2] for each in islice(store.list_entries(key), MOST_NAMES))
            raise Invalid(
                f"{path[:200]} of job[{job}] is a folder, not a file",
                code="InvalidArguments",
                hint=f"it has {', '.join(names)}" if names else "it is empty",
            )
        if entry.kind is not Kind.FILE:
            raise Invalid(f"{path[:200]} of job[{job}] is neither a file nor a folder", code="InvalidArguments")
    except BaseException:
        store.close()
        raise
    return store, key


def _absent(job: str, path: str, hint: str) -> NotFound:
    return NotFound(f"job[{job}] has no file {path[:200]}", code="JobFileNotFound", hint=hint)


ROUTES = (
    Route(
        "GET", "/job/{id}/file", job_file, "A file that a job wrote below the folder it started in.",
        query=JobFileQuery, media_type="application/octet-stream", leader="job", leader_only=True,
        errors=("404 JobNotFound", "404 JobFileNotFound", "403 AccessDenied", "InvalidArguments"),
    ),
)  # fmt: skip
