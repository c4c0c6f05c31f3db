"""A scheduler that is slow and obviously right: full scans, no memory. The production core is held against it."""

from __future__ import annotations

from collections import Counter
from math import log

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.model import Assignment, Node, Queue, Request, Reservation, Snapshot, Start

GPU = "gpu"
PATIENCE, RESERVATIONS, HALF_LIFE = 300.0, 4, 86_400.0


class Place:
    """A node with the list of what is on it; everything is computed from that list each time."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.on: list[tuple[Resources, tuple[int, ...]]] = []
        self.kept = Resources()

    def cpu(self) -> int:
        return self.node.capacity.cpu - self.node.reserved.cpu - self.kept.cpu - sum(each.cpu for each, _ in self.on)

    def memory(self) -> int:
        used = self.node.reserved.memory + self.kept.memory + sum(each.memory for each, _ in self.on)
        return self.node.capacity.memory - used

    def devices(self) -> tuple[list[int], dict[int, int]]:
        """Untouched device numbers, and the room on the others; none when they are kept for somebody."""
        if self.kept.scalar(GPU):
            return [], {}
        count = self.node.capacity.scalar(GPU) // 1000
        used: Counter[int] = Counter()
        for each, numbers in self.on:
            for number in numbers:
                used[number] += each.scalar(GPU) // len(numbers)
        untouched = [number for number in range(count) if not used[number]]
        unnamed = -(-self.node.reserved.scalar(GPU) // 1000)
        return (
            untouched[: len(untouched) - unnamed] if unnamed < len(untouched) else [],
            {number: 1000 - amount for number, amount in used.items() if number < count and amount},
        )

    def take(self, each: Resources) -> tuple[int, ...] | None:
        """Device numbers for one more member, or None when it does not fit."""
        wanted = each.scalar(GPU)
        untouched, shared = self.devices()
        if each.cpu > self.cpu() or each.memory > self.memory():
            return None
        numbers: tuple[int, ...] = ()
        if wanted and wanted % 1000 == 0:
            if len(untouched) < wanted // 1000:
                return None
            numbers = tuple(self.lowest(wanted // 1000))
        elif wanted:
            fitting = sorted((room, number) for number, room in shared.items() if room >= wanted)
            if wanted > 1000 or not (fitting or untouched):
                return None
            numbers = (fitting[0][1],) if fitting else tuple(self.lowest(1))
        self.on.append((each, numbers))
        return numbers

    def lowest(self, wanted: int) -> list[int]:
        return self.devices()[0][:wanted]

    def holds(self, each: Resources, times: int) -> bool:
        before = list(self.on)
        good = all(self.take(each) is not None for _ in range(times))
        self.on = before
        return good

    def rank(self) -> tuple[object, ...]:
        untouched, shared = self.devices()
        part = 1000 if untouched else max([0, *shared.values()])
        known = self.node.capacity.scalar(GPU) > 0
        group = ((GPU, len(untouched) * 1000, part),) if known else ()
        return (len(untouched) * 1000 + part if known else 0, group, self.cpu(), self.memory(), self.node.name)


def selected(request: Request, queue: Queue) -> set[tuple[str, str]]:
    return set(request.node_labels) | set(queue.node_labels)


def put(request: Request, queue: Queue, places: list[Place]) -> list[Assignment] | None:
    wanted = selected(request, queue)
    eligible = [p for p in places if p.node.schedulable and wanted <= set(p.node.labels.items())]
    before = [list(p.on) for p in places]
    found: list[Assignment] = []
    for each, members in sizes_of(request):
        together = 1 if each.scalar(GPU) % 1000 else len(members)
        while members:
            together = min(together, len(members))
            fitting = sorted((p for p in eligible if p.holds(each, together)), key=Place.rank)
            if fitting:
                for role, index in members[:together]:
                    numbers = fitting[0].take(each)
                    assert numbers is not None
                    found.append(Assignment(role, index, fitting[0].node.name, ((GPU, numbers),) if numbers else ()))
                members = members[together:]
            elif together > 1:
                together -= 1
            else:
                for place, was in zip(places, before, strict=True):
                    place.on = was
                return None
    return sorted(found, key=lambda a: (a.role, a.index))


def member_sets_of(request: Request) -> Resources:
    return total(member_set.each * member_set.count for member_set in request.member_sets)


DIMENSIONS = ("cpu", "memory", GPU)


class Model:
    """One cycle over a snapshot, by full scans."""

    def __init__(self, snapshot: Snapshot, limit: int | None) -> None:
        self.snapshot, self.limit = snapshot, limit
        self.places = {node.name: Place(node) for node in snapshot.nodes}
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.running = [(allocation.request, allocation.assignments) for allocation in snapshot.allocations]
        self.pending = {request.job: request for request in snapshot.pending}
        self.kept = {reservation.job: reservation for reservation in snapshot.reservations}
        self.capacity = total(node.capacity for node in snapshot.nodes)
        self.claims: dict[str, Request] = {}
        self.failed: set[object] = set()
        self.started: list[Start] = []
        for request, assignments in self.running:
            each = {member_set.role: member_set.each for member_set in request.member_sets}
            for a in assignments:
                if a.node in self.places:
                    self.places[a.node].on.append((each[a.role], dict(a.devices).get(GPU, ())))
        self.keep()

    def keep(self, besides: str = "") -> None:
        """Write down at each node what is kept there, for all but one job."""
        for place in self.places.values():
            place.kept = Resources()
        for job, reservation in self.kept.items():
            sizes = sizes_of(self.pending[job])
            for name, at, count in reservation.rows:
                if job != besides:
                    self.places[name].kept += sizes[at][0] * count

    def path(self, name: str) -> list[str]:
        names = [name]
        while (parent := self.queues[names[-1]].parent) in self.queues and not self.circular(names[-1]):
            names.append(parent)
        return names

    def circular(self, name: str) -> bool:
        at = self.queues[name].parent
        for _ in self.queues:
            at = self.queues[at].parent if at in self.queues and at != name else at
        return at == name

    def used(self, name: str, user: str | None = None) -> Resources:
        own = [r for r, _ in self.running if user is None or (r.queue == name and r.user == user)]
        return total(
            member_sets_of(r) for r in own if r.queue == name or (r.queue in self.queues and name in self.path(r.queue))
        )

    def share(self, amount: Resources) -> float:
        return max(amount.amount(d) / (self.capacity.amount(d) or 1) if self.capacity.amount(d) or d == GPU else 0.0
                   for d in DIMENSIONS)  # fmt: skip

    def rank(self, name: str) -> tuple[int, float]:
        queue, used = self.queues[name], self.used(name)
        if queue.guarantee != Resources():
            parts = [used.amount(d) / queue.guarantee.amount(d) for d in DIMENSIONS if queue.guarantee.amount(d)]
            parts += [float("inf")] if used.scalar(GPU) and not queue.guarantee.scalar(GPU) else []
            if max(parts) < 1.0:
                return (0, max(parts))
        return (1, self.share(used) / queue.weight)

    def user_rank(self, queue: Queue, user: str) -> float:
        share = self.share(self.used(queue.name, user))
        return share + self.past(queue.name, user) if queue.order == "fair" else share

    def past(self, queue: str, user: str) -> float:
        """The average share of the past: the integral, settled at the beginning of the cycle."""
        for past in self.snapshot.past:
            if (past.queue, past.user) == (queue, user):
                span = max(0.0, self.snapshot.now - past.at)
                kept = 0.5 ** (span / HALF_LIFE)
                whole = past.value if span == 0.0 else past.value * kept + past.rate * (1.0 - kept) * HALF_LIFE / log(2)
                return whole * log(2) / HALF_LIFE
        return 0.0

    def open(self, request: Request) -> bool:
        return request.queue in self.queues and all(self.queues[name].open for name in self.path(request.queue))

    def within(self, request: Request) -> bool:
        wanted = member_sets_of(request)
        for name in self.path(request.queue):
            most, used = self.queues[name].ceiling, self.used(name)
            if most and any(wanted.amount(d) and (used + wanted).amount(d) > most.amount(d) for d in DIMENSIONS):
                return False
        return True

    def claimed(self, request: Request) -> bool:
        wanted = member_sets_of(request)
        for name in self.path(request.queue):
            most, claim = self.queues[name].ceiling, self.claims.get(name)
            if most and claim and claim.job != request.job and claim.priority >= request.priority:
                both = self.used(name) + wanted + member_sets_of(claim)
                if any(wanted.amount(d) and member_sets_of(claim).amount(d) and both.amount(d) > most.amount(d)
                       for d in DIMENSIONS):  # fmt: skip
                    return True
        return False

    def possible(self, request: Request) -> bool:
        mosts = [self.queues[name].ceiling for name in self.path(request.queue)]
        if any(most is not None and not member_sets_of(request).fits(most) for most in mosts):
            return False
        return put(request, self.queues[request.queue], [Place(node) for node in self.snapshot.nodes]) is not None

    def start(self, request: Request) -> bool:
        queue, kept = self.queues[request.queue], self.kept.get(request.job)
        shape = (request.member_sets, frozenset(selected(request, queue)))
        if kept is None and shape in self.failed:
            return False
        if kept is not None:
            self.keep(besides=request.job)
        found = put(request, queue, list(self.places.values()))
        if found is None and kept is not None:
            found = self.put_kept(request, kept, queue)
        if found is not None and kept is not None:
            del self.kept[request.job]
            self.failed.clear()
        elif found is None and kept is None:
            self.failed.add(shape)
        if found is not None:
            del self.pending[request.job]
            self.running.append((request, tuple(found)))
            self.started.append(Start(request.job, tuple(found)))
        self.keep()
        return found is not None

    def put_kept(self, request: Request, kept: Reservation, queue: Queue) -> list[Assignment] | None:
        before = {name: list(place.on) for name, place in self.places.items()}
        sizes, found = sizes_of(request), list[Assignment]()
        members = [list(size[1]) for size in sizes]
        for name, at, count in kept.rows:
            place = self.places[name]
            good = place.node.schedulable and selected(request, queue) <= set(place.node.labels.items())
            for _ in range(count):
                numbers = place.take(sizes[at][0]) if good else None
                if numbers is None:
                    for other, was in before.items():
                        self.places[other].on = was
                    return None
                role, index = members[at].pop(0)
                found.append(Assignment(role, index, name, ((GPU, numbers),) if numbers else ()))
        return sorted(found, key=lambda a: (a.role, a.index))

    def reserve(self, request: Request) -> None:
        later = sorted((key(self.pending[job]), job) for job in self.kept if key(self.pending[job]) > key(request))
        while True:
            rows = self.rows(request) if len(self.kept) < RESERVATIONS else None
            if rows is not None:
                self.kept[request.job] = Reservation(request.job, tuple(rows))
                break
            if not later:
                break
            del self.kept[later.pop()[1]]
            self.failed.clear()
            self.keep()
        self.keep()

    def rows(self, request: Request) -> list[tuple[str, int, int]] | None:
        wanted, rows = selected(request, self.queues[request.queue]), list[tuple[str, int, int]]()
        empty = {
            name: Place(place.node)
            for name, place in self.places.items()
            if place.node.schedulable
            and wanted <= set(place.node.labels.items())
            and not any(name == row[0] for kept in self.kept.values() for row in kept.rows)
        }
        for at, (each, members) in enumerate(sizes_of(request)):
            left = len(members)
            for name in sorted(empty, key=lambda n: (-self.fitting(self.places[n], each, len(members)), n)):
                count = 0
                while left and empty[name].take(each) is not None:
                    left, count = left - 1, count + 1
                if count:
                    rows.append((name, at, count))
            if left:
                return None
        return rows

    @staticmethod
    def fitting(place: Place, each: Resources, most: int) -> int:
        """How many fit now; shares of devices are only looked at as one."""
        if each.scalar(GPU) % 1000 and place.holds(each, 1):
            return max(n for n in range(most + 1) if place.holds(Resources.of(each.cpu, each.memory), n))
        return max(n for n in range(most + 1) if place.holds(each, n))

    def run(self) -> list[Start]:
        now = self.snapshot.now
        for priority in sorted({r.priority for r in self.pending.values()}, reverse=True):
            done: set[str] = set()
            while not self.full():  # the elders
                level = [r for r in self.pending.values() if r.priority == priority and self.open(r)]
                aged = [
                    r for r in level if r.submitted_at <= now - PATIENCE and r.queue not in done and self.possible(r)
                ]
                if not aged:
                    break
                elder = min(aged, key=key)
                if self.within(elder) and not self.claimed(elder) and self.start(elder):
                    continue
                done.add(elder.queue)
                for name in self.path(elder.queue):
                    self.claims.setdefault(name, elder)
                if self.within(elder) and elder.job not in self.kept:
                    self.reserve(elder)
            passed: set[tuple[str, object]] = set()  # per queue: what was tried on an earlier turn
            over: set[str] = set()
            while not self.full():  # the turns
                level = [r for r in self.pending.values() if r.priority == priority and self.open(r)]
                level = [r for r in level if r.queue not in over and (r.queue, line_of(r)) not in passed]
                if not level:
                    break
                name = self.whose(level)
                queue = self.queues[name]
                mine = [r for r in level if r.queue == name]
                if not any(self.attempt(r, passed) for r in self.ordered(queue, mine)):
                    over.add(name)
        return self.started

    def attempt(self, request: Request, passed: set[tuple[str, object]]) -> bool:
        if (request.queue, line_of(request)) in passed:
            return False
        if self.within(request) and not self.claimed(request) and self.start(request):
            return True
        passed.add((request.queue, line_of(request)))
        return False

    def ordered(self, queue: Queue, mine: list[Request]) -> list[Request]:
        if queue.order == "shortest":
            return sorted(mine, key=lambda r: (float("inf") if r.expected is None else r.expected, key(r)))
        if queue.order == "fifo":
            return sorted(mine, key=key)
        heads = {user: min(key(r) for r in mine if r.user == user) for user in {r.user for r in mine}}
        return sorted(mine, key=lambda r: (self.user_rank(queue, r.user), heads[r.user], r.user, key(r)))

    def whose(self, level: list[Request]) -> str:
        """Down the tree: the child with the least rank, then with the oldest of what it would start."""
        heads: dict[str, tuple[object, ...]] = {}
        for queue in {r.queue for r in level}:
            heads[queue] = self.head(self.queues[queue], [r for r in level if r.queue == queue])
        paths = [self.path(queue)[::-1] for queue in heads]

        def best(above: list[str]) -> tuple[tuple[object, ...], str] | None:
            """Of all below `above`: the head of the child whose turn it is, and the queue that this leads to."""
            children = []
            for child in {path[len(above)] for path in paths if path[: len(above)] == above and len(path) > len(above)}:
                options = [option for option in [best([*above, child])] if option]
                options += [(heads[child], child)] if child in heads else []
                head, queue = min(options)
                children.append((self.rank(child), head, child, queue))
            return (min(children)[1], min(children)[3]) if children else None

        found = best([])
        assert found is not None
        return found[1]

    def head(self, queue: Queue, mine: list[Request]) -> tuple[object, ...]:
        """The age of what the queue would try next; of all users, the least."""
        if queue.order == "shortest":
            return key(self.ordered(queue, mine)[0])
        return min(key(r) for r in mine)

    def full(self) -> bool:
        return self.limit is not None and len(self.started) >= self.limit


def key(request: Request) -> tuple[object, ...]:
    return (-request.priority, request.submitted_at, request.seq, request.job)


def line_of(request: Request) -> object:
    return (request.member_sets, request.node_labels, request.user, request.expected)


def sizes_of(request: Request) -> list[tuple[Resources, list[tuple[str, int]]]]:
    sizes: dict[Resources, list[tuple[str, int]]] = {}
    for member_set in request.member_sets:
        sizes.setdefault(member_set.each, []).extend((member_set.role, index) for index in range(member_set.count))
    return sorted(sizes.items(), key=lambda item: (item[0].scalar(GPU), item[0].cpu, item[0].memory), reverse=True)


def reference(snapshot: Snapshot, limit: int | None) -> list[Start]:
    return Model(snapshot, limit).run()
