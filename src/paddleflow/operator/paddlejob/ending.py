"""The end of a job: when it is done or overdue, and what is tidied up afterwards.

Pods that still run at the end are deleted whatever the policy says: nobody waits for them, and they hold resources. The
policy decides about those that ended. PodGroup, Service and ConfigMaps go with the end, the job itself with its TTL.
"""

from __future__ import annotations

from paddleflow.operator.paddlejob.job import stamp
from paddleflow.operator.paddlejob.presence import give_up_lost
from paddleflow.operator.paddlejob.state import Pass
from paddleflow.operator.paddlejob.writes import Delete

_CLEANED = {"Completed": ("Always", "OnCompletion"), "Failed": ("Always", "OnFailure")}


def overdue(state: Pass) -> bool:
    """Fail a job that was active for longer than it may."""
    deadline, since = state.spec.active_deadline_seconds, state.record.active_since
    if deadline is None or since is None:
        return False
    if (left := since + deadline - state.now) > 0:
        state.writes.look_again(left)
        return False
    state.fail("DeadlineExceeded", f"was active for longer than activeDeadlineSeconds, {deadline} s")
    return True


def done(state: Pass) -> bool:
    """Complete a job whose workers have all succeeded; servers get a little time to end by themselves."""
    counted = [(role, index) for role, index in state.wanted if role == "worker" or not state.spec.worker]
    succeeded = {(pod.role, pod.index) for pod in state.current() if pod.state == "succeeded"}
    if not succeeded.issuperset(counted):
        return False
    record = state.record
    others = [pod for pod in state.living() if not pod.over]
    if others and record.phase != "Completing":
        record.phase, record.message = "Completing", f"all workers succeeded; {len(others)} other pods still run"
        record.retry_at = state.now + state.options.finish_grace
    if others and record.retry_at is not None and state.now < record.retry_at:
        state.writes.look_again(record.retry_at - state.now)
        return True
    record.phase, record.completed_at, record.retry_at = "Completed", state.now, None
    record.started_at = record.started_at or state.now
    record.message = f"all {len(counted)} {'workers' if state.spec.worker else 'members'} succeeded"
    record.set("Running", False, "Completed", "", state.job, state.now)
    record.set("Complete", True, "Completed", record.message, state.job, state.now)
    state.say("Completed", record.message)
    return True


def tidy(state: Pass) -> None:
    """What an ended job leaves: level-based, so that what was not done at its end is done now."""
    phase, policy = state.record.phase, state.spec.clean_pod_policy
    for pod in state.living():
        if not pod.over or policy in _CLEANED[phase]:
            state.writes.deletes.append(Delete(pod.obj))
    others = [*state.children.pod_groups, *state.children.services, *state.children.config_maps]
    state.writes.deletes.extend(Delete(obj) for obj in others if "deletionTimestamp" not in obj["metadata"])
    give_up_lost(state)
    ttl, ended = state.spec.ttl_seconds_after_finished, state.record.completed_at
    if ttl is None or ended is None:
        return
    if state.now < ended + ttl:
        state.writes.look_again(ended + ttl - state.now)
    else:
        state.writes.expired = f"ended {stamp(ended)}, ttlSecondsAfterFinished {ttl} has passed"
