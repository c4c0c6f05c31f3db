"""Which node each member of a gang goes to: all of them, or nothing is touched.

Members that take the same are placed together. All that remain go to the tightest node that holds them all; if there is
none, the node that holds most takes its fill, and so on: a gang stays on few nodes, and large holes are left to those
who need them. Larger members are placed before smaller ones. For members of one size this is exact: it fails only when
they do not fit in any way. For members of several sizes it is a heuristic, so `core` asks again after any change.
"""

from __future__ import annotations

from dataclasses import dataclass

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.model import Assignment, Need
from paddleflow.scheduling.nodes import Cluster, Given, Pool, State, fractional

_new = tuple.__new__  # saves a call for each member, and a cycle places a hundred thousand


@dataclass(slots=True, eq=False)
class Part:
    """The members of a job that take the same, whatever their roles."""

    each: Resources
    members: list[tuple[str, int]]


def parts_of(needs: tuple[Need, ...]) -> list[Part]:
    """What a job starts with, by size, the largest first; equal sizes of different roles are one part."""
    found: dict[Resources, Part] = {}
    for need in needs:
        part = found.setdefault(need.each, Part(need.each, []))
        part.members.extend((need.role, index) for index in range(need.minimum))
    parts = [part for part in found.values() if part.members]
    parts.sort(key=lambda part: (sum(a for _, a in part.each.scalars), part.each.cpu, part.each.memory), reverse=True)
    return parts


@dataclass(slots=True, eq=False)
class Short:
    """Placement failed: of part `part` only `placed` members found a node."""

    part: int
    placed: int


def place(cluster: Cluster, pool: Pool, parts: list[Part]) -> list[Assignment] | Short:
    """Take nodes for all members and say which; on failure the cluster is as it was.

    If the job wants its members together, each group of nodes with one value of the label is tried before all of them.
    """
    choice = pool.choice
    if choice.together and sum([len(part.members) for part in parts]) > 1:
        for value in pool.values(choice.together):
            labels = tuple(sorted({*choice.labels, (choice.together, value)}))
            placed = _place(cluster, cluster.pool(choice._replace(labels=labels, together="")), parts)
            if not isinstance(placed, Short):
                return placed
    return _place(cluster, pool, parts)


def _place(cluster: Cluster, pool: Pool, parts: list[Part]) -> list[Assignment] | Short:
    taken: list[tuple[State, Resources, list[Given]]] = []
    version = cluster.version
    assignments: list[Assignment] = []
    for at, part in enumerate(parts):
        each, members = part.each, part.members
        done, wanted = 0, len(members)
        together = 1 if fractional(each) or pool.choice.spread else wanted
        while done < wanted:
            together = min(together, wanted - done)
            state = pool.emptiest(each) if pool.choice.spread else pool.best(each, together)
            if state is None and together > 1:
                together = pool.largest(each, together - 1)
                state = pool.best(each, together) if together else None
            if state is None:
                for state, each, given in reversed(taken):
                    cluster.put(state, [(each, devices) for devices in given])
                cluster.version = version
                return Short(at, done)
            given = cluster.take(state, each, together)
            taken.append((state, each, given))
            name = state.name
            assignments += [
                _new(Assignment, (role, index, name, devices))
                for (role, index), devices in zip(members[done : done + together], given, strict=True)
            ]
            done += together
    if len(parts) > 1:
        assignments.sort(key=lambda assignment: (assignment.role, assignment.index))
    return assignments


def undo(cluster: Cluster, assignments: list[Assignment], needs: tuple[Need, ...]) -> None:
    """Give back what `place` took, as if it had not been."""
    each = {need.role: need.each for need in needs}
    for assignment in assignments:
        cluster.put(cluster.states[assignment.node], [(each[assignment.role], assignment.devices)])
