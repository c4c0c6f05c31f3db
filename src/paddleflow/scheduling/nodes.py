"""The nodes and what is free on them, indexed so that the best fit is found without looking at each one.

Best fit is one fixed order over nodes: fewest free scalar resources, then least free cpu, then least free memory, then
name; the first that fits is taken. So devices are left together, and jobs without devices keep off nodes that have some
to spare. A `Pool` holds the nodes that suit a `NodeSelector` (schedulable, labels, taints): nodes with the same free scalars form a group,
inside it one level per amount of free cpu, inside that a list sorted by free memory.

Called by `core` and `placement`. Guarantees: what `take` took is never more than was free; `put` undoes exactly.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.devices import WHOLE, Devices
from paddleflow.scheduling.model import Constraint, Node, NodeFilter, Queue, Request
from paddleflow.scheduling.taints import untolerated

Labels = tuple[tuple[str, str], ...]
Group = tuple[tuple[str, int, int], ...]  #: per scalar: name, largest whole request, largest fractional request
DeviceNumbers = tuple[tuple[str, tuple[int, ...]], ...]  #: device numbers by resource name, as in `Assignment.devices`
_MANY_POOLS = 64  #: unused pools are forgotten beyond this number


class NodeSelector(NamedTuple):
    """Which nodes come into question, and which of them first."""

    labels: Labels = ()  #: they carry all of these
    tolerates: tuple[str, ...] = ()  #: and have no other taints than these
    spread: bool = False  #: the emptiest first instead of the fullest
    together: str = ""  #: if it can be, all with one value of this label
    filter: NodeFilter | None = None  #: and are admitted by this
    nodes: tuple[str, ...] = ()  #: and have one of these names; empty: any


def selector_of(request: Request, queue: Queue | None) -> NodeSelector:
    """What a job and its queue ask for together, in one fixed spelling."""
    labels = tuple(sorted({*request.node_labels, *(queue.node_labels if queue else ())}))
    spread = queue is not None and queue.placement == "spread"
    return NodeSelector(labels, tuple(sorted(set(request.tolerates))), spread, request.together, request.filter)


class NodeState:
    """One node as it stands: what is free, and where the indexes have it."""

    __slots__ = ("cpu", "devices", "group", "kept", "memory", "name", "node", "pools", "weight")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.name
        self.cpu = node.capacity.cpu - node.reserved.cpu
        self.memory = node.capacity.memory - node.reserved.memory
        self.devices = {
            name: Devices(milli, node.reserved.scalar(name), node.numbered) for name, milli in node.capacity.scalars
        }
        self.pools: list[Pool] = []
        self.kept: Resources | None = None  #: for a job that has waited long; cpu and memory are less by as much
        self.regroup()

    def regroup(self) -> None:
        self.group: Group = tuple([(name, *devices.room()) for name, devices in self.devices.items()])
        if self.kept is not None and self.kept.scalars:
            closed = dict(self.kept.scalars)
            self.group = tuple([self._closed(row, closed[row[0]]) if row[0] in closed else row for row in self.group])
        self.weight = sum([whole + part for _, whole, part in self.group])

    def _closed(self, row: tuple[str, int, int], kept: int) -> tuple[str, int, int]:
        """What others may have of a scalar that is kept: nothing of devices with numbers, the rest of what is only counted."""
        name, whole, part = row
        return (name, 0, 0) if self.devices[name].numbered else (name, max(0, whole - kept), max(0, part - kept))

    def shares(self, each: Resources) -> int:
        """How many members fit here, exact for fractional requests too."""
        most = times_fitting(each, self.cpu, self.memory, self.group, 1 << 40)
        for name, amount in each.scalars if most else ():
            if amount % WHOLE:
                most = min(most, self.devices[name].shares(amount))
        return most

    def suits(self, selector: NodeSelector) -> bool:
        """A filter knows taints, and nodes that take nobody else, better than we do: where there is one it decides alone."""
        node = self.node
        if selector.nodes and node.name not in selector.nodes:
            return False
        if selector.filter is None:
            if not node.schedulable or (node.taints and untolerated(node.taints, selector.tolerates)):
                return False
        elif not selector.filter.admits(node):
            return False
        return all(node.labels.get(key) == value for key, value in selector.labels)


def group_fits(each: Resources, times: int, group: Group) -> bool:
    """Whether a node of this group has the scalars for `times` members (fractional requests: for one)."""
    for name, amount in each.scalars:
        for known, whole, part in group:
            if known == name:
                if amount * times > whole if amount % WHOLE == 0 else amount > part:
                    return False
                break
        else:
            return False
    return True


def times_fitting(each: Resources, cpu: int, memory: int, group: Group, most: int) -> int:
    """How many members of `each` a node in this state takes, at most `most`; exact when no scalar is fractional."""
    each_cpu, each_memory, scalars = each
    if each_cpu > cpu or each_memory > memory or most <= 0:
        return 0
    if each_cpu and cpu // each_cpu < most:
        most = cpu // each_cpu
    if each_memory and memory // each_memory < most:
        most = memory // each_memory
    for name, amount in scalars:
        for known, whole, part in group:
            if known == name:
                if amount % WHOLE == 0:
                    most = min(most, whole // amount)
                elif amount > part:
                    return 0
                break
        else:
            return 0
    return most


def fractional(each: Resources) -> bool:
    return any(amount % WHOLE for _, amount in each.scalars)


class Pool:
    """The nodes that suit a selector, in best-fit order."""

    __slots__ = ("_by_key", "_order", "members", "selector", "users")

    def __init__(self, selector: NodeSelector) -> None:
        self.selector = selector
        self.users = 0  #: slot_sizes that look here
        self.members: dict[str, NodeState] = {}
        self._order: list[tuple[int, Group]] = []  # groups by weight
        self._by_key: dict[Group, tuple[list[int], dict[int, list[tuple[int, str]]]]] = {}

    def add(self, state: NodeState) -> None:
        group = self._by_key.get(state.group)
        if group is None:
            group = self._by_key[state.group] = ([], {})
            insort(self._order, (state.weight, state.group))
        levels, rows = group
        row = rows.get(state.cpu)
        if row is None:
            rows[state.cpu] = [(state.memory, state.name)]
            insort(levels, state.cpu)
        else:
            insort(row, (state.memory, state.name))

    def remove(self, state: NodeState) -> None:
        levels, rows = self._by_key[state.group]
        row = rows[state.cpu]
        del row[bisect_left(row, (state.memory, state.name))]
        if not row:
            del rows[state.cpu]
            del levels[bisect_left(levels, state.cpu)]
            if not levels:
                del self._by_key[state.group]
                del self._order[bisect_left(self._order, (state.weight, state.group))]

    def best(self, each: Resources, times: int) -> NodeState | None:
        """The first node in best-fit order on which `times` members of `each` fit together."""
        cpu, memory, scalars = each.cpu * times, each.memory * times, each.scalars
        wanted = (memory, "")
        for _, group in self._order:
            if scalars and not group_fits(each, times, group):
                continue
            levels, rows = self._by_key[group]
            if levels[-1] < cpu:
                continue
            for at in range(bisect_left(levels, cpu), len(levels)):
                row = rows[levels[at]]
                if row[-1][0] >= memory:
                    return self.members[row[bisect_left(row, wanted)][1]]
        return None

    def emptiest(self, each: Resources) -> NodeState | None:
        """The last node in best-fit order on which one member fits."""
        for _, group in reversed(self._order):
            if each.scalars and not group_fits(each, 1, group):
                continue
            levels, rows = self._by_key[group]
            for cpu in reversed(levels):
                if cpu < each.cpu:
                    break
                if rows[cpu][-1][0] >= each.memory:
                    return self.members[rows[cpu][-1][1]]
        return None

    def values(self, label: str) -> list[str]:
        """The values that the nodes have of a label, those with the least free cpu first."""
        free: dict[str, int] = {}
        for state in self.members.values():
            value = state.node.labels.get(label)
            if value is not None:
                free[value] = free.get(value, 0) + max(0, state.cpu)
        return sorted(free, key=lambda value: (free[value], value))

    def largest(self, each: Resources, most: int) -> int:
        """The largest number up to `most` of members that fit together on some node."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.best(each, middle) is None:
                high = middle - 1
            else:
                low = middle
        return low

    def count(self, each: Resources) -> int:
        """How many members of this size would fit on all nodes together."""
        fitting, shared = 0, fractional(each)
        for group, (levels, rows) in self._by_key.items():
            if each.scalars and not group_fits(each, 1, group):
                continue
            for cpu in levels[bisect_left(levels, each.cpu) :]:
                row = rows[cpu]
                for memory, name in row[bisect_left(row, (each.memory, "")) :]:
                    if shared:
                        fitting += self.members[name].shares(each)
                    else:
                        fitting += times_fitting(each, cpu, memory, group, 1 << 40)
        return fitting

    def nearest(self, each: Resources) -> NodeState:
        """The node that comes nearest to taking one such member; the pool must not be empty."""
        tops = [
            (group_fits(each, 1, group), min(cpu, each.cpu), min(rows[cpu][-1][0], each.memory), cpu, rows[cpu][-1][1])
            for group, (levels, rows) in self._by_key.items()
            for cpu in levels
        ]
        return self.members[max(tops)[-1]]

    def free(self) -> Resources:
        """What is free on all nodes together; nothing is counted for a node that has less than nothing."""
        scalars: dict[str, int] = {}
        for _, group in self._order:
            levels, rows = self._by_key[group]
            nodes = sum(len(rows[level]) for level in levels)
            for name, whole, part in group:
                scalars[name] = scalars.get(name, 0) + nodes * max(whole, part)
        states = self.members.values()
        return Resources.of(
            sum(max(0, state.cpu) for state in states), sum(max(0, state.memory) for state in states), scalars
        )


