"""The document of a pipeline: drafts written out, in a fixed order, and held to the rules of the language.

Two compilations of one program give the same document, and the same bytes in a file.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.pipeline.components import DAG, Component, Step
from paddleflow.pipeline.names import LOOP, PARENT, PF_LOOP_ARGUMENT, TEMPLATE, code, made_up, refuse, template
from paddleflow.pipeline.options import CacheOptions, mounts, requirement_lines
from paddleflow.pipeline.values import Artifact, LoopItem, Parameter

if TYPE_CHECKING:  # a pipeline calls us to be written out
    from paddleflow.pipeline.pipeline import Pipeline

SUFFIXES = (".json", ".yaml", ".yml")


def document(pipeline: Pipeline, root: DAG) -> dict[str, Any]:
    """What the platform reads. Only what was set is in it."""
    env = dict(pipeline.env)
    found: dict[str, Any] = {"entry_points": _children(infer(root, env))}
    after = pipeline.get_post_process()
    if after is not None:
        found["post_process"] = {after.name: _post_process(after, env, root)}
    if pipeline.docker_env:
        found["docker_env"] = pipeline.docker_env
    else:
        _check_images(root, after)
    found["name"] = pipeline.name
    if pipeline.cache_options:
        found["cache"] = _cache(pipeline.cache_options, f"Pipeline[{pipeline.name}]")
    if pipeline.failure_options:
        found["failure_options"] = pipeline.failure_options.compile()
    if pipeline.parallelism:
        found["parallelism"] = pipeline.parallelism
    if pipeline.fs_options and (storages := pipeline.fs_options.compile()):
        found["fs_options"] = storages
    return deepcopy(found)  # nothing in it is shared with the program's own lists and dicts


def as_yaml(found: dict[str, Any]) -> str:
    return str(yaml.dump(found, Dumper=_Dumper))


def write(found: dict[str, Any], save_path: str | Path) -> None:
    path = Path(save_path)
    if path.suffix not in SUFFIXES:
        refuse(f"compile(): save_path is {str(save_path)!r}, it must end with one of {', '.join(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found) if path.suffix == ".json" else as_yaml(found), "utf-8")


class _Dumper(yaml.SafeDumper):
    """Writes the same value twice where it stands twice: anchors would say that it is one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _children(dag: Draft) -> dict[str, Any]:
    return {draft.component.name: _component(draft) for draft in _in_order(dag)}


def _in_order(dag: Draft) -> list[Draft]:
    """Children with those that they depend on before them."""
    waiting = dict(dag.children)
    ordered: list[Draft] = []
    while waiting:
        before = len(waiting)
        for name, draft in list(waiting.items()):
            if not draft.deps & waiting.keys():
                ordered.append(waiting.pop(name))
        if len(waiting) == before:
            refuse(f"there is a cycle in {dag.label}: {', '.join(waiting)} wait for each other")
    return ordered


def _component(draft: Draft) -> dict[str, Any]:
    _check_names(draft)
    found: dict[str, Any] = {}
    if draft.deps:
        found["deps"] = ",".join(sorted(draft.deps))
    if draft.condition is not None:
        found["condition"] = draft.condition
    if draft.loop_argument is not None:
        found["loop_argument"] = draft.loop_argument
    found["type"] = draft.component.kind
    if draft.parameters:
        found["parameters"] = draft.parameters
    if draft.inputs:
        found["artifacts"] = {"input": draft.inputs}
    if isinstance(draft.component, Step):
        if draft.outputs:
            found.setdefault("artifacts", {})["output"] = sorted(draft.outputs)
        return found | _step(draft, draft.component)
    if draft.outputs:
        found.setdefault("artifacts", {})["output"] = draft.outputs
    if not draft.children:
        refuse(f"there is no step in {draft.label}, a DAG needs one or more")
    found["entry_points"] = _children(draft)
    return found


