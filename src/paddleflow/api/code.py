"""Routes of code snapshots: which chunks are missing, the chunks themselves, the manifest, and the code of a job as a tar file.

A client asks what is missing, sends that in a few large bodies, then the manifest: see `spec.code`. Files are read and written
in threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from pydantic import Field
from starlette.responses import StreamingResponse

from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.quantity import parse_quantity
from paddleflow.errors import Invalid, NotFound
from paddleflow.jobs.code import FOLDER, CodeStore, counted
from paddleflow.objects.local import LocalStore
from paddleflow.spec import wire_jobs as wire
from paddleflow.spec.code import MOST_MANIFEST, Manifest, read_manifest, unpack_chunks
from paddleflow.spec.document import Document
from paddleflow.store.database import Tx


class CodeManifest(Document):
    """A snapshot: `files` are [path, size, executable, [[chunk, offset, length], …]], `links` are [path, target]."""

    files: list[list[Any]]
    links: list[list[str]] = Field(default_factory=list)


def _manifest(kind: type[Document], body: bytes, *, ignore_unknown: bool) -> Manifest:
    """Read by hand: twenty thousand files are too many for a document of a general kind."""
    if len(body) > MOST_MANIFEST:
        raise Invalid(f"the manifest has {len(body):,} bytes, the maximum is {MOST_MANIFEST:,}", code="InvalidCode")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the request body is not JSON: {error}", code="MalformedJSON") from error
    return read_manifest(data)


class CodeChunks(Document):
    """Chunks one after the other: for each PFCHUNK1, its sha256 (32 bytes), its length (8 bytes) and its bytes."""


def _chunks(kind: type[Document], body: bytes, *, ignore_unknown: bool) -> list[tuple[str, bytes]]:
    return list(unpack_chunks(body))


def _store(platform: Platform) -> CodeStore:
    folder = platform.settings.files_folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return CodeStore(LocalStore(folder, name="the code store"))


def _limit(platform: Platform) -> int:
    return parse_quantity(platform.settings.jobs.code_limit)


async def missing_chunks(platform: Platform, call: Call[Manifest, NoQuery]) -> wire.MissingChunks:
    def find() -> list[str]:
        with closing(_store(platform)) as store:
            return store.missing(call.caller.name, call.body.chunks)

    return {"id": call.body.id, "missing": await platform.files.of(call.caller.name).run(find)}


async def put_chunks(platform: Platform, call: Call[list[tuple[str, bytes]], NoQuery]) -> wire.StoredChunks:
    def keep() -> None:
        size = sum(counted(len(content)) for _, content in call.body)
        with closing(_store(platform)) as store:
            store.make_space(call.caller.name, size, _limit(platform), platform.clock.now())
            for name, content in call.body:
                store.put_chunk(call.caller.name, name, content)

    await platform.files.of(call.caller.name).run(keep)
    return {"stored": len(call.body)}


async def create_snapshot(platform: Platform, call: Call[Manifest, NoQuery]) -> wire.CodeSnapshot:
    def keep() -> str:
        user, manifest, now = call.caller.name, call.body, platform.clock.now()
        with closing(_store(platform)) as store:
            if not store.has_snapshot(user, manifest.id):
                size = counted(len(manifest.encode()))
                store.make_space(user, size, _limit(platform), now, kept=manifest.chunks)
            return store.put_manifest(call.caller.name, call.body)

    files = len(call.body.files) + len(call.body.links)
    return {"id": await platform.files.of(call.caller.name).run(keep), "files": files, "size": call.body.size}


async def job_code(platform: Platform, call: Call[NoBody, NoQuery]) -> StreamingResponse:
    job = call.path["id"]

    def find(tx: Tx) -> tuple[str, str]:
        row = owned_job(tx, call.caller, job)
        documents = [member["document"] for member in json.loads(row.members)]
        codes = [document["code"] for document in documents if document.get("code")]
        return row.user_name, next((code["snapshot"] for code in codes if code.get("snapshot")), "")

    user, snapshot = await platform.database.read(find)
    if not snapshot:
        raise NotFound(
            f"job[{job}] has no code snapshot",
            code="CodeNotFound",
            hint="it ran in a folder of this machine, or without code",
        )
    files = platform.files.of(call.caller.name)
    chunks = files.iterate(*await files.run(_tar, platform, user, snapshot))
    return StreamingResponse(chunks, media_type="application/x-tar")


def _tar(platform: Platform, user: str, snapshot: str) -> tuple[Generator[bytes, None, None], Callable[[], None]]:
    """The pieces of a snapshot, and what closes their store."""
    store = _store(platform)
    try:
        return store.tar(user, snapshot), store.close
    except BaseException:
        store.close()
        raise


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/code/missing",
        missing_chunks,
        "Which chunks of a code snapshot must be sent",
        body=CodeManifest,
        reader=_manifest,
        bulk=True,
        answer=wire.MissingChunks,
        errors=("400 InvalidCode", "MalformedJSON"),
    ),
    Route(
        "POST",
        "/code/chunks",
        put_chunks,
        "Send chunks of code: for each the word PFCHUNK1, its sha256 (32 bytes), its length (8 bytes), its bytes",
        body=CodeChunks,
        reader=_chunks,
        binary=True,
        bulk=True,
        answer=wire.StoredChunks,
        errors=("400 InvalidCode", "400 CodeOverQuota"),
    ),
    Route(
        "POST",
        "/code",
        create_snapshot,
        "Keep a code snapshot whose chunks are all there",
        body=CodeManifest,
        reader=_manifest,
        bulk=True,
        answer=wire.CodeSnapshot,
        errors=("400 InvalidCode", "400 CodeOverQuota", "409 CodeIncomplete", "MalformedJSON"),
    ),
    Route(
        "GET",
        "/job/{id}/code",
        job_code,
        "The code that a job ran with, as a tar file",
        media_type="application/x-tar",
        errors=("JobNotFound", "404 CodeNotFound", "AccessDenied"),
    ),
)
