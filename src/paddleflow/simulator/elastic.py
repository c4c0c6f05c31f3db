"""Elastic parameter-server jobs beside an online service, second by second, placed by the core.

A job is a gang (master, parameter servers, its least trainers) and further trainers that come and go one by one. Every
`TICK` seconds the resize function that was handed in says how many trainers each job shall have; what must go holds its
node until it has shut down. Some room stays idle (`headroom`) so that a job that arrives, or the service, need not wait
for that. The service's members go before everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from random import Random

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Start
from paddleflow.scheduling.rounds.trainers import Elastic
from paddleflow.simulator.checks import check_sums

GI = 2**30
TRAINER, PSERVER = Resources.of(5000, 8 * GI), Resources.of(4000, 5 * GI)
MASTER, ONLINE = Resources.of(1000, GI), Resources.of(3000, 3 * GI)
TICK = 5
_CHECK = 20  #: seconds between full checks

Resize = Callable[[Sequence[Elastic], int], dict[str, int]]


def edl_nodes() -> list[Node]:
    """133 nodes with 2,348 cores, as in the published experiment; 2.15 % of them taken by others."""
    sizes = [12] * 69 + [24] * 62 + [16] * 2
    spare = Resources.of(380)
    return [Node(f"node-{i:03}", Resources.of(c * 1000, 102 * GI), reserved=spare) for i, c in enumerate(sizes)]


@dataclass(slots=True)
class PsJob:
    """One job and its trainers."""

    name: str
    submitted_at: float
    least: int
    most: int
    started_at: float | None = None  #: when its first trainer ran
    extras: list[str] = field(default_factory=list)
    serial: int = 0

    @property
    def trainers(self) -> int:
        return self.least + len(self.extras) if self.started_at is not None else 0


class ElasticSimulation:
    """The experiment. `service` says how many online members are wanted at a second."""

    def __init__(
        self,
        nodes: Sequence[Node],
        jobs: Sequence[PsJob],
        resize: Resize,
        headroom: int,
        seed: int,
        service: Callable[[int], int] = lambda second: 0,
    ) -> None:
        self.core = Core()
        self.core.set_nodes(nodes)
        self.core.set_queues([Queue("batch", None), Queue("online", None)])
        self.jobs = {job.name: job for job in jobs}
        self.use: list[float] = []  #: share of all cores in use, by second
        self.online: list[tuple[int, int]] = []  #: members wanted and there, by second
        self._capacity = sum(node.capacity.cpu for node in nodes)
        self._reserved = sum(node.reserved.cpu for node in nodes)
        self._resize, self._headroom, self._service = resize, headroom, service
        self._random = Random(seed)  # noqa: S311  start and stop delays need no secrets
        self._dying: list[tuple[int, str]] = []
        self._members: list[str] = []  # of the service, asked for
        self._serial = 0

    def run(self, seconds: int) -> None:
        for second in range(seconds):
            for _, gone in [row for row in self._dying if row[0] <= second]:
                self.core.release(gone)
            self._dying = [row for row in self._dying if row[0] > second]
            for job in self.jobs.values():
                if job.submitted_at == second:
                    self.core.submit(_base(job, second))
            self._serve_online(second)
            if second % TICK == 0:
                self._tick(second)
            self._decide(second)
            self._account(second)

    def _decide(self, second: int) -> None:
        for decision in self.core.decide(float(second)):
            if isinstance(decision, Start):
                job = self.jobs.get(decision.job)
                if job is not None:
                    job.started_at = second + self._random.uniform(2, 5)

    def _tick(self, second: int) -> None:
        """Grow into what is idle, shrink for those who wait."""
        allocation = self.core.allocations
        running = [job for job in self.jobs.values() if job.name in allocation]
        waiting = [j for j in self.jobs.values() if j.submitted_at <= second and j.name not in allocation]
        slots = sum(max(0, state.cpu) // TRAINER.cpu for state in self.core.cluster.states.values())
        asked = -(-sum(_base_cpu(job) for job in waiting) // TRAINER.cpu)
        asked += sum(
            name not in allocation for name in self._members
        )  # one trainer's place takes one member of the service
        free = slots + len(self._dying) - self._headroom - asked
        targets = self._resize([Elastic(j.name, j.least, j.most, j.least + len(j.extras)) for j in running], free)
        for job in running:
            for _ in range(job.least + len(job.extras) - targets[job.name]):
                self._drop(job, second)
        room = max(0, slots - self._headroom) if not asked else 0
        for job in sorted(running, key=lambda job: len(job.extras)):
            grow = min(room, targets[job.name] - job.least - len(job.extras))
            for _ in range(grow):
                room -= 1
                self._grow(job, second)

    def _grow(self, job: PsJob, second: int) -> None:
        job.serial += 1
        name = f"{job.name}/{job.serial}"
        member_set = MemberSet("trainer", 1, TRAINER)
        self.core.submit(Request(name, "batch", (member_set,), float(second), job.serial, priority=-1))
        if any(isinstance(d, Start) and d.job == name for d in self.core.decide(float(second))):
            job.extras.append(name)
        else:
            self.core.withdraw(name)

    def _drop(self, job: PsJob, second: int) -> None:
        self._dying.append((second + self._random.randint(15, 30), job.extras.pop()))

    def _serve_online(self, second: int) -> None:
        wanted = self._service(second)
        while len(self._members) > wanted:
            name = self._members.pop()
            if not self.core.withdraw(name):
                self._dying.append((second + 3, name))
        while len(self._members) < wanted:
            self._serial += 1
            name = f"online-{self._serial}"
            self._members.append(name)
            member_set = MemberSet("member", 1, ONLINE)
            self.core.submit(Request(name, "online", (member_set,), float(second), self._serial, priority=10))

    def _account(self, second: int) -> None:
        used = self._reserved + self.core.usage("batch").cpu + self.core.usage("online").cpu
        self.use.append(used / self._capacity)
        there = sum(name in self.core.allocations for name in self._members)
        self.online.append((len(self._members), there))
        if second % _CHECK == 0:
            check_sums(self.core, float(second))


def _base(job: PsJob, second: int) -> Request:
    member_sets = (
        MemberSet("master", 1, MASTER),
        MemberSet("pserver", 10, PSERVER),
        MemberSet("trainer", job.least, TRAINER),
    )
    return Request(job.name, "batch", member_sets, float(second), int(job.submitted_at))


def _base_cpu(job: PsJob) -> int:
    return MASTER.cpu + 10 * PSERVER.cpu + job.least * TRAINER.cpu
