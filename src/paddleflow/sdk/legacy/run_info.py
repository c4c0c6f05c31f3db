"""What the old calls return of runs, pipelines and schedules, with the attribute names that existing scripts read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddleflow.sdk.artifacts import Artifact, RunCache
from paddleflow.sdk.pipelines import PipelineRecord, PipelineVersion
from paddleflow.sdk.run_views import DagView, StepView, View
from paddleflow.sdk.runs import RunRecord
from paddleflow.sdk.schedules import Schedule


@dataclass(frozen=True)
class JobInfo:
    """A step of a run, one time. `get_dict()` has the keys of the wire."""

    name: str
    deps: str
    parameters: Mapping[str, str]
    command: str
    env: Mapping[str, str]
    status: str
    start_time: str
    end_time: str
    docker_env: str
    job_id: str
    type: str
    step_name: str
    parent_dag_id: str
    extra_fs: Sequence[Mapping[str, Any]]
    artifacts: Mapping[str, Any]
    cache: Mapping[str, Any]
    job_message: str
    cache_run_id: str
    cache_job_id: str

    @classmethod
    def of(cls, step: StepView) -> JobInfo:
        return cls(
            step.name,
            step.deps,
            step.parameters,
            step.command,
            step.env,
            step.status,
            step.start_time,
            step.end_time,
            step.docker_env,
            step.job_id,
            step.type,
            step.step_name,
            step.parent_dag_id,
            list(step.extra_fs),
            {"input": step.inputs, "output": step.outputs},
            step.cache,
            step.message,
            step.cache_run_id,
            step.cache_job_id,
        )

    def get_dict(self) -> dict[str, Any]:
        return {
            "artifacts": self.artifacts,
            "cache": self.cache,
            "jobMessage": self.job_message,
            "cacheRunID": self.cache_run_id,
            "cacheJobID": self.cache_job_id,
            "extraFS": self.extra_fs,
            "jobID": self.job_id,
            "name": self.name,
            "deps": self.deps,
            "parameters": self.parameters,
            "command": self.command,
            "env": self.env,
            "status": self.status,
            "startTime": self.start_time,
            "endTime": self.end_time,
            "dockerEnv": self.docker_env,
            "type": self.type,
            "stepName": self.step_name,
            "parentDagID": self.parent_dag_id,
        }


@dataclass(frozen=True)
class DagInfo:
    """A DAG of a run, one time. `get_dict()` has the keys of the wire."""

    dag_id: str
    name: str
    type: str
    dag_name: str
    parent_dag_id: str
    deps: str
    parameters: Mapping[str, str]
    artifacts: Mapping[str, Any]
    start_time: str
    end_time: str
    status: str
    message: str
    entry_points: Mapping[str, Sequence[JobInfo | DagInfo]]

    @classmethod
    def of(cls, dag: DagView) -> DagInfo:
        return cls(
            dag.id,
            dag.name,
            dag.type,
            dag.dag_name,
            dag.parent_dag_id,
            dag.deps,
            dag.parameters,
            dag.artifacts,
            dag.start_time,
            dag.end_time,
            dag.status,
            dag.message,
            components(dag.entry_points),
        )

    def get_dict(self) -> dict[str, Any]:
        return {
            "dagID": self.dag_id,
            "name": self.name,
            "type": self.type,
            "dagName": self.dag_name,
            "parentDagID": self.parent_dag_id,
            "deps": self.deps,
            "parameters": self.parameters,
            "artifacts": self.artifacts,
            "startTime": self.start_time,
            "endTime": self.end_time,
            "status": self.status,
            "message": self.message,
            "entryPoints": self.entry_points,
        }


def components(views: Mapping[str, Sequence[View]]) -> dict[str, list[JobInfo | DagInfo]]:
    return {
        name: [DagInfo.of(one) if isinstance(one, DagView) else JobInfo.of(one) for one in several]
        for name, several in views.items()
    }


@dataclass(frozen=True)
class RunInfo:
    """A run; of a list, without its document and components."""

    run_id: str
    fs_name: str
    username: str
    status: str
    name: str
    description: str
    parameters: Mapping[str, Any] | None
    run_yaml: str | None
    runtime: Mapping[str, Sequence[JobInfo | DagInfo]] | None
    post_process: Mapping[str, JobInfo] | None
    docker_env: str | None
    update_time: str
    source: str
    run_msg: str
    schedule_id: str
    scheduled_time: str
    fs_options: Mapping[str, Any] | None
    failure_options: Mapping[str, Any] | None
    disabled: str | None
    run_cached_ids: str | None
    create_time: str
    activate_time: str

    @classmethod
    def of(cls, run: RunRecord, *, whole: bool = False) -> RunInfo:
        return cls(
            run_id=run.id,
            fs_name=run.fs,
            username=run.user,
            status=run.status,
            name=run.name,
            description=run.description,
            parameters=run.parameters if whole else None,
            run_yaml=run.yaml if whole else None,
            runtime=components(run.runtime) if whole else None,
            post_process={name: JobInfo.of(step) for name, step in run.post_process.items()} if whole else None,
            docker_env=run.docker_env if whole else None,
            update_time=run.update_time,
            source=run.source,
            run_msg=run.message,
            schedule_id=run.schedule_id,
            scheduled_time=run.scheduled_time,
            fs_options=run.fs_options if whole else None,
            failure_options=run.failure_options if whole else None,
            disabled=",".join(run.disabled) if whole else None,
            run_cached_ids=",".join(run.cached_ids) if whole else None,
            create_time=run.create_time,
            activate_time=run.activate_time,
        )


@dataclass(frozen=True)
class RunCacheInfo:
    cache_id: str
    first_fp: str
    second_fp: str
    run_id: str
    source: str
    job_id: str
    fs_name: str
    username: str
    expired_time: str
    strategy: str
    custom: str
    create_time: str
    update_time: str

    @classmethod
    def of(cls, cache: RunCache) -> RunCacheInfo:
        return cls(
            cache.id,
            cache.first_fingerprint,
            cache.second_fingerprint,
            cache.run_id,
            cache.source,
            cache.job_id,
            cache.fs,
            cache.user,
            cache.expired_time,
            cache.strategy,
            cache.custom,
            cache.create_time,
            cache.update_time,
        )


@dataclass(frozen=True)
class ArtifactInfo:
    run_id: str
    fs_name: str
    username: str
    artifact_path: str
    type: str
    step: str
    artifact_name: str
    meta: str
    create_time: str
    update_time: str

    @classmethod
    def of(cls, artifact: Artifact) -> ArtifactInfo:
        return cls(
            artifact.run_id,
            artifact.fs,
            artifact.user,
            artifact.path,
            artifact.type,
            artifact.step,
            artifact.name,
            artifact.meta,
            artifact.create_time,
            artifact.update_time,
        )


@dataclass(frozen=True)
class PipelineInfo:
    pipeline_id: str
    name: str
    username: str
    desc: str
    create_time: str
    update_time: str

    @classmethod
    def of(cls, found: PipelineRecord) -> PipelineInfo:
        return cls(found.id, found.name, found.user, found.desc, found.create_time, found.update_time)


@dataclass(frozen=True)
class PipelineVersionInfo:
    pipeline_version_id: str
    pipeline_id: str
    fs_name: str
    yaml_path: str
    pipeline_yaml: str
    username: str
    create_time: str
    update_time: str

    @classmethod
    def of(cls, found: PipelineVersion) -> PipelineVersionInfo:
        return cls(
            found.id,
            found.pipeline_id,
            found.fs,
            found.path,
            found.yaml,
            found.user,
            found.create_time,
            found.update_time,
        )


@dataclass(frozen=True)
class ScheduleInfo:
    crontab: str
    name: str
    pipeline_id: str
    pipeline_version_id: str
    desc: str
    username: str
    schedule_id: str
    fs_config: Mapping[str, Any]
    options: Mapping[str, Any]
    start_time: str
    end_time: str
    create_time: str
    update_time: str
    next_run_time: str
    message: str
    status: str

    @classmethod
    def of(cls, found: Schedule) -> ScheduleInfo:
        return cls(
            found.crontab,
            found.name,
            found.pipeline_id,
            found.version_id,
            found.desc,
            found.user,
            found.id,
            found.fs_config,
            found.options,
            found.start_time,
            found.end_time,
            found.create_time,
            found.update_time,
            found.next_run_time,
            found.message,
            found.status,
        )


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
