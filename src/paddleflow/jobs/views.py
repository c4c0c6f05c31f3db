"""Jobs as the wire shows them: the request's own fields, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from paddleflow.base.clock import local_text
from paddleflow.base.ids import task_id
from paddleflow.jobs.queries import JobGroup
from paddleflow.jobs.rows import JobRow, TaskRow
from paddleflow.spec.wire_jobs import DistributedRuntime, Job, TaskRuntime
from paddleflow.spec.wire_jobs import JobGroup as WireGroup

NAMESPACE = "default"
_LONGEST = 4096  #: characters of members that are remembered


def job_view(row: JobRow, tasks: Sequence[TaskRow]) -> Job:
    """One job with its members."""
    members = _members(row.members)
    policy = {"queue": row.queue, "priority": row.priority}
    spec = members[0] if row.kind == "single" else _no_spec()  # the only member says what the whole job runs
    view: Job = {
        "id": row.id,
        "name": row.name,
        "UserName": row.user_name,
        "labels": _decoded(row.labels),
        "annotations": _decoded(row.annotations),
        "schedulingPolicy": policy,
        "flavour": spec["flavour"],
        "limitFlavour": spec["limitFlavour"],
        "fs": spec["fs"],
        "extraFS": spec["extraFS"],
        "image": spec["image"],
        "env": spec["env"],
        "command": spec["command"],
        "args": spec["args"],
        "port": spec["port"],
        "extensionTemplate": json.loads(row.template) if row.template else {},
        "framework": members[0].get("framework", row.framework) if members else row.framework,
        "members": members,
        "status": row.status,
        "message": row.message,
        "attempt": row.attempt,
        "acceptTime": local_text(row.accepted_at),
        "startTime": local_text(row.started_at),
        "finishTime": local_text(row.finished_at),
        "updateTime": local_text(row.updated_at),
    }
    if row.after_jobs:
        view["after"] = json.loads(row.after_jobs)
    if row.array_id:
        view["array"] = row.array_id
    if row.run_id:
        view["runID"] = row.run_id
    if row.preemptions:
        view["preemptions"], view["evictedBy"] = row.preemptions, row.evicted_by
    if row.lost_seconds:
        view["lostSeconds"] = round(row.lost_seconds, 3)
    runtimes = [_task(row, task) for task in tasks if task.attempt == row.attempt]
    if row.kind == "single":
        members[0]["name"] = row.name
        if "code" in members[0]:
            view["code"] = members[0]["code"]
        if "secrets" in members[0]:
            view["secrets"] = members[0]["secrets"]
        if "requirements" in members[0]:
            view["requirements"] = members[0]["requirements"]
        if runtimes:
            view["runtime"] = runtimes[0]
    elif runtimes:
        view["distributedRuntime"] = _gang(row, runtimes)
    return view


def group_view(id: str, group: JobGroup) -> WireGroup:
    """The jobs of a run or of an array as one."""
    return {
        "id": id,
        "jobs": dict(group.jobs),
        "acceptTime": local_text(group.accepted_at),
        "startTime": local_text(group.started_at),
        "finishTime": local_text(group.finished_at),
    }


def _no_spec() -> dict[str, Any]:
    """Every key that clients of the reference index, empty."""
    return {
        "flavour": {},
        "limitFlavour": {},
        "fs": {},
        "extraFS": [],
        "image": "",
        "env": {},
        "command": "",
        "args": [],
        "port": 0,
        "extensionTemplate": {},
    }


def _gang(row: JobRow, runtimes: list[TaskRuntime]) -> DistributedRuntime:
    return {
        "name": row.id,
        "namespace": NAMESPACE,
        "id": row.id,
        "status": row.status,
        "runtimes": runtimes,
    }


def _decoded(text: str) -> Any:
    """Most columns of JSON hold nothing."""
    return {} if text == "{}" else json.loads(text)


def _members(text: str) -> list[dict[str, Any]]:
    """The members that a row holds, each the caller's own to add to. Jobs that are alike have the same text."""
    shown = _members_of(text) if len(text) <= _LONGEST else _members_of.__wrapped__(text)
    return [dict(member) for member in shown]


@lru_cache(maxsize=1024)
def _members_of(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(_member(member) for member in json.loads(text))


def _member(member: dict[str, Any]) -> dict[str, Any]:
    shown = {**_no_spec(), **member["document"], "env": member.get("env", {})}
    if "storages" in member:
        mounts = [
            {"id": s[0], "name": s[1], "mountPath": s[3], "subPath": s[4], "readOnly": s[5]} for s in member["storages"]
        ]
        if shown["fs"]:
            shown["fs"], *mounts = mounts
        shown["extraFS"] = mounts
    return shown


def _task(row: JobRow, task: TaskRow) -> TaskRuntime:
    name = f"{task.role}-{task.idx}"
    cards = ",".join(str(number) for _, numbers in json.loads(task.devices) for number in numbers)
    return {
        "name": name,
        "namespace": NAMESPACE,
        "id": task_id(row.id, task.role, task.idx),
        "status": task.status,
        "nodeName": task.node,
        "role": task.role,
        "index": task.idx,
        "acceleratorCards": cards,
        "logURL": f"/api/paddleflow/v1/job/{row.id}/log?task={name}",
        "message": task.message,
        "exitCode": task.exit_code,
        "startTime": local_text(task.started_at),
        "finishTime": local_text(task.finished_at),
    }
