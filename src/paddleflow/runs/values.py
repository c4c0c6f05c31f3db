"""What templates stand for at run time: parameters, artifacts and system parameters of a component. Pure.

Paths of artifacts are kept as seen below the run's main storage mount (`.pipeline/…`); `inside` makes them the paths that
processes see, `on_storage` those that records name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid
from paddleflow.runs.names import artifact_folder, with_seq
from paddleflow.runs.state import Frame, Instance, RunState
from paddleflow.spec.pipeline.conditions import evaluate
from paddleflow.spec.pipeline.model import Dag, Step
from paddleflow.spec.pipeline.templates import (
    LOOP_ARGUMENT,
    PARENT,
    Reference,
    as_text,
    references,
    render,
    render_text,
    render_tree,
    single,
)
from paddleflow.spec.pipeline.validation import MOST_LOOP_ITEMS

Lookup = Callable[[Reference], Any]
LOOP_BYTES = 2**20  #: of a file that holds a loop's elements
CONDITION_BYTES = 2**10  #: of a file that a condition names
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A step with its templates filled in."""

    command: str
    env: Mapping[str, str]
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    job: Mapping[str, Any] | None


def parameters_of(run: RunState, frame: Frame, child: int, item: Any = "") -> Mapping[str, Any]:
    """The parameters of a child, rendered. Those of its first element are kept for the steps after it."""
    component = frame.plan.components[child]
    if not component.parameters:
        return _NOTHING
    known = frame.parameters.get(child)
    looped = component.loop_argument is not None
    if known is not None and not looped:
        return known

    def lookup(reference: Reference) -> Any:
        if reference.component == PARENT:
            return as_text(frame.item) if reference.name == LOOP_ARGUMENT else frame.values[reference.name]
        if reference.component:
            other = frame.plan.index[reference.component]
            return (frame.parameters.get(other) or parameters_of(run, frame, other))[reference.name]
        return _system(run, component.name, item, reference.name)

    values = {name: render(given.value, lookup) for name, given in component.parameters.items()}
    if known is None:
        frame.parameters[child] = values
    return values


def _system(run: RunState, name: str, item: Any, wanted: str) -> str:
    return system_parameters(run, name, item)[wanted]


def system_parameters(run: RunState, name: str, item: Any) -> dict[str, str]:
    return {"PF_RUN_ID": run.id, "PF_STEP_NAME": name, "PF_USER_NAME": run.user, LOOP_ARGUMENT: as_text(item)}


def inputs_of(run: RunState, frame: Frame, child: int) -> Mapping[str, str]:
    """Input artifact → paths, joined by commas where a loop made them."""
    templates = frame.plan.components[child].inputs
    if not templates:
        return _NOTHING
    found = {}
    for name, template in templates.items():
        reference = single(template)
        assert reference is not None, f"the input {name} is not a template: {template}"
        if reference.component == PARENT:
            found[name] = frame.inputs[reference.name]
        else:
            found[name] = _outputs(run, frame, frame.plan.index[reference.component], reference.name)
    return found


def _outputs(run: RunState, frame: Frame, child: int, name: str) -> str:
    component = frame.plan.components[child]
    count = frame.counts.get(child)
    paths = []
    for seq in range(1 if count is None else count):
        known = frame.outputs.get((child, seq))
        if known is not None and name in known:
            paths.append(known[name])
        elif isinstance(component, Step):
            paths.append(step_outputs(run, frame, child, seq)[name])
    return ",".join(path for path in paths if path)


def step_outputs(run: RunState, frame: Frame, child: int, seq: int) -> Mapping[str, str]:
    """Conditions a step's outputs are to be."""
    step = frame.plan.components[child]
    if not step.outputs:
        return _NOTHING
    folder = artifact_folder(
        run.id, run.pipeline.name, step.name, seq, frame.path + with_seq(step.name, seq), post=frame is run.post
    )
    return {name: f"{folder}/{name}" for name in step.outputs}


def dag_outputs(run: RunState, frame: Frame, dag: Dag) -> Mapping[str, str]:
    """The outputs of a dag whose components have ended: those of its children."""
    found = {}
    for name, template in dag.outputs.items():
        reference = single(template)
        if reference is not None:
            found[name] = _outputs(run, frame, frame.plan.index[reference.component], reference.name)
    return found


def inside(run: RunState, paths: str) -> str:
    """Paths as processes see them."""
    return ",".join(f"{run.mount}/{path}" for path in paths.split(",") if path)


def on_storage(run: RunState, paths: str) -> str:
    """Paths as they are on the main storage."""
    main = run.pipeline.main_fs
    sub = main.sub_path.strip("/") if main is not None else ""
    return ",".join(f"{sub}/{path}" if sub else path for path in paths.split(",") if path)


def own_lookup(run: RunState, item: Instance, files: Mapping[str, str] | None = None) -> Lookup:
    """What a component's own texts may name. With `files` an input stands for what is in it, else for its path."""
    frame, child = item.frame, item.child
    parameters = parameters_of(run, frame, child, item.item)
    inputs = inputs_of(run, frame, child)
    system = system_parameters(run, item.name, item.item)

    def lookup(reference: Reference) -> Any:
        name = reference.name
        if name in parameters:
            return parameters[name]
        if name in inputs:
            return inside(run, inputs[name]) if files is None else files[name]
        outputs = item.outputs or step_outputs(run, frame, child, item.seq)
        return inside(run, outputs[name]) if name in outputs else system[name]

    return lookup


def files_needed(run: RunState, item: Instance, text: object) -> dict[str, str]:
    """The inputs whose contents a condition or loop argument names."""
    inputs = item.component.inputs
    named = {reference.name for reference in references(text) if not reference.component} & inputs.keys()
    if not named:
        return {}
    paths = inputs_of(run, item.frame, item.child)
    return {name: paths[name] for name in sorted(named)}


def condition_holds(run: RunState, item: Instance, files: Mapping[str, str]) -> bool:
    """Whether it is to run; `Invalid` says why that cannot be decided."""
    return evaluate(item.component.condition, own_lookup(run, item, files))


def loop_items(run: RunState, item: Instance, files: Mapping[str, str]) -> Sequence[Any]:
    """The elements of its loop; `Invalid` for what is no list."""
    given = render(item.component.loop_argument, own_lookup(run, item, files))
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"loop_argument is not a JSON list: {error}, found {_shown(given)}") from error
    if not isinstance(given, list | tuple):
        raise Invalid(f"loop_argument must be a list, found {_shown(given)}")
    if len(given) > MOST_LOOP_ITEMS:
        raise Invalid(f"loop_argument has {len(given):,} elements, at most {MOST_LOOP_ITEMS:,} are taken")
    return given


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def rendered(run: RunState, item: Instance) -> Rendered:
    """The step as its next try runs it."""
    step, frame = item.step, item.frame
    parameters = parameters_of(run, frame, item.child, item.item)
    inputs = inputs_of(run, frame, item.child)
    outputs = item.outputs = step_outputs(run, frame, item.child, item.seq)
    lookup = own_lookup(run, item)
    env = {name: render_text(str(value), lookup) for name, value in step.env.items()}
    env |= system_parameters(run, step.name, item.item)
    env |= {f"PF_INPUT_ARTIFACT_{name.upper()}": inside(run, paths) for name, paths in inputs.items()}
    env |= {f"PF_OUTPUT_ARTIFACT_{name.upper()}": inside(run, path) for name, path in outputs.items()}
    job = None if step.job is None else render_tree(step.job, lookup)
    return Rendered(render_text(step.command, lookup), env, parameters, inputs, outputs, job)
