"""Who makes way for whom. The contract, in full:

- A job may evict jobs of its own queue that have a lower priority.
- A job whose queue (or a queue above it) stays within its guarantee with it may evict jobs of other queues, whatever their
  priority, as long as those queues and all above them, up to the first that both have in common, are beyond theirs.
- Nobody is evicted who has run for less than `Rules.least_run`, or was evicted within `Rules.window`.
- Members beyond the least of a job of the same or a lower priority go before any whole job (see `elastic`).
- Lower priorities go first, then those who lose the least work: time since the start times share of the cluster.
- Nobody is evicted unless the claimant then fits, in quota and on nodes, and each of the victims is needed for that.

Why this cannot go round in circles: by priority only the strictly lower is evicted. By guarantee the claimant's queue ends
within its guarantee, where nobody may reclaim from it, and the victim's was beyond its own, so what is used within
guarantees grows with every reclaim. The room is kept for the claimant until it starts, so nobody else moves in, and a
claimant does not ask again while its victims are on their way out.
"""

from __future__ import annotations

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import JobClass, allocated_total
from paddleflow.scheduling.cluster_state import ClusterState
from paddleflow.scheduling.elastic import spare_members
from paddleflow.scheduling.ledgers import QueueLedger, guaranteed_part
from paddleflow.scheduling.model import Allocation, Assignment, Eviction, Preempt, Reason, Resize
from paddleflow.scheduling.shares import dominant
from paddleflow.scheduling.victims import cheapest, rows_of


def preempt(state: ClusterState, job_class: JobClass, *, shrink: bool, evict: bool) -> list[Preempt | Resize]:
    """Who makes way so that the class's first job can start: spare members first, then whole jobs.

    Nobody when that does not help or is not allowed. The room is kept for the job from now on, and those who go are
    written down.
    """
    job = job_class.key[3]
    going = [*state.shrinks.values(), *[e for victim, e in state.evictions.items() if state.leaving(victim)]]
    if any(eviction.by == job for eviction in going):
        return []
    spare = spare_members(state, -job_class.key[0]) if shrink else []
    found = cheapest(state, job_class, spare) if spare else None
    if found is None and evict:
        found = victims_of(state, job_class, spare)
    if found is None:
        return []
    chosen, assignments = found
    state.unreserve(job)
    state.reserve(rows_of(job, job_class, assignments), job_class)
    whole = [allocation for allocation in chosen if not any(allocation is one for one in spare)]
    ended = {allocation.request.job for allocation in whole}
    decisions: list[Preempt | Resize] = []
    members: dict[str, tuple[Assignment, ...]] = {}
    for allocation in chosen:
        if allocation.request.job not in ended:
            members[allocation.request.job] = members.get(allocation.request.job, ()) + allocation.assignments
    for name, removed in members.items():
        state.shrinks[name] = Eviction(name, job, state.now, tuple((a.role, a.index) for a in removed))
        decisions.append(Resize(name, (), removed, job))
    for allocation in whole:
        state.evictions[allocation.request.job] = Eviction(allocation.request.job, job, state.now)
        decisions.append(Preempt(allocation.request.job, job, _reason(job_class, allocation)))
    return decisions


def victims_of(
    state: ClusterState, job_class: JobClass, spare: list[Allocation]
) -> tuple[list[Allocation], list[Assignment]] | None:
    """The cheapest jobs without which, and without spare members, the class's first job would start, and where."""
    going = {(allocation.request.job, allocation.assignments[0]) for allocation in spare}
    rest = []
    for victim in _candidates(state, job_class):
        left = tuple(a for a in victim.assignments if (victim.request.job, a) not in going)
        rest.append(victim if len(left) == len(victim.assignments) else victim._replace(assignments=left))
    return cheapest(state, job_class, spare + rest) if rest else None


def _candidates(state: ClusterState, job_class: JobClass) -> list[Allocation]:
    """Everybody who may be evicted for this job, in the order in which they go."""
    mine, priority = state.ledgers[job_class.queue], -job_class.key[0]
    found = [state.allocations[job] for job in mine.charges if state.allocations[job].request.priority < priority]
    entitled = [above for above in mine.path if guaranteed_part(above.used + job_class.total, _least(above)) <= 1.0]
    if entitled:
        others = [ledger for ledger in state.ledgers.values() if ledger.charges and ledger is not mine]
        found += [state.allocations[job] for other in others if _split(mine, other, entitled) for job in other.charges]
    capacity = state.cluster.capacity
    ranked = sorted(
        (
            allocation.request.priority,
            (state.now - allocation.since) * dominant(allocated_total(allocation), capacity),
            allocation.request.job,
        )
        for allocation in found
        if state.may_leave(allocation)
    )
    taken: dict[str, Resources] = {}
    chosen = []
    for _, _, job in ranked:
        allocation = state.allocations[job]
        ledger = state.ledgers[allocation.request.queue]
        below = () if ledger is mine else _split(mine, ledger, entitled)
        if all(
            guaranteed_part(above.used - taken.get(above.name, Resources()), _least(above)) > 1.0 for above in below
        ):
            chosen.append(allocation)
            for above in below:
                taken[above.name] = taken.get(above.name, Resources()) + allocated_total(allocation)
    return chosen


def _least(ledger: QueueLedger) -> Resources:
    return ledger.queue.guarantee if ledger.queue else Resources()


def _split(mine: QueueLedger, other: QueueLedger, entitled: list[QueueLedger]) -> tuple[QueueLedger, ...]:
    """The queues from `other` up to where the two paths meet; none when what is guaranteed to `mine` does not count there."""
    ours, theirs = mine.path[::-1], other.path[::-1]
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] is theirs[same]:
        same += 1
    if same == len(ours) or same == len(theirs) or ours[same] not in entitled:
        return ()
    return theirs[same:]


def _reason(job_class: JobClass, victim: Allocation) -> Reason:
    job, request = job_class.key[3], victim.request
    if request.queue == job_class.queue:
        return Reason(
            "priority", f"{job} of the same queue has priority {-job_class.key[0]}, this job {request.priority}"
        )
    return Reason(
        "reclaim", f"{job} needs what is guaranteed to queue {job_class.queue}, and {request.queue} had borrowed it"
    )
