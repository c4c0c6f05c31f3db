"""Steps that make true what should be: delete what is too much, create what is missing, tell the members who they are."""

from __future__ import annotations

from paddleflow.operator.paddlejob import gang, manifests
from paddleflow.operator.paddlejob.contract import expected, members_map
from paddleflow.operator.paddlejob.members import FORMATION, TOLD, Pod, pod_name
from paddleflow.operator.paddlejob.state import Pass
from paddleflow.operator.paddlejob.writes import Delete, Patch


def clear(state: Pass) -> None:
    """Delete members of earlier formations, members too many and those that failed; the highest ranks go first."""
    wanted, formation = set() if state.spec.suspend else set(state.wanted), state.record.formation
    for pod in reversed(state.living()):
        if pod.formation < formation or (pod.role, pod.index) not in wanted or pod.state == "failed":
            state.writes.deletes.append(Delete(pod.obj))
    for config_map in state.children.config_maps:
        if int(config_map["metadata"].get("annotations", {}).get(FORMATION, 0)) < formation:
            state.writes.deletes.append(Delete(config_map))
    if state.spec.suspend and state.pod_group:
        state.writes.deletes.append(Delete(state.pod_group))
    give_up_lost(state)


def give_up_lost(state: Pass) -> None:
    """Free the names of pods whose node does not answer any more."""
    for pod in state.pods:
        if pod.deleting_until is None:
            continue
        left = pod.deleting_until + state.options.lost_after - state.now
        if left > 0:
            state.writes.look_again(left)
        else:
            state.writes.deletes.append(Delete(pod.obj, force=True))
            state.say(
                "NodeLost", f"gave {pod.name} up: it should have ended, but its node does not answer", warning=True
            )


def group(state: Pass) -> None:
    """Keep the PodGroup true."""
    if not gang.scheduled_together(state.spec, state.options):
        return
    found, wanted = state.pod_group, gang.pod_group(state.job)
    if found is None and not state.children.pod_groups:
        state.writes.creates.append(wanted)
    elif found is not None and gang.differs(wanted, found):
        state.writes.patches.append(Patch(found, {"spec": wanted["spec"]}))


def create(state: Pass) -> None:
    """Make every member that is missing. A name is free only when the last pod that had it is gone."""
    if state.spec.intranet == "Service" and not state.children.services:
        state.writes.creates.append(manifests.service(state.job))
    if not _may_start(state):
        return
    taken = {pod.name for pod in state.pods}
    together, membership = gang.scheduled_together(state.spec, state.options), state.told()
    for role, index in state.wanted:
        if pod_name(state.job, role, index) in taken:
            continue
        joins = membership is not None and index >= membership.count(role)
        formation = state.record.formation + (1 if joins else 0)
        state.writes.creates.append(
            manifests.pod(state.job, role, index, formation, state.options, state.record.host_port, together)
        )


def _may_start(state: Pass) -> bool:
    record = state.record
    if record.retry_at is not None and state.now < record.retry_at:
        state.writes.look_again(record.retry_at - state.now)
        return False
    record.retry_at = None
    return not gang.scheduled_together(state.spec, state.options) or gang.admitted(state.pod_group)


def tell(state: Pass) -> None:
    """Tell the members who they are as soon as every endpoint is known: servers first, trainers when the servers run."""
    current, formation = state.current(), state.record.formation
    membership = None if state.by_etcd else expected(state.job, current, state.options, state.record.host_port)
    if membership is None:
        return
    found = {obj["metadata"]["name"] for obj in state.children.config_maps}
    serving = sum(pod.role == "ps" and pod.state in ("running", "succeeded") for pod in current)
    servers = membership.count("ps")
    needed = {"ps": servers > 0, "worker": bool(membership.endpoints.keys() - {"ps"}) and serving == servers}
    for role, due in needed.items():
        if due and members_map(state.job, role, formation) not in found:
            state.writes.creates.append(manifests.config_map(state.job, role, formation, membership))
    for pod in current:
        if members_map(state.job, pod.role, formation) in found and pod.told < formation and _held(pod):
            # The kubelet looks again every ten seconds or so; a change of the pod makes it look at once.
            state.writes.patches.append(Patch(pod.obj, {"metadata": {"annotations": {TOLD: str(formation)}}}))


def _held(pod: Pod) -> bool:
    waiting = (pod.training.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") == "CreateContainerConfigError"
