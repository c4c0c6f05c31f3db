"""Which pending lines are worth trying now, in order, and which wait for room on nodes.

A shape that found no room stands aside until room came for it: `Flavour.fits` is an upper bound of how many members fit,
exact when an attempt failed, lowered by nobody, raised by exactly what each release adds. So a shape is looked at again
only when the count allows it, and a cycle in which nothing was freed costs nothing. Gangs of several sizes, whose
placement is a heuristic, are tried again after any change of the nodes.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from paddleflow.scheduling.classes import Families, Flavour, Key, Line, Shape
from paddleflow.scheduling.nodes import Cluster, fractional, times_fitting
from paddleflow.scheduling.placement import Short

_MANY = 1 << 40  # more members than any node takes


class Agenda:
    """The lines to try. `core` offers lines, takes the first, and says how it went."""

    def __init__(self, cluster: Cluster, families: Families) -> None:
        self._cluster = cluster
        self._families = families
        self._todo: list[tuple[Key, int, Shape]] = []  # heap; an entry counts if it has its shape's `queued_key`
        self._joint: list[tuple[int, Shape]] = []  # gangs of several sizes that wait, and since which version

    def __bool__(self) -> bool:
        return bool(self._todo)

    def offer(self, line: Line) -> None:
        """A line that its queue does not hold back any more, or whose first job is another."""
        heappush(line.shape.lines, (line.key, line.serial, line))
        self.look(line.shape)

    def look(self, shape: Shape) -> None:
        """The shape has something to try, unless it waits for room."""
        line = None if shape.waits else shape.first()
        if line is not None and (shape.queued_key is None or line.key < shape.queued_key):
            shape.queued_key = line.key
            heappush(self._todo, (line.key, shape.serial, shape))

    def first(self) -> Line | None:
        """The first line in order; it stays here until it is parked, started or its shape waits."""
        todo = self._todo
        while todo:
            key, serial, shape = todo[0]
            current = key == shape.queued_key
            line = shape.first() if current and not shape.waits else None
            if line is None:
                heappop(todo)
                if current:
                    shape.queued_key = None
            elif line.key != key:
                shape.queued_key = line.key
                heapreplace(todo, (line.key, serial, shape))
            else:
                return line
        return None

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
                self._try_again(shape)
        if self._cluster.improved:
            for flavour in self._families.flavours.values():
                if flavour.fits is not None:
                    self._raise(flavour)
            self._cluster.improved.clear()

    def _raise(self, flavour: Flavour) -> None:
        """Count what the latest releases added."""
        assert flavour.fits is not None
        each, members = flavour.each, flavour.pool.members
        for name, (cpu, memory, group) in self._cluster.improved.items():
            state = members.get(name)
            if state is None or state.cpu < each.cpu or state.memory < each.memory:
                continue
            fits = times_fitting(each, state.cpu, state.memory, state.group, _MANY)
            if fits:
                flavour.fits += max(0, fits - times_fitting(each, cpu, memory, group, _MANY))
        if fractional(each):  # shares do not add up by dividing: not known any more
            flavour.fits = None
        waiting = flavour.waiting
        while waiting and (flavour.fits is None or waiting[0][0] <= flavour.fits):
            self._try_again(heappop(waiting)[2])

    def _try_again(self, shape: Shape) -> None:
        shape.waits = False
        self.look(shape)

    def forget_room(self) -> None:
        """Nodes came, went or changed: nothing that was known about room on them holds any more."""
        self._joint.clear()
        self._cluster.improved.clear()
        for flavour in self._families.flavours.values():
            flavour.fits = None
            flavour.waiting.clear()
        for shape in self._families.shapes.values():
            shape.possible = None
            self._try_again(shape)