def _step(draft: Draft, step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if draft.command:
        found["command"] = draft.command
    if step.docker_env:
        found["docker_env"] = step.docker_env
    if draft.env:
        found["env"] = draft.env
    if step.cache_options:
        found["cache"] = _cache(step.cache_options, step.label)
    if step.extra_fs:
        found["extra_fs"] = mounts(step.extra_fs, step.label)
    if draft.job is not None:
        found["job"] = draft.job
    if step.retry is not None:
        found["retry"] = step.retry.compile()
    if step.timeout is not None:
        found["timeout"] = step.timeout
    if step.code is not None:
        found["code"] = str(Path(step.code).resolve())
    if step.requirements:
        found["requirements"] = requirement_lines(step.requirements, step.label)
    if step.secrets:
        found["secrets"] = [use if isinstance(use, str) else dict(use) for use in step.secrets]
    return found


def _cache(options: CacheOptions, where: str) -> dict[str, Any]:
    if not isinstance(options, CacheOptions):
        refuse(f"{where}: cache_options is {options!r}, it must be CacheOptions")
    return options.compile()


def _post_process(step: Step, env: dict[str, str], root: DAG) -> dict[str, Any]:
    if step.parent is not None:
        refuse(
            f"post_process {step.label} is in {step.parent.label} already, make it outside of the pipeline's function"
        )
    if step.name in root.entry_points:
        refuse(f"post_process {step.label} has the name of a component of the pipeline, names must differ")
    said = {
        "condition": step.condition,
        "loop_argument": step.loop_argument,
        "cache_options": step.cache_options,
        "after()": step.upstreams,
        "inputs": step.inputs,
    }
    if found := [name for name, value in said.items() if value]:
        refuse(f"post_process {step.label} has {', '.join(found)}, which the step that comes after all cannot have")
    return _component(infer_alone(step, env))


def _check_names(draft: Draft) -> None:
    """Inputs, outputs and parameters of a component share one space of names; upper and lower case count as one."""
    seen: dict[str, str] = {}
    for name in (*draft.parameters, *draft.inputs, *draft.outputs):
        if name.lower() in seen:
            refuse(
                f"the inputs, outputs and parameters of {draft.label} must have different names, "
                f"found {seen[name.lower()]!r} and {name!r}"
            )
        seen[name.lower()] = name


def _check_images(dag: DAG, after: Step | None) -> None:
    for step in (*dag.entry_points.values(), *([after] if after else [])):
        if isinstance(step, DAG):
            _check_images(step, None)
        elif isinstance(step, Step) and step.needs_image and not step.docker_env:
            refuse(f"{step.label} has no docker_env, and neither has the pipeline: one of them must name an image")


@dataclass
class Draft:
    """A component on its way into the document: texts with templates of the language, everything made up that it needs."""

    component: Component
    parent: Draft | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)  #: of a DAG: name → template; of a step: names only
    deps: set[str] = field(default_factory=set)
    condition: str | None = None
    loop_argument: Any = None
    command: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    job: dict[str, Any] | None = None
    children: dict[str, Draft] = field(default_factory=dict)
    leaving: dict[str, tuple[str, str]] = field(default_factory=dict)  #: made-up output → (owner, artifact) that it is

    @property
    def path(self) -> str:
        return self.component.full_name

    @property
    def label(self) -> str:
        return self.component.label


def infer(root: DAG, env: dict[str, str]) -> Draft:
    """The drafts of a whole pipeline."""
    return _Inference(root).run(env)


def infer_alone(step: Step, env: dict[str, str]) -> Draft:
    """The draft of a step that stands in no DAG, and so refers to nobody: the one that comes after all."""
    return _Inference(step).run(env)


