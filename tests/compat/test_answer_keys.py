"""Every answer of the reference has all its keys, with their JSON types, route by route.

Clients of the original index the keys without asking. `tests/api` holds what is really sent against the types that the routes
declare (`answer_contract`), so here the declared types are held against the reference. A key in square brackets may be missing,
as in the reference; ``|`` separates types that one key may have.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

import paddleflow.api
from paddleflow.api.routing import Route
from paddleflow.spec.wire_runs import DagView, JobView, Run

WORDS: dict[Any, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    dict: "object",
    list: "list",
    NoneType: "null",
}
PAGE = "maxKeys:number isTruncated:bool [nextMarker]:text "
FILES_PAGE = "marker:text truncated:bool nextMarker:text "
QUEUE = (
    "id:text name:text namespace:text clusterName:text quotaType:text minResources:object maxResources:object location:object"
    " schedulingPolicy:list status:text createTime:text updateTime:text"
)
CLUSTER = (
    "id:text clusterName:text description:text endpoint:text source:text clusterType:text version:text status:text credential:text"
    " setting:text namespaceList:list createTime:text updateTime:text"
)
FLAVOUR = "id:text name:text cpu:text mem:text scalarResources:object createTime:text updateTime:text"
PIPELINE = "pipelineID:text name:text desc:text username:text createTime:text updateTime:text"
VERSION = "pipelineVersionID:text pipelineID:text fsName:text yamlPath:text pipelineYaml:text username:text createTime:text updateTime:text"
RUN = (
    "runID:text name:text source:text username:text fsName:text description:text scheduleID:text runMsg:text status:text"
    " scheduledTime:text createTime:text activateTime:text updateTime:text"
)
SCHEDULE = (
    "scheduleID:text name:text desc:text pipelineID:text pipelineVersionID:text username:text fsConfig:object crontab:text"
    " options:object startTime:text endTime:text createTime:text updateTime:text nextRunTime:text scheduleMsg:text status:text"
)
VIEW = (
    "name:text type:text parentDagID:text deps:text parameters:object artifacts:object startTime:text endTime:text status:text"
    " artifacts.input:object artifacts.output:object"
)
STEP_VIEW = (
    VIEW
    + " jobID:text stepName:text command:text env:object extraFS:list dockerEnv:text cache:object jobMessage:text cacheRunID:text"
    " cacheJobID:text cache.enable:bool cache.maxExpiredTime:text cache.fsScope:list"
)
DAG_VIEW = VIEW + " id:text dagName:text message:text entryPoints:object"
METRICS = (
    "cpu_usage_rate:text memory_usage_rate:text memory_usage:text disk_usage:text net_receive_bytes:text net_send_bytes:text"
    " disk_read_rate:text disk_write_rate:text gpu_util:text gpu_memory_util:text gpu_memory_usage:text"
)
CACHE = (
    "cacheID:text firstFp:text secondFp:text runID:text source:text jobID:text fsname:text username:text expiredTime:text"
    " strategy:text custom:text createTime:text updateTime:text"
)
ARTIFACT = (
    "runID:text fsname:text username:text artifactPath:text step:text jobID:text type:text artifactName:text meta:text"
    " createTime:text updateTime:text"
)
JOB = (
    "id:text name:text UserName:text labels:object annotations:object schedulingPolicy:object flavour:object limitFlavour:object"
    " fs:object extraFS:list image:text env:object command:text|list args:text|list port:number extensionTemplate:object"
    " framework:text members:list status:text message:text acceptTime:text startTime:text finishTime:text [runtime]:object"
    " [distributedRuntime]:object"
)
STORAGE = "id:text name:text serverAddress:text type:text subPath:text username:text properties:object independentMountProcess:bool"
LINK = "fsName:text fsPath:text serverAddress:text type:text username:text subPath:text properties:object"
LOG = "taskID:text logInfo.logContent:text logInfo.hasNextPage:bool logInfo.truncated:bool"


def below(path: str, keys: str) -> str:
    """The same keys inside of an object, or of every item of a list."""
    return " ".join(f"{path}.{key}" for key in keys.split())


#: "METHOD path": keys of the answer; empty: an answer without a body.
REFERENCE = {
    "POST /login": "authorization:text",
    "POST /user": "username:text",
    "GET /user": PAGE + "userList:list " + below("userList", "name:text createTime:text"),
    "PUT /user/{}": "",
    "DELETE /user/{}": "",
    "POST /grant": "grantID:text",
    "DELETE /grant": "",
    "GET /grant": PAGE
    + "grantList:list "
    + below(
        "grantList", "grantID:text userName:text resourceType:text resourceID:text createTime:text updateTime:text"
    ),
    "GET /version": "gitVersion:text gitCommit:text gitBranch:text buildDate:text goVersion:text compiler:text platform:text",
    "POST /cluster": CLUSTER,
    "GET /cluster": PAGE + "clusterList:list " + below("clusterList", CLUSTER),
    "GET /cluster/{}": CLUSTER,
    "PUT /cluster/{}": CLUSTER,
    "DELETE /cluster/{}": "",
    "GET /cluster/resource": "*.summary.total:object *.summary.idle:object *.errMsg:text "
    + below("*.nodeList", "nodeName:text schedulable:bool total:object idle:object"),
    "POST /cluster/resource": "*.allocatable:object *.capacity:object *.labels:object *.clusterName:text *.clusterSource:text"
    " *.queueName:text",
    "GET /cluster/{}/nodeInfos": "totalCount:number "
    + below(
        "nodeList", "nodeName:text nodeIP:text podsCount:number labels:object used:object capacity:object pods:list "
    )
    + " "
    + below("nodeList.pods", "podName:text status:text labels:object resources:object"),
    "POST /queue": "name:text",
    "GET /queue": PAGE + "queueList:list " + below("queueList", QUEUE),
    "GET /queue/{}": QUEUE + " usedResources:object idleResources:object",
    "PUT /queue/{}": QUEUE,
    "DELETE /queue/{}": "",
    "GET /flavour": PAGE + "flavourList:list " + below("flavourList", FLAVOUR),
    "POST /flavour": "name:text",
    "GET /flavour/{}": FLAVOUR,
    "PUT /flavour/{}": "name:text",
    "DELETE /flavour/{}": "",
    "POST /resourcepool": "name:text",
    "GET /resourcepool": PAGE + "resourcePoolList:list",
    "DELETE /resourcepool/{}": "",
    "POST /pipeline": "pipelineID:text pipelineVersionID:text name:text",
    "GET /pipeline": PAGE + "pipelineList:list " + below("pipelineList", PIPELINE),
    "POST /pipeline/{}": "pipelineID:text pipelineVersionID:text",
    "GET /pipeline/{}": below("pipeline", PIPELINE)
    + " "
    + below("pplVersions", PAGE + "pplVersionList:list")
    + " "
    + below("pplVersions.pplVersionList", VERSION),
    "DELETE /pipeline/{}": "",
    "GET /pipeline/{}/{}": below("pipeline", PIPELINE) + " " + below("pipelineVersion", VERSION),
    "DELETE /pipeline/{}/{}": "",
    "POST /run": "runID:text",
    "POST /runjson": "runID:text",
    "GET /run": PAGE + "runList:list " + below("runList", RUN),
    "GET /run/{}": "runID:text name:text source:text username:text fsName:text fsOptions:object description:text parameters:object"
    " runYaml:text runtime:object postProcess:object failureOptions:object dockerEnv:text disabled:text scheduleID:text"
    " runMsg:text status:text runCachedIDs:text createTime:text activateTime:text updateTime:text "
    + below("postProcess.*", STEP_VIEW),
    "DELETE /run/{}": "",
    "POST /schedule": "scheduleID:text",
    "GET /schedule": PAGE + "scheduleList:list " + below("scheduleList", SCHEDULE),
    "GET /schedule/{}": SCHEDULE + " " + below("runs", PAGE + "runList:list") + " " + below("runs.runList", RUN),
    "PUT /schedule/{}": "",
    "DELETE /schedule/{}": "",
    "GET /runCache": PAGE + "runCacheList:list " + below("runCacheList", CACHE),
    "GET /runCache/{}": CACHE,
    "DELETE /runCache/{}": "",
    "GET /artifact": PAGE + "artifactEventList:list " + below("artifactEventList", ARTIFACT),
    "DELETE /artifact": "",
    "POST /job/single": "id:text",
    "POST /job/distributed": "id:text",
    "POST /job/workflow": "id:text",
    "GET /job": PAGE + "jobList:list " + below("jobList", JOB),
    "GET /job/{}": JOB
    + " "
    + below(
        "runtime",
        "name:text namespace:text id:text status:text nodeName:text role:text index:number acceleratorCards:text logURL:text",
    )
    + " "
    + below("distributedRuntime", "name:text namespace:text id:text status:text runtimes:list"),
    "PUT /job/{}": "",
    "DELETE /job/{}": "",
    "GET /log/run/{}": "submitLog:text runID:text "
    + below("runLog", "jobID:text name:text type:text eventList:list taskList:list")
    + " "
    + below("runLog.taskList", LOG),
    "GET /log/job": "jobID:text name:text type:text eventList:list taskList:list " + below("taskList", LOG),
    "GET /statistics/job/{}": "metricsInfo:object " + below("metricsInfo", METRICS),
    "GET /statistics/jobDetail/{}": "truncated:bool result.taskName:text result.taskInfo.metric:text result.taskInfo.values:list",
    "GET /statistics/cardTime/{}": "queueName:text cardTime:number deviceType:text detail:list",
    "POST /statistics/cardTime": below(
        "data",
        "queueName:text cardTime:number deviceType:text detail.userName:text detail.jobCount:number detail.totalCardTime:number"
        " detail.jobInfoList.jobId:text detail.jobInfoList.cardTime:number detail.jobInfoList.createTime:text"
        " detail.jobInfoList.startTime:text detail.jobInfoList.finishTime:text detail.jobInfoList.deviceCount:number",
    ),
    "POST /fs": "fsName:text fsID:text",
    "PUT /fs": "fsName:text fsID:text",
    "GET /fs": FILES_PAGE + "fsList:list " + below("fsList", STORAGE),
    "GET /fs/{}": STORAGE,
    "DELETE /fs/{}": "",
    "POST /fsCache": "",
    "GET /fsCache/{}": "cacheDir:text quota:number metaDriver:text blockSize:number cleanCache:bool resource:object"
    " nodeTaintToleration:object extraConfig:object fsName:text username:text createTime:text updateTime:text",
    "DELETE /fsCache/{}": "",
    "POST /link": "",
    "GET /link/{}": FILES_PAGE + "linkList:list " + below("linkList", LINK),
    "DELETE /link/{}": "",
}


def _routes() -> dict[str, Route]:
    found = {}
    for module in pkgutil.iter_modules(paddleflow.api.__path__):
        for route in getattr(importlib.import_module(f"paddleflow.api.{module.name}"), "ROUTES", ()):
            path = "/".join("{}" if part.startswith("{") else part for part in route.path.split("/"))
            found[f"{route.method} {path}"] = route
    return found


ROUTES = _routes()


def plain(kind: Any) -> Any:
    """A type without what is said about it."""
    while get_origin(kind) in (Annotated, NotRequired):
        kind = get_args(kind)[0]
    return kind


def types(kind: Any) -> set[str]:
    kind = plain(kind)
    if is_typeddict(kind):
        return {"object"}
    if get_origin(kind) in (Union, UnionType):
        return {word for each in get_args(kind) for word in types(each)}
    return {WORDS[get_origin(kind) or kind]}


def inside(kind: Any) -> Any:
    """The object itself; of a list and of an object by name, that of every item."""
    kind = plain(kind)
    while get_origin(kind) is list:
        kind = plain(get_args(kind)[0])
    return kind


def faults(answer: Any, entry: str) -> list[str]:
    """What the type of an answer lacks of one key of the reference."""
    path, _, words = entry.rpartition(":")
    *above, name = path.split(".")
    kind = inside(answer)
    if get_origin(kind) is UnionType:  # every one of them must have it
        return [fault for each in get_args(kind) for fault in faults(each, entry)]
    for part in above:
        if part == "*":
            kind = inside(get_args(kind)[1])
            continue
        hints = get_type_hints(kind, include_extras=True)
        if part not in hints:
            return [f"{path}: {part} is missing"]
        kind = inside(hints[part])
        if get_origin(kind) is UnionType:
            rest = ".".join([*above[above.index(part) + 1 :], name]) + f":{words}"
            return [fault for each in get_args(kind) for fault in faults(each, rest)]
    hints = get_type_hints(kind, include_extras=True)
    optional, name = name.startswith("["), name.strip("[]")
    if name not in hints:
        return [f"{path} is missing"]
    found = []
    if get_origin(hints[name]) is NotRequired and not optional:
        found.append(f"{path} may be missing")
    if not types(hints[name]) <= set(words.split("|")):
        found.append(f"{path} is {types(hints[name])}, wanted {words}")
    return found


@pytest.mark.parametrize("line", REFERENCE)
def test_an_answer_has_every_key_of_the_reference(line: str) -> None:
    assert line in ROUTES
    answer = ROUTES[line].answer
    if not REFERENCE[line]:
        assert answer in (None, NoneType)
        return
    assert [fault for entry in REFERENCE[line].split() for fault in faults(answer, entry)] == []


@pytest.mark.parametrize(("kind", "keys"), [(JobView, STEP_VIEW), (DagView, DAG_VIEW)])
def test_a_component_of_a_run_has_every_key_of_the_reference(kind: Any, keys: str) -> None:
    assert [fault for entry in keys.split() for fault in faults(kind, entry)] == []
    runtime = get_type_hints(Run)["runtime"]
    inner = get_type_hints(DagView)["entryPoints"]
    for several in (runtime, inner):  # so that `tests/api` holds every view that is sent against these types
        assert kind in get_args(get_args(get_args(several)[1])[0])
