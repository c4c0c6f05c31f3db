"""Pending jobs in groups that stand or fall together, so that one failed attempt answers for all.

    Flavour   what one member takes, and in which pool of nodes     "how many more fit at most" is known here
    Shape     the flavours of a whole job, with their counts        whether a gang finds room is known here
    Line      a queue, a priority and a shape                       whether quota allows it is known here
    job       a member of a line, by age

All equality and all order of the pending side is in this module; `core` moves the lines between their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import itemgetter

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import Held, Request
from paddleflow.scheduling.nodes import Choice, Pool
from paddleflow.scheduling.placement import Part, parts_of

Key = tuple[int, float, int, str]  #: minus priority, age, order, job: the one order of all pending jobs
_STALE = 64  # heaps drop what is out of date at their top; beyond this many extra rows they are swept
MOST_MEMBERS = 1_000_000  #: of one role; more are a mistake, and listing them would take for ever
LAST: Key = (1 << 200, float("inf"), 0, "")


def age_of(request: Request) -> tuple[float, int, str]:
    """Older is less; a moment that is no number counts as the beginning of time."""
    at = request.submitted_at
    return (at if at == at else float("-inf"), request.order, request.job)


#: All of a request but its job, age and order.
COMMON = itemgetter(*[at for at, name in enumerate(Request._fields) if name not in ("job", "submitted_at", "order")])


def line_key(request: Request, more: tuple[object, ...] = ()) -> tuple[object, ...]:
    """Equal for requests that stand or fall together; flat, because hashing nested dataclasses is slow."""
    needs = request.needs
    rest = (
        request.queue,
        request.priority,
        request.node_labels,
        request.tolerates,
        request.together,
        request.data,
        more,
    )
    if len(needs) == 1:
        need = needs[0]
        each = need.each
        return (need.role, need.count, need.least, each.cpu, each.memory, each.scalars, *rest)
    return (*needs, *rest)


def fault_of(request: Request) -> str:
    """What makes a request one that no cluster can serve, in words; empty when it is sound."""
    roles = [need.role for need in request.needs]
    if len(set(roles)) < len(roles):
        return f"role {next(role for role in roles if roles.count(role) > 1)} is named twice"
    for need in request.needs:
        if need.minimum > need.count:
            return f"role {need.role} has at least {need.minimum} members and at most {need.count}"
        if need.count > MOST_MEMBERS:
            return f"role {need.role} has {need.count} members, more than the {MOST_MEMBERS} that a job may have"
        amounts = [need.minimum, need.each.cpu, need.each.memory, *[amount for _, amount in need.each.scalars]]
        if min(amounts) < 0:
            return f"role {need.role} asks for less than nothing ({need.count} of {need.each})"
    return ""


@dataclass(slots=True, eq=False)
class Flavour:
    """What one member takes, in which pool."""

    pool: Pool
    each: Resources
    fits: int | None = None  #: no more members than this fit now; None: not known
    users: int = 0  #: shapes made of it
    waiting: list[tuple[int, int, Shape]] = field(default_factory=list)  #: heap by members wanted


@dataclass(slots=True, eq=False)
class Shape:
    """The members of a job and the choice they ask for."""

    serial: int
    identity: tuple[object, ...]
    choice: Choice
    parts: list[Part]
    flavours: list[Flavour]
    users: int = 0  #: lines that have this shape
    waits: bool = False  #: for room on nodes: not worth trying until `rooms` says so
    possible: bool | None = None  #: on the nodes as they are, empty; None: not asked yet

    def lacks(self, at: int) -> bool:
        """Whether fewer of this part's members fit than it has, whatever else is placed."""
        fits = self.flavours[at].fits
        return fits is not None and fits < len(self.parts[at].members)

    def short(self) -> bool:
        return any(self.lacks(at) for at in range(len(self.parts)))


@dataclass(slots=True, eq=False)
class Line:
    """Pending jobs of one queue, priority and shape, the oldest first."""

    serial: int
    identity: tuple[object, ...]
    queue: str
    sample: Request
    total: Resources
    fault: str
    shape: Shape
    jobs: dict[str, Request] = field(default_factory=dict)
    key: Key = LAST  #: that of its first job
    possible: bool | None = None  #: could start if nothing else were there; None: not asked since that may have changed
    _ages: list[tuple[float, int, str]] = field(default_factory=list)

    def leads(self, request: Request) -> bool:
        """Whether this job would be the first of the line."""
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
    needs = request.needs
    if len(needs) == 1:
        return needs[0].each * needs[0].minimum
    result = Resources()
    for need in needs:
        result = result + need.each * need.minimum
    return result


def held_total(held: Held) -> Resources:
    """What a running job takes: of roles that may grow, what they have now."""
    result = Resources()
    for need in held.request.needs:
        now = need.count if need.least is None else sum([a.role == need.role for a in held.assignments])
        result = result + need.each * now
    return result


class Families:
    """Finds or makes the line, shape and flavours of a request, and forgets those that nobody needs any more."""

    def __init__(self) -> None:
        self.lines: dict[tuple[object, ...], Line] = {}
        self.shapes: dict[tuple[object, ...], Shape] = {}
        self.flavours: dict[tuple[Choice, Resources], Flavour] = {}
        self._serial = 0

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def shape(self, request: Request, choice: Choice, pool: Pool) -> Shape:
        """The shape of this request on nodes with `choice`, whose pool is `pool`."""
        identity = (choice, *[(need.role, need.minimum, need.each) for need in request.needs])
        shape = self.shapes.get(identity)
        if shape is None:
            parts = [] if fault_of(request) else parts_of(request.needs)
            shape = self.shapes[identity] = Shape(self._next(), identity, choice, parts, [])
            for part in parts:
                flavour = self.flavours.get((choice, part.each))
                if flavour is None:
                    flavour = self.flavours[choice, part.each] = Flavour(pool, part.each)
                    pool.users += 1
                flavour.users += 1
                shape.flavours.append(flavour)
        return shape

    def line(self, identity: tuple[object, ...], request: Request, choice: Choice, pool: Pool) -> Line:
        shape = self.shape(request, choice, pool)
        shape.users += 1
        fault = fault_of(request)
        line = Line(self._next(), identity, request.queue, request, total_of(request), fault, shape)
        self.lines[identity] = line
        return line

    def reshape(self, line: Line, choice: Choice, pool: Pool) -> None:
        """The queue's choice changed: the same jobs look for other nodes now."""
        old = line.shape
        line.shape = self.shape(line.sample, choice, pool)
        line.shape.users += 1
        self._leave(old)

    def forget(self, line: Line) -> None:
        """An empty line goes, and with it the shape and flavours that only it used."""
        del self.lines[line.identity]
        self._leave(line.shape)

    def _leave(self, shape: Shape) -> None:
        shape.users -= 1
        if shape.users:
            return
        del self.shapes[shape.identity]
        for flavour in shape.flavours:
            flavour.users -= 1
            if len(flavour.waiting) > _STALE + 4 * flavour.users:
                flavour.waiting = [row for row in flavour.waiting if row[2].users]
                heapify(flavour.waiting)
            if not flavour.users:
                flavour.pool.users -= 1
                del self.flavours[shape.choice, flavour.each]
