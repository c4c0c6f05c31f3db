"""What is known about room on nodes, so that shapes that cannot fit are not tried.

A shape that found no room stands aside until room came for it: `Flavour.fits` is an upper bound of how many members fit,
exact when an attempt failed, lowered by nobody, raised by exactly what each release adds. So a shape is looked at again
only when the count allows it, and a cycle in which nothing was freed costs nothing. Gangs of several sizes, whose
placement is a heuristic, are tried again after any change of the nodes.
"""

from __future__ import annotations

from heapq import heappop, heappush

from paddleflow.scheduling.classes import Families, Flavour, Shape
from paddleflow.scheduling.nodes import Cluster, fractional, times_fitting
from paddleflow.scheduling.placement import Short

_MANY = 1 << 40  # more members than any node takes


class Rooms:
    """Which shapes wait for room. `core` says how an attempt went, and what changed."""

    def __init__(self, cluster: Cluster, families: Families) -> None:
        self._cluster = cluster
        self._families = families
        self._joint: list[tuple[int, Shape]] = []  # gangs of several sizes that wait, and since which version

    @property
    def unsure(self) -> bool:
        """Whether shapes wait that a start elsewhere may help: gangs of several sizes."""
        return bool(self._joint)

    def wait(self, shape: Shape, short: Short | None) -> None:
        """The shape found no room: `short` tells how placement failed, None that a flavour's count forbade trying."""
        shape.waits = True
        if short is not None:
            if short.part > 0:  # what was placed before it took room, so the count says nothing about the flavour
                self._joint.append((self._cluster.version, shape))
                return
            shape.flavours[0].fits = short.placed
        at, flavour = next((at, flavour) for at, flavour in enumerate(shape.flavours) if shape.lacks(at))
        heappush(flavour.waiting, (len(shape.parts[at].members), shape.serial, shape))

    def wake(self) -> None:
        """Give another chance to what the changes since the last cycle may help, and to nothing else."""
        joint, self._joint = self._joint, []
        for version, shape in joint:
            if version == self._cluster.version:
                self._joint.append((version, shape))
            else:
                shape.waits = False
        if self._cluster.improved:
            for flavour in self._families.flavours.values():
                if flavour.fits is not None:
                    self._raise(flavour)
            self._cluster.improved.clear()

    def _raise(self, flavour: Flavour) -> None:
        """Count what the latest releases added."""
        assert flavour.fits is not None
        each, members = flavour.each, flavour.pool.members
        each_cpu, each_memory, _ = each
        shared = fractional(each)
        for name, (cpu, memory, group) in () if shared else self._cluster.improved.items():
            state = members.get(name)
            if state is None or state.cpu < each_cpu or state.memory < each_memory:
                continue
            fits = times_fitting(each, state.cpu, state.memory, state.group, _MANY)
            if fits:
                flavour.fits += max(0, fits - times_fitting(each, cpu, memory, group, _MANY))
        if shared:  # shares do not add up by dividing: not known any more
            flavour.fits = None
        waiting = flavour.waiting
        while waiting and (flavour.fits is None or waiting[0][0] <= flavour.fits):
            heappop(waiting)[2].waits = False

    def forget_room(self) -> None:
        """Nodes came, went or changed: nothing that was known about room on them holds any more."""
        self._joint.clear()
        self._cluster.improved.clear()
        for flavour in self._families.flavours.values():
            flavour.fits = None
            flavour.waiting.clear()
        for shape in self._families.shapes.values():
            shape.possible = None
            shape.waits = False
