"""Why a job waits, in a word for programs and a sentence with numbers and names for people.

The causes are asked in the order in which a person could do something about them: what is wrong with the job or its
queue, then what can never be, then what others hold. `Sight` remembers sums and holders while it lives, so the reasons of
many jobs together cost little more than those of one; it is made for one moment and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import nlargest

from paddleflow.base.quantity import Resources, format_bytes, format_milli
from paddleflow.scheduling import policy
from paddleflow.scheduling.accounts import Account, Claim
from paddleflow.scheduling.classes import Line, fault_of, total_of
from paddleflow.scheduling.model import Held, Node, Queue, Reason, Request, Reservation
from paddleflow.scheduling.nodes import Choice, Cluster, Pool, choice_of, fractional
from paddleflow.scheduling.placement import Part, Short, parts_of, place, undo
from paddleflow.scheduling.reservations import keep, lift, place_kept
from paddleflow.scheduling.table import Table


def amount_text(dimension: str, amount: int) -> str:
    return format_bytes(amount) if dimension == "memory" else format_milli(amount)


def _nowhere(cluster: Cluster, choice: Choice) -> str:
    """Why no node suits a choice."""
    labels = ", ".join(f"{key}={value}" for key, value in choice.labels)
    carrying = [s.node for s in cluster.states.values() if set(choice.labels) <= set(s.node.labels.items())]
    taints = sorted({taint for node in carrying for taint in node.taints} - set(choice.tolerates))
    if not taints:
        return f"no node carries {labels}"
    which = f" that carry {labels}" if labels else ""
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
        over = total.beyond(queue.most) if queue.most is not None else []
        if over and queue.most is not None:
            return _over_maximum(queue.name, queue.most, total, over[0])
    choice = choice_of(request, path[0] if path else None)
    if not empty.states:
        return None
    pool, parts = empty.pool(choice), parts_of(request.needs)
    if not pool.members and parts:
        return Reason("node_labels", _nowhere(empty, choice))
    placed = place(empty, pool, parts)
    if isinstance(placed, Short):
        return _too_large(pool, parts, placed)
    undo(empty, placed, request.needs)
    return None


def _over_maximum(queue: str, most: Resources, total: Resources, dimension: str) -> Reason:
    return Reason(
        "quota",
        f"the job needs {dimension} {total.text(dimension)}, queue {queue} never has more than {most.text(dimension)}",
    )


def _too_large(pool: Pool, parts: list[Part], short: Short) -> Reason:
    """Even without other jobs the members do not fit: names the largest node."""
    each, wanted = parts[short.part].each, len(parts[short.part].members)
    largest = max(
        pool.members.values(),
        key=lambda state: (sum(state.node.capacity.scalar(n) for n, _ in each.scalars), state.cpu, state.memory),
    )
    room = Resources.of(largest.cpu, largest.memory, dict(largest.node.capacity.scalars))
    nodes = len(pool.members)
    if short.placed or short.part:
        what = f"only {short.placed} of {wanted} members that need {each} find a place on {nodes} empty nodes"
    elif fractional(each) and each.fits(room):
        what = f"no node has devices for one member that needs {each}: a share is at most 1, more are whole devices"
    else:
        what = f"one member needs {each}, no node is as large"
    return Reason("capacity", f"{what}; the largest, {largest.name}, has {room}")


class Sight:
    """Looks at one moment of a core."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._cluster = table.cluster
        self._free: dict[Choice, Resources] = {}
        self._fits: dict[tuple[Choice, Resources], int] = {}
        self._rooms: dict[tuple[Choice, Resources], tuple[str, Resources]] = {}
        self._holders: dict[tuple[str, Choice | None, str], str] = {}
        self._ceilings: dict[tuple[str, str], str] = {}
        self._families: dict[str, list[Account]] | None = None
        self._opened: dict[tuple[Choice, int], bool] = {}

    def reason(self, line: Line) -> Reason:
        """Why the first job of a line waits, and with it all others of the line."""
        account = self._table.accounts[line.queue]
        if line.fault:
            return Reason("invalid", line.fault)
        if account.queue is None:
            return Reason("unknown_queue", f"there is no queue {line.queue}")
        shut = next((above for above in account.path if above.queue and not above.queue.open), None)
        if shut is not None:
            return Reason("closed", f"queue {shut.name} is closed")
        if not self._table.possible(line):
            return self._never(line, account)
        over = account.over(line.total)
        if over is not None:
            return self._quota(over[0], line, over[1])
        claim = account.claimed(line.total, -line.key[0], line.key[3])
        if claim is not None and claim.job in self._table.pending:
            return self._behind(claim, line)
        return self._nodes(line)

    def tree(self, line: Line) -> Reason:
        """The reason, and below it all that would still be in the way if it were gone."""
        first, account = self.reason(line), self._table.accounts[line.queue]
        if first.code in ("invalid", "unknown_queue", "closed", "capacity", "node_labels") or not self._table.possible(
            line
        ):
            return replace(first, causes=(first,))
        causes = []
        for above in account.path:
            most = above.queue.most if above.queue else None
            if most is not None:
                causes += [self._quota(above, line, name) for name in (line.total + above.used).beyond(most)
                           if line.total.amount(name)]  # fmt: skip
        claim = account.claimed(line.total, -line.key[0], line.key[3])
        if claim is not None and claim.job in self._table.pending:
            causes.append(self._behind(claim, line))
        nodes = self._nodes(line)
        if nodes.code != "next" or not causes:
            causes.append(nodes)
        return replace(first, causes=tuple(causes))

    def _behind(self, claim: Claim, line: Line) -> Reason:
        waited = int(self._table.now - claim.since)
        return Reason("order", f"{claim.job} has waited {waited} s and goes first in queue {line.queue}")

    def _never(self, line: Line, account: Account) -> Reason:
        if not self._cluster.states:
            return Reason("capacity", "there is no node")
        path = [above.queue for above in account.path if above.queue]
        found = impossible_on(self._table.empty_cluster(), line.sample, path)
        return found or Reason("capacity", "no node takes jobs now")

    def _quota(self, account: Account, line: Line, dimension: str) -> Reason:
        free = self._ceilings.get((account.name, dimension))
        if free is None:
            most = (account.queue.most if account.queue else None) or Resources()
            left = amount_text(dimension, max(0, most.amount(dimension) - account.used.amount(dimension)))
            free = f"queue {account.name} has {dimension} {left} of {most.text(dimension)} free"
            self._ceilings[account.name, dimension] = free
        holders = self._named(account.name, None, dimension)
        return Reason("quota", f"{free}, the job needs {line.total.text(dimension)}{holders}")

    def _nodes(self, line: Line) -> Reason:
        """The queue would let it start, the nodes do not. What is kept for the job itself is free for it."""
        table, cluster = self._table, self._cluster
        own = table.reservations.get(line.key[3])
        if own is None:
            return self._on_nodes(line, None)
        version = cluster.version
        lift(cluster, own, line.shape.parts)
        reason = Sight(table)._on_nodes(line, own)
        keep(cluster, own, line.shape.parts)
        cluster.version = version
        return reason

    def _on_nodes(self, line: Line, own: Reservation | None) -> Reason:
        choice, parts = line.shape.choice, line.shape.parts
        pool = self._cluster.pool(choice)
        free = self._free.get(choice)
        if free is None:
            free = self._free[choice] = pool.free()
        wanted = sum(len(part.members) for part in parts)
        short = next((part for part in parts if self._fitting(pool, part.each) < len(part.members)), None)
        if short is None:
            if self._placeable(line, pool, own):
                left = line.key[1] + self._table.rules.data_wait - self._table.now
                if line.sample.data and left > 0:
                    return Reason("data", f"nodes that hold its data are busy: it waits for them {int(left)} s at most")
                return Reason("next", "nothing is in its way: it starts with the next decisions")
            short = parts[0]
        kept = self._kept(line, pool)
        if kept:
            return Reason(
                "order", f"nodes are kept for {kept}, which has waited longer than {self._table.rules.patience:.0f} s"
            )
        fits, each = min(self._fitting(pool, short.each), len(short.members)), short.each
        lacking = line.total.beyond(free)
        if lacking:
            dimension = lacking[0]
            text = (
                f"{_nodes_have(len(pool.members))} {dimension} {free.text(dimension)} free, "
                f"the job needs {line.total.text(dimension)}{self._named('', choice, dimension)}"
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

    def _kept(self, line: Line, pool: Pool) -> str:
        """The jobs for which nodes are kept on which this one could start otherwise."""
        table, cluster, mine = self._table, self._cluster, line.key[3]
        others = [kept for job, kept in table.reservations.items() if job != mine]
        if not others:
            return ""
        key = (pool.choice, line.shape.serial)
        if key not in self._opened:
            version = cluster.version
            for reservation in others:
                lift(cluster, reservation, table.pending[reservation.job].shape.parts)
            self._opened[key] = self._placeable(line, pool)
            for reservation in others:
                keep(cluster, reservation, table.pending[reservation.job].shape.parts)
            cluster.version = version
        return ", ".join(sorted(kept.job for kept in others)) if self._opened[key] else ""

    def _roomiest(self, pool: Pool, each: Resources) -> tuple[str, Resources]:
        """The node that comes nearest to taking one such member."""
        found = self._rooms.get((pool.choice, each))
        if found is None:
            state = pool.nearest(each)
            scalars = {name: max(whole, part) for name, whole, part in state.group}
            found = state.name, Resources.of(max(0, state.cpu), max(0, state.memory), scalars)
            self._rooms[pool.choice, each] = found
        return found

    def _placeable(self, line: Line, pool: Pool, own: Reservation | None = None) -> bool:
        version, parts = self._cluster.version, line.shape.parts
        placed = place_kept(self._cluster, pool, own, parts) if own else place(self._cluster, pool, parts)
        if isinstance(placed, Short):
            return False
        undo(self._cluster, placed, line.sample.needs)
        self._cluster.version = version
        return True

    def _fitting(self, pool: Pool, each: Resources) -> int:
        """How many members of this size would fit now."""
        known = self._fits.get((pool.choice, each))
        if known is None:
            known = self._fits[pool.choice, each] = pool.count(each)
        return known

    def _named(self, queue: str, choice: Choice | None, dimension: str) -> str:
        """`; job-a holds 8, job-b holds 8`: the largest holders in a queue, or on the nodes with these choice."""
        known = self._holders.get((queue, choice, dimension))
        if known is None:
            if choice is None:
                below = self._below(queue)
                if dimension == "cpu":
                    amounts = [(total.cpu, job) for account in below for job, (_, total) in account.held.items()]
                else:
                    amounts = [
                        (total.amount(dimension), job) for account in below for job, (_, total) in account.held.items()
                    ]
            else:
                amounts = [(self._on(choice, held, dimension), job) for job, held in self._table.held.items()]
            top = nlargest(policy.NAMED_HOLDERS, [row for row in amounts if row[0] > 0])
            parts = [f"{job} holds {amount_text(dimension, amount)}" for amount, job in top]
            known = self._holders[queue, choice, dimension] = "; " + ", ".join(parts) if parts else ""
        return known

    def _below(self, queue: str) -> list[Account]:
        """The queue and all below it that have running jobs."""
        if self._families is None:
            self._families = {}
            for account in self._table.accounts.values():
                for above in account.path if account.held else ():
                    self._families.setdefault(above.name, []).append(account)
        return self._families.get(queue, [])

    def _on(self, choice: Choice, held: Held, dimension: str) -> int:
        members = self._cluster.pool(choice).members
        each = {need.role: need.each.amount(dimension) for need in held.request.needs}
        return sum([each.get(a.role, 0) for a in held.assignments if a.node in members])


def _nodes_have(count: int) -> str:
    return "the only node has" if count == 1 else f"{count} nodes have"