class _Inference:
    """One compilation."""

    def __init__(self, root: Component) -> None:
        self._drafts: dict[str, Draft] = {}
        self._root = self._drafted(root, None)

    def _drafted(self, component: Component, parent: Draft | None) -> Draft:
        draft = Draft(component, parent)
        self._drafts[draft.path] = draft
        if isinstance(component, DAG):
            draft.children = {name: self._drafted(child, draft) for name, child in component.entry_points.items()}
        return draft

    def run(self, env: dict[str, str]) -> Draft:
        self._infer(self._root, env)
        return self._root

    def _infer(self, draft: Draft, env: dict[str, str]) -> None:
        component = draft.component
        self._parameters(draft)
        self._inputs(draft)
        if isinstance(component, Step):
            draft.outputs = dict.fromkeys(component.outputs, "")
            self._step(draft, component, env)
        self._loop(draft)
        if component.condition is not None:
            draft.condition = self._text(draft, component.condition, "condition")
        for upstream in component.upstreams:
            self._depend(draft, upstream)
        for child in draft.children.values():
            self._infer(child, env)
        if isinstance(component, DAG):
            for name, artifact in component.outputs.items():
                assert artifact.ref is not None  # an output of a DAG is always somebody's
                draft.outputs[name] = self._from_inside(draft, *self._output(draft, artifact.ref), consumer=name)

    # ---- what a component says ---------------------------------------------------------------------------------

    def _step(self, draft: Draft, step: Step, env: dict[str, str]) -> None:
        if step.command is not None:
            draft.command = self._text(draft, step.command, "command")
        for name, value in {**env, **step.env}.items():
            draft.env[name] = self._text(draft, value, "env")
        job = step.job_document()
        if job is not None:
            draft.job = self._document(draft, job, "command")

    def _document(self, draft: Draft, value: Any, prefix: str) -> Any:
        if isinstance(value, str):
            return self._text(draft, value, prefix)
        if isinstance(value, dict):
            return {
                key: self._document(draft, inner, "env" if key == "env" else prefix) for key, inner in value.items()
            }
        return [self._document(draft, inner, prefix) for inner in value] if isinstance(value, list) else value

    def _parameters(self, draft: Draft) -> None:
        for name, parameter in draft.component.parameters.items():
            ref = parameter.ref
            if isinstance(ref, Parameter):
                owner = self._owner(draft, ref)
                draft.parameters[name] = self._carried(draft, owner, ref.name)
            elif isinstance(ref, LoopItem):
                if ref.component is draft.component:
                    refuse(f"{draft.label}: parameter {name} cannot be the component's own loop item")
                draft.parameters[name] = self._carried(draft, self._looping(draft, ref.component.full_name), LOOP)
            elif isinstance(ref, str) and TEMPLATE.search(ref):
                draft.parameters[name] = self._whole(draft, ref, f"parameter {name}")
            elif ref is not None:
                draft.parameters[name] = ref
            else:
                draft.parameters[name] = _declared(parameter, draft.label)

    def _whole(self, draft: Draft, text: str, where: str) -> str:
        """A text that is exactly one template of another component's parameter or loop item."""
        found = TEMPLATE.fullmatch(text)
        if found is None or found["kind"] == "artifact" or found["owner"] == draft.path:
            refuse(
                f"{draft.label}: {where} is {text!r}; a reference there must be the whole value, to another component"
            )
        if found["kind"] == "loop":
            return self._carried(draft, self._looping(draft, found["owner"]), LOOP)
        return self._carried(draft, self._reachable(draft, found["owner"], found["name"]), found["name"])

    def _inputs(self, draft: Draft) -> None:
        for name, artifact in draft.component.inputs.items():
            assert artifact.ref is not None  # an input is always somebody's
            owner, of = self._source(draft, artifact.ref)
            draft.inputs[name] = self._brought(draft, owner, of, consumer=name)

    def _loop(self, draft: Draft) -> None:
        loop = draft.component.loop_argument
        if loop is None:
            return
        argument = loop.argument
        if isinstance(argument, Parameter | Artifact | LoopItem):
            argument = str(argument)
        if not isinstance(argument, str):
            draft.loop_argument = list(argument)
            return
        found = TEMPLATE.search(argument)
        if found is not None and found.group() != argument:
            refuse(f"{draft.label}: loop_argument is {argument!r}; a reference there must be the whole text")
        if found is not None and found["kind"] == "loop" and found["owner"] == draft.path:
            refuse(f"{draft.label}: a component cannot loop over its own element")
        draft.loop_argument = self._text(draft, argument, "loop")

    def _text(self, draft: Draft, text: str, prefix: str) -> str:
        """The text with references put into words of the language; what they need is added to the draft."""

        def put(found: Any) -> str:
            return self._named(draft, found["kind"], found["owner"], found["name"], prefix)

        return TEMPLATE.sub(put, text)

    def _named(self, draft: Draft, kind: str, owner: str, name: str, prefix: str) -> str:
        if kind == "artifact":
            return template(self._artifact_name(draft, owner, name, prefix))
        if owner == draft.path:
            if kind == "loop":
                return PF_LOOP_ARGUMENT
            self._known(draft, "parameter", name, draft.component.parameters)
            return template(name)
        own = made_up(prefix, "param", owner, name)
        where = self._looping(draft, owner) if kind == "loop" else self._reachable(draft, owner, name)
        draft.parameters[own] = self._carried(draft, where, name)
        return template(own)

    def _artifact_name(self, draft: Draft, owner: str, name: str, prefix: str) -> str:
        if prefix == "env":
            refuse(f"{draft.label}: env cannot refer to artifact {name} of {owner}")
        if owner == draft.path:
            allowed = dict(draft.component.inputs)
            if prefix == "command":
                allowed |= draft.component.outputs
            elif name in draft.component.outputs:
                refuse(f"{draft.label}: {prefix} cannot refer to the component's own output {name}")
            self._known(draft, "artifact", name, allowed)
            return name
        own = made_up(prefix, "art", owner, name)
        source = self._found(draft, owner)
        self._known(source, "artifact", name, {**source.component.outputs, **source.component.inputs})
        draft.inputs[own] = self._brought(draft, source, name, consumer=own)
        return own

    # ---- whom a reference means --------------------------------------------------------------------------------

    def _found(self, draft: Draft, path: str) -> Draft:
        if path not in self._drafts:
            refuse(f"{draft.label} refers to {path}, which is not part of this pipeline; {nearest(path, self._drafts)}")
        return self._drafts[path]

    def _known(self, draft: Draft, what: str, name: str, known: Any) -> None:
        if name not in known:
            refuse(f"there is no {what} named [{name}] in {draft.label}; {nearest(name, known)}")

    def _owner(self, draft: Draft, parameter: Parameter) -> Draft:
        assert parameter.component is not None  # one that belongs to nobody is no reference
        self._same(draft, parameter.component)
        return self._reachable(draft, parameter.component.full_name, parameter.name)

    def _same(self, draft: Draft, component: Component) -> None:
        if self._found(draft, component.full_name).component is not component:
            refuse(f"{draft.label} refers to {component.label} of another pipeline")

    def _reachable(self, draft: Draft, path: str, name: str) -> Draft:
        """The owner of a parameter: parameters never come out of a DAG."""
        owner = self._found(draft, path)
        around = path.rpartition(".")[0]
        if owner.parent is None:
            refuse(
                f"{draft.label} refers to parameter {name} of the pipeline, which has none; give it to a step or DAG"
            )
        if not _inside(draft.path, around) and not _inside(draft.path, path):
            refuse(
                f"{draft.label} refers to parameter {name} of {path}; parameters come only from siblings, "
                "from DAGs around, and from siblings of those"
            )
        self._known(owner, "parameter", name, owner.component.parameters)
        return owner

    def _looping(self, draft: Draft, path: str) -> Draft:
        owner = self._found(draft, path)
        if not _inside(draft.path, path):
            refuse(
                f"{draft.label} refers to the loop item of {path}; only its own and those of DAGs around it are there"
            )
        if owner.component.loop_argument is None:
            refuse(f"{draft.label} refers to the loop item of {owner.label}, which has no loop_argument")
        return owner

    def _source(self, draft: Draft, artifact: Artifact) -> tuple[Draft, str]:
        assert artifact.component is not None  # so `Inputs` and `Outputs` see to it
        self._same(draft, artifact.component)
        return self._drafts[artifact.component.full_name], artifact.name

    def _output(self, dag: Draft, artifact: Artifact) -> tuple[Draft, str]:
        source, name = self._source(dag, artifact)
        if not _inside(source.path, dag.path):
            refuse(f"{dag.label}: an output must be of something inside it, found {artifact}")
        return source, name

    # ---- across borders ----------------------------------------------------------------------------------------

    def _carried(self, draft: Draft, owner: Draft, name: str) -> str:
        """A template, in words that `draft` may use, of a parameter or loop item that comes from around it."""
        parent = draft.parent
        if parent is None:
            refuse(f"{draft.label} refers to {owner.path}, but must not refer to others, because it runs last")
        if owner is parent:
            return template(PARENT, name)
        if owner.parent is parent:
            self._wait(draft, owner)
            return template(owner.component.name, name)
        own = made_up("dsl", "param", owner.path, name)
        parent.parameters[own] = self._carried(parent, owner, name)
        return template(PARENT, own)

    def _brought(self, draft: Draft, owner: Draft, name: str, *, consumer: str) -> str:
        """A template of an artifact, in words that `draft` may use; `consumer` is the input that takes it."""
        parent = draft.parent
        if parent is None:
            refuse(f"{draft.label} refers to {owner.path}, but must not refer to others, because it runs last")
        if draft is owner or _inside(owner.path, draft.path):
            refuse(f"{draft.label}: input {consumer} cannot be an artifact of the component itself, found {owner.path}")
        if _inside(draft.path, owner.path):
            return self._from_around(parent, owner, name)
        if not _inside(owner.path, parent.path):
            own = made_up("dsl", "art", owner.path, name)
            parent.inputs[own] = self._brought(parent, owner, name, consumer=own)
            return template(PARENT, own)
        sibling = _child_towards(parent, owner)
        self._wait(draft, sibling)
        self._known(owner, "output", name, owner.component.outputs)
        return self._from_inside(parent, owner, name, consumer=consumer)

    def _from_around(self, parent: Draft, owner: Draft, name: str) -> str:
        """An input of a DAG, for a child of `parent`, which is that DAG or inside it."""
        self._known(owner, "input", name, owner.component.inputs)
        if owner is parent:
            return template(PARENT, name)
        own = made_up("dsl", "art", owner.path, name)
        assert parent.parent is not None  # the owner is further out
        parent.inputs[own] = self._from_around(parent.parent, owner, name)
        return template(PARENT, own)

    def _from_inside(self, dag: Draft, owner: Draft, name: str, *, consumer: str) -> str:
        """A template of an artifact somewhere inside `dag`, in words that its children may use."""
        child = _child_towards(dag, owner)
        if child is owner:
            return template(owner.component.name, name)
        own = self._leaving_name(child, owner, name, consumer)
        child.leaving[own] = (owner.path, name)
        child.outputs[own] = self._from_inside(child, owner, name, consumer=own)
        return template(child.component.name, own)

    def _leaving_name(self, dag: Draft, owner: Draft, name: str, consumer: str) -> str:
        """Coded by the consumer's input, as compiled pipelines always had it; by more where that is taken."""
        for coded in (consumer, name, f"{name}.{code(owner.path, consumer)}"):
            own = made_up("dsl", "art", owner.path, coded)
            if dag.leaving.get(own, (owner.path, name)) == (owner.path, name):
                return own
        raise AssertionError("the last of them is of this artifact and this consumer alone")

    def _depend(self, draft: Draft, upstream: Component) -> None:
        self._same(draft, upstream)
        owner = self._drafts[upstream.full_name]
        if owner is draft or _inside(draft.path, owner.path) or _inside(owner.path, draft.path):
            refuse(f"{draft.label} cannot come after {owner.path}: one is part of the other")
        lower = draft
        while lower.parent is not None and not _inside(owner.path, lower.parent.path):
            lower = lower.parent
        assert lower.parent is not None  # the root is around both
        self._wait(lower, _child_towards(lower.parent, owner))

    def _wait(self, draft: Draft, sibling: Draft) -> None:
        draft.deps.add(sibling.component.name)


def _inside(path: str, dag: str) -> bool:
    return path.startswith(f"{dag}.")


def _child_towards(dag: Draft, inner: Draft) -> Draft:
    """The child of `dag` that is `inner`, or that it is in."""
    return dag.children[inner.path.removeprefix(f"{dag.path}.").split(".")[0]]


def _declared(parameter: Parameter, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if parameter.default is not None:
        found["default"] = parameter.default
    if parameter.type is not None:
        found["type"] = parameter.type
    if not found:
        refuse(f"{where}: parameter {parameter.name} has neither a default nor a type, it needs one of them")
    return found