class Cluster:
    """All nodes with their pools. `version` grows with every change of what is free or which nodes there are."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.states: dict[str, NodeState] = {}
        self.pools: dict[NodeSelector, Pool] = {}
        self.version = 0
        self.capacity = Resources()  #: of all nodes together
        self.improved: dict[str, tuple[int, int, Group]] = {}  #: nodes freed since last asked, as they were before
        #: what a constraint that is only a value means here; None: nothing, and room alone decides
        self.interpret: Callable[[object], Constraint | None] = lambda constraint: None
        self._labelled: dict[tuple[str, str], dict[str, NodeState]] = {}
        for node in nodes:
            self.put_node(node)

    def put_node(self, node: Node) -> NodeState:
        """Add or replace a node, empty: the caller tells again what its jobs hold."""
        self.drop_node(node.name)
        state = self.states[node.name] = NodeState(node)
        self.capacity = self.capacity + node.capacity
        for pair in node.labels.items():
            self._labelled.setdefault(pair, {})[node.name] = state
        for pool in self.pools.values():
            if state.suits(pool.selector):
                self._join(pool, state)
        self.version += 1
        return state

    def drop_node(self, name: str) -> None:
        state = self.states.pop(name, None)
        if state is None:
            return
        self.capacity = self.capacity - state.node.capacity
        for pool in state.pools:
            pool.remove(state)
            del pool.members[name]
        for pair in state.node.labels.items():
            self._labelled[pair].pop(name, None)
        self.improved.pop(name, None)
        self.version += 1

    def pool(self, selector: NodeSelector) -> Pool:
        """The pool of this selector, made when it is asked for the first time."""
        pool = self.pools.get(selector)
        if pool is None:
            if len(self.pools) >= _MANY_POOLS:
                self._forget_unused()
            pool = self.pools[selector] = Pool(selector)
            for state in self._candidates(selector):
                if state.suits(selector):
                    self._join(pool, state)
        return pool

    def _candidates(self, selector: NodeSelector) -> Iterable[NodeState]:
        """All nodes that may suit, and as few others as the indexes allow."""
        if selector.nodes:
            return [self.states[name] for name in selector.nodes if name in self.states]
        labelled = [self._labelled.get(pair, {}) for pair in selector.labels]
        return min(labelled, key=len, default=self.states).values()

    def _forget_unused(self) -> None:
        for selector in [selector for selector, pool in self.pools.items() if not pool.users]:
            pool = self.pools.pop(selector)
            for state in pool.members.values():
                state.pools.remove(pool)

    @staticmethod
    def _join(pool: Pool, state: NodeState) -> None:
        pool.members[state.name] = state
        pool.add(state)
        state.pools.append(pool)

    def take(self, state: NodeState, each: Resources, times: int) -> list[DeviceNumbers]:
        """Take `times` members' worth, which must fit; the device numbers of each."""
        for pool in state.pools:
            pool.remove(state)
        state.cpu -= each.cpu * times
        state.memory -= each.memory * times
        given: list[DeviceNumbers] = [()] * times
        if each.scalars:
            for turn in range(times):
                numbers = [(name, state.devices[name].take(amount)) for name, amount in each.scalars]
                given[turn] = tuple([pair for pair in numbers if pair[1]])
            state.regroup()
        for pool in state.pools:
            pool.add(state)
        self.version += 1
        return given

    def hold(self, state: NodeState, members: Iterable[tuple[Resources, DeviceNumbers]]) -> None:
        """Count what jobs have here already; may be more than the node has, if it shrank."""
        self._move(state, members, 1)
        self.version += 1

    def put(self, state: NodeState, members: Iterable[tuple[Resources, DeviceNumbers]]) -> None:
        """Undo a `take` that led nowhere: as if it had not been."""
        self._move(state, members, -1)

    def give(self, state: NodeState, members: Iterable[tuple[Resources, DeviceNumbers]]) -> None:
        """What a job had here is free again."""
        self.improved.setdefault(state.name, (state.cpu, state.memory, state.group))
        self._move(state, members, -1)
        self.version += 1

    def keep(self, state: NodeState, amount: Resources) -> None:
        """From now on this much is for nobody but the job it is kept for; its scalars are closed to all others."""
        self._keep(state, amount, 1)

    def open(self, state: NodeState, amount: Resources) -> None:
        """The reverse of `keep`."""
        self._keep(state, amount, -1)

    def _keep(self, state: NodeState, amount: Resources, sign: int) -> None:
        for pool in state.pools:
            pool.remove(state)
        state.cpu -= sign * amount.cpu
        state.memory -= sign * amount.memory
        left = (state.kept or Resources()) + amount * sign
        state.kept = None if left == Resources() else left
        state.regroup()
        for pool in state.pools:
            pool.add(state)
        self.version += 1

    @staticmethod
    def _move(state: NodeState, members: Iterable[tuple[Resources, DeviceNumbers]], sign: int) -> None:
        for pool in state.pools:
            pool.remove(state)
        grouped = False
        for (cpu, memory, scalars), given in members:
            state.cpu -= sign * cpu
            state.memory -= sign * memory
            if scalars:
                grouped = True
                numbers: Mapping[str, tuple[int, ...]] = dict(given)
                for name, amount in scalars:
                    devices = state.devices.get(name)
                    if devices is not None:
                        (devices.hold if sign > 0 else devices.give)(amount, numbers.get(name, ()))
        if grouped:
            state.regroup()
        for pool in state.pools:
            pool.add(state)
