"""The rules between the components of one document, checked by `document` on drafts.

What templates may name in each field, dependencies that exist and form no cycle, what a loop may go over, and that nothing
which runs needs a disabled component.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline import conditions
from paddleflow.spec.pipeline.drafts import Draft
from paddleflow.spec.pipeline.faults import DocumentFaults, Hint, near, shown
from paddleflow.spec.pipeline.model import Component, Dag, Mark, Parameter, Pipeline
from paddleflow.spec.pipeline.nodes import YamlNode, kind_of
from paddleflow.spec.pipeline.parameters import Unfit, plain
from paddleflow.spec.pipeline.templates import (
    LOOP_ARGUMENT,
    PARENT,
    SYSTEM_PARAMETERS,
    Reference,
    dotted_names,
    references,
    single,
)


class Parametrised(Protocol):
    """What a template in `parameters` can look at: a draft, or a component of the model."""

    @property
    def parameters(self) -> Mapping[str, Parameter]: ...


def check_level(
    siblings: Mapping[str, Draft], parent: Draft | None, faults: DocumentFaults, *, outer: bool = False
) -> None:
    """All rules of one level and of what is below. `outer`: the components that references name, which stand alone."""
    if outer:
        for draft in siblings.values():
            if draft.deps:
                faults.add(draft.at("deps"), f"{draft.path}.deps", f"components can not have deps: [{draft.name}] has")
    else:
        check_order(siblings, faults)
    for draft in siblings.values():
        check_component(draft, {} if outer else siblings, parent, faults, outer=outer)
        if draft.children and draft.node.value is not None and not _borrowed(draft):
            check_level(draft.children, draft, faults)


def _borrowed(draft: Draft) -> bool:
    """Whether its children belong to a component, which is checked by itself."""
    return "reference" in draft.fields


def check_component(
    draft: Draft, siblings: Mapping[str, Draft], parent: Draft | None, faults: DocumentFaults, *, outer: bool = False
) -> None:
    _check_unique(draft, faults)
    for name, parameter in draft.parameters.items():
        if not _own(draft, "parameters", name):
            continue
        for message, hint in parameter_faults(draft.path, draft.deps, name, parameter.value, siblings, parent):
            faults.add(draft.at("parameters", name), f"{draft.path}.parameters.{name}", message, hint)
    if not outer:
        for name, template in draft.inputs.items():
            if _borrowed(draft) and not _own(draft, "artifacts", "input", name):
                continue  # missing: said already
            for message, hint in _input_faults(draft, name, template, siblings, parent):
                faults.add(draft.at("artifacts", "input", name), f"{draft.path}.artifacts.input.{name}", message, hint)
    if _borrowed(draft):
        return
    if draft.children is not None:
        for name, template in draft.outputs.items():
            for message, hint in _output_faults(draft, name, template):
                faults.add(
                    draft.at("artifacts", "output", name), f"{draft.path}.artifacts.output.{name}", message, hint
                )
    _check_own_fields(draft, faults)
    check_loop(draft, faults)


def _own(draft: Draft, *keys: str) -> bool:
    """Whether the author wrote it here, and not in the component that is referred to."""
    if not _borrowed(draft):
        return True
    node: YamlNode | None = draft.node
    for key in keys:
        node = node.value.get(key) if node and isinstance(node.value, dict) else None
    return node is not None


def _check_unique(draft: Draft, faults: DocumentFaults) -> None:
    seen: dict[str, str] = {}
    for what, field, names in (
        ("parameter", ("parameters",), draft.parameters),
        ("inputAtf", ("artifacts", "input"), draft.inputs),
        ("outputAtf", ("artifacts", "output"), draft.outputs),
    ):
        for name in names:
            before = seen.setdefault(name.upper(), name)
            if before is not name:
                faults.add(
                    draft.at_key(*field, name),
                    f"{draft.path}.{'.'.join(field)}.{name}",
                    f"{what} name[{shown(name)}] has already existed in params/artifacts of component[{draft.name}]"
                    f" (these names are case-insensitive)",
                )


Faulty = Iterator[tuple[str, Hint]]


def parameter_faults(
    path: str,
    deps: Iterable[str],
    name: str,
    value: Any,
    siblings: Mapping[str, Parametrised],
    parent: Parametrised | None,
) -> Faulty:
    """What is wrong with the templates of a parameter's value: (message, hint) of each."""
    component = path.rpartition(".")[2]
    for unknown in dict.fromkeys(dotted_names(value)):
        if unknown not in SYSTEM_PARAMETERS:
            yield (
                f"unsupported SysParamName[{unknown}] for param[{name}] of field[parameters]",
                _lazy(unknown, SYSTEM_PARAMETERS),
            )
    for ref in dict.fromkeys(references(value)):
        if not ref.component:
            if ref.name not in SYSTEM_PARAMETERS:
                hint = _lazy(ref.name, SYSTEM_PARAMETERS)
                yield f"unsupported SysParamName[{ref.name}] for param[{name}] of field[parameters]", hint
        elif ref.component == PARENT:
            if parent is None:
                yield "PF_PARENT should be used by a child component", "only components inside of a dag have a parent"
            elif ref.name != LOOP_ARGUMENT and ref.name not in parent.parameters:
                yield (
                    f"invalid reference {{{{{ref}}}}}: the parent has no parameter [{ref.name}]",
                    _lazy(ref.name, parent.parameters),
                )
        else:
            upstream, fault = _upstream(ref, component, tuple(deps), siblings)
            if fault:
                yield fault
            elif not _unresolved(upstream) and ref.name not in upstream.parameters:
                yield (
                    f"invalid reference {{{{{ref}}}}} in component[{component}]: component[{ref.component}] has no parameter [{ref.name}]",
                    _lazy(ref.name, upstream.parameters),
                )


