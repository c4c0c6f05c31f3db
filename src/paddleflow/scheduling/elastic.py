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

from paddleflow.scheduling.classes import held_total
from paddleflow.scheduling.model import Assignment, Held, Need, Resize
from paddleflow.scheduling.nodes import choice_of
from paddleflow.scheduling.placement import Part, Short, place
from paddleflow.scheduling.table import Table, by_node


def spare(held: Held) -> int:
    """How many members a job has beyond the least."""
    return sum(max(0, _members(held, need) - need.minimum) for need in held.request.needs)


def room(held: Held) -> int:
    """How many more it may have."""
    return sum(max(0, need.count - _members(held, need)) for need in held.request.needs if need.least is not None)


def fulfilment(spare_now: int, room_now: int) -> float:
    """The part of what it may have beyond the least that a job has; 1 when it can have no more."""
    return spare_now / (spare_now + room_now) if spare_now + room_now else 1.0


def _members(held: Held, need: Need) -> int:
    return sum([assignment.role == need.role for assignment in held.assignments])


def grow(table: Table, jobs: Iterable[str]) -> dict[str, tuple[Assignment, ...]]:
    """Give what is idle to these running jobs, in fair turns; the new members of each that got some."""
    heap = [(fulfilment(spare(table.held[job]), room(table.held[job])), job) for job in jobs if room(table.held[job])]
    heapify(heap)
    added: dict[str, tuple[Assignment, ...]] = {}
    while heap:
        _, job = heappop(heap)
        new = _one_more(table, table.held[job])
        if new is not None:
            held = table.held[job]
            table.change(job, tuple(sorted((*held.assignments, new), key=lambda a: (a.role, a.index))))
            added[job] = (*added.get(job, ()), new)
            if room(table.held[job]):
                heappush(heap, (fulfilment(spare(table.held[job]), room(table.held[job])), job))
    return added


def _one_more(table: Table, held: Held) -> Assignment | None:
    """A place for one more member, taken; of several roles that may grow, the one with the smallest part first."""
    request = held.request
    account = table.accounts[request.queue]
    if not account.open:
        return None
    choice = choice_of(request, account.queue)
    growing = [need for need in request.needs if need.least is not None and _members(held, need) < need.count]
    for need in sorted(growing, key=lambda need: (_members(held, need) / need.count, need.role)):
        if account.over(need.each) or account.claimed(need.each, request.priority, request.job):
            continue
        used = {assignment.index for assignment in held.assignments if assignment.role == need.role}
        index = next(index for index in range(need.count) if index not in used)
        placed = place(table.cluster, table.cluster.pool(choice), [Part(need.each, [(need.role, index)])])
        if not isinstance(placed, Short):
            return placed[0]
    return None


def spare_members(table: Table, priority: int) -> list[Held]:
    """Members that may be taken back for a job of this priority, one `Held` each, in the order in which they go."""
    heap = []
    for job, held in table.held.items():
        if held.request.priority <= priority and spare(held) and table.may_change(held):
            heap.append((-fulfilment(spare(held), room(held)), job, spare(held), room(held), _newest_first(held)))
    heapify(heap)
    order: list[Held] = []
    while heap:
        _, job, left, free, members = heappop(heap)
        order.append(Held(table.held[job].request, (members[0],), table.held[job].since))
        if left > 1:
            heappush(heap, (-fulfilment(left - 1, free + 1), job, left - 1, free + 1, members[1:]))
    return order


def _newest_first(held: Held) -> tuple[Assignment, ...]:
    """The members beyond the least: highest numbers first, of the role that has most to spare."""
    found: list[tuple[int, Assignment]] = []
    for need in held.request.needs:
        mine = sorted((a for a in held.assignments if a.role == need.role), key=lambda a: a.index)
        found += [(-at, assignment) for at, assignment in enumerate(mine[need.minimum :])]
    return tuple(assignment for _, assignment in sorted(found, key=lambda row: (row[0], row[1].role)))


def balance(table: Table) -> list[Resize]:
    """Members to take from the best served, where the worst served can then have them: what is given back levels out.

    Nothing moves for a difference below `Rules.uneven`, between priorities, or while members are on their way out. The
    giver ends no worse than the taker, so the next look finds less to do, and in the end nothing.
    """
    if table.shrinks:
        return []
    changing = [held for held in table.held.values() if spare(held) + room(held) and table.may_change(held, grow=True)]
    ranked = sorted(changing, key=lambda held: (fulfilment(spare(held), room(held)), held.request.job))
    found = []
    for low, high in zip(ranked, reversed(ranked), strict=True):
        mine, theirs = spare(low), spare(high)
        limits = mine + room(low), theirs + room(high)
        if theirs / limits[1] - mine / limits[0] < table.rules.uneven:
            break
        number = (theirs * limits[0] - mine * limits[1]) // (limits[0] + limits[1])
        removed = _newest_first(high)[:number]
        if removed and low.request.priority == high.request.priority and _helps(table, high, removed, low):
            found.append(Resize(high.request.job, (), removed, low.request.job))
    return found


def _helps(table: Table, high: Held, removed: tuple[Assignment, ...], low: Held) -> bool:
    """Whether one job could have another member without these of another; the table is as before."""
    part, cluster, version = high._replace(assignments=removed), table.cluster, table.cluster.version
    before = table.held[high.request.job]
    account = table.accounts[high.request.queue]
    account.recharge(high.request.job, held_total(high._replace(assignments=_without(high, removed))))
    places = [(cluster.states[name], rows) for name, rows in by_node(part).items() if name in cluster.states]
    for state, rows in places:
        cluster.put(state, rows)
    new = _one_more(table, low)
    if new is not None:
        each = next(need.each for need in low.request.needs if need.role == new.role)
        cluster.put(cluster.states[new.node], [(each, new.devices)])
    for state, rows in places:
        cluster.hold(state, rows)
    account.recharge(high.request.job, held_total(before))
    cluster.version = version
    return new is not None


def _without(held: Held, removed: tuple[Assignment, ...]) -> tuple[Assignment, ...]:
    return tuple(assignment for assignment in held.assignments if assignment not in removed)
