"""Steps that decide whether the members stay together: failures, losses, scaling, suspension.

Members that hold each other's addresses, or wait for each other inside a call, are formed anew together and go on from their
last checkpoint. Where a member can come back alone, it does.
"""

from __future__ import annotations

from paddleflow.operator.paddlejob import losses, manifests
from paddleflow.operator.paddlejob.contract import Membership, expected
from paddleflow.operator.paddlejob.members import pod_name
from paddleflow.operator.paddlejob.state import FORMED, Pass


def suspend(state: Pass) -> None:
    """The formation that ends here is not taken up again."""
    record = state.record
    if record.says("Suspended"):
        return
    record.formation += 1
    record.phase, record.message, record.retry_at = "Suspended", "suspended: spec.suspend is true", None
    record.set("Running", False, "Suspended", "", state.job, state.now)
    record.set("Suspended", True, "Suspended", record.message, state.job, state.now)
    state.say("Suspended", "deleting the pods, because spec.suspend is true")


def resume(state: Pass) -> None:
    record = state.record
    if record.says("Suspended"):
        record.phase, record.message, record.active_since = "Pending", "", state.now
        record.set("Suspended", False, "Resumed", "", state.job, state.now)
        state.say("Resumed", "going on, because spec.suspend is not true any more")


def count_failures(state: Pass) -> None:
    """Count the first failure among the members, and replace the one or all. A pod is counted once, by its uid."""
    record, limit = state.record, state.spec.backoff_limit
    restarts = sum(pod.restarts for pod in state.current())
    failed = losses.first_failed(pod for pod in state.current() if pod.uid != record.last_failure.get("uid"))
    if failed is None:
        if restarts and record.failures + restarts > limit and not state.by_etcd:
            most = max(state.current(), key=lambda pod: pod.restarts)
            record.last_failure, record.failures = losses.described(most, state.now), record.failures + restarts
            state.fail("BackoffLimitExceeded", _exhausted(state))
        return
    failure = losses.described(failed, state.now)
    losses.count(record, failure, failed.disrupted, state.now, state.options)
    if not failed.disrupted and record.failures + restarts > limit:
        state.fail("BackoffLimitExceeded", _exhausted(state))
        return
    said = losses.sentence(failure)
    state.say("Disrupted" if failed.disrupted else "MemberFailed", said, warning=True)
    if not manifests.replaced_alone(state.spec, failed.role, state.options):
        state.form_anew("Restarting", f"forming anew: {said}")


def _exhausted(state: Pass) -> str:
    counted = f"{state.record.failures} failures, backoffLimit is {state.spec.backoff_limit}"
    return f"{losses.sentence(state.record.last_failure)} ({counted})"


def count_losses(state: Pass) -> None:
    """Members that were there and are not any more: whoever holds their address must be told the new one."""
    membership = state.told()
    addressed = membership is not None and state.spec.intranet != "Service"
    if state.by_etcd or not (addressed or state.record.phase in FORMED):
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
        failure = losses.missing(gone, "Lost", "deleted or lost while the job ran", state.now)
    elif addressed and (moved := _moved(state, membership)):
        failure = losses.missing(moved, "Moved", "not at the address any more that the others were told", state.now)
    else:
        return
    losses.count(state.record, failure, True, state.now, state.options)
    state.say("Disrupted", losses.sentence(failure), warning=True)
    state.form_anew("Restarting", f"forming anew: {losses.sentence(failure)}")


def _moved(state: Pass, membership: Membership | None) -> list[str]:
    """Members whose address is not the one that the others were told: their sandbox was made anew, and their container with it.

    A container that runs since its beginning sits where it was, whatever a status says.
    """
    now = expected(state.job, state.current(), state.options, state.record.host_port)
    if now is None or membership is None:
        return []
    settled = {(pod.role, pod.index) for pod in state.current() if pod.state == "running" and not pod.restarts}
    return [
        pod_name(state.job, role, index)
        for role, endpoints in now.endpoints.items()
        for index, (new, old) in enumerate(zip(endpoints, membership.endpoints.get(role, ()), strict=False))
        if new != old and (role, index) not in settled
    ]


def scale(state: Pass) -> None:
    """Form anew when the number of members changed. New ones get their place first: until then the others train on."""
    membership, record = state.told(), state.record
    if membership is None:
        return
    sizes = {role: entry.replicas for role, entry in state.spec.roles().items()}
    before = {role: membership.count(role) for role in membership.endpoints}
    if sizes == before:
        if record.elastic == "DOING":
            record.elastic = "DONE"
        return
    record.elastic = "DOING"
    grows = all(sizes.get(role, 0) >= count for role, count in before.items())
    placed = {(pod.role, pod.index) for pod in state.living() if pod.formation > record.formation and pod.scheduled}
    new = [(role, index) for role, index in state.wanted if index >= before.get(role, 0)]
    if grows and record.phase in FORMED and not placed.issuperset(new):
        return
    names = sorted(role for role in {*sizes, *before} if sizes.get(role) != before.get(role))
    said = ", ".join(f"{role} {before.get(role, 0)} → {sizes.get(role, 0)}" for role in names)
    state.form_anew("Scaling", f"scaling {said}")
    state.say("Scaled", f"scaled {said}")


def scale_by_etcd(state: Pass) -> None:
    """Tell the trainers how many they should be; they find each other."""
    worker, record = state.spec.worker, state.record
    assert worker is not None, "elastic without workers is refused"
    if record.np == worker.replicas:
        return
    state.writes.np = worker.replicas
    if record.np:
        state.say("Scaled", f"scaled worker {record.np} → {worker.replicas}")
    record.np = worker.replicas
