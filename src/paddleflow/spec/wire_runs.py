"""Pipelines, schedules, runs, their components, artifacts and reusable results on the wire (see `wire`)."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from paddleflow.spec.wire import Page
from paddleflow.spec.wire_jobs import TaskLog


class RunId(TypedDict):
    runID: str


class RunSummary(TypedDict):
    """A run in a list."""

    runID: str
    name: str
    source: str
    username: str
    fsName: str
    description: str
    scheduleID: str
    runMsg: str
    status: str
    scheduledTime: str
    createTime: str
    activateTime: str
    updateTime: str


class RunList(Page):
    runList: list[RunSummary]


class Artifacts(TypedDict):
    """Artifact names and paths on the main storage."""

    input: dict[str, str]
    output: dict[str, str]


class CacheOptions(TypedDict):
    enable: bool
    maxExpiredTime: Annotated[str, "seconds; -1: for ever"]
    fsScope: list[dict[str, str]]


class JobView(TypedDict):
    """A step at run time, or one element of its loop."""

    jobID: str
    name: str
    type: str
    stepName: str
    parentDagID: str
    command: str
    parameters: dict[str, str]
    env: dict[str, str]
    extraFS: list[dict[str, Any]]
    startTime: str
    endTime: str
    status: str
    deps: str
    dockerEnv: str
    artifacts: Artifacts
    cache: CacheOptions
    jobMessage: str
    cacheRunID: str
    cacheJobID: str
    reusedFrom: Annotated[str, "run whose result it was served from; empty: it ran"]
    cacheMiss: Annotated[list[str], "what has changed since its last result, when that could not be used"]
    reason: Annotated[str, "why its job waits; empty: it does not"]
    tries: int
    fullName: Annotated[str, "dotted from the entry points on, with the numbers of loop elements"]
    seconds: Annotated[float, "how long it took, or takes"]


class DagView(TypedDict):
    """A dag at run time, or one element of its loop; `entryPoints` holds a list of views for each component."""

    id: str
    name: str
    type: str
    dagName: str
    parentDagID: str
    deps: str
    parameters: dict[str, str]
    artifacts: Artifacts
    startTime: str
    endTime: str
    status: str
    message: str
    entryPoints: dict[str, list[JobView | DagView]]
    fullName: str
    seconds: float


class Run(TypedDict):
    """A run with all its components."""

    runID: str
    name: str
    source: str
    username: str
    fsName: str
    fsOptions: dict[str, Any]
    description: str
    parameters: dict[str, Any]
    runYaml: str
    runtime: Annotated[
        dict[str, list[JobView | DagView]], "views of each component: JobView, or DagView with entryPoints"
    ]
    postProcess: Annotated[dict[str, JobView], "of the post-process, by its name"]
    failureOptions: dict[str, str]
    dockerEnv: str
    disabled: str
    scheduleID: str
    scheduledTime: str
    runMsg: str
    status: str
    runCachedIDs: Annotated[str, "runs that were served from its results, a comma list"]
    retryOf: Annotated[str, "run that it goes on with; empty: none"]
    breakpoints: list[str]
    paused: Annotated[list[str], "components that wait at a breakpoint"]
    createTime: str
    activateTime: str
    updateTime: str


class RunCache(TypedDict):
    """A result that later runs may use."""

    cacheID: str
    firstFp: str
    secondFp: str
    runID: str
    source: str
    step: str
    jobID: str
    fsname: str
    username: str
    expiredTime: str
    strategy: str
    custom: str
    createTime: str
    updateTime: str


class RunCacheList(Page):
    runCacheList: list[RunCache]


class ArtifactEvent(TypedDict):
    """Something that a step read or made."""

    runID: str
    fsname: str
    username: str
    artifactPath: str
    step: str
    jobID: str
    type: str
    artifactName: str
    meta: str
    hash: Annotated[str, "sha256 of the content; of a folder, of its listing"]
    size: int
    createTime: str
    updateTime: str


class ArtifactEventList(Page):
    artifactEventList: list[ArtifactEvent]


class Lineage(TypedDict):
    """Which step of which run made what lies at a path, and what that was made of."""

    fsname: str
    path: str
    name: str
    runID: Annotated[str, "empty: no run made it"]
    step: str
    jobID: str
    hash: str
    size: int
    createTime: str
    inputs: Annotated[list[dict[str, Any]], "what the step read, each with its own lineage"]


class RunJobLog(TypedDict):
    jobID: str
    name: str
    type: str
    taskList: list[TaskLog]
    eventList: list[str]


class RunLog(TypedDict):
    submitLog: Annotated[str, "why the run is in its status"]
    runLog: list[RunJobLog]
    runID: str


class GraphNode(TypedDict):
    id: str
    name: str
    type: str
    status: str
    parent: str
    seconds: float
    count: Annotated[int, "elements of its loop; 1 without a loop"]


class Graph(TypedDict):
    nodes: list[GraphNode]
    edges: list[list[str]]


class Difference(TypedDict):
    """What two runs differ in."""

    runs: list[str]
    status: list[str]
    parameters: dict[str, list[Any]]
    document: Annotated[list[str], "lines of a unified diff"]
    steps: Annotated[
        dict[str, dict[str, Any]], "by full name: status, command, parameters, fingerprint, seconds that differ"
    ]


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


class ScheduleMade(TypedDict):
    scheduleID: str


class ScheduleOptions(TypedDict):
    catchup: bool
    expireInterval: int
    concurrency: int
    concurrencyPolicy: str


class ScheduleFs(TypedDict):
    username: Annotated[str, "whose storages its runs use"]


class Schedule(TypedDict):
    """Times are those of the schedule's own zone, except createTime and updateTime."""

    scheduleID: str
    name: str
    desc: str
    pipelineID: str
    pipelineVersionID: str
    username: str
    fsConfig: ScheduleFs
    crontab: str
    timezone: Annotated[str, "empty: the server's own"]
    options: ScheduleOptions
    startTime: str
    endTime: str
    createTime: str
    updateTime: str
    nextRunTime: Annotated[str, "the next slot, or one that is due and waits; empty once there is none"]
    scheduleMsg: str
    status: Annotated[str, "running, paused, success, terminated or failed"]


class ScheduleList(Page):
    scheduleList: list[Schedule]


class ScheduleWithRuns(Schedule):
    runs: RunList


class ScheduleTimes(TypedDict):
    """The coming slots. None for a schedule that has ended."""

    scheduleID: str
    timezone: str
    times: Annotated[list[str], "YYYY-MM-DD hh:mm:ss in the schedule's zone"]
    moments: Annotated[list[str], "the same, RFC 3339 in UTC"]
