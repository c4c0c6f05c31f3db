"""Everything the scheduler knows at one moment, with its indexes: nodes, queues, what runs, what waits, what is kept.

`Core` adds the events and questions, `cycle` walks over it and decides; both only change it through the moves here, so
that used, free, pending and held always agree.
"""

from __future__ import annotations

from heapq import heappop, heappush

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.classes import ClassIndex, Gang, JobClass, SlotSize, allocated_total
from paddleflow.scheduling.ledgers import QueueLedger
from paddleflow.scheduling.model import Allocation, Assignment, Eviction, Reservation, Start
from paddleflow.scheduling.nodes import Cluster, DeviceNumbers, fractional, times_fitting
from paddleflow.scheduling.placement import Shortfall, place, undo
from paddleflow.scheduling.reservations import keep, lift, opened, place_kept
from paddleflow.scheduling.rules import DEFAULTS, Rules

_MANY = 1 << 40  # more members than any node takes


class SlotIndex:
    """Which gangs wait for room. `core` says how an attempt went, and what changed."""

    def __init__(self, cluster: Cluster, classes: ClassIndex) -> None:
        self._cluster = cluster
        self._by_ancestor = classes
        self._joint: list[tuple[int, Gang]] = []  # gangs of several sizes that wait, and since which version

    @property
    def unsure(self) -> bool:
        """Whether gangs wait that a start elsewhere may help: gangs of several sizes."""
        return bool(self._joint)

    def wait(self, gang: Gang, short: Shortfall | None) -> None:
        """The gang found no room: `short` tells how placement failed, None that a slot_size's count forbade trying."""
        gang.waits = True
        if short is not None:
            if short.size > 0:  # what was placed before it took room, so the count says nothing about the slot_size
                self._joint.append((self._cluster.version, gang))
                return
            gang.slot_sizes[0].fits = short.placed
        at, slot_size = next((at, slot_size) for at, slot_size in enumerate(gang.slot_sizes) if gang.lacks(at))
        heappush(slot_size.waiting, (len(gang.sizes[at].members), gang.serial, gang))

    def wake(self) -> None:
        """Give another chance to what the changes since the last cycle may help, and to nothing else."""
        joint, self._joint = self._joint, []
        for version, gang in joint:
            if version == self._cluster.version:
                self._joint.append((version, gang))
            else:
                gang.waits = False
        if self._cluster.improved:
            for slot_size in self._by_ancestor.slot_sizes.values():
                if slot_size.fits is not None:
                    self._raise(slot_size)
            self._cluster.improved.clear()

    def _raise(self, slot_size: SlotSize) -> None:
        """Count what the latest releases added."""
        assert slot_size.fits is not None
        each, members = slot_size.each, slot_size.pool.members
        each_cpu, each_memory, _ = each
        shared = fractional(each)
        for name, (cpu, memory, group) in () if shared else self._cluster.improved.items():
            state = members.get(name)
            if state is None or state.cpu < each_cpu or state.memory < each_memory:
                continue
            fits = times_fitting(each, state.cpu, state.memory, state.group, _MANY)
            if fits:
                slot_size.fits += max(0, fits - times_fitting(each, cpu, memory, group, _MANY))
        if shared:  # shares do not add up by dividing: not known any more
            slot_size.fits = None
        waiting = slot_size.waiting
        while waiting and (slot_size.fits is None or waiting[0][0] <= slot_size.fits):
            heappop(waiting)[2].waits = False

    def forget(self) -> None:
        """Nodes came, went or changed: nothing that was known about room on them holds any more."""
        self._joint.clear()
        self._cluster.improved.clear()
        for slot_size in self._by_ancestor.slot_sizes.values():
            slot_size.fits = None
            slot_size.waiting.clear()
        for gang in self._by_ancestor.gangs.values():
            gang.possible = None
            gang.waits = False


