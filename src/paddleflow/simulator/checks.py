"""What must hold after every simulated step, whichever policy decided it. `Broken` says what does not, and when.

The core's own ledger is held against a second count made from nothing but the jobs that hold something: free is never
negative, sums agree, each job is in exactly one state, gangs are whole.
"""

from __future__ import annotations

from collections.abc import Collection

from paddleflow.base.quantity import Resources
from paddleflow.errors import Internal
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Allocation
from paddleflow.scheduling.nodes import NodeState


class Broken(Internal):
    """A simulated step left the simulation in a state that cannot be."""


def check(
    core: Core, pending: Collection[str], running: Collection[str], finished: Collection[str], now: float
) -> None:
    """Everything that must be true of a core and of what the simulation believes about its jobs."""
    for one, other, words in (
        (pending, running, "pending and running"),
        (pending, finished, "pending and finished"),
        (running, finished, "running and finished"),
    ):
        small, large = sorted((one, other), key=len)
        both = [job for job in small if job in large]
        if both:
            raise Broken(f"at {now:.0f} s job {both[0]} is {words}")
    if core.allocations.keys() != set(running):
        wrong = min(core.allocations.keys() ^ set(running))
        raise Broken(f"at {now:.0f} s the core and the simulation disagree whether {wrong} runs")
    check_sums(core, now)


def check_sums(core: Core, now: float) -> None:
    """Free on every node = capacity − reserved − kept − what jobs hold there, and not negative; queues likewise."""
    nodes: dict[str, Resources] = {}
    queues: dict[str, Resources] = {}
    for allocation in core.allocations.values():
        check_gang(allocation, now)
        each = {member_set.role: member_set.each for member_set in allocation.request.member_sets}
        for assignment in allocation.assignments:
            amount = each[assignment.role]
            nodes[assignment.node] = nodes.get(assignment.node, Resources()) + amount
            queues[allocation.request.queue] = queues.get(allocation.request.queue, Resources()) + amount
    for name, state in core.cluster.states.items():
        check_node(state, now)
        used, capacity = nodes.pop(name, Resources()) + state.node.reserved, state.node.capacity
        if used.beyond(capacity):
            raise Broken(f"at {now:.0f} s node {name} gives {used} of {capacity}")
        gone = used + (state.kept or Resources())
        if state.cpu + gone.cpu != capacity.cpu or state.memory + gone.memory != capacity.memory:
            raise Broken(f"at {now:.0f} s node {name} counts wrong: {used} used of {capacity}")
        for scalar, devices in state.devices.items():  # what is kept of them is closed, not counted
            whole, _ = devices.room()
            if used.scalar(scalar) % 1000 == 0 and whole + used.scalar(scalar) != capacity.scalar(scalar):
                raise Broken(f"at {now:.0f} s node {name} counts {scalar} wrong: {used} used of {capacity}")
    if nodes:
        raise Broken(f"at {now:.0f} s jobs stand on {min(nodes)}, which is no node")
    for name, used in queues.items():
        if core.usage(name) != used:
            raise Broken(f"at {now:.0f} s queue {name} counts {core.usage(name)}, its jobs hold {used}")


def check_node(state: NodeState, now: float) -> None:
    """Nothing is given that is not there."""
    if state.cpu < 0 or state.memory < 0 or any(devices.loose > devices.milli for devices in state.devices.values()):
        raise Broken(f"at {now:.0f} s node {state.name} has less than nothing free")


def check_gang(allocation: Allocation, now: float) -> None:
    wanted = sum(member_set.count for member_set in allocation.request.member_sets)
    seen = {(assignment.role, assignment.index) for assignment in allocation.assignments}
    if len(seen) != wanted or len(allocation.assignments) != wanted:
        raise Broken(f"at {now:.0f} s {allocation.request.job} has {len(allocation.assignments)} of {wanted} members")
