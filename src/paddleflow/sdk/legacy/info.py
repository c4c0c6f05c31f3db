"""The objects that `paddleflow.Client` returns, with the attribute names that existing scripts read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddleflow.sdk.access import Grant, User
from paddleflow.sdk.clusters import Cluster
from paddleflow.sdk.jobs import JobRecord
from paddleflow.sdk.queues import Flavour, Queue
from paddleflow.sdk.statistics import JobDetail
from paddleflow.sdk.storages import Storage


@dataclass(frozen=True)
class UserInfo:
    name: str
    create_time: str

    @classmethod
    def of(cls, user: User) -> UserInfo:
        return cls(user.name, user.create_time)


@dataclass(frozen=True)
class GrantInfo:
    username: str
    resourceName: str  # noqa: N815  the name that scripts read

    @classmethod
    def of(cls, grant: Grant) -> GrantInfo:
        return cls(grant.user, grant.resource)


@dataclass(frozen=True)
class QueueInfo:
    name: str
    status: str
    namespace: str
    clusterName: str  # noqa: N815
    quotaType: str  # noqa: N815
    maxResources: Mapping[str, Any]  # noqa: N815
    minResources: Mapping[str, Any]  # noqa: N815
    usedResources: Mapping[str, Any]  # noqa: N815
    idleResources: Mapping[str, Any]  # noqa: N815
    location: Mapping[str, str]
    schedulingPolicy: Sequence[str]  # noqa: N815
    createTime: str  # noqa: N815
    updateTime: str  # noqa: N815

    @classmethod
    def of(cls, queue: Queue) -> QueueInfo:
        return cls(
            queue.name,
            queue.status,
            queue.namespace,
            queue.cluster,
            queue.quota_type,
            queue.maximum,
            queue.minimum,
            queue.used,
            queue.idle,
            queue.location,
            list(queue.scheduling_policy),
            queue.create_time,
            queue.update_time,
        )


@dataclass(frozen=True)
class FlavourInfo:
    """`scalar_resources` is JSON as text, or empty."""

    name: str
    cpu: str
    mem: str
    scalar_resources: str
    cluster_name: str
    createtime: str
    updatetime: str

    @classmethod
    def of(cls, flavour: Flavour) -> FlavourInfo:
        scalars = json.dumps(flavour.scalars) if flavour.scalars else ""
        return cls(
            flavour.name,
            flavour.cpu,
            flavour.mem,
            scalars,
            flavour.cluster,
            flavour.create_time,
            flavour.update_time,
        )


@dataclass(frozen=True)
class ClusterInfo:
    """`credential` is decoded."""

    clusterid: str
    clustername: str
    description: str
    endpoint: str
    source: str
    clustertype: str
    version: str
    status: str
    credential: str
    setting: str
    namespacelist: Sequence[str]
    createtime: str
    updatetime: str

    @classmethod
    def of(cls, cluster: Cluster, credential: str = "") -> ClusterInfo:
        return cls(
            cluster.id,
            cluster.name,
            cluster.description,
            cluster.endpoint,
            cluster.source,
            cluster.type,
            cluster.version,
            cluster.status,
            credential,
            cluster.setting,
            list(cluster.namespaces),
            cluster.create_time,
            cluster.update_time,
        )


@dataclass(frozen=True)
class FSInfo:
    name: str
    owner: str
    fstype: str
    server_adddress: str  #: three d, as scripts have it
    subpath: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, storage: Storage) -> FSInfo:
        return cls(
            storage.name,
            storage.user,
            storage.type,
            storage.server_address,
            storage.sub_path,
            storage.properties,
        )


@dataclass(frozen=True)
class JobInfo:
    """Flavour, members and runtimes are as the server answers them."""

    job_id: str
    job_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    username: str
    queue: str
    priority: str
    flavour: Mapping[str, Any]
    fs: Mapping[str, Any]
    extra_fs_list: Sequence[Mapping[str, Any]]
    image: str
    env: Mapping[str, str]
    command: str | Sequence[str]
    args_list: str | Sequence[str]
    port: int
    extension_template: Any
    framework: str
    member_list: Any
    status: str
    message: str
    accept_time: str
    start_time: str
    finish_time: str
    runtime: Any
    distributed_runtime: Any
    workflow_runtime: Any

    @classmethod
    def of(cls, job: JobRecord) -> JobInfo:
        return cls(
            job_id=job.id,
            job_name=job.name,
            labels=job.labels,
            annotations=job.annotations,
            username=job.user,
            queue=job.queue,
            priority=job.priority,
            flavour=job.flavour,
            fs=job.fs,
            extra_fs_list=list(job.extra_fs),
            image=job.image,
            env=job.env,
            command=job.command,
            args_list=job.args if isinstance(job.args, str) else list(job.args),
            port=job.port,
            extension_template=job.raw.get("extensionTemplate"),
            framework=job.framework,
            member_list=job.raw.get("members"),
            status=job.status,
            message=job.message,
            accept_time=job.accept_time,
            start_time=job.start_time,
            finish_time=job.finish_time,
            runtime=job.raw.get("runtime"),
            distributed_runtime=job.raw.get("distributedRuntime"),
            workflow_runtime=job.raw.get("workflowRuntime"),
        )


@dataclass(frozen=True)
class LogInfoByLimit:
    job_id: str
    task_id: str
    name: str
    has_next_page: bool
    truncated: bool
    line_limit: int
    size_limit: str
    log_content: str


@dataclass(frozen=True)
class StatisticsJobInfo:
    metrics_info: Mapping[str, str]


@dataclass(frozen=True)
class TaskInfo:
    metric: str
    values: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Result:
    task_name: str
    task_info: Sequence[TaskInfo]


@dataclass(frozen=True)
class StatisticsJobDetailInfo:
    result: Sequence[Result]
    truncated: bool

    @classmethod
    def of(cls, detail: JobDetail) -> StatisticsJobDetailInfo:
        results = [
            Result(task.task, [TaskInfo(series.metric, list(series.values)) for series in task.series])
            for task in detail.tasks
        ]
        return cls(results, detail.truncated)


@dataclass(frozen=True)
class CardTimeInfo:
    """One object per queue, as the server answers it."""

    data: Sequence[Mapping[str, Any]]
