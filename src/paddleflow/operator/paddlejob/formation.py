"""Steps that decide whether the members stay together: failures, losses, scaling, suspension.

Members that hold each other's addresses, or wait for each other inside a call, are formed anew together and go on from their
last checkpoint. Where a member can come back alone, it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddleflow.operator.paddlejob import manifests
from paddleflow.operator.paddlejob.contract import Membership, expected
from paddleflow.operator.paddlejob.job import OperatorOptions, moment, stamp
from paddleflow.operator.paddlejob.pods import Pod, pod_name
from paddleflow.operator.paddlejob.state import FORMED, JobState
from paddleflow.operator.paddlejob.status import JobStatus

_LONGEST_MESSAGE = 2048  #: characters of a container's termination message that a status keeps
_CALM = 60.0  #: seconds after which a disruption is not a repetition of the last one


def suspend(state: JobState) -> None:
    """The formation that ends here is not taken up again."""
    status = state.status
    if status.is_true("Suspended"):
        return
    status.formation += 1
    status.phase, status.message, status.retry_at = "Suspended", "suspended: spec.suspend is true", None
    status.set("Running", False, "Suspended", "", state.job, state.now)
    status.set("Suspended", True, "Suspended", status.message, state.job, state.now)
    state.emit("Suspended", "deleting the pods, because spec.suspend is true")


def resume(state: JobState) -> None:
    status = state.status
    if status.is_true("Suspended"):
        status.phase, status.message, status.active_since = "Pending", "", state.now
        status.set("Suspended", False, "Resumed", "", state.job, state.now)
        state.emit("Resumed", "resuming, because spec.suspend is no longer true")


def count_failures(state: JobState) -> None:
    """Count the first failure among the members, and replace the one or all. A pod is counted once, by its uid."""
    status, limit = state.status, state.spec.backoff_limit
    restarts = sum(pod.restarts for pod in state.current())
    failed = first_failed(pod for pod in state.current() if pod.uid != status.last_failure.get("uid"))
    if failed is None:
        if restarts and status.failures + restarts > limit and not state.by_etcd:
            most = max(state.current(), key=lambda pod: pod.restarts)
            status.last_failure, status.failures = describe_failure(most, state.now), status.failures + restarts
            state.fail("BackoffLimitExceeded", _exhausted(state))
        return
    failure = describe_failure(failed, state.now)
    count_loss(status, failure, failed.disrupted, state.now, state.options)
    if not failed.disrupted and status.failures + restarts > limit:
        state.fail("BackoffLimitExceeded", _exhausted(state))
        return
    sentence = failure_sentence(failure)
    state.emit("Disrupted" if failed.disrupted else "MemberFailed", sentence, warning=True)
    if not manifests.replaced_alone(state.spec, failed.role, state.options):
        state.start_formation("Restarting", f"new formation: {sentence}")


def _exhausted(state: JobState) -> str:
    counted = f"{state.status.failures} failures, backoffLimit is {state.spec.backoff_limit}"
    return f"{failure_sentence(state.status.last_failure)} ({counted})"


def count_losses(state: JobState) -> None:
    """Members that were there and are not any more: whoever holds their address needs the new one."""
    membership = state.membership()
    addressed = membership is not None and state.spec.intranet != "Service"
    if state.by_etcd or not (addressed or state.status.phase in FORMED):
        return
    there = {(pod.role, pod.index) for pod in state.current()}
    gone = [
        pod_name(state.job, role, index)
        for role, index in state.wanted
        if (role, index) not in there
        and not manifests.replaced_alone(state.spec, role, state.options)
        and membership is not None
        and index < membership.count(role)
    ]
    if gone:
        failure = missing_members(gone, "Lost", "deleted or lost while the job ran", state.now)
    elif addressed and (moved := _moved(state, membership)):
        failure = missing_members(moved, "Moved", "no longer at the address that the others hold", state.now)
    else:
        return
    count_loss(state.status, failure, True, state.now, state.options)
    state.emit("Disrupted", failure_sentence(failure), warning=True)
    state.start_formation("Restarting", f"new formation: {failure_sentence(failure)}")


def _moved(state: JobState, membership: Membership | None) -> list[str]:
    """Members whose address is not the one that the others hold: their sandbox was recreated, and their container with it.

    A container that has not restarted is where it was, whatever a status reports.
    """
    now = expected(state.job, state.current(), state.options, state.status.host_port)
    if now is None or membership is None:
        return []
    settled = {(pod.role, pod.index) for pod in state.current() if pod.state == "running" and not pod.restarts}
    return [
        pod_name(state.job, role, index)
        for role, endpoints in now.endpoints.items()
        for index, (new, old) in enumerate(zip(endpoints, membership.endpoints.get(role, ()), strict=False))
        if new != old and (role, index) not in settled
    ]


def scale(state: JobState) -> None:
    """Form anew when the number of members changed. New ones get their place first: until then the others train on."""
    membership, status = state.membership(), state.status
    if membership is None:
        return
    sizes = {role: entry.replicas for role, entry in state.spec.roles().items()}
    before = {role: membership.count(role) for role in membership.endpoints}
    if sizes == before:
        return  # `set_phase` says when the new members run
    status.elastic = "DOING"
    grows = all(sizes.get(role, 0) >= count for role, count in before.items())
    placed = {(pod.role, pod.index) for pod in state.living() if pod.formation > status.formation and pod.scheduled}
    new = [(role, index) for role, index in state.wanted if index >= before.get(role, 0)]
    if grows and status.phase in FORMED and not placed.issuperset(new):
        return
    names = sorted(role for role in {*sizes, *before} if sizes.get(role) != before.get(role))
    sizes_text = ", ".join(f"{role} {before.get(role, 0)} → {sizes.get(role, 0)}" for role in names)
    state.start_formation("Scaling", f"scaling {sizes_text}")
    state.emit("Scaled", f"scaled {sizes_text}")


def scale_by_etcd(state: JobState) -> None:
    """Tell the trainers how many they should be; they find each other."""
    worker, status = state.spec.worker, state.status
    assert worker is not None, "elastic without workers is refused"
    if status.np == worker.replicas:
        return
    state.writes.np = worker.replicas
    if status.np:
        state.emit("Scaled", f"scaled worker {status.np} → {worker.replicas}")
    status.np = worker.replicas


# ---- failures and disruptions, one by one


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


def describe_failure(pod: Pod, now: float) -> dict[str, Any]:
    """A failure as the status shows it."""
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


def missing_members(names: Sequence[str], reason: str, what: str, now: float) -> dict[str, Any]:
    """The loss of members of which nothing is left to ask."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return {"pod": names[0], "reason": reason, "message": f"{what}: {shown}", "time": stamp(now)}


def failure_sentence(failure: Mapping[str, Any]) -> str:
    """A failure as one sentence."""
    code = f" with exit code {failure['exitCode']}" if "exitCode" in failure else ""
    container = f" container {failure['container']}" if failure.get("container") else ""
    message = failure.get("message", "").strip()
    last = f": {message.splitlines()[-1][:200]}" if message else ""
    return f"{failure.get('pod')}{container} ended{code} ({failure.get('reason')}){last}".strip()


def count_loss(
    status: JobStatus, failure: Mapping[str, Any], outside: bool, now: float, options: OperatorOptions
) -> None:
    """Write a failure or disruption into the status, with the moment of the next try."""
    before = moment(status.last_failure.get("time"))
    status.last_failure = failure
    if outside:
        status.disruptions += 1
        soon = before is None or now - before > _CALM
        status.retry_at = None if soon else now + options.backoff
    else:
        status.failures += 1
        status.retry_at = now + min(options.backoff * 2 ** (status.failures - 1), options.longest_backoff)
