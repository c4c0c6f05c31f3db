"""Pending jobs in groups that stand or fall together, so that one failed attempt answers for all.

    SlotSize   what one member takes, and in which pool of nodes     "how many more fit at most" is known here
    Gang     the slot_sizes of a whole job, with their counts        whether a gang finds room is known here
    JobClass      a queue, a priority and a gang                       whether quota allows it is known here
    job       a member of a class, by age

All equality and all order of the pending side is in this module; `core` moves the classes between their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from heapq import heapify, heappop, heappush
from operator import itemgetter

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.model import Allocation, Constraint, Request
from paddleflow.scheduling.nodes import NodeSelector, Pool
from paddleflow.scheduling.placement import SizeGroup, sizes_of

Key = tuple[int, float, int, str]  #: minus priority, age, order, job: the one order of all pending jobs
_STALE = 64  # heaps drop what is out of date at their top; beyond this many extra rows they are swept
MOST_MEMBERS = 1_000_000  #: of one role; more are a mistake, and listing them would take for ever
LAST: Key = (1 << 200, float("inf"), 0, "")


def age_of(request: Request) -> tuple[float, int, str]:
    """Older is less; a moment that is no number counts as the beginning of time."""
    at = request.submitted_at
    return (at if at == at else float("-inf"), request.seq, request.job)


#: All of a request but its job, age and order.
COMMON = itemgetter(*[at for at, name in enumerate(Request._fields) if name not in ("job", "submitted_at", "seq")])


def class_key(request: Request, more: tuple[object, ...] = ()) -> tuple[object, ...]:
    """Equal for requests that stand or fall together; flat, because hashing nested dataclasses is slow."""
    member_sets = request.member_sets
    rest = (
        request.queue,
        request.priority,
        request.node_labels,
        request.tolerates,
        request.together,
        request.data,
        request.filter,
        request.constraint,
        request.preempts,
        more,
    )
    if len(member_sets) == 1:
        member_set = member_sets[0]
        each = member_set.each
        return (member_set.role, member_set.count, member_set.min_count, each.cpu, each.memory, each.scalars, *rest)
    return (*member_sets, *rest)


def fault_of(request: Request) -> str:
    """What makes a request one that no cluster can serve, in words; empty when it is sound."""
    roles = [member_set.role for member_set in request.member_sets]
    if len(set(roles)) < len(roles):
        return f"role {next(role for role in roles if roles.count(role) > 1)} is named twice"
    for member_set in request.member_sets:
        if member_set.minimum > member_set.count:
            return f"role {member_set.role} has at least {member_set.minimum} members and at most {member_set.count}"
        if member_set.count > MOST_MEMBERS:
            return f"role {member_set.role} has {member_set.count} members, more than the {MOST_MEMBERS} that a job may have"
        amounts = [
            member_set.minimum,
            member_set.each.cpu,
            member_set.each.memory,
            *[amount for _, amount in member_set.each.scalars],
        ]
        if min(amounts) < 0:
            return f"role {member_set.role} asks for less than nothing ({member_set.count} of {member_set.each})"
    return ""


@dataclass(slots=True, eq=False)
class SlotSize:
    """What one member takes, in which pool."""

    pool: Pool
    each: Resources
    fits: int | None = None  #: no more members than this fit now; None: not known
    users: int = 0  #: gangs made of it
    waiting: list[tuple[int, int, Gang]] = field(default_factory=list)  #: heap by members wanted


@dataclass(slots=True, eq=False)
class Gang:
    """The members of a job and the selector they ask for."""

    serial: int
    identity: tuple[object, ...]
    selector: NodeSelector
    sizes: list[SizeGroup]
    slot_sizes: list[SlotSize]
    constraint: Constraint | None = None
    users: int = 0  #: classes that have this gang
    waits: bool = False  #: for room on nodes: not worth trying until `slots` says so
    possible: bool | None = None  #: on the nodes as they are, empty; None: not asked yet

    def lacks(self, at: int) -> bool:
        """Whether fewer of this size's members fit than it has, whatever else is placed."""
        fits = self.slot_sizes[at].fits
        return fits is not None and fits < len(self.sizes[at].members)

    def short(self) -> bool:
        return any(self.lacks(at) for at in range(len(self.sizes)))


