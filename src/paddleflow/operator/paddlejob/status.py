"""A job's status: how it is read at the beginning of a reconcile and written at its end.

The status is the operator's only memory of a job: a new operator reads it and goes on. What it decides (a new formation, a
counted failure) is written before it is acted on, so that a crash in between neither repeats nor forgets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.operator.paddlejob.job import Job, moment, stamp
from paddleflow.operator.paddlejob.pods import Pod, selector
from paddleflow.spec.paddlejob.model import ROLES

STATES = ("pending", "starting", "running", "failed", "succeeded", "unknown")
#: What may be written a little later: counts and messages change with every pod, and each write costs all who watch.
_SOFT = frozenset((*ROLES, "replicas", "message"))
_SOFT_PHASES = ("Pending", "Starting")
#: What must be written before anything else is done: the next reconcile relies on it.
_BINDING = ("formation", "failures", "disruptions", "lastFailure", "retryTime", "hostPort", "activeSince")


@dataclass(slots=True)
class JobStatus:
    """The status of one job during one reconcile."""

    phase: str = "Pending"
    message: str = ""
    elastic: str = ""
    formation: int = 1
    host_port: int = 0
    failures: int = 0
    disruptions: int = 0
    last_failure: Mapping[str, Any] = field(default_factory=dict)
    retry_at: float | None = None
    np: int = 0
    active_since: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)

    def is_true(self, kind: str) -> bool:
        """Whether a condition is true."""
        return self.conditions.get(kind, {}).get("status") == "True"

    def set(
        self, kind: str, true: bool, reason: str, message: str, job: Job, now: float, *, even_false: bool = False
    ) -> None:
        """Set a condition; the time changes only with the status. A condition that was never true is
        not written as false, unless `even_false`."""
        before = self.conditions.get(kind)
        word = "True" if true else "False"
        if before is None and not true and not even_false:
            return
        same = before is not None and before.get("status") == word
        if same and before is not None and before.get("reason") == reason and before.get("message", "") == message:
            return
        self.conditions[kind] = {
            "type": kind,
            "status": word,
            "reason": reason,
            "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if same and before else stamp(now),
            "observedGeneration": job.generation,
        }


def read_status(job: Job, pods: Iterable[Pod], formations: Iterable[int]) -> JobStatus:
    """The memory in a job's status. A status that was lost is made up for by what pods and ConfigMaps carry."""
    status = job.status
    formations_seen = [] if status.get("formation") else [*(pod.formation for pod in pods), *formations]
    return JobStatus(
        phase=status.get("phase") or "Pending",
        message=status.get("message") or "",
        elastic=status.get("elastic") or "",
        formation=max([1, status.get("formation") or 0, *formations_seen]),
        host_port=status.get("hostPort") or 0,
        failures=status.get("failures") or 0,
        disruptions=status.get("disruptions") or 0,
        last_failure=status.get("lastFailure") or {},
        retry_at=moment(status.get("retryTime")),
        np=status.get("np") or 0,
        active_since=moment(status.get("activeSince")),
        started_at=moment(status.get("startTime")),
        completed_at=moment(status.get("completionTime")),
        conditions={entry["type"]: dict(entry) for entry in status.get("conditions") or ()},
    )


def render_status(job: Job, record: JobStatus, pods: Iterable[Pod]) -> dict[str, Any]:
    """The status object for the API server."""
    living = [pod for pod in pods if pod.living]
    status: dict[str, Any] = {
        "phase": record.phase,
        "message": record.message,
        "elastic": record.elastic,
        "observedGeneration": job.generation,
        "failures": record.failures,
        "disruptions": record.disruptions,
        "lastFailure": dict(record.last_failure),
        "conditions": list(record.conditions.values()),
        "np": record.np,
        "hostPort": record.host_port,
    }
    if job.spec is not None:
        status |= {"mode": job.spec.mode, "formation": record.formation}
        for role in job.spec.roles():
            status[role] = _counts([pod for pod in living if pod.role == role])
        if job.spec.worker:
            status |= {"replicas": sum(pod.role == "worker" for pod in living), "selector": selector(job)}
    times = {"retryTime": record.retry_at, "activeSince": record.active_since}
    times |= {"startTime": record.started_at, "completionTime": record.completed_at}
    status |= {key: stamp(at) for key, at in times.items() if at is not None}
    kept_zero = (*ROLES, "replicas", "failures")
    return {key: value for key, value in status.items() if value or key in kept_zero}


def _counts(pods: list[Pod]) -> dict[str, Any]:
    found = Counter(pod.state for pod in pods)
    counts = {state: found[state] for state in STATES if state in found}
    return {**counts, "refs": [{"kind": "Pod", "name": pod.name, "uid": pod.uid} for pod in pods]}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return dict(before) != dict(after)


def urgent(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a change should be seen at once."""
    keys = {key for key in (*before, *after) if before.get(key) != after.get(key)} - _SOFT
    if "phase" in keys and before.get("phase") in _SOFT_PHASES and after.get("phase") in _SOFT_PHASES:
        keys.discard("phase")
    return bool(keys)


def binding(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the status must be written before anything else is done. A job's first formation needs no status."""
    if not before.get("formation"):
        return bool(after.get("hostPort"))
    return any(before.get(key) != after.get(key) for key in _BINDING)
