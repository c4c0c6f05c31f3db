"""Registered pipelines and their versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from paddleflow.errors import Fault, Invalid, NotFound
from paddleflow.sdk.area import PAGE, Area, narrowed_by, page_of
from paddleflow.sdk.records import Page, Record, record, table, wire
from paddleflow.sdk.runs import delivered, encoded
from paddleflow.sdk.transport import segment


@record
class Registered(Record):
    """What registering answers."""

    pipeline_id: str = wire(key="pipelineID")
    version_id: str = wire(key="pipelineVersionID")
    name: str = wire()


@record
class PipelineRecord(Record):
    """A registered pipeline."""

    id: str = wire(key="pipelineID")
    name: str = wire()
    desc: str = wire()
    user: str = wire(key="username")
    create_time: str = wire()
    update_time: str = wire()


@record
class PipelineVersion(Record):
    """One version of a pipeline, with its document."""

    id: str = wire(key="pipelineVersionID")
    pipeline_id: str = wire(key="pipelineID")
    fs: str = wire(key="fsName")
    path: str = wire(key="yamlPath")
    yaml: str = wire(key="pipelineYaml")
    user: str = wire(key="username")
    create_time: str = wire()
    update_time: str = wire()


class Pipelines(Area):
    """Registered pipelines of this user; of everybody for root."""

    def create(
        self,
        *,
        yaml: bytes | str | None = None,
        fs: str | None = None,
        path: str | None = None,
        desc: str | None = None,
        user: str | None = None,
        folder: str | Path | None = None,
    ) -> Registered:
        """Registers a document, or the file `path` of storage `fs` (``./run.yaml`` unless named).

        Folders that steps name as their `code` are sent; they are relative to `folder`, by default the current one.
        """
        text = delivered(self._transport, yaml, folder)
        return self._register("/pipeline", text, fs, path, desc, user)

    def update(
        self,
        id: str,
        *,
        yaml: bytes | str | None = None,
        fs: str | None = None,
        path: str | None = None,
        desc: str | None = None,
        user: str | None = None,
        folder: str | Path | None = None,
    ) -> Registered:
        """Adds a version. The document's name must be the pipeline's."""
        text = delivered(self._transport, yaml, folder)
        return self._register(f"/pipeline/{segment(id)}", text, fs, path, desc, user)

    def get(self, id: str) -> PipelineRecord:
        answer = table(self._transport.call("GET", f"/pipeline/{segment(id)}", query={"maxKeys": 1}))
        return PipelineRecord.of(answer.get("pipeline"))

    def page(
        self, *, max_keys: int = PAGE, marker: str | None = None, user: str | None = None, name: str | None = None
    ) -> Page[PipelineRecord]:
        query = narrowed_by({"user": user, "name": name}, marker, max_keys)
        return self._page("/pipeline", "pipelineList", PipelineRecord.of, query)

    def list(self, *, user: str | None = None, name: str | None = None) -> Iterator[PipelineRecord]:
        return self._pages(lambda marker: self.page(marker=marker, user=user, name=name))

    def version_page(
        self, id: str, *, max_keys: int = PAGE, marker: str | None = None, fs: str | None = None
    ) -> tuple[PipelineRecord, Page[PipelineVersion]]:
        """The pipeline, and one page of its versions."""
        query = narrowed_by({"fs": fs}, marker, max_keys)
        answer = table(self._transport.call("GET", f"/pipeline/{segment(id)}", query=query))
        page = page_of(answer.get("pplVersions"), "pplVersionList", PipelineVersion.of)
        return PipelineRecord.of(answer.get("pipeline")), page

    def versions(self, id: str, *, fs: str | None = None) -> Iterator[PipelineVersion]:
        return self._pages(lambda marker: self.version_page(id, marker=marker, fs=fs)[1])

    def version(self, id: str, version: str) -> PipelineVersion:
        return self.with_version(id, version)[1]

    def with_version(self, id: str, version: str) -> tuple[PipelineRecord, PipelineVersion]:
        answer = table(self._transport.call("GET", f"/pipeline/{segment(id)}/{segment(version)}"))
        return PipelineRecord.of(answer.get("pipeline")), PipelineVersion.of(answer.get("pipelineVersion"))

    def delete(self, id: str) -> None:
        self._transport.call("DELETE", f"/pipeline/{segment(id)}", settled=NotFound)

    def delete_version(self, id: str, version: str) -> None:
        self._transport.call("DELETE", f"/pipeline/{segment(id)}/{segment(version)}", settled=NotFound)

    def check(self, yaml: bytes | str) -> Sequence[Fault]:
        """All faults of a document; none if it is good. Nothing is created."""
        try:
            self._transport.call("POST", "/pipeline/check", body={"yamlRaw": encoded(yaml)}, settled=NotFound)
        except Invalid as error:
            return error.details or (Fault("", error.message, error.hint),)
        return ()

    def _register(
        self,
        route: str,
        yaml: bytes | str | None,
        fs: str | None,
        path: str | None,
        desc: str | None,
        user: str | None,
    ) -> Registered:
        body = {"yamlRaw": encoded(yaml), "fsName": fs, "yamlPath": path, "desc": desc, "username": user}
        return Registered.of(
            self._transport.call("POST", route, body={key: value for key, value in body.items() if value})
        )
