"""Which quotas cannot hold: a pure check of a whole tree of queues, for whoever changes one.

The scheduler itself never fails on such a tree: a queue whose parent is unknown or goes round in a circle stands directly
under `root`, a guarantee above the ceiling is never reached. The REST layer calls `quota_faults` before it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddleflow.base.quantity import LARGEST, Resources, total
from paddleflow.base.values import dataclass
from paddleflow.scheduling import rules
from paddleflow.scheduling.model import Queue

ROOT = "root"


@dataclass(frozen=True, slots=True)
class QuotaFault:
    """What is wrong with one queue: a word for programs, a sentence with the numbers for people."""

    queue: str
    code: str
    text: str


def quota_faults(queues: Iterable[Queue]) -> list[QuotaFault]:
    """Everything about these queues together that cannot hold; empty when all is well."""
    listed = list(queues)
    known = {queue.name: queue for queue in listed}
    faults = [QuotaFault(queue.name, "twice", f"queue {queue.name} is named twice")
              for queue in listed if known[queue.name] is not queue]  # fmt: skip
    children: dict[str, list[Queue]] = {}
    for queue in known.values():
        faults.extend(_alone(queue))
        if queue.name == ROOT:
            continue
        if queue.parent != ROOT and queue.parent not in known:
            faults.append(
                QuotaFault(queue.name, "parent", f"queue {queue.name} is under {queue.parent}, which does not exist")
            )
        elif (circle := _circle(queue, known)) is not None:
            faults.append(QuotaFault(queue.name, "cycle", f"queue {queue.name} is under itself: {circle}"))
        else:
            children.setdefault(queue.parent, []).append(queue)
    for name, below in children.items():
        parent = known.get(name)
        if parent is not None:
            faults.extend(_minima(parent, below))
    return faults


def _alone(queue: Queue) -> list[QuotaFault]:
    """What is wrong whatever the other queues are."""
    name, least, most = queue.name, queue.guarantee, queue.ceiling
    found = []
    if queue.weight < 1:
        found.append(QuotaFault(name, "weight", f"queue {name} has weight {queue.weight}, it must be at least 1"))
    if queue.order not in rules.ORDERS:
        found.append(
            QuotaFault(name, "order", f"queue {name} has order {queue.order}, not one of {', '.join(rules.ORDERS)}")
        )
    if queue.placement not in rules.PLACEMENTS:
        text = f"queue {name} has placement {queue.placement}, not one of {', '.join(rules.PLACEMENTS)}"
        found.append(QuotaFault(name, "placement", text))
    for word, amounts in (("min", least), ("max", most or Resources())):
        for dimension, amount in _amounts(amounts):
            if not 0 <= amount <= LARGEST:
                found.append(
                    QuotaFault(
                        name, "amount", f"queue {name} has {word} {dimension} {amount}, it must be 0 to {LARGEST}"
                    )
                )
    if most is not None:
        for dimension in least.beyond(most):
            text = f"queue {name} has min {dimension} {least.text(dimension)}, more than its max {most.text(dimension)}"
            found.append(QuotaFault(name, "min_over_max", text))
    return found


def _minima(parent: Queue, below: list[Queue]) -> list[QuotaFault]:
    """The children's guarantees must fit the parent's guarantee; without one, its ceiling."""
    together = total(queue.guarantee for queue in below)
    slots = [("min", parent.guarantee)] if parent.guarantee != Resources() else []
    if parent.ceiling is not None:
        slots.append(("max", parent.ceiling))
    found: dict[str, QuotaFault] = {}
    for word, room in slots:
        for dimension in together.beyond(room):
            text = (
                f"the queues under {parent.name} have min {dimension} {together.text(dimension)} together, "
                f"more than its {word} {room.text(dimension)}"
            )
            found.setdefault(dimension, QuotaFault(parent.name, "children", text))
    return list(found.values())


def _circle(queue: Queue, known: Mapping[str, Queue]) -> str | None:
    """`a > b > a` when the queue is its own ancestor. Those below such a circle are not at fault."""
    names = [queue.name]
    at: Queue | None = known.get(queue.parent)
    while at is not None and at.name != ROOT:
        names.append(at.name)
        if at is queue:
            return " > ".join(names)
        if at.name in names[:-1]:
            return None
        at = known.get(at.parent)
    return None


def _amounts(amounts: Resources) -> list[tuple[str, int]]:
    return [("cpu", amounts.cpu), ("memory", amounts.memory), *amounts.scalars]
