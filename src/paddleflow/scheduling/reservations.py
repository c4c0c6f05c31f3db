"""Nodes kept for jobs that have waited long, so that nothing that comes later takes what they wait for.

A reservation names nodes on which the job would fit if what runs there had ended. On such a node others may use cpu and
memory only beyond what is kept, and nothing of a scalar resource that the job asks for. What runs there ends some day,
nothing new takes its place, so the job starts: that is the whole proof, and it needs no durations. A job that waits for
devices leaves the cpu of those nodes to others.
"""

from __future__ import annotations

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import Assignment, Constraint, Reservation
from paddleflow.scheduling.nodes import Cluster, Group, Pool, fractional, times_fitting
from paddleflow.scheduling.placement import Shortfall, SizeGroup, place

Before = dict[str, tuple[int, int, Group]]


def choose(cluster: Cluster, pool: Pool, job: str, sizes: list[SizeGroup]) -> Reservation | None:
    """Nodes that nobody has kept and that would hold all members if they were empty; the freest first."""
    rows: list[tuple[str, int, int]] = []
    empty: dict[str, Cluster] = {}
    for at, size in enumerate(sizes):
        left, each = len(size.members), size.each
        ranked = sorted(
            (-times_fitting(each, state.cpu, state.memory, state.group, left), name)
            for name, state in pool.members.items()
            if state.kept is None
        )
        for _, name in ranked:
            if not left:
                break
            alone = empty.get(name) or Cluster([cluster.states[name].node])
            state = alone.states[name]
            count = min(left, state.shares(each))
            if count > 0:
                empty[name] = alone
                for _ in range(count) if fractional(each) else ():
                    alone.take(state, each, 1)
                if not fractional(each):
                    alone.take(state, each, count)
                rows.append((name, at, count))
                left -= count
        if left:
            return None
    return Reservation(job, tuple(rows))


def amounts(reservation: Reservation, sizes: list[SizeGroup]) -> dict[str, Resources]:
    """What is kept on each node."""
    found: dict[str, Resources] = {}
    for name, at, count in reservation.rows:
        found[name] = found.get(name, Resources()) + sizes[at].each * count
    return found


def keep(cluster: Cluster, reservation: Reservation, sizes: list[SizeGroup]) -> None:
    for name, amount in amounts(reservation, sizes).items():
        state = cluster.states.get(name)
        if state is not None:
            cluster.keep(state, amount)


def lift(cluster: Cluster, reservation: Reservation, sizes: list[SizeGroup]) -> Before:
    """What was kept is open to all; the nodes as they were before, for `opened`."""
    before: Before = {}
    for name, amount in amounts(reservation, sizes).items():
        state = cluster.states.get(name)
        if state is not None:
            before[name] = (state.cpu, state.memory, state.group)
            cluster.open(state, amount)
    return before


def opened(cluster: Cluster, before: Before) -> None:
    """The reservation is over: what was kept may help others."""
    for name, was in before.items():
        cluster.improved.setdefault(name, was)


def place_kept(
    cluster: Cluster,
    pool: Pool,
    reservation: Reservation,
    sizes: list[SizeGroup],
    constraint: Constraint | None = None,
) -> list[Assignment] | Shortfall:
    """Where its job goes, the reservation being lifted: anywhere, or else exactly where room was kept."""
    placed = place(cluster, pool, sizes, constraint)
    if not isinstance(placed, Shortfall) or (constraint is not None and not constraint.by_room(cluster)):
        return placed
    version, taken, assignments = cluster.version, list[tuple[str, Resources, list[Assignment]]](), list[Assignment]()
    done = [0] * len(sizes)
    for name, at, count in reservation.rows:
        each, state = sizes[at].each, cluster.states.get(name)
        if state is None or name not in pool.members or state.shares(each) < count:
            for node, size, mine in reversed(taken):
                cluster.put(cluster.states[node], [(size, assignment.devices) for assignment in mine])
            cluster.version = version
            return placed
        members = sizes[at].members[done[at] : done[at] + count]
        done[at] += count
        mine = []
        for role, index in members:
            (devices,) = cluster.take(state, each, 1)
            mine.append(Assignment(role, index, name, devices))
        taken.append((name, each, mine))
        assignments.extend(mine)
    return sorted(assignments, key=lambda assignment: (assignment.role, assignment.index))
