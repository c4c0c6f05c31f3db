"""Jobs, logs and statistics on the wire (see `wire`)."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from paddleflow.spec.wire import Page


class JobId(TypedDict):
    id: str


class JobIds(TypedDict):
    ids: list[str]


class TaskRuntime(TypedDict):
    """One member of a job, where it runs."""

    name: Annotated[str, "role and number, as in worker-0"]
    namespace: str
    id: str
    status: str
    nodeName: str
    role: str
    index: int
    acceleratorCards: Annotated[str, "device numbers given to it"]
    logURL: str
    message: str
    exitCode: int | None
    startTime: str
    finishTime: str


class DistributedRuntime(TypedDict):
    name: str
    namespace: str
    id: str
    status: str
    runtimes: list[TaskRuntime]


class JobGroup(TypedDict):
    """All jobs of a run or of an array, where a list shows the newest of them only."""

    id: str
    jobs: Annotated[dict[str, int], "how many are in each status"]
    acceptTime: Annotated[str, "of the first of them"]
    startTime: Annotated[str, "of the first of them"]
    finishTime: Annotated[str, "of the last of them, once all have ended"]


class Job(TypedDict):
    """A job as it was asked for, and what became of it. Every key of the request is there, empty if it was not given; of
    a distributed job they are those of the whole job, and each member has its own."""

    id: str
    name: str
    UserName: str
    labels: dict[str, str]
    annotations: dict[str, str]
    schedulingPolicy: dict[str, str]
    flavour: dict[str, Any]
    limitFlavour: dict[str, Any]
    fs: dict[str, Any]
    extraFS: list[dict[str, Any]]
    image: str
    env: dict[str, str]
    command: str | list[str]
    args: str | list[str]
    port: int
    code: NotRequired[dict[str, Any]]  #: the snapshot or folder that it ran with
    requirements: NotRequired[str]  #: lines of a requirements file
    secrets: NotRequired[list[dict[str, Any]]]  #: names of the secrets that it was given, and where it finds them
    extensionTemplate: dict[str, Any]
    framework: str
    members: list[dict[str, Any]]
    status: str
    message: str
    attempt: Annotated[int, "how often it was started"]
    acceptTime: str
    startTime: str
    finishTime: str
    updateTime: str
    after: NotRequired[Annotated[list[str], "jobs that had to end first: as the request named them"]]
    array: NotRequired[Annotated[str, "id of the array that it belongs to"]]
    runID: NotRequired[Annotated[str, "the run whose step it is"]]
    group: NotRequired[Annotated[JobGroup, "with fold=true, of the newest job of a run or array"]]
    preemptions: NotRequired[Annotated[int, "how often it made way for another job"]]
    evictedBy: NotRequired[
        Annotated[str, "the job for which it made way last, or node/NAME if it lost its place on that node"]
    ]
    lostSeconds: NotRequired[Annotated[float, "of running, that this and new sizes cost it"]]
    runtime: NotRequired[TaskRuntime]
    distributedRuntime: NotRequired[DistributedRuntime]


class JobList(Page):
    jobList: list[Job]


class Cause(TypedDict):
    """One thing that is in a job's way."""

    code: str
    text: Annotated[str, "with numbers and names, for people"]


class SuggestedMembers(TypedDict):
    role: str
    replicas: int
    each: Annotated[dict[str, Any], "what one member takes: cpu, memory, scalarResources"]


class Suggestion(TypedDict):
    """A change with which the job would start now."""

    code: Annotated[str, "fewer, queue, smaller or victims"]
    text: str
    queue: NotRequired[Annotated[str, "the queue that the job would be in"]]
    members: NotRequired[Annotated[list[SuggestedMembers], "the job as it would be"]]
    victims: NotRequired[Annotated[list[str], "the jobs that would have to end"]]


class JobWhy(TypedDict):
    """Why a job is where it is."""

    id: str
    status: str
    queue: str
    code: Annotated[
        str, "the reason as a word: quota, busy, gang, order, …; running, ended, … for one that does not wait"
    ]
    text: Annotated[str, "the reason with numbers and names"]
    causes: Annotated[list[Cause], "everything that is in its way now; empty for a job that does not wait"]
    suggestions: Annotated[list[Suggestion], "the smallest changes that would start it now"]


class JobEvent(TypedDict):
    """One line of a job's history."""

    seq: int
    at: str
    type: str
    data: dict[str, Any]


class LogInfo(TypedDict):
    logContent: str
    hasNextPage: bool
    truncated: bool


class TaskLog(TypedDict):
    taskID: str
    logInfo: LogInfo


class JobLog(TypedDict):
    jobID: str
    name: str
    type: str
    taskList: list[TaskLog]
    eventList: list[str]


class Metrics(TypedDict):
    """The newest values of a job, each with its unit; empty where nothing was measured."""

    cpu_usage_rate: str
    memory_usage_rate: str
    memory_usage: str
    disk_usage: str
    net_receive_bytes: str
    net_send_bytes: str
    disk_read_rate: str
    disk_write_rate: str
    gpu_util: str
    gpu_memory_util: str
    gpu_memory_usage: str


class JobStatistics(TypedDict):
    metricsInfo: Metrics


class MetricSeries(TypedDict):
    metric: str
    values: Annotated[list[list[float]], "[unix seconds, value] pairs"]


class TaskSeries(TypedDict):
    taskName: str
    taskInfo: list[MetricSeries]


class JobStatisticsDetail(TypedDict):
    result: list[TaskSeries]
    truncated: bool


class CardJob(TypedDict):
    jobId: str
    cardTime: float
    createTime: str
    startTime: str
    finishTime: str
    deviceCount: float


class CardUser(TypedDict):
    userName: str
    jobInfoList: list[CardJob]
    jobCount: int
    totalCardTime: float


class CardQueue(TypedDict):
    queueName: str
    cardTime: float
    deviceType: str
    detail: list[CardUser]


class CardTime(TypedDict):
    data: list[CardQueue]


class MissingChunks(TypedDict):
    """What to send before the snapshot can be kept."""

    id: str  #: of the snapshot, once it is kept
    missing: list[str]


class StoredChunks(TypedDict):
    """How many chunks of an upload were kept."""

    stored: int


class CodeSnapshot(TypedDict):
    """A snapshot that is kept."""

    id: str
    files: int
    size: int
