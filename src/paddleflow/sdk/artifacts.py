"""Artifacts: what steps took in and left behind, with the bytes themselves and where they came from. And cached results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypedDict, Unpack

from paddleflow.errors import NotFound
from paddleflow.sdk.area import PAGE, Area, known, narrowed_by
from paddleflow.sdk.records import Page, Record, items, record, wire
from paddleflow.sdk.transport import Transport, segment


@record
class Artifact(Record):
    """That a step took in (type input) or left behind (output) something, and where it lies."""

    run_id: str = wire(key="runID")
    fs: str = wire(key="fsname")
    user: str = wire(key="username")
    path: str = wire(key="artifactPath")
    step: str = wire()
    job_id: str = wire(key="jobID")
    type: str = wire()
    name: str = wire(key="artifactName")
    meta: str = wire()
    hash: str = wire()
    size: int = wire(0)  #: bytes
    create_time: str = wire()
    update_time: str = wire()
    transport: Transport | None = field(default=None, repr=False, compare=False)

    def read(self) -> bytes:
        """All of it; a folder comes as a tar file."""
        assert self.transport is not None  # `Artifacts` gives it
        return b"".join(_content(self.transport, self.fs, self.path))

    def download(self, to: str | Path) -> Path:
        """Writes it to a file, a folder as a tar file."""
        assert self.transport is not None  # `Artifacts` gives it
        target = Path(to)
        with target.open("wb") as out:
            for chunk in _content(self.transport, self.fs, self.path):
                out.write(chunk)
        return target


@record
class Lineage(Record):
    """Which run and step made an artifact, of which inputs, each with its own lineage."""

    fs: str = wire(key="fsname")
    path: str = wire()
    name: str = wire()
    run_id: str = wire(key="runID")
    step: str = wire()
    job_id: str = wire(key="jobID")
    hash: str = wire()
    size: int = wire(0)
    create_time: str = wire()
    inputs: Sequence[Lineage] = wire((), read=lambda value: tuple(Lineage.of(item) for item in items(value)))


def _content(transport: Transport, fs: str, path: str) -> Iterator[bytes]:
    with transport.stream("/artifact/content", query={"fsname": fs, "path": path}) as stream:
        yield from stream.chunks(lambda: transport.timeout)


class CacheFilters(TypedDict, total=False):
    """What a list of cached results is narrowed by: each may be a list with commas."""

    user: str | None
    fs: str | None
    run: str | None


class ArtifactFilters(CacheFilters, total=False):
    """What a list of artifacts is narrowed by."""

    type: str | None  #: input or output
    path: str | None


class Artifacts(Area):
    """Artifacts of this user's runs; of everybody's for root."""

    def page(
        self, *, max_keys: int = PAGE, marker: str | None = None, **filters: Unpack[ArtifactFilters]
    ) -> Page[Artifact]:
        query = narrowed_by(known(ArtifactFilters, filters), marker, max_keys)
        return self._page("/artifact", "artifactEventList", self._listed, query)

    def list(self, **filters: Unpack[ArtifactFilters]) -> Iterator[Artifact]:
        return self._pages(lambda marker: self.page(marker=marker, **filters))

    def handle(self, fs: str, path: str) -> Artifact:
        """One that is known by its place, to `read` or `download`."""
        return Artifact(fs=fs, path=path, transport=self._transport)

    def lineage(self, fs: str, path: str) -> Lineage:
        return Lineage.of(self._transport.call("GET", "/artifact/lineage", query={"fsname": fs, "path": path}))

    def delete(self, fs: str, run: str, path: str, *, user: str | None = None) -> None:
        query = {"username": user, "fsname": fs, "runID": run, "path": path}
        self._transport.call("DELETE", "/artifact", query=query, settled=NotFound)

    def _listed(self, row: object) -> Artifact:
        return replace(Artifact.of(row), transport=self._transport)


@record
class RunCache(Record):
    """A result that may be used again: of which job of which run, and until when."""

    id: str = wire(key="cacheID")
    first_fingerprint: str = wire(key="firstFp")
    second_fingerprint: str = wire(key="secondFp")
    run_id: str = wire(key="runID")
    source: str = wire()
    job_id: str = wire(key="jobID")
    fs: str = wire(key="fsname")
    user: str = wire(key="username")
    expired_time: str = wire()
    strategy: str = wire()
    custom: str = wire()
    create_time: str = wire()
    update_time: str = wire()


class Caches(Area):
    """Cached results of this user's runs; of everybody's for root."""

    def get(self, id: str) -> RunCache:
        return RunCache.of(self._transport.call("GET", f"/runCache/{segment(id)}"))

    def delete(self, id: str) -> None:
        self._transport.call("DELETE", f"/runCache/{segment(id)}", settled=NotFound)

    def page(
        self, *, max_keys: int = PAGE, marker: str | None = None, **filters: Unpack[CacheFilters]
    ) -> Page[RunCache]:
        query = narrowed_by(known(CacheFilters, filters), marker, max_keys)
        return self._page("/runCache", "runCacheList", RunCache.of, query)

    def list(self, **filters: Unpack[CacheFilters]) -> Iterator[RunCache]:
        return self._pages(lambda marker: self.page(marker=marker, **filters))
