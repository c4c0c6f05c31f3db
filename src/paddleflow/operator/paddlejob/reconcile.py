"""Reconcile one PaddleJob: from the job and its children to everything that is missing. Pure; `operator.controller` calls it.

Level-based: it reads the state, not what happened, so it may run at any time and again. It creates all missing objects
at once. A job that ended is only cleaned up: nothing that ended is ever started again.
"""

from __future__ import annotations

from typing import Any

from paddleflow.operator.paddlejob import gang, manifests
from paddleflow.operator.paddlejob.contract import expected, members_map
from paddleflow.operator.paddlejob.formation import (
    count_failures,
    count_losses,
    failure_sentence,
    resume,
    scale,
    scale_by_etcd,
    suspend,
)
from paddleflow.operator.paddlejob.job import ENDED, ORIGINAL_FINALIZER, Job, OperatorOptions, stamp
from paddleflow.operator.paddlejob.pods import FORMATION, JOB_LABEL, NOTIFIED, Pod, pod_name, read_pods
from paddleflow.operator.paddlejob.state import JobState
from paddleflow.operator.paddlejob.status import binding, changed, read_status, render_status, urgent
from paddleflow.operator.paddlejob.writes import Children, Delete, Event, Patch, Writes

_CLEANED = {"Completed": ("Always", "OnCompletion"), "Failed": ("Always", "OnFailure")}
GANG_REASON_AGE = 30.0  #: seconds after which Volcano's reason is asked for again
_LONGEST = 500  #: characters of a message


def reconcile(
    job: Job,
    children: Children,
    now: float,
    options: OperatorOptions,
    *,
    refused: Event | None = None,
    host_port: int = 0,
    gang_reason: str = "",
) -> Writes:
    """What has to be written now.

    `refused` is what the API server refused last time, as an event. `host_port` is the first port of a range that
    no other job uses, taken when the job has none yet. `gang_reason` is what Volcano said about a gang that it holds back.
    """
    writes = Writes()
    if ORIGINAL_FINALIZER in job.finalizers:
        writes.finalizers = [each for each in job.finalizers if each != ORIGINAL_FINALIZER]
    if job.deleting:
        return writes  # the children go with their owner
    pods = read_pods(children.pods, job.name)
    formations = [int(obj["metadata"].get("annotations", {}).get(FORMATION, 0)) for obj in children.config_maps]
    state = JobState(job, children, now, options, gang_reason, pods, read_status(job, pods, formations), writes)
    if job.spec is None:
        _refuse(state)
    else:
        if not job.ended:
            _advance(state, refused, host_port)
        if state.status.phase in ENDED:
            clean_up(state)
    if job.ended:
        return writes  # its status is final: pods that are cleaned up still count in it
    after = render_status(job, state.status, pods)
    if changed(job.status, after):
        writes.status, writes.urgent, writes.first = after, urgent(job.status, after), binding(job.status, after)
    return writes


def _refuse(state: JobState) -> None:
    """A job that an older definition let in. What it has is left alone."""
    job, status = state.job, state.status
    status.set("Blocked", True, "InvalidSpec", job.fault, job, state.now)
    if status.message != job.fault:
        state.emit("InvalidSpec", job.fault, warning=True)
    status.message = job.fault


def _advance(state: JobState, refused: Event | None, host_port: int) -> None:
    """The steps of a job that goes on."""
    status = state.status
    status.active_since = status.active_since or state.now
    if state.spec.intranet == "Host" and not status.host_port:
        status.host_port = host_port
    if complete(state):
        return
    if state.spec.suspend:
        suspend(state)
        delete_surplus(state)
        return
    resume(state)
    if enforce_deadline(state) or adopt(state):
        return
    count_failures(state)
    if status.phase == "Failed":
        return
    count_losses(state)
    if state.by_etcd:
        scale_by_etcd(state)
    else:
        scale(state)
    delete_surplus(state)
    ensure_pod_group(state)
    create_missing(state)
    publish_membership(state)
    set_phase(state)
    if refused:
        status.set("Blocked", True, refused.reason, refused.message, state.job, state.now)
        status.message = refused.message
    else:
        status.set("Blocked", False, "Accepted", "", state.job, state.now)


# ---- pods of the original operator