class ClusterState:
    """The state of a cluster and its queues."""

    def __init__(self, rules: Rules = DEFAULTS) -> None:
        self.rules = rules
        self.cluster = Cluster()
        self.ledgers: dict[str, QueueLedger] = {}
        self.allocations: dict[str, Allocation] = {}  #: changed by `keep`, `change` and `drop` alone
        self._elastic: dict[str, None] = {}  # those of them whose members may come and go
        self.reservations: dict[str, Reservation] = {}
        self.classes = ClassIndex()
        self.pending: dict[str, JobClass] = {}
        self.unexplained: dict[str, None] = {}  #: submitted, and not reported yet why they wait
        self.slots = SlotIndex(self.cluster, self.classes)
        self.evictions: dict[str, Eviction] = {}  #: the last of each job, as long as it counts
        self.shrinks: dict[str, Eviction] = {}  #: members that were told to go and are still there, by job
        self.now = float("-inf")
        self.dirty = True  #: something happened since a cycle found nothing to start
        self.touched = True  #: something happened since the last cycle that came to its end
        self._empty: Cluster | None = None  # the same nodes without jobs
        self._stuck: dict[str, int] = {}  # jobs that room kept did not help, and at which version of the cluster

    # --- moves --------------------------------------------------------------------------------------------------

    def ledger(self, name: str) -> QueueLedger:
        ledger = self.ledgers.get(name)
        if ledger is None:
            ledger = self.ledgers[name] = QueueLedger(name, self.rules.half_life)
        return ledger

    def keep(self, allocation: Allocation, total: Resources) -> None:
        """A job runs, and takes this much of its queue."""
        request = allocation.request
        self.allocations[request.job] = allocation
        if request.elastic:
            self._elastic[request.job] = None
        self.ledger(request.queue).charge(request.job, request.user, total)

    def drop(self, job: str) -> Allocation | None:
        """A job runs no more, and takes nothing of its queue; what it held. What it takes on nodes is the caller's to give back."""
        allocation = self.allocations.pop(job, None)
        if allocation is not None:
            self._elastic.pop(job, None)
            self.ledger(allocation.request.queue).refund(job)
        return allocation

    def elastic_allocations(self) -> list[Allocation]:
        """Running jobs whose members may come and go; each cycle looks at them, and most clusters have few."""
        return [self.allocations[job] for job in self._elastic]

    def leave(self, job_class: JobClass, job: str) -> None:
        """A job is no longer in its class."""
        ledger = self.ledgers[job_class.queue]
        del self.pending[job]
        self.unexplained.pop(job, None)
        first, priority = job_class.key[3] == job, -job_class.key[0]
        if first:
            ledger.remove_class(job_class)
        job_class.remove(job)
        if not job_class.jobs:
            self.classes.forget(job_class)
            ledger.forget(job_class, priority)
        elif first:
            ledger.insert_class(job_class)

    def reserve(self, reservation: Reservation, job_class: JobClass) -> None:
        self.reservations[reservation.job] = reservation
        keep(self.cluster, reservation, job_class.gang.sizes)

    def unreserve(self, job: str) -> None:
        """What was kept for a job is open to all; nothing happens when nothing was."""
        reservation = self.reservations.pop(job, None)
        self._stuck.pop(job, None)
        if reservation is not None:
            sizes = self.pending[job].gang.sizes
            opened(self.cluster, lift(self.cluster, reservation, sizes))
            self.dirty = True

    def change(self, job: str, assignments: tuple[Assignment, ...]) -> None:
        """A running job has these members now; what they take on nodes was counted by the caller."""
        allocation = self.allocations[job] = self.allocations[job]._replace(
            assignments=assignments, changed_at=self.now
        )
        self.ledgers[allocation.request.queue].change_charge(job, allocated_total(allocation))

    # --- leaving ------------------------------------------------------------------------------------------------

    def leaving(self, job: str) -> bool:
        """Whether a running job was told to make way and has not gone yet."""
        allocation, eviction = self.allocations.get(job), self.evictions.get(job)
        return allocation is not None and eviction is not None and not eviction.gone and eviction.at >= allocation.since

    def may_leave(self, allocation: Allocation) -> bool:
        """Whether a job has run long enough and was not evicted lately."""
        eviction = self.evictions.get(allocation.request.job)
        lately = eviction is not None and self.now < eviction.at + self.rules.window
        return (
            self.now >= allocation.since + self.rules.least_run
            and not lately
            and not self.leaving(allocation.request.job)
        )

    def may_change(self, allocation: Allocation, *, grow: bool = False) -> bool:
        """Whether members of a job may go now, or come; growing is not worth much to a job that must start anew for it."""
        job, last = allocation.request.job, allocation.since if allocation.changed_at is None else allocation.changed_at
        pause = self.rules.restart_pause if grow and allocation.request.restarts else self.rules.resize_pause
        return self.now >= last + pause and job not in self.shrinks and not self.leaving(job)

    # --- starting -----------------------------------------------------------------------------------------------

    def start(self, job_class: JobClass) -> Start | None:
        """Start the class's first job where there is room for all its members; None when there is not."""
        job, gang = job_class.key[3], job_class.gang
        reservation = self.reservations.get(job)
        if reservation is not None:
            return self._start_kept(job_class, reservation)
        if gang.waits:
            return None
        if job_class.sample.data:
            near = self._near(job_class)
            if near is None or not isinstance(near, Shortfall):
                return None if near is None else self._started(job_class, tuple(near))
        placed = (
            None if gang.short() else place(self.cluster, self.cluster.pool(gang.selector), gang.sizes, gang.constraint)
        )
        if placed is None or isinstance(placed, Shortfall):
            self.slots.wait(gang, placed)
            return None
        return self._started(job_class, tuple(placed))

    def _near(self, job_class: JobClass) -> list[Assignment] | Shortfall | None:
        """Places on the fewest of the nodes that hold most of the job's data; None while it is worth waiting for them."""
        gang, data = job_class.gang, job_class.sample.data
        placed: list[Assignment] | Shortfall = Shortfall(0, 0)
        for count in range(1, len(data) + 1):
            pool = self.cluster.pool(gang.selector._replace(nodes=data[:count]))
            placed = place(self.cluster, pool, gang.sizes, gang.constraint)
            if not isinstance(placed, Shortfall):
                return placed
        if pool.members and self.now < job_class.key[1] + self.rules.data_wait:
            self.dirty = True  # time alone changes this
            return None
        return placed

    def _start_kept(self, job_class: JobClass, reservation: Reservation) -> Start | None:
        gang, version = job_class.gang, self.cluster.version
        if self._stuck.get(reservation.job) == version:
            return None
        before = lift(self.cluster, reservation, gang.sizes)
        placed = place_kept(self.cluster, self.cluster.pool(gang.selector), reservation, gang.sizes, gang.constraint)
        if isinstance(placed, Shortfall):
            keep(self.cluster, reservation, gang.sizes)
            self.cluster.version = self._stuck[reservation.job] = version
            return None
        del self.reservations[reservation.job]
        self._stuck.pop(reservation.job, None)
        opened(self.cluster, before)
        self.slots.wake()
        self.dirty = True
        return self._started(job_class, tuple(placed))

    def _started(self, job_class: JobClass, assignments: tuple[Assignment, ...]) -> Start:
        job = job_class.key[3]
        self.keep(Allocation(job_class.jobs[job], assignments, self.now), job_class.total)
        self.leave(job_class, job)
        if job_class.gang.constraint is not None:
            job_class.gang.constraint.started(self.cluster, job, assignments)
        return Start(job, assignments)

    # --- what could be ------------------------------------------------------------------------------------------

    def possible(self, job_class: JobClass) -> bool:
        """Whether the class's jobs could start if nothing else were there."""
        if job_class.possible is None:
            mosts = [a.queue.ceiling for a in self.ledgers[job_class.queue].path if a.queue]
            within = all(most is None or job_class.total.fits(most) for most in mosts)
            job_class.possible = within and not job_class.fault and self._placeable(job_class)
        return job_class.possible

    def _placeable(self, job_class: JobClass) -> bool:
        gang = job_class.gang
        if gang.possible is None:
            empty = self.empty_cluster()
            placed = place(empty, empty.pool(gang.selector), gang.sizes, gang.constraint)
            gang.possible = not isinstance(placed, Shortfall)
            if not isinstance(placed, Shortfall):
                undo(empty, placed, job_class.sample.member_sets)
        return gang.possible

    def empty_cluster(self) -> Cluster:
        if self._empty is None:
            self._empty = Cluster(state.node for state in self.cluster.states.values())
        return self._empty


def by_node(allocation: Allocation) -> dict[str, list[tuple[Resources, DeviceNumbers]]]:
    """What a job takes on each node; members of a role that the request does not have take nothing."""
    each = {member_set.role: member_set.each for member_set in allocation.request.member_sets}
    found: dict[str, list[tuple[Resources, DeviceNumbers]]] = {}
    for role, _, node, devices in allocation.assignments:
        if role in each:
            found.setdefault(node, []).append((each[role], devices))
    return found
