"""The document of a pipeline: drafts written out, in a fixed order, and held to the rules of the language.

Two compilations of one program give the same document, and the same bytes in a file.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paddleflow.pipeline.components import DAG, Step
from paddleflow.pipeline.inference import Draft, infer, infer_alone
from paddleflow.pipeline.names import refuse
from paddleflow.pipeline.options import CacheOptions, mounts

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
