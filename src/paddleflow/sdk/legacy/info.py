"""The objects that `paddleflow.Client` returns, with the attribute names that existing scripts read.

Like the new client's records they are read from the server's answer, which those keep as `raw`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from paddleflow.base.values import dataclass
from paddleflow.sdk.records import Record, record, table, wire
from paddleflow.sdk.statistics import JobDetail


def _as_it_is(value: object) -> Any:
    return value


@record
class UserInfo(Record):
    name: str = wire()
    create_time: str = wire()


@record
class GrantInfo(Record):
    username: str = wire(key="userName")
    resourceName: str = wire(key="resourceID")  # noqa: N815  the name that scripts read


@record
class QueueInfo(Record):
    name: str = wire()
    status: str = wire()
    namespace: str = wire()
    clusterName: str = wire()  # noqa: N815
    quotaType: str = wire()  # noqa: N815
    maxResources: Mapping[str, Any] = wire({})  # noqa: N815
    minResources: Mapping[str, Any] = wire({})  # noqa: N815
    usedResources: Mapping[str, Any] = wire({})  # noqa: N815
    idleResources: Mapping[str, Any] = wire({})  # noqa: N815
    location: Mapping[str, str] = wire({})
    schedulingPolicy: Sequence[str] = wire([])  # noqa: N815
    createTime: str = wire()  # noqa: N815
    updateTime: str = wire()  # noqa: N815


@record
class FlavourInfo(Record):
    """`scalar_resources` is JSON as text, or empty."""

    name: str = wire()
    cpu: str = wire()
    mem: str = wire()
    scalar_resources: str = wire(read=lambda value: json.dumps(value) if value else "")
    cluster_name: str = wire()
    createtime: str = wire(key="createTime")
    updatetime: str = wire(key="updateTime")


@record
class ClusterInfo(Record):
    """`credential` is decoded; a list has none."""

    clusterid: str = wire(key="id")
    clustername: str = wire(key="clusterName")
    description: str = wire()
    endpoint: str = wire()
    source: str = wire()
    clustertype: str = wire(key="clusterType")
    version: str = wire()
    status: str = wire()
    credential: str = ""
    setting: str = wire()
    namespacelist: Sequence[str] = wire([], key="namespaceList")
    createtime: str = wire(key="createTime")
    updatetime: str = wire(key="updateTime")


@record
class FSInfo(Record):
    name: str = wire()
    owner: str = wire(key="username")
    fstype: str = wire(key="type")
    server_adddress: str = wire(key="serverAddress")  #: three d, as scripts have it
    subpath: str = wire(key="subPath")
    properties: Mapping[str, str] = wire({})


@record
class LinkInfo(Record):
    name: str = wire(key="fsName")
    owner: str = wire(key="username")
    fstype: str = wire(key="type")
    fspath: str = wire(key="fsPath")
    server_adddress: str = wire(key="serverAddress")  #: three d, as scripts have it
    subpath: str = wire(key="subPath")
    properties: Mapping[str, str] = wire({})


@record
class FSCacheInfo(Record):
    cachedir: str = wire(key="cacheDir")
    quota: int = wire(0)
    metadriver: str = wire(key="metaDriver")
    blocksize: int = wire(0, key="blockSize")
    fsname: str = wire(key="fsName")
    username: str = wire()
    resource: Mapping[str, Any] = wire({})
    nodeTaintToleration: Mapping[str, Any] = wire({})  # noqa: N815
    extraConfig: Mapping[str, Any] = wire({})  # noqa: N815
    createtime: str = wire(key="createTime")
    updatetime: str = wire(key="updateTime")


@record
class JobInfo(Record):
    """Flavour, members and runtimes are as the server answers them."""

    job_id: str = wire(key="id")
    job_name: str = wire(key="name")
    labels: Mapping[str, str] = wire({})
    annotations: Mapping[str, str] = wire({})
    username: str = wire(key="UserName")
    queue: str = ""
    priority: str = ""
    flavour: Mapping[str, Any] = wire({})
    fs: Mapping[str, Any] = wire({})
    extra_fs_list: Sequence[Mapping[str, Any]] = wire([], key="extraFS")
    image: str = wire()
    env: Mapping[str, str] = wire({})
    command: str | Sequence[str] = wire("", read=_as_it_is)
    args_list: str | Sequence[str] = wire([], key="args", read=_as_it_is)
    port: int = wire(0)
    extension_template: object = wire(None, read=_as_it_is)
    framework: str = wire()
    member_list: object = wire(None, key="members", read=_as_it_is)
    status: str = wire()
    message: str = wire()
    accept_time: str = wire()
    start_time: str = wire()
    finish_time: str = wire()
    runtime: object = wire(None, read=_as_it_is)
    distributed_runtime: object = wire(None, read=_as_it_is)
    workflow_runtime: object = wire(None, read=_as_it_is)

    @classmethod
    def of(cls, answer: object) -> Self:
        policy = table(table(answer).get("schedulingPolicy"))
        return replace(
            super().of(answer), queue=str(policy.get("queue") or ""), priority=str(policy.get("priority") or "")
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
