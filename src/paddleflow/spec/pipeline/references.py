"""References: a step that names a component becomes a copy of it, with its own parameters, inputs and dependencies.

Components may refer to components, never to themselves, however long the way. What lies inside a component is shared by all
that refer to it, so resolving costs nothing however often it is used; how many components come of it in all is limited.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddleflow.spec.pipeline.drafts import Draft
from paddleflow.spec.pipeline.faults import DocumentFaults, near, shown
from paddleflow.spec.pipeline.model import Parameter
from paddleflow.spec.pipeline.parameters import Unfit, typed

MOST_COMPONENTS = 50_000
MOST_NESTING = 40  #: dags in dags, and references to references


class Resolver:
    """Resolves every reference of one document."""

    def __init__(self, components: Mapping[str, Draft], faults: DocumentFaults) -> None:
        self.components = components
        self.faults = faults
        self._done: dict[str, Draft | None] = {}
        self._on_the_way: list[str] = []

    def resolve(self, draft: Draft) -> Draft:
        """The component without references, in it or below. Where one leads nowhere it stays as it is: a fault is noted."""
        if draft.children is not None:
            draft.children = {name: self.resolve(child) for name, child in draft.children.items()}
            draft.height = 1 + max((child.height for child in draft.children.values()), default=0)
            return draft
        if not draft.reference:
            if "reference" in draft.fields:
                self.faults.add(draft.at("reference"), f"{draft.path}.reference", "[reference] names no [component]")
            return draft
        target = self.component(draft.reference, draft)
        if target and target.height >= MOST_NESTING:
            self._too_deep(draft)
            return draft
        return self._merged(draft, target) if target else draft

    def _too_deep(self, draft: Draft) -> None:
        message = f"references and dags are nested more than {MOST_NESTING} deep"
        self.faults.add(draft.at("reference", "component"), f"{draft.path}.reference.component", message)

    def component(self, name: str, by: Draft | None = None) -> Draft | None:
        """The resolved component of this name, or None if it cannot be had."""
        if name in self._done:
            return self._done[name]
        draft = self.components.get(name)
        if draft is None:
            if by:
                where = f"{by.path}.reference.component"
                self.faults.unknown(
                    by.at("reference", "component"), where, f"no component named {shown(name)}", name, self.components
                )
            return None
        if name in self._on_the_way:
            way = "→".join([*self._on_the_way[self._on_the_way.index(name) :], name])
            mark = by.at("reference", "component") if by else draft.mark
            path = f"{by.path}.reference.component" if by else draft.path
            self.faults.add(mark, path, f"reference should not be recursive: {way}")
            return None
        if len(self._on_the_way) > MOST_NESTING:
            self._too_deep(by or draft)
            return None
        self._on_the_way.append(name)
        resolved = self.resolve(draft)
        self._on_the_way.pop()
        self._done[name] = None if resolved.reference else resolved
        return self._done[name]

    def _merged(self, draft: Draft, target: Draft) -> Draft:
        result = target.again()
        result.name, result.path, result.node = draft.name, draft.path, draft.node
        result.fields = {**target.fields, **draft.fields}
        result.reference = ""
        result.height = target.height + 1
        result.deps = draft.deps
        result.parameters = self._parameters(draft, target)
        result.inputs = self._inputs(draft, target)
        if draft.outputs:
            self.faults.add(
                draft.at("artifacts", "output"),
                f"{draft.path}.artifacts.output",
                "reference step can only have deps, parameters, input artifacts, reference; it has output artifacts",
            )
        return result

    def _parameters(self, draft: Draft, target: Draft) -> dict[str, Parameter]:
        merged = dict(target.parameters)
        for name, given in draft.parameters.items():
            where = f"{draft.path}.parameters.{name}"
            known = target.parameters.get(name)
            if known is None:
                message = f"parameters in step with reference must be in referred component[{draft.reference}]: [{shown(name)}]"
                self.faults.unknown(draft.at_key("parameters", name), where, message, name, target.parameters)
                continue
            try:
                merged[name] = Parameter(typed(name, known.type, given.value), known.type)
            except Unfit as error:
                self.faults.add(draft.at("parameters", name), where, error.message, error.hint)
        return merged

    def _inputs(self, draft: Draft, target: Draft) -> dict[str, str]:
        where = f"{draft.path}.artifacts.input"
        for name in draft.inputs:
            if name not in target.inputs:
                message = f"input artifact in step with reference must be in referred component[{draft.reference}]: [{shown(name)}]"
                hint = near(name, target.inputs, "it has no input artifacts")
                self.faults.add(draft.at_key("artifacts", "input", name), f"{where}.{name}", message, hint)
        missing = [name for name in target.inputs if name not in draft.inputs]
        if missing:
            self.faults.add(
                draft.at("artifacts", "input"),
                where,
                f"input artifact in referred component[{draft.reference}] should all be given by the step with reference:"
                f" [{', '.join(missing)}] missing",
            )
        return {name: draft.inputs.get(name, "") for name in target.inputs}


def count(components: Mapping[str, Draft], sizes: dict[int, int] | None = None) -> int:
    """How many components there are in all, each as often as it stands in the tree."""
    sizes = {} if sizes is None else sizes
    total = 0
    for draft in components.values():
        total += 1
        if draft.children:
            size = sizes.get(id(draft.children))
            if size is None:
                size = sizes[id(draft.children)] = count(draft.children, sizes)
            total += size
    return total
