"""The queues as the scheduler keeps them: a tree with what each part of it uses, and the lines of each in order.

An `Account` exists for every queue that is known, used or asked for; `queue` is None while nobody has described it.
`used` counts the running jobs of the queue and of all queues below it. `path` leads from the queue to the top: what a
job takes must be within the ceiling of each account on it. A queue whose parent is unknown, or that is its own ancestor,
stands at the top, so a bad tree limits less, and never fails.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping

from paddleflow.base.quantity import Resources
from paddleflow.scheduling import policy
from paddleflow.scheduling.classes import Key, Line
from paddleflow.scheduling.model import Queue, Request
from paddleflow.scheduling.shares import History, dominant

SortKey = tuple[float, Key]
Row = tuple[SortKey, int, Line]
_UNLIMITED = 1 << 200


class Level:
    """The lines of one queue that have one priority: by age, and by user in the order of the queue's policy."""

    __slots__ = ("ages", "lanes", "least_cpu", "least_memory")

    def __init__(self) -> None:
        self.ages: list[tuple[Key, int, Line]] = []
        self.lanes: dict[str, list[Row]] = {}
        self.least_cpu = self.least_memory = _UNLIMITED  #: no line takes less; some took as little that have gone


class Claim:
    """An aged job that waits: what it takes stays free of each ceiling above it."""

    __slots__ = ("job", "priority", "since", "total")

    def __init__(self, line: Line) -> None:
        self.priority, self.since, self.job = -line.key[0], line.key[1], line.key[3]
        self.total = line.total


