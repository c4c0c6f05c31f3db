"""The documents and queries of the routes of runs, run caches and artifacts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from paddleflow.spec.document import Document
from paddleflow.spec.query import PageQuery, Query, among


class FailureOptions(Document):
    """What follows from a failed step."""

    strategy: str = ""


class RunDocument(Document):
    """POST /run"""

    code: ClassVar[str] = "InvalidArguments"

    fs_name: str = ""
    username: str = ""
    name: str = ""
    desc: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    docker_env: str = ""
    disabled: str | list[str] = ""
    failure_options: FailureOptions | None = None
    run_yaml_raw: str = Field(default="", description="base64 of the document")
    pipeline_id: str = Field(default="", alias="pipelineID")
    pipeline_version_id: str = Field(default="", alias="pipelineVersionID")
    run_yaml_path: str = Field(
        default="", description="where the document lies on the storage; ./run.yaml if nothing is named"
    )
    schedule_id: str = Field(default="", alias="scheduleID")
    scheduled_at: str = ""
    breakpoints: list[str] = Field(default_factory=list, description="dotted names: the run pauses before these")

    @field_validator("disabled")
    @classmethod
    def _words(cls, value: str | list[str]) -> list[str]:
        words = value.split(",") if isinstance(value, str) else value
        return [word.strip() for word in words if word.strip()]

    @property
    def disabled_names(self) -> list[str]:
        return list(self.disabled)


class RunJson(Document):
    """POST /runjson: a whole pipeline as JSON. `spec.pipeline.document` says what is known and refuses the rest."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True, defer_build=True
    )

    username: str = ""


class RunChange(Document):
    """PUT /run/{id}: what the action needs"""

    stop_force: bool = Field(default=False, description="stop: end the post-process too")
    from_step: str = Field(default="", description="retry: run this component and all after it again")
    run_yaml_raw: str = Field(
        default="", description="retry: base64 of a changed document; what it leaves as it was is not run again"
    )
    add: list[str] = Field(default_factory=list, description="breakpoint: pause before these")
    remove: list[str] = Field(default_factory=list, description="breakpoint: not before these any more")
    step: str = Field(default="", description="resume: only this component; empty: all that wait")


class RunDeletion(Document):
    """DELETE /run/{id}"""

    check_cache: bool = Field(default=True, description="refuse while other runs were served from this one")


class RunActionQuery(Query):
    """PUT /run/{id}"""

    code: ClassVar[str] = "InvalidArguments"

    action: str = Field(pattern="^(stop|retry|breakpoint|resume)$", description="stop, retry, breakpoint or resume")


RUN_STATUSES = (
    "initiating", "pending", "running", "terminating", "succeeded", "failed", "terminated", "skipped", "active", "final"
)  # fmt: skip


class RunListQuery(PageQuery):
    """GET /run"""

    user_filter: str = Field(default="", description="a comma list; only root sees others' runs")
    fs_filter: str = ""
    run_filter: str = ""
    name_filter: str = ""
    status_filter: Annotated[str, among("status", RUN_STATUSES)] = Field(
        default="", description="a comma list of states, or active or final"
    )


class RunCacheListQuery(PageQuery):
    """GET /runCache"""

    user_filter: str = ""
    fs_filter: str = ""
    run_filter: str = ""


class ArtifactListQuery(PageQuery):
    """GET /artifact"""

    user_filter: str = ""
    fs_filter: str = ""
    run_filter: str = ""
    type_filter: str = Field(default="", description="input or output")
    path_filter: str = ""


class ArtifactDeletionQuery(Query):
    """DELETE /artifact"""

    username: str = ""
    fs_name: str = Field(alias="fsname", min_length=1)
    run_id: str = Field(alias="runID", min_length=1)
    path: str = Field(min_length=1)


class ArtifactQuery(Query):
    """GET /artifact/content and /artifact/lineage"""

    username: str = ""
    fs_name: str = Field(alias="fsname", min_length=1)
    path: str = Field(min_length=1)


class RunLogQuery(Query):
    """GET /log/run/{runID}"""

    job_id: str = Field(default="", alias="jobID")
    page_no: int = Field(default=1, ge=1, le=10**6)
    page_size: int = Field(default=100, ge=1, le=100)
    log_file_position: str = Field(default="end", pattern="^(begin|end)$")


class GraphQuery(Query):
    """GET /run/{id}/graph"""

    format: str = Field(default="json", pattern="^(json|svg|mermaid)$")


class DifferenceQuery(Query):
    """GET /run/{id}/diff"""

    other: str = Field(alias="with", min_length=1, description="the run to compare with")
