"""Jobs whose members come and go: growing into what is idle, giving it back when others wait.

A job starts with its least members. What is idle after everybody who can start has started, and nobody waits for room, is
given out one member at a time to the job that has got the smallest part of what it may have: (members - least) / (most -
least), counted as it changes, so that equals end up equal. When a job cannot start, members are taken back in the opposite
order, never below the least, and before anybody is evicted. When nobody waits and nothing is idle, the best served give to
the worst served until they are about level. A job changes at most once in `Rules.resize_pause`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from paddleflow.scheduling.classes import allocated_total
from paddleflow.scheduling.cluster_state import ClusterState, by_node
from paddleflow.scheduling.model import Allocation, Assignment, MemberSet, Resize
from paddleflow.scheduling.nodes import selector_of
from paddleflow.scheduling.placement import Shortfall, SizeGroup, place


def spare(allocation: Allocation) -> int:
    """How many members a job has beyond the least."""
    return sum(
        max(0, _members(allocation, member_set) - member_set.minimum) for member_set in allocation.request.member_sets
    )


def headroom(allocation: Allocation) -> int:
    """How many more it may have."""
    return sum(
        max(0, member_set.count - _members(allocation, member_set))
        for member_set in allocation.request.member_sets
        if member_set.min_count is not None
    )


def fulfilment(spare_now: int, room_now: int) -> float:
    """The part of what it may have beyond the least that a job has; 1 when it can have no more."""
    return spare_now / (spare_now + room_now) if spare_now + room_now else 1.0


def _members(allocation: Allocation, member_set: MemberSet) -> int:
    return sum([assignment.role == member_set.role for assignment in allocation.assignments])


def grow(state: ClusterState, jobs: Iterable[str]) -> dict[str, tuple[Assignment, ...]]:
    """Give what is idle to these running jobs, in fair fair_share; the new members of each that got some."""
    heap = [
        (fulfilment(spare(state.allocations[job]), headroom(state.allocations[job])), job)
        for job in jobs
        if headroom(state.allocations[job])
    ]
    heapify(heap)
    added: dict[str, tuple[Assignment, ...]] = {}
    while heap:
        _, job = heappop(heap)
        new = _one_more(state, state.allocations[job])
        if new is not None:
            allocation = state.allocations[job]
            state.change(job, tuple(sorted((*allocation.assignments, new), key=lambda a: (a.role, a.index))))
            added[job] = (*added.get(job, ()), new)
            if allocation.request.constraint is not None:
                allocation.request.constraint.started(state.cluster, job, (new,))
            if headroom(state.allocations[job]):
                heappush(heap, (fulfilment(spare(state.allocations[job]), headroom(state.allocations[job])), job))
    return added


def _one_more(state: ClusterState, allocation: Allocation) -> Assignment | None:
    """A place for one more member, taken; of several roles that may grow, the one with the smallest part first."""
    request = allocation.request
    ledger = state.ledgers[request.queue]
    if not ledger.open:
        return None
    selector = selector_of(request, ledger.queue)
    growing = [
        member_set
        for member_set in request.member_sets
        if member_set.min_count is not None and _members(allocation, member_set) < member_set.count
    ]
    for member_set in sorted(
        growing, key=lambda member_set: (_members(allocation, member_set) / member_set.count, member_set.role)
    ):
        if ledger.over(member_set.each) or ledger.claimed(member_set.each, request.priority, request.job):
            continue
        used = {assignment.index for assignment in allocation.assignments if assignment.role == member_set.role}
        index = next(index for index in range(member_set.count) if index not in used)
        one = [SizeGroup(member_set.each, [(member_set.role, index)])]
        placed = place(state.cluster, state.cluster.pool(selector), one, request.constraint)
        if not isinstance(placed, Shortfall):
            return placed[0]
    return None


def spare_members(state: ClusterState, priority: int) -> list[Allocation]:
    """Members that may be taken back for a job of this priority, one `Allocation` each, in the order in which they go."""
    heap = []
    for allocation in state.elastic_allocations():
        request = allocation.request
        if request.priority <= priority and spare(allocation) and state.may_change(allocation):
            heap.append(
                (
                    -fulfilment(spare(allocation), headroom(allocation)),
                    request.job,
                    spare(allocation),
                    headroom(allocation),
                    _newest_first(allocation),
                )
            )
    heapify(heap)
    order: list[Allocation] = []
    while heap:
        _, job, left, free, members = heappop(heap)
        order.append(Allocation(state.allocations[job].request, (members[0],), state.allocations[job].since))
        if left > 1:
            heappush(heap, (-fulfilment(left - 1, free + 1), job, left - 1, free + 1, members[1:]))
    return order


def _newest_first(allocation: Allocation) -> tuple[Assignment, ...]:
    """The members beyond the least: highest numbers first, of the role that has most to spare."""
    found: list[tuple[int, Assignment]] = []
    for member_set in allocation.request.member_sets:
        mine = sorted((a for a in allocation.assignments if a.role == member_set.role), key=lambda a: a.index)
        found += [(-at, assignment) for at, assignment in enumerate(mine[member_set.minimum :])]
    return tuple(assignment for _, assignment in sorted(found, key=lambda row: (row[0], row[1].role)))


def balance(state: ClusterState) -> list[Resize]:
    """Members to take from the best served, where the worst served can then have them: what is given back levels out.

    Nothing moves for a difference below `Rules.uneven`, between priorities, or while members are on their way out. The
    giver ends no worse than the taker, so the next look finds less to do, and in the end nothing.
    """
    if state.shrinks:
        return []
    changing = [
        allocation
        for allocation in state.elastic_allocations()
        if spare(allocation) + headroom(allocation) and state.may_change(allocation, grow=True)
    ]
    ranked = sorted(
        changing, key=lambda allocation: (fulfilment(spare(allocation), headroom(allocation)), allocation.request.job)
    )
    found = []
    for low, high in zip(ranked, reversed(ranked), strict=True):
        mine, theirs = spare(low), spare(high)
        limits = mine + headroom(low), theirs + headroom(high)
        if theirs / limits[1] - mine / limits[0] < state.rules.uneven:
            break
        number = (theirs * limits[0] - mine * limits[1]) // (limits[0] + limits[1])
        removed = _newest_first(high)[:number]
        if removed and low.request.priority == high.request.priority and _helps(state, high, removed, low):
            found.append(Resize(high.request.job, (), removed, low.request.job))
    return found


def _helps(state: ClusterState, high: Allocation, removed: tuple[Assignment, ...], low: Allocation) -> bool:
    """Whether one job could have another member without these of another; the state is as before."""
    part, cluster, version = high._replace(assignments=removed), state.cluster, state.cluster.version
    before = state.allocations[high.request.job]
    ledger = state.ledgers[high.request.queue]
    ledger.change_charge(high.request.job, allocated_total(high._replace(assignments=_without(high, removed))))
    places = [(cluster.states[name], rows) for name, rows in by_node(part).items() if name in cluster.states]
    for node, rows in places:
        cluster.put(node, rows)
    new = _one_more(state, low)
    if new is not None:
        each = next(member_set.each for member_set in low.request.member_sets if member_set.role == new.role)
        cluster.put(cluster.states[new.node], [(each, new.devices)])
    for node, rows in places:
        cluster.hold(node, rows)
    ledger.change_charge(high.request.job, allocated_total(before))
    cluster.version = version
    return new is not None


def _without(allocation: Allocation, removed: tuple[Assignment, ...]) -> tuple[Assignment, ...]:
    return tuple(assignment for assignment in allocation.assignments if assignment not in removed)
