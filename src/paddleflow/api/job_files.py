"""Route of the files that a job left: one file below its working directory, as bytes.

Served is what lies in the job's own folder on this server's machine: its work folder, or the unpacked snapshot of its code. A
folder of the caller (`code.path`) or a storage is not: those have ways of their own. The store is opened at the job's folder,
which the server made, and resolves every name beneath it, so that no link, nor a work folder that was swapped for one, leads out.
Read in `Platform.files`, piece by piece.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from pydantic import Field
from starlette.responses import StreamingResponse

from paddleflow.access.callers import Caller
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
_HINT = "only files that the job wrote to its work folder or to the snapshot of its code can be had"


class JobFileQuery(Query):
    """GET /job/{id}/file"""

    path: str = Field(min_length=1, max_length=4096, description="file, relative to the folder that the job started in")


def _start(tx: Tx, caller: Caller, job: str) -> tuple[str, str, str]:
    """The folder that the job's files are in, what to say when a file is not there, and the job's cluster."""
    row = owned_job(tx, caller, job)
    documents = [member["document"] for member in json.loads(row.members)]
    codes = [document["code"] for document in documents if document.get("code")]
    if snapshot := next((code for code in codes if code.get("snapshot")), None):
        return f"{CODE}/{key_of(snapshot.get('workdir') or '')}".rstrip("/"), _HINT, row.cluster
    if path := next((code["path"] for code in codes if code.get("path")), ""):
        return WORK, f"the job ran in the folder {path[:200]} of its machine: its files are there", row.cluster
    if name := next((document["fs"]["name"] for document in documents if (document.get("fs") or {}).get("name")), ""):
        return WORK, f"the job started in its storage: its files are on fs[{name[:80]}]", row.cluster
    return WORK, _HINT, row.cluster


async def job_file(platform: Platform, call: Call[NoBody, JobFileQuery]) -> StreamingResponse:
    job, path = call.path["id"], call.query.path
    start, hint, cluster = await platform.database.read(_start, call.caller, job)
    folder = platform.jobs_run_here.folder_on_disk(cluster, job)
    if folder is None:
        raise _absent(job, path, "the files of this job are not on the server's machine")
    store, key = await platform.files.of(call.caller.name).run(_open, job, folder, start, path, hint)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(key.rpartition('/')[2], errors='replace')}",
        "cache-control": "no-store",
    }
    content = platform.files.of(call.caller.name).iterate(files.content(store, key), store.close)
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)


def _open(job: str, folder: Path, start: str, path: str, hint: str) -> tuple[LocalStore, str]:
    """In a thread: the store and the key of a regular file."""
    key = f"{start}/{key_of(path)}".rstrip("/")
    try:
        store = LocalStore(folder, name=f"the files of job[{job}]")
    except NotFound as error:
        raise _absent(job, path, "the job has not started, or its files were removed") from error
    try:
        try:
            entry = store.stat(key)
        except NotFound as error:
            raise _absent(job, path, hint) from error
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
