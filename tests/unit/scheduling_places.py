"""Nodes as the obviously right scheduler of the tests sees them: every fit is looked for everywhere."""

from __future__ import annotations

from collections import Counter

from paddleflow.base.quantity import Resources, total
from paddleflow.scheduling.model import (
    Assignment,
    Node,
    Queue,
    Request,
)

GPU = "gpu"


# --- the reference: full scans, no memory ---------------------------------------------------------------------------


class Place:
    """A node with the list of what is on it; everything is computed from that list each time."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.on: list[tuple[Resources, tuple[int, ...]]] = []
        self.kept = Resources()

    def cpu(self) -> int:
        return self.node.capacity.cpu - self.node.reserved.cpu - self.kept.cpu - sum(each.cpu for each, _ in self.on)

    def memory(self) -> int:
        used = self.node.reserved.memory + self.kept.memory + sum(each.memory for each, _ in self.on)
        return self.node.capacity.memory - used

    def devices(self) -> tuple[list[int], dict[int, int]]:
        """Untouched device numbers, and the room on the others; none when they are kept for somebody."""
        if self.kept.scalar(GPU):
            return [], {}
        count = self.node.capacity.scalar(GPU) // 1000
        used: Counter[int] = Counter()
        for each, numbers in self.on:
            for number in numbers:
                used[number] += each.scalar(GPU) // len(numbers)
        untouched = [number for number in range(count) if not used[number]]
        unnamed = -(-self.node.reserved.scalar(GPU) // 1000)
        return (
            untouched[: len(untouched) - unnamed] if unnamed < len(untouched) else [],
            {number: 1000 - amount for number, amount in used.items() if number < count and amount},
        )

    def take(self, each: Resources) -> tuple[int, ...] | None:
        """Device numbers for one more member, or None when it does not fit."""
        wanted = each.scalar(GPU)
        untouched, shared = self.devices()
        if each.cpu > self.cpu() or each.memory > self.memory():
            return None
        numbers: tuple[int, ...] = ()
        if wanted and wanted % 1000 == 0:
            if len(untouched) < wanted // 1000:
                return None
            numbers = tuple(self.lowest(wanted // 1000))
        elif wanted:
            fitting = sorted((room, number) for number, room in shared.items() if room >= wanted)
            if wanted > 1000 or not (fitting or untouched):
                return None
            numbers = (fitting[0][1],) if fitting else tuple(self.lowest(1))
        self.on.append((each, numbers))
        return numbers

    def lowest(self, wanted: int) -> list[int]:
        return self.devices()[0][:wanted]

    def holds(self, each: Resources, times: int) -> bool:
        before = list(self.on)
        good = all(self.take(each) is not None for _ in range(times))
        self.on = before
        return good

    def rank(self) -> tuple[object, ...]:
        untouched, shared = self.devices()
        part = 1000 if untouched else max([0, *shared.values()])
        known = self.node.capacity.scalar(GPU) > 0
        group = ((GPU, len(untouched) * 1000, part),) if known else ()
        return (len(untouched) * 1000 + part if known else 0, group, self.cpu(), self.memory(), self.node.name)


def selected(request: Request, queue: Queue) -> set[tuple[str, str]]:
    return set(request.node_labels) | set(queue.node_labels)


def put(request: Request, queue: Queue, places: list[Place]) -> list[Assignment] | None:
    wanted = selected(request, queue)
    eligible = [p for p in places if p.node.schedulable and wanted <= set(p.node.labels.items())]
    before = [list(p.on) for p in places]
    found: list[Assignment] = []
    for each, members in sizes_of(request):
        together = 1 if each.scalar(GPU) % 1000 else len(members)
        while members:
            together = min(together, len(members))
            fitting = sorted((p for p in eligible if p.holds(each, together)), key=Place.rank)
            if fitting:
                for role, index in members[:together]:
                    numbers = fitting[0].take(each)
                    assert numbers is not None
                    found.append(Assignment(role, index, fitting[0].node.name, ((GPU, numbers),) if numbers else ()))
                members = members[together:]
            elif together > 1:
                together -= 1
            else:
                for place, was in zip(places, before, strict=True):
                    place.on = was
                return None
    return sorted(found, key=lambda a: (a.role, a.index))


def needs_of(request: Request) -> Resources:
    return total(need.each * need.count for need in request.needs)


def sizes_of(request: Request) -> list[tuple[Resources, list[tuple[str, int]]]]:
    sizes: dict[Resources, list[tuple[str, int]]] = {}
    for need in request.needs:
        sizes.setdefault(need.each, []).extend((need.role, index) for index in range(need.count))
    return sorted(sizes.items(), key=lambda item: (item[0].scalar(GPU), item[0].cpu, item[0].memory), reverse=True)
