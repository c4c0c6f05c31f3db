"""One pass over a PaddleJob: from the job and its children to everything that is missing.

Level-based: a pass looks at what is, not at what happened, so it may be run at any time and again. It makes all missing objects
at once. A job that ended is only tidied up: nothing that ended is ever started again.
"""

from __future__ import annotations

from paddleflow.operator.paddlejob import ending, forming, presence, words
from paddleflow.operator.paddlejob.job import ENDED, Job, Options
from paddleflow.operator.paddlejob.members import FORMATION, read_pods
from paddleflow.operator.paddlejob.record import binding, changed, recall, urgent, written
from paddleflow.operator.paddlejob.state import Pass
from paddleflow.operator.paddlejob.writes import Children, Event, Writes


def reconcile(
    job: Job, children: Children, now: float, options: Options, *, refused: Event | None = None, host_port: int = 0
) -> Writes:
    """What has to be written now.

    `refused` is what the API server would not take in the pass before, in words. `host_port` is the first port of a range that
    no other job uses, taken when the job has none yet.
    """
    if job.deleting:
        return Writes()  # the children go with their owner
    writes = Writes()
    pods = read_pods(children.pods)
    carried = [int(obj["metadata"].get("annotations", {}).get(FORMATION, 0)) for obj in children.config_maps]
    state = Pass(job, children, now, options, pods, recall(job, pods, carried), writes)
    if job.spec is None:
        _refuse(state)
    else:
        if not job.ended:
            _advance(state, refused, host_port)
        if state.record.phase in ENDED:
            ending.tidy(state)
    if job.ended:
        return writes  # what it says is final: the pods that are tidied away still count
    after = written(job, state.record, pods)
    if changed(job.status, after):
        writes.status, writes.urgent, writes.first = after, urgent(job.status, after), binding(job.status, after)
    return writes


def _refuse(state: Pass) -> None:
    """A job that an older definition let in. What it has is left alone."""
    job, record = state.job, state.record
    record.set("Blocked", True, "InvalidSpec", job.fault, job, state.now)
    if record.message != job.fault:
        state.say("InvalidSpec", job.fault, warning=True)
    record.message = job.fault


def _advance(state: Pass, refused: Event | None, host_port: int) -> None:
    """The steps of a job that goes on."""
    record = state.record
    record.active_since = record.active_since or state.now
    if state.spec.intranet == "Host" and not record.host_port:
        record.host_port = host_port
    if ending.done(state):
        return
    if state.spec.suspend:
        forming.suspend(state)
        presence.clear(state)
        return
    forming.resume(state)
    if ending.overdue(state):
        return
    forming.count_failures(state)
    if record.phase == "Failed":
        return
    forming.count_losses(state)
    if state.by_etcd:
        forming.scale_by_etcd(state)
    else:
        forming.scale(state)
    presence.clear(state)
    presence.group(state)
    presence.create(state)
    presence.tell(state)
    words.describe(state)
    if refused:
        record.set("Blocked", True, refused.reason, refused.message, state.job, state.now)
        record.message = refused.message
    else:
        record.set("Blocked", False, "Accepted", "", state.job, state.now)
