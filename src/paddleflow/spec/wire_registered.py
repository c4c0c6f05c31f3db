"""The answers about registered pipelines, as `wire` has them for the rest."""

from __future__ import annotations

from typing import Annotated, TypedDict

from paddleflow.spec.wire import Page


class PipelineVersionMade(TypedDict):
    pipelineID: str
    pipelineVersionID: str


class PipelineMade(PipelineVersionMade):
    name: Annotated[str, "that the document gives itself"]


class RegisteredPipeline(TypedDict):
    pipelineID: str
    name: str
    desc: str
    username: Annotated[str, "its owner"]
    createTime: str
    updateTime: str


class RegisteredPipelineList(Page):
    pipelineList: list[RegisteredPipeline]


class PipelineVersion(TypedDict):
    pipelineVersionID: str
    pipelineID: str
    fsName: Annotated[str, "storage that the document was read from; empty: it was sent"]
    yamlPath: str
    pipelineYaml: Annotated[str, "the document"]
    username: Annotated[str, "who brought this version"]
    createTime: str
    updateTime: str


class PipelineVersionList(Page):
    pplVersionList: list[PipelineVersion]


class PipelineWithVersions(TypedDict):
    pipeline: RegisteredPipeline
    pplVersions: PipelineVersionList


class PipelineWithVersion(TypedDict):
    pipeline: RegisteredPipeline
    pipelineVersion: PipelineVersion


class PipelineCheck(TypedDict):
    """A document that may be registered; one that may not is refused with all its faults."""

    name: Annotated[str, "that the document gives itself"]
