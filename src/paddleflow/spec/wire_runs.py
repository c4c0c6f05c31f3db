"""Runs, their components, artifacts and reusable results on the wire (see `wire`)."""

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
    entryPoints: dict[str, list[dict[str, Any]]]
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
    runtime: Annotated[dict[str, list[dict[str, Any]]], "views of each component: JobView, or DagView with entryPoints"]
    postProcess: Annotated[dict[str, dict[str, Any]], "the JobView of the post-process, by its name"]
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
