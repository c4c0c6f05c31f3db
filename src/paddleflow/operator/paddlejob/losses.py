"""What it means that a member failed or is gone: whose fault it was, how often it happened, when to try again.

A *failure* is the program's (a container ended with an error) and counts against ``backoffLimit``. A *disruption* comes from
outside (evicted, preempted, deleted, node lost) and does not. Called by `reconcile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddleflow.operator.paddlejob.job import Options, moment, stamp
from paddleflow.operator.paddlejob.members import Pod
from paddleflow.operator.paddlejob.record import Record

_LONGEST_MESSAGE = 2048
_CALM = 60.0  #: seconds after which a disruption is not a repetition of the last one


def first_failed(pods: Iterable[Pod]) -> Pod | None:
    """The pod that failed first: the others are often its victims."""
    failed = [pod for pod in pods if pod.state == "failed"]
    return min(failed, key=lambda pod: (_ended_at(pod), pod.role, pod.index), default=None)


def _ended_at(pod: Pod) -> float:
    ends = [moment(ended.get("finishedAt")) for _, ended in _ended(pod) if ended.get("exitCode") != 0]
    return min([at for at in ends if at is not None], default=float("inf"))


def _ended(pod: Pod) -> list[tuple[str, Mapping[str, Any]]]:
    """Containers that ended, with how."""
    status = pod.obj.get("status", {})
    found = []
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state") or {}
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if ended:
            found.append((container.get("name", ""), ended))
    return found


def described(pod: Pod, now: float) -> dict[str, Any]:
    """A failure as the status tells it."""
    status = pod.obj.get("status", {})
    bad = [(name, ended) for name, ended in _ended(pod) if ended.get("exitCode") != 0]
    entry: dict[str, Any] = {"pod": pod.name, "uid": pod.uid, "time": stamp(now)}
    if node := pod.obj.get("spec", {}).get("nodeName"):
        entry["node"] = node
    if bad:
        name, ended = min(bad, key=lambda item: moment(item[1].get("finishedAt")) or float("inf"))
        entry |= {"container": name, "exitCode": ended.get("exitCode", 0), "reason": ended.get("reason") or "Error"}
        entry["message"] = ended.get("message", "")
    if status.get("reason"):
        entry |= {"reason": status["reason"], "message": status.get("message") or entry.get("message", "")}
    entry.setdefault("reason", "Failed")
    entry["message"] = entry.get("message", "").strip()[-_LONGEST_MESSAGE:]
    return {key: value for key, value in entry.items() if value != ""}


def missing(names: Sequence[str], reason: str, said: str, now: float) -> dict[str, Any]:
    """The loss of members of which nothing is left to ask."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return {"pod": names[0], "reason": reason, "message": f"{said}: {shown}", "time": stamp(now)}


def sentence(failure: Mapping[str, Any]) -> str:
    """A failure in words."""
    code = f" with exit code {failure['exitCode']}" if "exitCode" in failure else ""
    container = f" container {failure['container']}" if failure.get("container") else ""
    said = failure.get("message", "").strip()
    last = f": {said.splitlines()[-1][:200]}" if said else ""
    return f"{failure.get('pod')}{container} ended{code} ({failure.get('reason')}){last}".strip()


def count(record: Record, failure: Mapping[str, Any], outside: bool, now: float, options: Options) -> None:
    """Write a failure or disruption into the record, with the moment of the next try."""
    before = moment(record.last_failure.get("time"))
    record.last_failure = failure
    if outside:
        record.disruptions += 1
        soon = before is None or now - before > _CALM
        record.retry_at = None if soon else now + options.backoff
    else:
        record.failures += 1
        record.retry_at = now + min(options.backoff * 2 ** (record.failures - 1), options.longest_backoff)