@dataclass(slots=True, eq=False)
class JobClass:
    """Pending jobs of one queue, priority and gang, the oldest first."""

    serial: int
    identity: tuple[object, ...]
    queue: str
    sample: Request
    total: Resources
    fault: str
    gang: Gang
    jobs: dict[str, Request] = field(default_factory=dict)
    key: Key = LAST  #: that of its first job
    possible: bool | None = None  #: could start if nothing else were there; None: not asked since that may have changed
    _ages: list[tuple[float, int, str]] = field(default_factory=list)

    def leads(self, request: Request) -> bool:
        """Whether this job would be the first of the class."""
        return not self.jobs or age_of(request) < self.key[1:]

    def add(self, request: Request, leads: bool) -> None:
        self.jobs[request.job] = request
        age = age_of(request)
        heappush(self._ages, age)
        if leads:
            self.key = (-request.priority, *age)

    def add_many(self, requests: Mapping[str, Request]) -> None:
        """Jobs that are new here, by their ids."""
        self.jobs.update(requests)
        for request in requests.values():
            heappush(self._ages, age_of(request))
        self._lead()

    def remove(self, job: str) -> None:
        del self.jobs[job]
        ages = self._ages
        if job != self.key[3]:
            if len(ages) > _STALE + 4 * len(self.jobs):
                self._ages = [age for age in ages if self._is(age)]
                heapify(self._ages)
            return
        self._lead()

    def _lead(self) -> None:
        """Find the first job."""
        ages = self._ages
        while ages and not self._is(ages[0]):
            heappop(ages)
        self.key = (-self.sample.priority, *ages[0]) if ages else LAST

    def _is(self, age: tuple[float, int, str]) -> bool:
        request = self.jobs.get(age[2])
        return request is not None and age_of(request) == age


def total_of(request: Request) -> Resources:
    """What the members that it starts with take together."""
    member_sets = request.member_sets
    if len(member_sets) == 1:
        return member_sets[0].each * member_sets[0].minimum
    result = Resources()
    for member_set in member_sets:
        result = result + member_set.each * member_set.minimum
    return result


def allocated_total(allocation: Allocation) -> Resources:
    """What a running job takes: of roles that may grow, what they have now."""
    result = Resources()
    for member_set in allocation.request.member_sets:
        now = (
            member_set.count
            if member_set.min_count is None
            else sum([a.role == member_set.role for a in allocation.assignments])
        )
        result = result + member_set.each * now
    return result


class ClassIndex:
    """Finds or makes the class, gang and slot_sizes of a request, and forgets those that nobody needs any more."""

    def __init__(self) -> None:
        self.classes: dict[tuple[object, ...], JobClass] = {}
        self.gangs: dict[tuple[object, ...], Gang] = {}
        self.slot_sizes: dict[tuple[NodeSelector, Resources], SlotSize] = {}
        self._serial = 0

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def gang(self, request: Request, selector: NodeSelector, pool: Pool) -> Gang:
        """The gang of this request on nodes with `selector`, whose pool is `pool`."""
        identity = (
            selector,
            request.constraint,
            *[(member_set.role, member_set.minimum, member_set.each) for member_set in request.member_sets],
        )
        gang = self.gangs.get(identity)
        if gang is None:
            sizes = [] if fault_of(request) else sizes_of(request.member_sets)
            gang = self.gangs[identity] = Gang(self._next(), identity, selector, sizes, [], request.constraint)
            for size in sizes:
                slot_size = self.slot_sizes.get((selector, size.each))
                if slot_size is None:
                    slot_size = self.slot_sizes[selector, size.each] = SlotSize(pool, size.each)
                    pool.users += 1
                slot_size.users += 1
                gang.slot_sizes.append(slot_size)
        return gang

    def job_class(self, identity: tuple[object, ...], request: Request, selector: NodeSelector, pool: Pool) -> JobClass:
        gang = self.gang(request, selector, pool)
        gang.users += 1
        fault = fault_of(request)
        job_class = JobClass(self._next(), identity, request.queue, request, total_of(request), fault, gang)
        self.classes[identity] = job_class
        return job_class

    def reselect(self, job_class: JobClass, selector: NodeSelector, pool: Pool) -> None:
        """The queue's selector changed: the same jobs look for other nodes now."""
        old = job_class.gang
        job_class.gang = self.gang(job_class.sample, selector, pool)
        job_class.gang.users += 1
        self._leave(old)

    def forget(self, job_class: JobClass) -> None:
        """An empty class goes, and with it the gang and slot_sizes that only it used."""
        del self.classes[job_class.identity]
        self._leave(job_class.gang)

    def _leave(self, gang: Gang) -> None:
        gang.users -= 1
        if gang.users:
            return
        del self.gangs[gang.identity]
        for slot_size in gang.slot_sizes:
            slot_size.users -= 1
            if len(slot_size.waiting) > _STALE + 4 * slot_size.users:
                slot_size.waiting = [row for row in slot_size.waiting if row[2].users]
                heapify(slot_size.waiting)
            if not slot_size.users:
                slot_size.pool.users -= 1
                del self.slot_sizes[gang.selector, slot_size.each]
