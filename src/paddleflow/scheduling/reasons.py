"""Why a job waits, in a word for programs and a sentence with numbers and names for people.

The causes are asked in the order in which a person could do something about them: what is wrong with the job or its
queue, then what can never be, then what others hold. `Explainer` remembers sums and holders while it lives, so the reasons of
many jobs together cost little more than those of one; it is made for one moment and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import nlargest

from paddleflow.base.quantity import Resources, format_bytes, format_milli
from paddleflow.scheduling import rules
from paddleflow.scheduling.classes import JobClass, fault_of, total_of
from paddleflow.scheduling.cluster_state import ClusterState
from paddleflow.scheduling.ledgers import Claim, QueueLedger
from paddleflow.scheduling.model import Allocation, Node, Queue, Reason, Request, Reservation
from paddleflow.scheduling.nodes import Cluster, NodeSelector, Pool, fractional, selector_of
from paddleflow.scheduling.placement import Shortfall, SizeGroup, place, sizes_of, undo
from paddleflow.scheduling.reservations import keep, lift, place_kept
from paddleflow.scheduling.taints import untolerated


def amount_text(dimension: str, amount: int) -> str:
    return format_bytes(amount) if dimension == "memory" else format_milli(amount)


def _nowhere(cluster: Cluster, selector: NodeSelector) -> str:
    """Why no node suits a selector."""
    labels = ", ".join(f"{key}={value}" for key, value in selector.labels)
    carrying = [s.node for s in cluster.states.values() if set(selector.labels) <= set(s.node.labels.items())]
    taints = untolerated(sorted({taint for node in carrying for taint in node.taints}), selector.tolerates)
    which = f" that carry {labels}" if labels else ""
    if selector.filter is not None and any(not untolerated(node.taints, selector.tolerates) for node in carrying):
        return f"none of the {len(carrying)} nodes{which} suits the node affinity of the job"
    if not carrying:
        return f"no node carries {labels}" if labels else "there is no node"
    if not taints:
        return f"all {len(carrying)} nodes{which} are cordoned or not ready"
    return f"all {len(carrying)} nodes{which} have taints that the job does not tolerate: {', '.join(taints)}"


def impossible(request: Request, nodes: Iterable[Node], queue: Queue | None) -> Reason | None:
    """Why this job could never start on these nodes in this queue, however empty; None when it could.

    Nodes that take no jobs at the moment count, for they may again. Without any node nothing is known: None.
    """
    cluster = Cluster(replace(node, schedulable=True) for node in nodes)
    return impossible_on(cluster, request, [queue] if queue else [])


def impossible_on(empty: Cluster, request: Request, path: Sequence[Queue]) -> Reason | None:
    """The same over a cluster without jobs that the caller keeps, in a queue with all those above it."""
    fault = fault_of(request)
    if fault:
        return Reason("invalid", fault)
    total = total_of(request)
    for queue in path:
        over = total.beyond(queue.ceiling) if queue.ceiling is not None else []
        if over and queue.ceiling is not None:
            return _over_maximum(queue.name, queue.ceiling, total, over[0])
    selector = selector_of(request, path[0] if path else None)
    if not empty.states:
        return None
    pool, sizes = empty.pool(selector), sizes_of(request.member_sets)
    if not pool.members and sizes:
        return Reason("node_labels", _nowhere(empty, selector))
    placed = place(empty, pool, sizes, request.constraint)
    if isinstance(placed, Shortfall):
        return _too_large(pool, sizes, placed)
    undo(empty, placed, request.member_sets)
    return None


def _over_maximum(queue: str, most: Resources, total: Resources, dimension: str) -> Reason:
    return Reason(
        "quota",
        f"the job needs {dimension} {total.text(dimension)}, queue {queue} never has more than {most.text(dimension)}",
    )


def _too_large(pool: Pool, sizes: list[SizeGroup], short: Shortfall) -> Reason:
    """Even without other jobs the members do not fit: names the largest node."""
    largest_short = sizes[min(short.size, len(sizes) - 1)]
    each, wanted = largest_short.each, len(largest_short.members)
    largest = max(
        pool.members.values(),
        key=lambda state: (sum(state.node.capacity.scalar(n) for n, _ in each.scalars), state.cpu, state.memory),
    )
    room = Resources.of(largest.cpu, largest.memory, dict(largest.node.capacity.scalars))
    nodes = len(pool.members)
    if short.placed or short.size:
        what = f"only {short.placed} of {wanted} members that need {each} find a place on {nodes} empty nodes"
    elif fractional(each) and each.fits(room):
        what = f"no node has devices for one member that needs {each}: a share is at most 1, more are whole devices"
    else:
        what = f"one member needs {each}, no node is as large"
    return Reason("capacity", f"{what}; the largest, {largest.name}, has {room}")


class Explainer:
    """Looks at one moment of a core."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._cluster = state.cluster
        self._free: dict[NodeSelector, Resources] = {}
        self._fits: dict[tuple[NodeSelector, Resources], int] = {}
        self._rooms: dict[tuple[NodeSelector, Resources], tuple[str, Resources]] = {}
        self._holders: dict[tuple[str, NodeSelector | None, str], str] = {}
        self._ceilings: dict[tuple[str, str], str] = {}
        self._by_ancestor: dict[str, list[QueueLedger]] | None = None
        self._opened: dict[tuple[NodeSelector, int], bool] = {}

    def reason(self, job_class: JobClass) -> Reason:
        """Why the first job of a class waits, and with it all others of the class."""
        ledger = self._state.ledgers[job_class.queue]
        if job_class.fault:
            return Reason("invalid", job_class.fault)
        if ledger.queue is None:
            return Reason("unknown_queue", f"there is no queue {job_class.queue}")
        shut = next((above for above in ledger.path if above.queue and not above.queue.open), None)
        if shut is not None:
            return Reason("closed", f"queue {shut.name} is closed")
        if not self._state.possible(job_class):
            return self._never(job_class, ledger)
        over = ledger.over(job_class.total)
        if over is not None:
            return self._quota(over[0], job_class, over[1])
        claim = ledger.claimed(job_class.total, -job_class.key[0], job_class.key[3])
        if claim is not None and claim.job in self._state.pending:
            return self._behind(claim, job_class)
        return self._nodes(job_class)

    def tree(self, job_class: JobClass) -> Reason:
        """The reason, and below it all that would still be in the way if it were gone."""
        first, ledger = self.reason(job_class), self._state.ledgers[job_class.queue]
        if first.code in ("invalid", "unknown_queue", "closed", "capacity", "node_labels") or not self._state.possible(
            job_class
        ):
            return replace(first, causes=(first,))
        causes = []
        for above in ledger.path:
            most = above.queue.ceiling if above.queue else None
            if most is not None:
                causes += [self._quota(above, job_class, name) for name in (job_class.total + above.used).beyond(most)
                           if job_class.total.amount(name)]  # fmt: skip
        claim = ledger.claimed(job_class.total, -job_class.key[0], job_class.key[3])
        if claim is not None and claim.job in self._state.pending:
            causes.append(self._behind(claim, job_class))
        nodes = self._nodes(job_class)
        if nodes.code != "next" or not causes:
            causes.append(nodes)
        return replace(first, causes=tuple(causes))

    def _behind(self, claim: Claim, job_class: JobClass) -> Reason:
        waited = int(self._state.now - claim.since)
        return Reason("order", f"{claim.job} has waited {waited} s and goes first in queue {job_class.queue}")

    def _never(self, job_class: JobClass, ledger: QueueLedger) -> Reason:
        if not self._cluster.states:
            return Reason("capacity", "there is no node")
        path = [above.queue for above in ledger.path if above.queue]
        found = impossible_on(self._state.empty_cluster(), job_class.sample, path)
        return found or Reason("capacity", "no node takes jobs now")

    def _quota(self, ledger: QueueLedger, job_class: JobClass, dimension: str) -> Reason:
        free = self._ceilings.get((ledger.name, dimension))
        if free is None:
            most = (ledger.queue.ceiling if ledger.queue else None) or Resources()
            left = amount_text(dimension, max(0, most.amount(dimension) - ledger.used.amount(dimension)))
            free = f"queue {ledger.name} has {dimension} {left} of {most.text(dimension)} free"
            self._ceilings[ledger.name, dimension] = free
        holders = self._named(ledger.name, None, dimension)
        return Reason("quota", f"{free}, the job needs {job_class.total.text(dimension)}{holders}")

    def _nodes(self, job_class: JobClass) -> Reason:
        """The queue would let it start, the nodes do not. What is kept for the job itself is free for it."""
        state, cluster = self._state, self._cluster
        own = state.reservations.get(job_class.key[3])
        if own is None:
            return self._on_nodes(job_class, None)
        version = cluster.version
        lift(cluster, own, job_class.gang.sizes)
        reason = Explainer(state)._on_nodes(job_class, own)
        keep(cluster, own, job_class.gang.sizes)
        cluster.version = version
        return reason

    def _on_nodes(self, job_class: JobClass, own: Reservation | None) -> Reason:
        selector, sizes = job_class.gang.selector, job_class.gang.sizes
        pool = self._cluster.pool(selector)
        free = self._free.get(selector)
        if free is None:
            free = self._free[selector] = pool.free()
        wanted = sum(len(part.members) for part in sizes)
        short = next((part for part in sizes if self._fitting(pool, part.each) < len(part.members)), None)
        if short is None:
            if self._placeable(job_class, pool, own):
                left = job_class.key[1] + self._state.rules.data_wait - self._state.now
                if job_class.sample.data and left > 0:
                    return Reason("data", f"nodes that hold its data are busy: it waits for them {int(left)} s at most")
                return Reason("next", "nothing is in its way: it starts with the next decisions")
            short = sizes[0]
            constraint = job_class.gang.constraint
            if constraint is not None and not constraint.by_room(self._cluster):
                return Reason(
                    "constraint",
                    "enough is free, but not on nodes where its constraints, and those of pods there, allow it now",
                )
        kept = self._kept(job_class, pool)
        if kept:
            return Reason(
                "order", f"nodes are kept for {kept}, which has waited longer than {self._state.rules.patience:.0f} s"
            )
        fits, each = min(self._fitting(pool, short.each), len(short.members)), short.each
        lacking = job_class.total.beyond(free)
        if lacking:
            dimension = lacking[0]
            text = (
                f"{_nodes_have(len(pool.members))} {dimension} {free.text(dimension)} free, "
                f"the job needs {job_class.total.text(dimension)}{self._named('', selector, dimension)}"
            )
            if wanted > 1 and fits:
                return Reason("gang", f"{fits} of {len(short.members)} members that need {each} would fit now; {text}")
            return Reason("busy", text)
        name, room = self._roomiest(pool, each)
        return Reason(
            "fragmentation",
            f"enough is free in sum ({free}) but in pieces: {fits} of {len(short.members)} members that need {each} "
            f"fit now, {name} has {room} free",
        )

    def _kept(self, job_class: JobClass, pool: Pool) -> str:
        """The jobs for which nodes are kept on which this one could start otherwise."""
        state, cluster, mine = self._state, self._cluster, job_class.key[3]
        others = [kept for job, kept in state.reservations.items() if job != mine]
        if not others:
            return ""
        key = (pool.selector, job_class.gang.serial)
        if key not in self._opened:
            version = cluster.version
            for reservation in others:
                lift(cluster, reservation, state.pending[reservation.job].gang.sizes)
            self._opened[key] = self._placeable(job_class, pool)
            for reservation in others:
                keep(cluster, reservation, state.pending[reservation.job].gang.sizes)
            cluster.version = version
        return ", ".join(sorted(kept.job for kept in others)) if self._opened[key] else ""

    def _roomiest(self, pool: Pool, each: Resources) -> tuple[str, Resources]:
        """The node that comes nearest to taking one such member."""
        found = self._rooms.get((pool.selector, each))
        if found is None:
            state = pool.nearest(each)
            scalars = {name: max(whole, part) for name, whole, part in state.group}
            found = state.name, Resources.of(max(0, state.cpu), max(0, state.memory), scalars)
            self._rooms[pool.selector, each] = found
        return found

    def _placeable(self, job_class: JobClass, pool: Pool, own: Reservation | None = None) -> bool:
        version, sizes = self._cluster.version, job_class.gang.sizes
        constraint = job_class.gang.constraint
        if own:
            placed = place_kept(self._cluster, pool, own, sizes, constraint)
        else:
            placed = place(self._cluster, pool, sizes, constraint)
        if isinstance(placed, Shortfall):
            return False
        undo(self._cluster, placed, job_class.sample.member_sets)
        self._cluster.version = version
        return True

    def _fitting(self, pool: Pool, each: Resources) -> int:
        """How many members of this size would fit now."""
        known = self._fits.get((pool.selector, each))
        if known is None:
            known = self._fits[pool.selector, each] = pool.count(each)
        return known

    def _named(self, queue: str, selector: NodeSelector | None, dimension: str) -> str:
        """`; job-a holds 8, job-b holds 8`: the largest holders in a queue, or on the nodes with these selector."""
        known = self._holders.get((queue, selector, dimension))
        if known is None:
            if selector is None:
                below = self._below(queue)
                if dimension == "cpu":
                    amounts = [(total.cpu, job) for ledger in below for job, (_, total) in ledger.charges.items()]
                else:
                    amounts = [
                        (total.amount(dimension), job) for ledger in below for job, (_, total) in ledger.charges.items()
                    ]
            else:
                amounts = [
                    (self._on(selector, allocation, dimension), job)
                    for job, allocation in self._state.allocations.items()
                ]
            top = nlargest(rules.NAMED_HOLDERS, [row for row in amounts if row[0] > 0])
            sizes = [f"{job} holds {amount_text(dimension, amount)}" for amount, job in top]
            known = self._holders[queue, selector, dimension] = "; " + ", ".join(sizes) if sizes else ""
        return known

    def _below(self, queue: str) -> list[QueueLedger]:
        """The queue and all below it that have running jobs."""
        if self._by_ancestor is None:
            self._by_ancestor = {}
            for ledger in self._state.ledgers.values():
                for above in ledger.path if ledger.charges else ():
                    self._by_ancestor.setdefault(above.name, []).append(ledger)
        return self._by_ancestor.get(queue, [])

    def _on(self, selector: NodeSelector, allocation: Allocation, dimension: str) -> int:
        members = self._cluster.pool(selector).members
        each = {member_set.role: member_set.each.amount(dimension) for member_set in allocation.request.member_sets}
        return sum([each.get(a.role, 0) for a in allocation.assignments if a.node in members])


def _nodes_have(count: int) -> str:
    return "the only node has" if count == 1 else f"{count} nodes have"