def _lazy(name: str, known: Iterable[str]) -> Hint:
    return lambda: near(name, known, "it has none")


def _unresolved(component: object) -> bool:
    return isinstance(component, Draft) and component.unresolved


def _upstream(
    ref: Reference, component: str, deps: tuple[str, ...], siblings: Mapping[str, Any]
) -> tuple[Any, tuple[str, Hint] | None]:
    """The sibling that is named, or what is wrong with naming it."""
    if ref.component not in siblings:
        fault = f"invalid reference {{{{{ref}}}}} in component[{component}]: component[{ref.component}] not exist"
        return None, (fault, _lazy(ref.component, deps or siblings))
    if ref.component not in deps:
        fault = f"invalid reference {{{{{ref}}}}} in component[{component}]: component[{ref.component}] not in deps"
        return None, (fault, f"deps: {','.join([*deps, ref.component])}")
    return siblings[ref.component], None


def _input_faults(
    draft: Draft, name: str, template: str, siblings: Mapping[str, Draft], parent: Draft | None
) -> Faulty:
    ref = single(template.strip())
    if not ref or not ref.component:
        hint = 'such as "{{upstream.output}}" or "{{PF_PARENT.input}}"'
        yield (
            f"input artifact [{name}] of component[{draft.name}] must be exactly one reference, found [{shown(template)}]",
            hint,
        )
    elif ref.component == PARENT:
        if parent is None:
            yield "PF_PARENT should be used by a child component", "only components inside of a dag have a parent"
        elif ref.name not in parent.inputs:
            yield (
                f"invalid reference {{{{{ref}}}}}: the parent has no input artifact [{ref.name}]",
                _lazy(ref.name, parent.inputs),
            )
    else:
        upstream, fault = _upstream(ref, draft.name, draft.deps, siblings)
        if fault:
            yield fault
        else:
            yield from _source_faults(draft, ref, upstream)


def _output_faults(draft: Draft, name: str, template: str) -> Faulty:
    children = draft.children or {}
    ref = single(template.strip())
    if not ref or not ref.component:
        hint = 'such as "{{child.output}}"'
        yield (
            f"output artifact [{name}] of dag[{draft.name}] must be exactly one reference, found [{shown(template)}]",
            hint,
        )
    elif ref.component not in children:
        yield (
            f"invalid reference {{{{{ref}}}}} in dag[{draft.name}]: component[{ref.component}] not exist in it",
            _lazy(ref.component, children),
        )
    else:
        yield from _source_faults(draft, ref, children[ref.component])


def _source_faults(draft: Draft, ref: Reference, source: Draft) -> Faulty:
    """What is wrong with taking an artifact from there."""
    if source.unresolved:
        return
    if ref.name not in source.outputs:
        yield (
            f"invalid reference {{{{{ref}}}}} in component[{draft.name}]: component[{ref.component}] has no output artifact [{ref.name}]",
            _lazy(ref.name, source.outputs),
        )
    elif source.condition:
        yield (
            f"invalid reference {{{{{ref}}}}} in component[{draft.name}]: component[{ref.component}] has a condition, so it may have no artifacts",
            "put both into a dag and the condition on that",
        )


def _check_own_fields(draft: Draft, faults: DocumentFaults) -> None:
    """Fields that may name only what the component itself has."""
    allowed: dict[str, tuple[Mapping[str, Any], ...]] = {
        "env": (draft.parameters,),
        "command": (draft.parameters, draft.inputs, draft.outputs),
        "job": (draft.parameters, draft.inputs, draft.outputs),
        "condition": (draft.parameters, draft.inputs),
    }
    for field, key, text in _texts(draft):
        for ref in dict.fromkeys(references(text)):
            known = allowed[field]
            if not ref.component and (ref.name in SYSTEM_PARAMETERS or any(ref.name in names for names in known)):
                continue
            where = f"{draft.path}.{field}" + (f".{key}" if key else "")
            mark = faults.of_template(draft.at(field, *key.split(".")) if key else draft.at(field), ref)
            if ref.component:
                message = (
                    f"unsupported RefParamName[{ref}] for field[{field}]: only what component[{draft.name}] has itself"
                )
                hint = f'parameters: {{{ref.name}: "{{{{{ref}}}}}"}}, and {{{{{ref.name}}}}} here'
            else:
                message = f"unsupported RefParamName[{ref.name}] for field[{field}] of component[{draft.name}]"
                hint = near(ref.name, [*SYSTEM_PARAMETERS, *(name for names in known for name in names)])
            faults.add(mark, where, message, hint)
    if draft.condition:
        try:
            conditions.check(draft.condition)
        except Invalid as error:
            faults.add(draft.at("condition"), f"{draft.path}.condition", error.message, error.hint)


