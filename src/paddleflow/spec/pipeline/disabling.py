"""Disabled components: they must exist, and nothing that runs may need what they would have made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from paddleflow.spec.pipeline.faults import Faults, shown
from paddleflow.spec.pipeline.model import Component, Dag, Mark, Pipeline
from paddleflow.spec.pipeline.templates import references


def check_disabled(pipeline: Pipeline, disabled: Sequence[str], faults: Faults, mark: Mark | None, path: str) -> None:
    """The names in `disabled`, dotted from the entry points on."""
    known = {name: component for name, component, _ in walk(pipeline.entry_points)}
    if pipeline.post_process:
        known[pipeline.post_process.name] = pipeline.post_process
    seen: set[str] = set()
    for name in disabled:
        if name in seen:
            faults.add(mark, path, f"disabled component[{shown(name)}] is set repeatedly")
        elif name not in known:
            faults.unknown(mark, path, f"disabled component[{shown(name)}] not existed", name, known)
        seen.add(name)
    if not seen:
        return
    for name, component, _ in walk(pipeline.entry_points):
        if name in seen or _inside(name, seen):
            continue
        prefix = name.rpartition(".")[0]
        needed = [*component.inputs.values(), *(each.value for each in component.parameters.values())]
        for full in _named(needed, prefix):
            if full in seen:
                faults.add(mark, path, f"disabled component[{full}] is referred by component[{name}]")
        if isinstance(component, Dag):
            for full in _named(list(component.outputs.values()), name):
                if full in seen:
                    faults.add(mark, path, f"disabled component[{full}] is referred by the outputs of dag[{name}]")


def _inside(name: str, disabled: set[str]) -> bool:
    """Whether it is part of a disabled one."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in disabled for length in range(1, len(parts)))


def _named(values: Sequence[object], prefix: str) -> Iterator[str]:
    for value in values:
        for ref in references(value):
            if ref.component:
                yield f"{prefix}.{ref.component}" if prefix else ref.component


def walk(components: Mapping[str, Component], prefix: str = "") -> Iterator[tuple[str, Component, str]]:
    """Full name, component, its parent's full name: parents before their children."""
    for name, component in components.items():
        full = f"{prefix}.{name}" if prefix else name
        yield full, component, prefix
        if isinstance(component, Dag):
            yield from walk(component.children, full)