def adopt(state: JobState) -> bool:
    """Take over the pods that the original operator made for this job; whether that is all for now.

    They are labelled and become the members of the current formation: they run on, and are counted, completed and scaled like
    any others. Their own ConfigMap stays. Where they cannot become whole (one is missing or failed, or they wait for a
    ConfigMap that nobody makes any more), all members are replaced.
    """
    found = [pod for pod in state.living() if pod.original]
    if not found:
        return False
    status, formation = state.status, state.status.formation
    there = {(pod.role, pod.index): pod for pod in state.living() if pod.original or pod.formation == formation}
    missing = [f"{role}-{index}" for role, index in state.wanted if (role, index) not in there]
    failed = [pod.name for pod in there.values() if pod.state == "failed"]
    published = any(obj["metadata"]["name"] == state.job.name for obj in state.children.config_maps)
    held = [pod.name for pod in there.values() if pod.state in ("pending", "starting") and not published]
    if not (missing or failed or held) or (state.spec.elastic is not None and not (missing or failed)):
        message = f"took over {len(found)} pods that the original operator made; they run on"
        for pod in found:
            marks = {"labels": {JOB_LABEL: state.job.name}, "annotations": {FORMATION: str(formation)}}
            state.writes.patches.append(Patch(pod.obj, {"metadata": marks}))
        status.set("Adopted", True, "TakenOver", message, state.job, state.now)
        state.emit("Adopted", message)
        return True
    why = (
        f"missing: {', '.join(missing)}"
        if missing
        else f"failed: {', '.join(failed)}"
        if failed
        else f"waiting for a ConfigMap that nobody makes: {', '.join(held)}"
    )
    message = f"replacing {len(found)} pods that the original operator made, because they cannot go on: {why}"
    if "Adopted" not in status.conditions:
        state.emit("Replaced", message, warning=True)
        state.start_formation("Restarting", message)
        status.set("Adopted", False, "Replaced", message, state.job, state.now, even_false=True)
    return False


# ---- objects: delete what is surplus, create what is missing, publish the membership


def delete_surplus(state: JobState) -> None:
    """Delete members of earlier formations, members too many and those that failed; the highest ranks go first."""
    wanted, formation = set() if state.spec.suspend else set(state.wanted), state.status.formation
    for pod in reversed(state.living()):
        if pod.formation < formation or (pod.role, pod.index) not in wanted or pod.state == "failed":
            state.writes.deletes.append(Delete(pod.obj))
    for config_map in state.children.config_maps:
        marks = config_map["metadata"].get("annotations", {})
        if FORMATION in marks and int(marks[FORMATION]) < formation:  # the original operator's has no number
            state.writes.deletes.append(Delete(config_map))
    if state.spec.suspend and state.pod_group:
        state.writes.deletes.append(Delete(state.pod_group))
    give_up_lost(state)


def give_up_lost(state: JobState) -> None:
    """Free the names of pods whose node does not answer any more."""
    for pod in state.pods:
        if pod.deleting_until is None:
            continue
        left = pod.deleting_until + state.options.lost_after - state.now
        if left > 0:
            state.writes.requeue_after(left)
        else:
            state.writes.deletes.append(Delete(pod.obj, force=True))
            state.emit(
                "NodeLost", f"gave {pod.name} up: it should have ended, but its node does not answer", warning=True
            )


def ensure_pod_group(state: JobState) -> None:
    """Keep the PodGroup true."""
    if not gang.scheduled_together(state.spec, state.options):
        return
    found = state.pod_group
    if found is None:
        if not state.children.pod_groups:
            state.writes.creates.append(gang.pod_group(state.job))
        return
    body: dict[str, Any] = {}
    adopted = found is state.children.unowned_pod_group
    if adopted:
        body = gang.adoption(state.job, found)
        state.emit(
            "GangAdopted", f"uses PodGroup {state.job.name}, which was there before, and deletes it with the job"
        )
    wanted = gang.required_spec(state.job, found, adopted=adopted)
    if gang.differs(wanted, found):
        body["spec"] = wanted
    if body:
        state.writes.patches.append(Patch(found, body))


def create_missing(state: JobState) -> None:
    """Make every member that is missing. A name is free only when the last pod that had it is gone."""
    if state.spec.intranet == "Service" and not state.children.services:
        state.writes.creates.append(manifests.service(state.job))
    if not _may_start(state):
        return
    taken = {pod.name for pod in state.pods}
    together, membership = gang.scheduled_together(state.spec, state.options), state.membership()
    for role, index in state.wanted:
        if pod_name(state.job, role, index) in taken:
            continue
        joins = membership is not None and index >= membership.count(role)
        formation = state.status.formation + (1 if joins else 0)
        state.writes.creates.append(
            manifests.pod(state.job, role, index, formation, state.options, state.status.host_port, together)
        )


def _may_start(state: JobState) -> bool:
    status = state.status
    if status.retry_at is not None and state.now < status.retry_at:
        state.writes.requeue_after(status.retry_at - state.now)
        return False
    status.retry_at = None
    return not gang.scheduled_together(state.spec, state.options) or gang.admitted(state.pod_group)


def publish_membership(state: JobState) -> None:
    """Tell the members who they are as soon as every endpoint is known: servers first, trainers when the servers run."""
    current, formation = state.current(), state.status.formation
    membership = None if state.by_etcd else expected(state.job, current, state.options, state.status.host_port)
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
        if members_map(state.job, pod.role, formation) in found and pod.notified < formation and _held(pod):
            # The kubelet retries every ten seconds or so; a change of the pod makes it retry at once.
            state.writes.patches.append(Patch(pod.obj, {"metadata": {"annotations": {NOTIFIED: str(formation)}}}))