def _texts(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """Field, key in it, text: everything of a component that may name its own things."""
    if "{{" in draft.command:
        yield "command", "", draft.command
    for name, value in draft.env.items():
        if "{{" in value:
            yield "env", name, value
    if "{{" in draft.condition:
        yield "condition", "", draft.condition
    if draft.job:
        yield from (("job", key, text) for key, text in _leaves(draft.job, ""))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _leaves(child, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for child in value:
            yield from _leaves(child, key)
    elif isinstance(value, str):
        yield key, value


MOST_LOOP_ITEMS = 10_000


def check_loop(draft: Draft, faults: DocumentFaults) -> None:
    loop = draft.loop_argument
    if loop is None:
        return
    mark, where = draft.at("loop_argument"), f"{draft.path}.loop_argument"
    if isinstance(loop, str):
        ref = single(loop.strip())
        if ref:
            if ref.component or (ref.name not in draft.parameters and ref.name not in draft.inputs):
                hint = near(ref.name, [*draft.parameters, *draft.inputs], "it has neither")
                faults.add(
                    mark,
                    where,
                    f"loop_argument {{{{{ref}}}}} is not parameter or input artifact of component[{draft.name}]",
                    hint,
                )
            return
        if references(loop):
            faults.add(
                mark, where, f"loop_argument[{shown(loop)}] is invalid: expected a single template and nothing else"
            )
            return
        try:
            loop = json.loads(loop)
        except (ValueError, RecursionError) as error:
            faults.add(
                mark,
                where,
                f"loop_argument [{shown(loop)}] unmarshal to list failed, error: {error}",
                'such as "[1, 2, 3]"',
            )
            return
    for message, hint in loop_faults(loop):
        faults.add(mark, where, message, hint)


def loop_faults(loop: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with the list that a loop goes over; also for lists that are only known when the step starts."""
    if not isinstance(loop, list):
        yield (
            f"loop_argument should be a list, found {kind_of(loop)} [{shown(loop)}]",
            'a list, a text "[1, 2]", or a template',
        )
        return
    if len(loop) > MOST_LOOP_ITEMS:
        yield (
            f"loop_argument has {len(loop):,} elements, at most {MOST_LOOP_ITEMS:,} are taken",
            "loop over parts, and within them",
        )
        return
    for item in loop:
        if references(item):
            yield f"[{shown(item)}] in loop_argument is a template: elements of a list must not be", ""
            continue
        try:
            plain("loop_argument", item)
        except Unfit as error:
            yield (
                f"[{shown(item)}] in loop_argument is {kind_of(item)}: {error.message}",
                "elements are text, numbers or lists",
            )


SHOWN = 20  #: names of a circle that a message lists
MOST_CIRCLES = 20  #: of one level that are told


def check_order(siblings: Mapping[str, Draft], faults: DocumentFaults) -> None:
    """The dependencies of one level."""
    for draft in siblings.values():
        for dep in draft.deps:
            where = f"{draft.path}.deps"
            if dep == draft.name:
                faults.add(draft.at("deps"), where, f"component [{shown(draft.name)}] depends on itself", "remove it")
            elif dep not in siblings:
                faults.unknown(
                    draft.at("deps"),
                    where,
                    f"component [{shown(draft.name)}] has a wrong dep [{shown(dep)}]",
                    dep,
                    (name for name in siblings if name != draft.name),
                )
    for circle in islice(dependency_cycles({name: draft.deps for name, draft in siblings.items()}), MOST_CIRCLES):
        names = circle if len(circle) <= SHOWN else [*circle[:SHOWN], "…"]
        draft = siblings[circle[0]]
        faults.add(
            draft.at("deps"),
            f"{draft.path}.deps",
            f"workflow is not acyclic: {'→'.join(names)}",
            "remove one dependency",
        )


def dependency_cycles(after: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
    """A way round for each circle of dependencies, as [a, b, a]; those of one name only are left out. No recursion."""
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for start in after:
        if start in state:
            continue
        way = [start]
        rest = [iter(after[start])]
        state[start] = 1
        while way:
            following = next(rest[-1], None)
            if following is None:
                state[way.pop()] = 2
                rest.pop()
            elif following == way[-1] or following not in after:
                continue
            elif state.get(following) == 1:
                yield [*way[way.index(following) :], following]
            elif following not in state:
                state[following] = 1
                way.append(following)
                rest.append(iter(after[following]))


def check_disabled(
    pipeline: Pipeline, disabled: Sequence[str], faults: DocumentFaults, mark: Mark | None, path: str
) -> None:
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
