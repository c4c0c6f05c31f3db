"""The smallest changes that would start a waiting job now, each of them true.

A change of the job itself (fewer members, a smaller size, another queue) is tried against quota, claims and nodes as they
are. After a cycle nobody else can start, so what fits the changed job is not taken by another first: that is why nothing
is suggested between an event and the next cycle, nor for a job for which quota or nodes are kept (changing it would open
them to others). Victims are suggested together with the room that `apply` keeps for the job while they go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.classes import JobClass, allocated_total, fault_of, total_of
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Eviction, Request, Reservation
from paddleflow.scheduling.nodes import selector_of
from paddleflow.scheduling.placement import Shortfall, place, sizes_of, undo
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
    job_class = core.pending.get(job)
    if job_class is None or core.touched or job_class.fault:
        return []
    request = job_class.jobs[job]
    found: list[Suggestion] = []
    if job not in core.reservations and not any(a.claim and a.claim.job == job for a in core.ledgers.values()):
        for options in (_fewer(core, request), _other_queues(core, request, queues), _smaller(core, request, sizes)):
            found.extend(option for option in [next(options, None)] if option is not None)
    if job_class.key[3] == job:
        found.extend(_victims(core, job_class))
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


def fitting(core: Core, requests: Iterable[Request]) -> list[Request]:
    """Which of these would start now, all of them together and beside those that wait here; nothing between an event and the next
    cycle, for somebody else may be first then."""
    if core.touched:
        return []
    cluster, version = core.cluster, core.cluster.version
    found, undone = [], []
    more: dict[str, Resources] = {}
    for request in requests:
        ledger, asked = core.ledgers.get(request.queue), more.get(request.queue, Resources()) + total_of(request)
        if ledger is None or fault_of(request) or not ledger.open or ledger.over(asked):
            continue
        if ledger.claimed(asked, request.priority, request.job):
            continue
        pool = cluster.pool(selector_of(request, ledger.queue))
        placed = place(cluster, pool, sizes_of(request.member_sets), request.constraint)
        if isinstance(placed, Shortfall):
            continue
        undone.append((placed, request.member_sets))
        found.append(request)
        more[request.queue] = asked
    for placed, member_sets in reversed(undone):
        undo(cluster, placed, member_sets)
    cluster.version = version
    return found


def why_not(core: Core, request: Request) -> str:
    """Why a job of another cluster would not start here now; empty when it would."""
    ledger = core.ledgers.get(request.queue)
    if ledger is None or not ledger.open:
        return f"queue {request.queue} is not open there"
    never = core.impossible(request)
    if never is not None:
        return never.text
    over = ledger.over(total_of(request))
    if over is not None:
        full, dimension = over
        return f"queue {full.name} has {dimension} {full.used.text(dimension)} in use there, and no room for it"
    if not _starts(core, request):
        return "not enough is free on its nodes now"
    return ""


def _starts(core: Core, request: Request) -> bool:
    """Whether the job would start now if it were like this."""
    ledger = core.ledgers.get(request.queue)
    total = total_of(request)
    if fault_of(request) or ledger is None or not ledger.open or ledger.over(total):
        return False
    if ledger.claimed(total, request.priority, request.job):
        return False
    if request.data and core.now < request.submitted_at + core.rules.data_wait:
        return False  # it would rather wait for its data
    selector = selector_of(request, ledger.queue)
    cluster, version = core.cluster, core.cluster.version
    placed = place(cluster, cluster.pool(selector), sizes_of(request.member_sets), request.constraint)
    if isinstance(placed, Shortfall):
        return False
    undo(cluster, placed, request.member_sets)
    cluster.version = version
    return True


def _fewer(core: Core, request: Request) -> Iterator[Suggestion]:
    """As many members of the largest role as can start, if that is at least one."""
    at, member_set = max(enumerate(request.member_sets), key=lambda pair: pair[1].minimum, default=(0, None))
    if member_set is None or member_set.minimum < 2:
        return

    def with_members(count: int) -> Request:
        fewer = replace(member_set, count=count, min_count=None if member_set.min_count is None else count)
        return request._replace(member_sets=(*request.member_sets[:at], fewer, *request.member_sets[at + 1 :]))

    low, high = 0, member_set.minimum - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _starts(core, with_members(middle)):
            low = middle
        else:
            high = middle - 1
    if low and _starts(core, with_members(low)):
        text = f"with {low} instead of {member_set.minimum} members of role {member_set.role} it starts now"
        yield Suggestion("fewer", text, with_members(low))


def _other_queues(core: Core, request: Request, queues: Iterable[str]) -> Iterator[Suggestion]:
    for name in queues:
        moved = request._replace(queue=name)
        if name != request.queue and _starts(core, moved):
            yield Suggestion("queue", f"in queue {name} it starts now", moved)


def _smaller(core: Core, request: Request, sizes: Iterable[Resources]) -> Iterator[Suggestion]:
    """The largest of the sizes below the present one with which it starts; all members of that size change."""
    largest = max((member_set.each for member_set in request.member_sets), key=_magnitude, default=Resources())
    for size in sorted(sizes, key=_magnitude, reverse=True):
        if size == largest or not size.fits(largest):
            continue
        member_sets = tuple(
            replace(member_set, each=size) if member_set.each == largest else member_set
            for member_set in request.member_sets
        )
        if _starts(core, request._replace(member_sets=member_sets)):
            text = f"with members of {size} instead of {largest} it starts now"
            yield Suggestion("smaller", text, request._replace(member_sets=member_sets))


def _magnitude(size: Resources) -> tuple[int, int, int]:
    return (sum(amount for _, amount in size.scalars), size.cpu, size.memory)


def _victims(core: Core, job_class: JobClass) -> Iterator[Suggestion]:
    """Whose end would start it, by least lost work: for people who may end jobs, so the contract does not count here."""
    ledger, priority, job = core.ledgers[job_class.queue], -job_class.key[0], job_class.key[3]
    limited = [above for above in ledger.path if above.queue and above.queue.ceiling is not None]
    rivals = [a for a in core.ledgers.values() if any(above in a.path for above in limited)]
    ahead = any(higher > priority for rival in rivals for higher in rival.bands)  # these would take the quota first
    waits = ledger.claimed(job_class.total, priority, job)
    kept = any(other != job for other in core.reservations)
    if not ledger.open or not core.possible(job_class) or ahead or waits or kept:
        return
    over = ledger.over(job_class.total)
    recent: Iterable[str] = reversed(core.allocations)  # those who began last lose least
    if over is not None:
        below = [job for a in core.ledgers.values() if over[0] in a.path for job in a.charges]
        recent = sorted(below, key=lambda job: core.allocations[job].since, reverse=True)
    capacity = core.cluster.capacity
    ranked = sorted(
        (
            allocation.request.priority,
            (core.now - allocation.since) * dominant(allocated_total(allocation), capacity),
            allocation.request.job,
        )
        for allocation in map(core.allocations.__getitem__, islice(recent, 4 * core.rules.victims))
    )
    found = cheapest(core, job_class, [core.allocations[job] for _, _, job in ranked])
    if found is not None:
        victims = tuple(allocation.request.job for allocation in found[0])
        text = f"if {', '.join(victims)} ended it would start now"
        yield Suggestion("victims", text, None, victims, rows_of(job, job_class, found[1]))
