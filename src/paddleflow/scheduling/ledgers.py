"""The queues as the scheduler keeps them: a tree with what each part of it uses, and the classes of each in order.

An `QueueLedger` exists for every queue that is known, used or asked for; `queue` is None while nobody has described it.
`used` counts the running jobs of the queue and of all queues below it. `path` leads from the queue to the top: what a
job takes must be within the ceiling of each ledger on it. A queue whose parent is unknown, or that is its own ancestor,
stands at the top, so a bad tree limits less, and never fails.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping

from paddleflow.base.quantity import Resources
from paddleflow.scheduling import rules
from paddleflow.scheduling.classes import JobClass, Key
from paddleflow.scheduling.model import Queue, Request
from paddleflow.scheduling.shares import UsageHistory, dominant

SortKey = tuple[float, Key]
Row = tuple[SortKey, int, JobClass]
_UNLIMITED = 1 << 200


class PriorityBand:
    """The classes of one queue that have one priority: by age, and by user in the queue's order."""

    __slots__ = ("by_age", "by_user", "least_cpu", "least_memory")

    def __init__(self) -> None:
        self.by_age: list[tuple[Key, int, JobClass]] = []
        self.by_user: dict[str, list[Row]] = {}
        self.least_cpu = self.least_memory = _UNLIMITED  #: no class takes less; some took as little that have gone


class Claim:
    """An aged job that waits: what it takes stays free of each ceiling above it."""

    __slots__ = ("job", "priority", "since", "total")

    def __init__(self, job_class: JobClass) -> None:
        self.priority, self.since, self.job = -job_class.key[0], job_class.key[1], job_class.key[3]
        self.total = job_class.total


class QueueLedger:
    """One queue's side of the scheduler."""

    __slots__ = ("bands", "charges", "claim", "classes", "history", "limits", "name", "path", "queue", "used", "users")

    def __init__(self, name: str, half_life: float) -> None:
        self.name = name
        self.queue: Queue | None = None
        self.path: tuple[QueueLedger, ...] = (self,)
        self.limits: list[tuple[QueueLedger, Resources]] = []  #: those on the path that have a ceiling
        self.used = Resources()
        self.charges: dict[str, tuple[str, Resources]] = {}  #: user and amount of each running job of the queue itself
        self.users: dict[str, Resources] = {}  #: what each user holds, where the order asks
        self.history = UsageHistory(half_life)
        self.classes: dict[int, JobClass] = {}
        self.bands: dict[int, PriorityBand] = {}  #: by priority
        self.claim: Claim | None = None  #: of the cycle that is going on, or was the last

    # --- what is used -------------------------------------------------------------------------------------------

    def charge(self, job: str, user: str, total: Resources) -> None:
        self.charges[job] = (user, total)
        for ledger in self.path:
            ledger.used = ledger.used + total
        if self.sorts_by_user:
            self.users[user] = self.users.get(user, Resources()) + total

    def refund(self, job: str) -> None:
        user, total = self.charges.pop(job, ("", Resources()))
        for ledger in self.path:
            ledger.used = ledger.used - total
        if self.sorts_by_user:
            self.users[user] = self.users.get(user, Resources()) - total

    def change_charge(self, job: str, total: Resources) -> None:
        """A running job takes another amount now."""
        user, _ = self.charges[job]
        self.refund(job)
        self.charge(job, user, total)

    @property
    def order(self) -> str:
        return self.queue.order if self.queue else "fifo"

    @property
    def sorts_by_user(self) -> bool:
        return self.order in rules.BY_USER

    @property
    def open(self) -> bool:
        """Whether the queue is there, and neither it nor one above it is closed."""
        return self.queue is not None and all(ledger.queue is None or ledger.queue.open for ledger in self.path)

    @property
    def settled(self) -> bool:
        """Whether what it uses now may stay: it is open, and no ceiling above it was lowered below that."""
        return self.open and all(ledger.used.fits(most) for ledger, most in self.limits)

    def over(self, total: Resources) -> tuple[QueueLedger, str] | None:
        """The first ledger above and dimension in which the ceiling does not allow this much more."""
        cpu, memory, scalars = total
        for ledger, most in self.limits:
            used = ledger.used
            used_cpu, used_memory, _ = used  # written out, because most classes that wait are asked this each cycle
            most_cpu, most_memory, _ = most
            if cpu and used_cpu + cpu > most_cpu:
                return ledger, "cpu"
            if memory and used_memory + memory > most_memory:
                return ledger, "memory"
            for name, amount in scalars:
                if used.scalar(name) + amount > most.scalar(name):
                    return ledger, name
        return None

    def slack(self) -> tuple[int, int]:
        """No job that takes more cpu or memory than this is within all ceilings: a quick no before `over`."""
        cpu = memory = _UNLIMITED
        for ledger, (most_cpu, most_memory, _) in self.limits:
            used_cpu, used_memory, _ = ledger.used
            if most_cpu - used_cpu < cpu:
                cpu = most_cpu - used_cpu
            if most_memory - used_memory < memory:
                memory = most_memory - used_memory
        return max(0, cpu), max(0, memory)

    def claimed(self, total: Resources, priority: int, job: str) -> Claim | None:
        """The aged job for which too little would be left, if any; higher priorities need not care."""
        for ledger in self.path:
            claim = ledger.claim
            if claim is not None and claim.priority >= priority and claim.job != job:
                most = ledger.queue.ceiling if ledger.queue else None
                if most is not None and beyond(total, ledger.used + claim.total, most, claim.total):
                    return claim
        return None

    # --- order --------------------------------------------------------------------------------------------------

    def insert_class(self, job_class: JobClass) -> None:
        """The class stands where its first job belongs."""
        band = self.bands.get(-job_class.key[0])
        if band is None:
            band = self.bands[-job_class.key[0]] = PriorityBand()
        cpu, memory, _ = job_class.total
        band.least_cpu, band.least_memory = min(cpu, band.least_cpu), min(memory, band.least_memory)
        insort(band.by_age, (job_class.key, job_class.serial, job_class))
        if self.order != "fifo":
            rows = band.by_user.setdefault(job_class.sample.user if self.sorts_by_user else "", [])
            insort(rows, (self._sort_key(job_class), job_class.serial, job_class))

    def remove_class(self, job_class: JobClass) -> None:
        """The reverse, before the class's first job changes."""
        band = self.bands[-job_class.key[0]]
        by_age = band.by_age
        del by_age[bisect_left(by_age, (job_class.key, job_class.serial))]
        if self.order != "fifo":
            rows = band.by_user[job_class.sample.user if self.sorts_by_user else ""]
            del rows[bisect_left(rows, (self._sort_key(job_class), job_class.serial))]

    def forget(self, job_class: JobClass, priority: int) -> None:
        """A class without jobs is gone. (Only then: a cycle that is under way knows the lists of the others.)"""
        del self.classes[job_class.serial]
        band = self.bands[priority]
        for user in [user for user, rows in band.by_user.items() if not rows]:
            del band.by_user[user]
        if not band.by_age:
            del self.bands[priority]

    def _sort_key(self, job_class: JobClass) -> SortKey:
        expected = job_class.sample.expected
        if self.order != "shortest" or expected is None or expected != expected:  # what is no number says nothing
            return (0.0 if self.order != "shortest" else float("inf"), job_class.key)
        return (expected, job_class.key)

    def aged_classes(self, priority: int, before: float) -> Iterator[JobClass]:
        """Lines of this priority whose first job is as old as `before`, the oldest first."""
        band = self.bands.get(priority)
        for key, _, job_class in band.by_age if band else ():
            if key[1] > before:
                return
            yield job_class

    def rank(self, capacity: Resources) -> tuple[int, float]:
        """Lower goes first among siblings: part of the guarantee that is used, then share of the cluster by weight."""
        queue = self.queue
        if queue is None:
            return (1, dominant(self.used, capacity))
        part = guaranteed_part(self.used, queue.guarantee)
        return (0, part) if part < 1.0 else (1, dominant(self.used, capacity) / max(1, queue.weight))

    def user_rank(self, user: str, capacity: Resources, now: float) -> float:
        """Lower goes first among users: share of the cluster now, and with `fair` that of the past."""
        share = dominant(self.users.get(user, Resources()), capacity)
        return share + self.history.share(user, now) if self.order == "fair" else share

    def identity(self, request: Request) -> tuple[object, ...]:
        """What sets the classes of this queue apart besides what all queues look at."""
        order = self.queue.order if self.queue else "fifo"
        if order == "fifo":
            return ()
        return (request.user,) if order in rules.BY_USER else (request.expected,)


