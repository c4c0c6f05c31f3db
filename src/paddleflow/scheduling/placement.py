"""Which node each member of a gang goes to: all of them, or nothing is touched.

Members that take the same are placed together. All that remain go to the tightest node that holds them all; if there is
none, the node that holds most takes its fill, and so on: a gang stays on few nodes, and large holes are left to those
who need them. Larger members are placed before smaller ones. For members of one size this is exact: it fails only when
they do not fit in any way. For members of several sizes it is a heuristic, so `core` asks again after any change.
"""

from __future__ import annotations

from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.scheduling.model import Assignment, Constraint, MemberSet
from paddleflow.scheduling.nodes import Cluster, DeviceNumbers, NodeState, Pool, fractional

_new = tuple.__new__  # saves a call for each member, and a cycle places a hundred thousand


@dataclass(slots=True, eq=False)
class SizeGroup:
    """The members of a job that take the same, whatever their roles."""

    each: Resources
    members: list[tuple[str, int]]


def sizes_of(member_sets: tuple[MemberSet, ...]) -> list[SizeGroup]:
    """What a job starts with, by size, the largest first; equal sizes of different roles are one size."""
    found: dict[Resources, SizeGroup] = {}
    for member_set in member_sets:
        size = found.setdefault(member_set.each, SizeGroup(member_set.each, []))
        size.members.extend((member_set.role, index) for index in range(member_set.minimum))
    sizes = [size for size in found.values() if size.members]
    sizes.sort(key=lambda size: (sum(a for _, a in size.each.scalars), size.each.cpu, size.each.memory), reverse=True)
    return sizes


@dataclass(slots=True, eq=False)
class Shortfall:
    """Placement failed: of size `size` only `placed` members found a node."""

    size: int
    placed: int


def place(
    cluster: Cluster, pool: Pool, sizes: list[SizeGroup], constraint: Constraint | None = None
) -> list[Assignment] | Shortfall:
    """Take nodes for all members and say which; on failure the cluster is as it was.

    If the job wants its members together, each group of nodes with one value of the label is tried before all of them; of several
    labels the first that allows it counts. Where more than room decides, its constraint places it.
    """
    placer = _place if constraint is None or constraint.by_room(cluster) else constraint.place
    selector = pool.selector
    if selector.together and sum([len(size.members) for size in sizes]) > 1:
        for label in selector.together.split(","):
            for value in pool.values(label):
                labels = tuple(sorted({*selector.labels, (label, value)}))
                placed = placer(cluster, cluster.pool(selector._replace(labels=labels, together="")), sizes)
                if not isinstance(placed, Shortfall):
                    return placed
    return placer(cluster, pool, sizes)


def _place(cluster: Cluster, pool: Pool, sizes: list[SizeGroup]) -> list[Assignment] | Shortfall:
    taken: list[tuple[NodeState, Resources, list[DeviceNumbers]]] = []
    version = cluster.version
    assignments: list[Assignment] = []
    for at, size in enumerate(sizes):
        each, members = size.each, size.members
        done, wanted = 0, len(members)
        together = 1 if fractional(each) or pool.selector.spread else wanted
        while done < wanted:
            together = min(together, wanted - done)
            state = pool.emptiest(each) if pool.selector.spread else pool.best(each, together)
            if state is None and together > 1:
                together = pool.largest(each, together - 1)
                state = pool.best(each, together) if together else None
            if state is None:
                for state, each, given in reversed(taken):
                    cluster.put(state, [(each, devices) for devices in given])
                cluster.version = version
                return Shortfall(at, done)
            given = cluster.take(state, each, together)
            taken.append((state, each, given))
            name = state.name
            assignments += [
                _new(Assignment, (role, index, name, devices))
                for (role, index), devices in zip(members[done : done + together], given, strict=True)
            ]
            done += together
    if len(sizes) > 1:
        assignments.sort(key=lambda assignment: (assignment.role, assignment.index))
    return assignments


def undo(cluster: Cluster, assignments: list[Assignment], member_sets: tuple[MemberSet, ...]) -> None:
    """Give back what `place` took, as if it had not been."""
    each = {member_set.role: member_set.each for member_set in member_sets}
    for assignment in assignments:
        cluster.put(cluster.states[assignment.node], [(each[assignment.role], assignment.devices)])
