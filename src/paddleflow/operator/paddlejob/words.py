"""The last step of a pass: the phase, and what the job waits for, in words."""

from __future__ import annotations

from paddleflow.operator.paddlejob import gang, losses
from paddleflow.operator.paddlejob.job import stamp
from paddleflow.operator.paddlejob.members import Pod
from paddleflow.operator.paddlejob.state import Pass

_LONGEST = 500


def describe(state: Pass) -> None:
    """Phase and message. Once a job ran it is Running, Scaling or Restarting, never Starting again."""
    record = state.record
    there = {(pod.role, pod.index): pod for pod in state.current()}
    states = [there[key].state if key in there else "missing" for key in state.wanted]
    active = sum(word in ("running", "succeeded") for word in states)
    if active == len(states) or (record.phase == "Running" and record.elastic == "DOING"):
        record.phase, record.message = "Running", f"{active} of {len(states)} members run"
        record.started_at = record.started_at or state.now
        record.set("Running", True, "Running", "all members run", state.job, state.now)
        return
    if record.phase == "Running":  # a member comes back alone
        record.phase = "Restarting"
    elif record.phase not in ("Restarting", "Scaling"):
        begun = any(word in ("starting", "running", "succeeded") for word in states)
        record.phase, record.message = "Starting" if begun else "Pending", ""
    record.message = _why(state, there) or record.message


def _why(state: Pass, there: dict[tuple[str, int], Pod]) -> str:
    if state.record.retry_at is not None:
        return f"tries again at {stamp(state.record.retry_at)}: {losses.sentence(state.record.last_failure)}"
    together = gang.scheduled_together(state.spec, state.options)
    if together and not there and not gang.admitted(state.pod_group):
        return f"waits for the gang: {gang.why_held(state.pod_group)}"[:_LONGEST]
    for pod in there.values():
        reason, message = pod.waits_for
        if reason and reason != "CreateContainerConfigError":
            return f"{pod.name} waits: {reason}: {message}"[:_LONGEST]
    going = next((pod.name for pod in state.pods if not pod.living), "")
    return f"waits until {going} is gone" if going else ""