def beyond(total: Resources, used: Resources, most: Resources, also: Resources | None = None) -> str:
    """The first dimension of `total` (and of `also`, if given) in which it and `used` are more than `most`."""
    if total.cpu and used.cpu + total.cpu > most.cpu and (also is None or also.cpu):
        return "cpu"
    if total.memory and used.memory + total.memory > most.memory and (also is None or also.memory):
        return "memory"
    for name, amount in total.scalars:
        if used.scalar(name) + amount > most.scalar(name) and (also is None or also.scalar(name)):
            return name
    return ""


def guaranteed_part(used: Resources, least: Resources) -> float:
    """How much of a guarantee is used, in the dimension that is used most; 1 and more: beyond it, or there is none.

    A scalar that is used and not guaranteed is beyond at once; cpu and memory only count where they are guaranteed.
    """
    least_cpu, least_memory, scalars = least
    if not (least_cpu or least_memory or scalars):
        return _ENDLESS
    used_cpu, used_memory, used_scalars = used
    part = 0.0
    if least_cpu:
        part = used_cpu / least_cpu
    if least_memory:
        part = max(part, used_memory / least_memory)
    for name, amount in used_scalars:
        guaranteed = least.scalar(name)
        if not guaranteed:
            return _ENDLESS
        part = max(part, amount / guaranteed)
    return part


_ENDLESS = float("inf")


def link(ledgers: Collection[QueueLedger]) -> None:
    """Set the path of each ledger from the parents that its queue and those above it name."""
    known = {ledger.name: ledger for ledger in ledgers if ledger.queue is not None}
    above = {name: known[parent] for name, ledger in known.items() if (parent := _parent(ledger)) in known}
    for name in [name for name in above if _circular(name, above)]:
        del above[name]
    for ledger in ledgers:
        path = [ledger]
        while path[-1].name in above:
            path.append(above[path[-1].name])
        ledger.path = tuple(path)
        ledger.limits = [(a, a.queue.ceiling) for a in path if a.queue is not None and a.queue.ceiling is not None]


def _parent(ledger: QueueLedger) -> str | None:
    return ledger.queue.parent if ledger.queue is not None and ledger.name != "root" else None


def _circular(name: str, above: Mapping[str, QueueLedger]) -> bool:
    """Whether the way up from a queue leads back to it."""
    at, steps = above[name].name, 0
    while at != name and at in above and steps <= len(above):
        at, steps = above[at].name, steps + 1
    return at == name


def recount(ledgers: Iterable[QueueLedger]) -> None:
    """Count again what is used, after the tree or an order changed."""
    listed = list(ledgers)
    for ledger in listed:
        ledger.used, ledger.users = Resources(), {}
    for ledger in listed:
        charges, ledger.charges = ledger.charges, {}
        for job, (user, total) in charges.items():
            ledger.charge(job, user, total)
