"""The smallest changes that would start a waiting job now, each of them true.

A change of the job itself (fewer members, a smaller size, another queue) is tried against quota, claims and nodes as they
are. After a cycle nobody else can start, so what fits the changed job is not taken by another first: that is why nothing
is suggested between an event and the next cycle, nor for a job for which quota or nodes are kept (changing it would open
them to others). Victims are suggested together with the room that `apply` keeps for the job while they go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import Line, fault_of, held_total, total_of
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Eviction, Request, Reservation
from paddleflow.scheduling.nodes import choice_of
from paddleflow.scheduling.placement import Short, parts_of, place, undo
from paddleflow.scheduling.shares import dominant
from paddleflow.scheduling.victims import cheapest, rows_of


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One change, and what it is for a program: the job as it would be, or who would have to end."""

    code: str  #: fewer, smaller, queue or victims
    text: str
    request: Request | None = None
    victims: tuple[str, ...] = ()
    reservation: Reservation | None = None  #: where the job goes when the victims have gone


def suggest(core: Core, job: str, queues: Iterable[str] = (), sizes: Iterable[Resources] = ()) -> list[Suggestion]:
    """What would start this job now; `queues` are those that its user may use, `sizes` the flavours there are."""
    line = core.pending.get(job)
    if line is None or core.touched or line.fault:
        return []
    request = line.jobs[job]
    found: list[Suggestion] = []
    if job not in core.reservations and not any(a.claim and a.claim.job == job for a in core.accounts.values()):
        for options in (_fewer(core, request), _other_queues(core, request, queues), _smaller(core, request, sizes)):
            found.extend(option for option in [next(options, None)] if option is not None)
    if line.key[3] == job:
        found.extend(_victims(core, line))
    return found


def apply(core: Core, job: str, suggestion: Suggestion) -> None:
    """Change the state as the suggestion says."""
    if suggestion.request is not None:
        core.withdraw(job)
        core.submit(suggestion.request)
    if suggestion.reservation is not None:
        core.unreserve(job)
        core.restore(suggestion.reservation)
        for victim in suggestion.victims:
            core.evictions[victim] = Eviction(victim, job, core.now)
            core.release(victim)


def _starts(core: Core, request: Request) -> bool:
    """Whether the job would start now if it were like this."""
    account = core.accounts.get(request.queue)
    total = total_of(request)
    if fault_of(request) or account is None or not account.open or account.over(total):
        return False
    if account.claimed(total, request.priority, request.job):
        return False
    if request.data and core.now < request.submitted_at + core.rules.data_wait:
        return False  # it would rather wait for its data
    choice = choice_of(request, account.queue)
    cluster, version = core.cluster, core.cluster.version
    placed = place(cluster, cluster.pool(choice), parts_of(request.needs))
    if isinstance(placed, Short):
        return False
    undo(cluster, placed, request.needs)
    cluster.version = version
    return True


def _fewer(core: Core, request: Request) -> Iterator[Suggestion]:
    """As many members of the largest role as can start, if that is at least one."""
    at, need = max(enumerate(request.needs), key=lambda pair: pair[1].minimum, default=(0, None))
    if need is None or need.minimum < 2:
        return

    def with_members(count: int) -> Request:
        fewer = replace(need, count=count, least=None if need.least is None else count)
        return request._replace(needs=(*request.needs[:at], fewer, *request.needs[at + 1 :]))

    low, high = 0, need.minimum - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _starts(core, with_members(middle)):
            low = middle
        else:
            high = middle - 1
    if low and _starts(core, with_members(low)):
        text = f"with {low} instead of {need.minimum} members of role {need.role} it starts now"
        yield Suggestion("fewer", text, with_members(low))


def _other_queues(core: Core, request: Request, queues: Iterable[str]) -> Iterator[Suggestion]:
    for name in queues:
        moved = request._replace(queue=name)
        if name != request.queue and _starts(core, moved):
            yield Suggestion("queue", f"in queue {name} it starts now", moved)


def _smaller(core: Core, request: Request, sizes: Iterable[Resources]) -> Iterator[Suggestion]:
    """The largest of the sizes below the present one with which it starts; all members of that size change."""
    largest = max((need.each for need in request.needs), key=_magnitude, default=Resources())
    for size in sorted(sizes, key=_magnitude, reverse=True):
        if size == largest or not size.fits(largest):
            continue
        needs = tuple(replace(need, each=size) if need.each == largest else need for need in request.needs)
        if _starts(core, request._replace(needs=needs)):
            text = f"with members of {size} instead of {largest} it starts now"
            yield Suggestion("smaller", text, request._replace(needs=needs))


def _magnitude(size: Resources) -> tuple[int, int, int]:
    return (sum(amount for _, amount in size.scalars), size.cpu, size.memory)


def _victims(core: Core, line: Line) -> Iterator[Suggestion]:
    """Whose end would start it, by least lost work: for people who may end jobs, so the contract does not count here."""
    account, priority, job = core.accounts[line.queue], -line.key[0], line.key[3]
    limited = [above for above in account.path if above.queue and above.queue.most is not None]
    rivals = [a for a in core.accounts.values() if any(above in a.path for above in limited)]
    ahead = any(higher > priority for rival in rivals for higher in rival.levels)  # these would take the quota first
    waits = account.claimed(line.total, priority, job)
    kept = any(other != job for other in core.reservations)
    if not account.open or not core.possible(line) or ahead or waits or kept:
        return
    over = account.over(line.total)
    recent: Iterable[str] = reversed(core.held)  # those who began last lose least
    if over is not None:
        below = [job for a in core.accounts.values() if over[0] in a.path for job in a.held]
        recent = sorted(below, key=lambda job: core.held[job].since, reverse=True)
    capacity = core.cluster.capacity
    ranked = sorted(
        (held.request.priority, (core.now - held.since) * dominant(held_total(held), capacity), held.request.job)
        for held in map(core.held.__getitem__, islice(recent, 4 * core.rules.victims))
    )
    found = cheapest(core, line, [core.held[job] for _, _, job in ranked])
    if found is not None:
        victims = tuple(held.request.job for held in found[0])
        text = f"if {', '.join(victims)} ended it would start now"
        yield Suggestion("victims", text, None, victims, rows_of(job, line, found[1]))
