"""What the old calls return of runs, pipelines and schedules, with the attribute names that existing scripts read.

Like the new client's records they are read from the server's answer, which those keep as `raw`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.sdk.records import Record, items, record, table, wire, wire_keys


class Component(Record):
    """A part of a run, one time."""

    def get_dict(self) -> dict[str, Any]:
        """Its attributes under the keys of the wire."""
        return {key: getattr(self, name) for name, key in wire_keys(type(self))}


@record
class JobInfo(Component):
    """A step."""

    name: str = wire()
    deps: str = wire()
    parameters: Mapping[str, str] = wire({})
    command: str = wire()
    env: Mapping[str, str] = wire({})
    status: str = wire()
    start_time: str = wire()
    end_time: str = wire()
    docker_env: str = wire()
    job_id: str = wire(key="jobID")
    type: str = wire("step")
    step_name: str = wire()
    parent_dag_id: str = wire(key="parentDagID")
    extra_fs: Sequence[Mapping[str, Any]] = wire([], key="extraFS")
    artifacts: Mapping[str, Any] = wire({})
    cache: Mapping[str, Any] = wire({})
    job_message: str = wire()
    cache_run_id: str = wire(key="cacheRunID")
    cache_job_id: str = wire(key="cacheJobID")


@record
class DagInfo(Component):
    dag_id: str = wire(key="id")
    name: str = wire()
    type: str = wire("dag")
    dag_name: str = wire()
    parent_dag_id: str = wire(key="parentDagID")
    deps: str = wire()
    parameters: Mapping[str, str] = wire({})
    artifacts: Mapping[str, Any] = wire({})
    start_time: str = wire()
    end_time: str = wire()
    status: str = wire()
    message: str = wire()
    entry_points: Mapping[str, Sequence[Component]] = wire({}, read=lambda value: components(value))

    def get_dict(self) -> dict[str, Any]:
        """With ``dagID`` for what the server calls ``id``."""
        found = super().get_dict()
        return {"dagID": found.pop("id"), **found}


def component(answer: object) -> Component:
    return DagInfo.of(answer) if "entryPoints" in table(answer) else JobInfo.of(answer)


def components(answer: object) -> dict[str, list[Component]]:
    """Components by name, each with its repetitions."""
    return {name: [component(one) for one in items(several)] for name, several in table(answer).items()}


def joined(value: object) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


@record
class RunInfo(Record):
    """A run; of a list, without its document and components."""

    run_id: str = wire(key="runID")
    fs_name: str = wire()
    username: str = wire()
    status: str = wire()
    name: str = wire()
    description: str = wire()
    parameters: Mapping[str, Any] | None = wire(None, read=table)
    run_yaml: str | None = wire(None, read=str)
    runtime: Mapping[str, Sequence[Component]] | None = wire(None, read=components)
    post_process: Mapping[str, Component] | None = wire(
        None, read=lambda value: {name: component(one) for name, one in table(value).items()}
    )
    docker_env: str | None = wire(None, read=str)
    update_time: str = wire()
    source: str = wire()
    run_msg: str = wire()
    schedule_id: str = wire(key="scheduleID")
    scheduled_time: str = wire()
    fs_options: Mapping[str, Any] | None = wire(None, read=table)
    failure_options: Mapping[str, Any] | None = wire(None, read=table)
    disabled: str | None = wire(None, read=joined)
    run_cached_ids: str | None = wire(None, key="runCachedIDs", read=joined)
    create_time: str = wire()
    activate_time: str = wire()


@record
class RunCacheInfo(Record):
    cache_id: str = wire(key="cacheID")
    first_fp: str = wire()
    second_fp: str = wire()
    run_id: str = wire(key="runID")
    source: str = wire()
    job_id: str = wire(key="jobID")
    fs_name: str = wire(key="fsname")
    username: str = wire()
    expired_time: str = wire()
    strategy: str = wire()
    custom: str = wire()
    create_time: str = wire()
    update_time: str = wire()


@record
class ArtifactInfo(Record):
    run_id: str = wire(key="runID")
    fs_name: str = wire(key="fsname")
    username: str = wire()
    artifact_path: str = wire()
    type: str = wire()
    step: str = wire()
    artifact_name: str = wire()
    meta: str = wire()
    create_time: str = wire()
    update_time: str = wire()


@record
class PipelineInfo(Record):
    pipeline_id: str = wire(key="pipelineID")
    name: str = wire()
    username: str = wire()
    desc: str = wire()
    create_time: str = wire()
    update_time: str = wire()


@record
class PipelineVersionInfo(Record):
    pipeline_version_id: str = wire(key="pipelineVersionID")
    pipeline_id: str = wire(key="pipelineID")
    fs_name: str = wire()
    yaml_path: str = wire()
    pipeline_yaml: str = wire()
    username: str = wire()
    create_time: str = wire()
    update_time: str = wire()


@record
class ScheduleInfo(Record):
    crontab: str = wire()
    name: str = wire()
    pipeline_id: str = wire(key="pipelineID")
    pipeline_version_id: str = wire(key="pipelineVersionID")
    desc: str = wire()
    username: str = wire()
    schedule_id: str = wire(key="scheduleID")
    fs_config: Mapping[str, Any] = wire({})
    options: Mapping[str, Any] = wire({})
    start_time: str = wire()
    end_time: str = wire()
    create_time: str = wire()
    update_time: str = wire()
    next_run_time: str = wire()
    message: str = wire(key="scheduleMsg")
    status: str = wire()


@dataclass(frozen=True)
class LogInfo:
    runid: str
    jobid: str
    taskid: str
    has_next_page: bool
    truncated: bool
    pagesize: int
    pageno: int
    log_content: str
