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
from paddleflow.scheduling.accounts import Account, guaranteed_part
from paddleflow.scheduling.classes import Line, held_total
from paddleflow.scheduling.elastic import spare_members
from paddleflow.scheduling.model import Assignment, Eviction, Held, Preempt, Reason, Resize
from paddleflow.scheduling.shares import dominant
from paddleflow.scheduling.table import Table
from paddleflow.scheduling.victims import cheapest, rows_of


def make_way(table: Table, line: Line, *, shrink: bool, evict: bool) -> list[Preempt | Resize]:
    """Who makes way so that the line's first job can start: spare members first, then whole jobs.

    Nobody when that does not help or is not allowed. The room is kept for the job from now on, and those who go are
    written down.
    """
    job = line.key[3]
    going = [*table.shrinks.values(), *[e for victim, e in table.evictions.items() if table.leaving(victim)]]
    if any(eviction.by == job for eviction in going):
        return []
    spare = spare_members(table, -line.key[0]) if shrink else []
    found = cheapest(table, line, spare) if spare else None
    if found is None and evict:
        found = victims_of(table, line, spare)
    if found is None:
        return []
    chosen, assignments = found
    table.unreserve(job)
    table.reserve(rows_of(job, line, assignments), line)
    whole = [held for held in chosen if not any(held is one for one in spare)]
    ended = {held.request.job for held in whole}
    decisions: list[Preempt | Resize] = []
    members: dict[str, tuple[Assignment, ...]] = {}
    for held in chosen:
        if held.request.job not in ended:
            members[held.request.job] = members.get(held.request.job, ()) + held.assignments
    for name, removed in members.items():
        table.shrinks[name] = Eviction(name, job, table.now, tuple((a.role, a.index) for a in removed))
        decisions.append(Resize(name, (), removed, job))
    for held in whole:
        table.evictions[held.request.job] = Eviction(held.request.job, job, table.now)
        decisions.append(Preempt(held.request.job, job, _reason(line, held)))
    return decisions


def victims_of(table: Table, line: Line, spare: list[Held]) -> tuple[list[Held], list[Assignment]] | None:
    """The cheapest jobs without which, and without spare members, the line's first job would start, and where."""
    going = {(held.request.job, held.assignments[0]) for held in spare}
    rest = []
    for victim in _candidates(table, line):
        left = tuple(a for a in victim.assignments if (victim.request.job, a) not in going)
        rest.append(victim if len(left) == len(victim.assignments) else victim._replace(assignments=left))
    return cheapest(table, line, spare + rest) if rest else None


def _candidates(table: Table, line: Line) -> list[Held]:
    """Everybody who may be evicted for this job, in the order in which they go."""
    mine, priority = table.accounts[line.queue], -line.key[0]
    found = [table.held[job] for job in mine.held if table.held[job].request.priority < priority]
    entitled = [above for above in mine.path if guaranteed_part(above.used + line.total, _least(above)) <= 1.0]
    if entitled:
        others = [account for account in table.accounts.values() if account.held and account is not mine]
        found += [table.held[job] for other in others if _split(mine, other, entitled) for job in other.held]
    capacity = table.cluster.capacity
    ranked = sorted(
        (held.request.priority, (table.now - held.since) * dominant(held_total(held), capacity), held.request.job)
        for held in found
        if table.may_leave(held)
    )
    taken: dict[str, Resources] = {}
    chosen = []
    for _, _, job in ranked:
        held = table.held[job]
        account = table.accounts[held.request.queue]
        below = () if account is mine else _split(mine, account, entitled)
        if all(
            guaranteed_part(above.used - taken.get(above.name, Resources()), _least(above)) > 1.0 for above in below
        ):
            chosen.append(held)
            for above in below:
                taken[above.name] = taken.get(above.name, Resources()) + held_total(held)
    return chosen


def _least(account: Account) -> Resources:
    return account.queue.least if account.queue else Resources()


def _split(mine: Account, other: Account, entitled: list[Account]) -> tuple[Account, ...]:
    """The queues from `other` up to where the two paths meet; none when what is guaranteed to `mine` does not count there."""
    ours, theirs = mine.path[::-1], other.path[::-1]
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] is theirs[same]:
        same += 1
    if same == len(ours) or same == len(theirs) or ours[same] not in entitled:
        return ()
    return theirs[same:]


def _reason(line: Line, victim: Held) -> Reason:
    job, request = line.key[3], victim.request
    if request.queue == line.queue:
        return Reason("priority", f"{job} of the same queue has priority {-line.key[0]}, this job {request.priority}")
    return Reason(
        "reclaim", f"{job} needs what is guaranteed to queue {line.queue}, and {request.queue} had borrowed it"
    )
