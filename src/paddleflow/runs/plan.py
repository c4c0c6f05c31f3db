"""A dag as the machine walks it: components by number, and who comes after whom. Made once; shared by all elements of a loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddleflow.spec.pipeline.model import Component, Dag

_NOBODY: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Plan:
    """The children of one dag (or the entry points), numbered in the document's order."""

    path: str  #: dotted name of the dag, with a dot behind it; empty for the entry points
    names: list[str]
    components: list[Component]
    index: dict[str, int]
    successors: list[tuple[int, ...]]
    waits: list[int]  #: how many each one waits for
    _inner: dict[int, Plan] = field(default_factory=dict)

    def inner(self, child: int) -> Plan:
        """The plan of a child that is a dag."""
        found = self._inner.get(child)
        if found is None:
            dag = self.components[child]
            assert isinstance(dag, Dag)
            found = self._inner[child] = plan_of(dag.children, f"{self.path}{dag.name}.")
        return found


def plan_of(children: Mapping[str, Component], path: str = "") -> Plan:
    names = list(children)
    index = {name: number for number, name in enumerate(names)}
    after: dict[int, list[int]] = {}
    waits = []
    for number, child in enumerate(children.values()):
        deps = dict.fromkeys(child.deps)
        waits.append(len(deps))
        for dep in deps:
            after.setdefault(index[dep], []).append(number)
    successors = [tuple(after[number]) if number in after else _NOBODY for number in range(len(names))]
    return Plan(path, names, list(children.values()), index, successors, waits)