class Account:
    """One queue's side of the scheduler."""

    __slots__ = ("claim", "held", "history", "levels", "limits", "lines", "name", "path", "queue", "used", "users")

    def __init__(self, name: str, half_life: float) -> None:
        self.name = name
        self.queue: Queue | None = None
        self.path: tuple[Account, ...] = (self,)
        self.limits: list[tuple[Account, Resources]] = []  #: those on the path that have a ceiling
        self.used = Resources()
        self.held: dict[str, tuple[str, Resources]] = {}  #: user and amount of each running job of the queue itself
        self.users: dict[str, Resources] = {}  #: what each user holds, where the policy asks
        self.history = History(half_life)
        self.lines: dict[int, Line] = {}
        self.levels: dict[int, Level] = {}  #: by priority
        self.claim: Claim | None = None  #: of the cycle that is going on, or was the last

    # --- what is used -------------------------------------------------------------------------------------------

    def charge(self, job: str, user: str, total: Resources) -> None:
        self.held[job] = (user, total)
        for account in self.path:
            account.used = account.used + total
        if self.by_user:
            self.users[user] = self.users.get(user, Resources()) + total

    def refund(self, job: str) -> None:
        user, total = self.held.pop(job, ("", Resources()))
        for account in self.path:
            account.used = account.used - total
        if self.by_user:
            self.users[user] = self.users.get(user, Resources()) - total

    def recharge(self, job: str, total: Resources) -> None:
        """A running job takes another amount now."""
        user, _ = self.held[job]
        self.refund(job)
        self.charge(job, user, total)

    @property
    def policy(self) -> str:
        return self.queue.policy if self.queue else "fifo"

    @property
    def by_user(self) -> bool:
        return self.policy in policy.BY_USER

    @property
    def open(self) -> bool:
        """Whether the queue is there, and neither it nor one above it is closed."""
        return self.queue is not None and all(account.queue is None or account.queue.open for account in self.path)

    @property
    def settled(self) -> bool:
        """Whether what it uses now may stay: it is open, and no ceiling above it was lowered below that."""
        return self.open and all(account.used.fits(most) for account, most in self.limits)

    def over(self, total: Resources) -> tuple[Account, str] | None:
        """The first account above and dimension in which the ceiling does not allow this much more."""
        cpu, memory, scalars = total
        for account, most in self.limits:
            used = account.used
            used_cpu, used_memory, _ = used  # written out, because most lines that wait are asked this each cycle
            most_cpu, most_memory, _ = most
            if cpu and used_cpu + cpu > most_cpu:
                return account, "cpu"
            if memory and used_memory + memory > most_memory:
                return account, "memory"
            for name, amount in scalars:
                if used.scalar(name) + amount > most.scalar(name):
                    return account, name
        return None

    def slack(self) -> tuple[int, int]:
        """No job that takes more cpu or memory than this is within all ceilings: a quick no before `over`."""
        cpu = memory = _UNLIMITED
        for account, (most_cpu, most_memory, _) in self.limits:
            used_cpu, used_memory, _ = account.used
            if most_cpu - used_cpu < cpu:
                cpu = most_cpu - used_cpu
            if most_memory - used_memory < memory:
                memory = most_memory - used_memory
        return max(0, cpu), max(0, memory)

    def claimed(self, total: Resources, priority: int, job: str) -> Claim | None:
        """The aged job for which too little would be left, if any; higher priorities need not care."""
        for account in self.path:
            claim = account.claim
            if claim is not None and claim.priority >= priority and claim.job != job:
                most = account.queue.most if account.queue else None
                if most is not None and beyond(total, account.used + claim.total, most, claim.total):
                    return claim
        return None

    # --- order --------------------------------------------------------------------------------------------------

    def enlist(self, line: Line) -> None:
        """The line stands where its first job belongs."""
        level = self.levels.get(-line.key[0])
        if level is None:
            level = self.levels[-line.key[0]] = Level()
        cpu, memory, _ = line.total
        level.least_cpu, level.least_memory = min(cpu, level.least_cpu), min(memory, level.least_memory)
        insort(level.ages, (line.key, line.serial, line))
        if self.policy != "fifo":
            lane = level.lanes.setdefault(line.sample.user if self.by_user else "", [])
            insort(lane, (self._sort_key(line), line.serial, line))

    def delist(self, line: Line) -> None:
        """The reverse, before the line's first job changes."""
        level = self.levels[-line.key[0]]
        ages = level.ages
        del ages[bisect_left(ages, (line.key, line.serial))]
        if self.policy != "fifo":
            lane = level.lanes[line.sample.user if self.by_user else ""]
            del lane[bisect_left(lane, (self._sort_key(line), line.serial))]

    def forget(self, line: Line, priority: int) -> None:
        """A line without jobs is gone. (Only then: a cycle that is under way knows the lists of the others.)"""
        del self.lines[line.serial]
        level = self.levels[priority]
        for user in [user for user, lane in level.lanes.items() if not lane]:
            del level.lanes[user]
        if not level.ages:
            del self.levels[priority]

    def _sort_key(self, line: Line) -> SortKey:
        expected = line.sample.expected
        if self.policy != "shortest" or expected is None or expected != expected:  # what is no number says nothing
            return (0.0 if self.policy != "shortest" else float("inf"), line.key)
        return (expected, line.key)

    def elders(self, priority: int, before: float) -> Iterator[Line]:
        """Lines of this priority whose first job is as old as `before`, the oldest first."""
        level = self.levels.get(priority)
        for key, _, line in level.ages if level else ():
            if key[1] > before:
                return
            yield line

    def rank(self, capacity: Resources) -> tuple[int, float]:
        """Lower goes first among siblings: part of the guarantee that is used, then share of the cluster by weight."""
        queue = self.queue
        if queue is None:
            return (1, dominant(self.used, capacity))
        part = guaranteed_part(self.used, queue.least)
        return (0, part) if part < 1.0 else (1, dominant(self.used, capacity) / max(1, queue.weight))

    def user_rank(self, user: str, capacity: Resources, now: float) -> float:
        """Lower goes first among users: share of the cluster now, and with `fair` that of the past."""
        share = dominant(self.users.get(user, Resources()), capacity)
        return share + self.history.share(user, now) if self.policy == "fair" else share

    def identity(self, request: Request) -> tuple[object, ...]:
        """What sets the lines of this queue apart besides what all queues look at."""
        order = self.queue.policy if self.queue else "fifo"
        if order == "fifo":
            return ()
        return (request.user,) if order in policy.BY_USER else (request.expected,)


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


def link(accounts: Collection[Account]) -> None:
    """Set the path of each account from the parents that its queue and those above it name."""
    known = {account.name: account for account in accounts if account.queue is not None}
    above = {name: known[parent] for name, account in known.items() if (parent := _parent(account)) in known}
    for name in [name for name in above if _circular(name, above)]:
        del above[name]
    for account in accounts:
        path = [account]
        while path[-1].name in above:
            path.append(above[path[-1].name])
        account.path = tuple(path)
        account.limits = [(a, a.queue.most) for a in path if a.queue is not None and a.queue.most is not None]


def _parent(account: Account) -> str | None:
    return account.queue.parent if account.queue is not None and account.name != "root" else None


def _circular(name: str, above: Mapping[str, Account]) -> bool:
    """Whether the way up from a queue leads back to it."""
    at, steps = above[name].name, 0
    while at != name and at in above and steps <= len(above):
        at, steps = above[at].name, steps + 1
    return at == name


def recount(accounts: Iterable[Account]) -> None:
    """Count again what is used, after the tree or a policy changed."""
    listed = list(accounts)
    for account in listed:
        account.used, account.users = Resources(), {}
    for account in listed:
        held, account.held = account.held, {}
        for job, (user, total) in held.items():
            account.charge(job, user, total)