def _held(pod: Pod) -> bool:
    waiting = (pod.training.get("state") or {}).get("waiting") or {}
    return waiting.get("reason") == "CreateContainerConfigError"


# ---- the end: when a job is complete or overdue, and what is cleaned up


def enforce_deadline(state: JobState) -> bool:
    """Fail a job that was active for longer than it may."""
    deadline, since = state.spec.active_deadline_seconds, state.status.active_since
    if deadline is None or since is None:
        return False
    if (left := since + deadline - state.now) > 0:
        state.writes.requeue_after(left)
        return False
    state.fail("DeadlineExceeded", f"was active for longer than activeDeadlineSeconds, {deadline} s")
    return True


def complete(state: JobState) -> bool:
    """Complete a job whose workers have all succeeded; servers get a little time to end by themselves."""
    counted = [(role, index) for role, index in state.wanted if role == "worker" or not state.spec.worker]
    succeeded = {(pod.role, pod.index) for pod in state.current() if pod.state == "succeeded"}
    if not succeeded.issuperset(counted):
        return False
    status = state.status
    others = [pod for pod in state.living() if not pod.over]
    if others and status.phase != "Completing":
        status.phase, status.message = "Completing", f"all workers succeeded; {len(others)} other pods still run"
        status.retry_at = state.now + state.options.finish_grace
    if others and status.retry_at is not None and state.now < status.retry_at:
        state.writes.requeue_after(status.retry_at - state.now)
        return True
    status.phase, status.completed_at, status.retry_at = "Completed", state.now, None
    status.started_at = status.started_at or state.now
    status.message = f"all {len(counted)} {'workers' if state.spec.worker else 'members'} succeeded"
    status.set("Running", False, "Completed", "", state.job, state.now)
    status.set("Complete", True, "Completed", status.message, state.job, state.now)
    state.emit("Completed", status.message)
    return True


def clean_up(state: JobState) -> None:
    """What an ended job leaves: level-based, so that what was not done at its end is done now."""
    phase, policy = state.status.phase, state.spec.clean_pod_policy
    for pod in state.living():
        if not pod.over or policy in _CLEANED[phase]:
            state.writes.deletes.append(Delete(pod.obj))
    others = [*state.children.pod_groups, *state.children.services, *state.children.config_maps]
    state.writes.deletes.extend(Delete(obj) for obj in others if "deletionTimestamp" not in obj["metadata"])
    give_up_lost(state)
    ttl, ended = state.spec.ttl_seconds_after_finished, state.status.completed_at
    if ttl is None or ended is None:
        return
    if state.now < ended + ttl:
        state.writes.requeue_after(ended + ttl - state.now)
    else:
        state.writes.expired = f"ended {stamp(ended)}, ttlSecondsAfterFinished {ttl} has passed"


# ---- phase and message


def set_phase(state: JobState) -> None:
    """Phase and message. Once a job ran it is Running, Scaling or Restarting, never Starting again."""
    status = state.status
    there = {(pod.role, pod.index): pod for pod in state.current()}
    states = [there[key].state if key in there else "missing" for key in state.wanted]
    active = sum(word in ("running", "succeeded") for word in states)
    if active == len(states) or (status.phase == "Running" and status.elastic == "DOING"):
        status.phase, status.message = "Running", f"{active} of {len(states)} members run"
        status.started_at = status.started_at or state.now
        if status.elastic == "DOING" and active == len(states) and _sizes_published(state):
            status.elastic = "DONE"
        status.set("Running", True, "Running", "all members run", state.job, state.now)
        return
    if status.phase == "Running":  # a member comes back alone
        status.phase = "Restarting"
    elif status.phase not in ("Restarting", "Scaling"):
        begun = any(word in ("starting", "running", "succeeded") for word in states)
        status.phase, status.message = "Starting" if begun else "Pending", ""
    status.message = _why(state, there) or status.message


def _sizes_published(state: JobState) -> bool:
    """Whether the current formation has the size that the job asks for."""
    membership = state.membership()
    return membership is not None and all(
        membership.count(role) == entry.replicas for role, entry in state.spec.roles().items()
    )


def _why(state: JobState, there: dict[tuple[str, int], Pod]) -> str:
    if state.status.retry_at is not None:
        return f"tries again at {stamp(state.status.retry_at)}: {failure_sentence(state.status.last_failure)}"
    together = gang.scheduled_together(state.spec, state.options)
    if together and not there and not gang.admitted(state.pod_group):
        state.writes.requeue_after(GANG_REASON_AGE)
        return f"waits for the gang: {gang.why_held(state.pod_group, state.gang_reason)}"[:_LONGEST]
    for pod in there.values():
        reason, message = pod.waits_for
        if reason and reason != "CreateContainerConfigError":
            return f"{pod.name} waits: {reason}: {message}"[:_LONGEST]
    terminating = next((pod.name for pod in state.pods if not pod.living), "")
    return f"waits until {terminating} is gone" if terminating else ""
