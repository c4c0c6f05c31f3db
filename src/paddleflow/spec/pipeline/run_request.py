"""What one run asks for, applied to a pipeline and checked: parameters, disabled steps, image, storage, strategy.

Also the checks that need to know the run's storage: artifacts without one, and scopes of the cache that name another. A
pipeline that is only registered is checked by binding an empty request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from paddleflow.base import names
from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.spec.pipeline.faults import DocumentFaults, near, shown
from paddleflow.spec.pipeline.model import (
    CONTINUE,
    FAIL_FAST,
    Component,
    Dag,
    FsMount,
    Parameter,
    Pipeline,
    Step,
)
from paddleflow.spec.pipeline.parameters import Unfit, typed
from paddleflow.spec.pipeline.reader import PIPELINE
from paddleflow.spec.pipeline.validation import check_disabled, parameter_faults, walk


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a run says beside its pipeline. Empty: as the document has it."""

    parameters: Mapping[str, Any] = field(default_factory=dict)  #: `name`, or `component.sub.name`
    disabled: Sequence[str] = ()
    docker_env: str = ""
    fs_name: str = ""
    strategy: str = ""
    name: str = ""


def bind(pipeline: Pipeline, request: RunRequest | None = None, file: str = "") -> Pipeline:
    """The pipeline that this run runs; every step has the image that it uses. Raises `Invalid` with all faults."""
    request = request or RunRequest()
    faults = DocumentFaults(file)
    if request.name and (fault := PIPELINE.fault(request.name)):
        faults.add(None, "name", f"run {fault.removeprefix('pipeline ')}")
    changes = _Changes(pipeline, request.parameters, faults)
    image = _image(request, pipeline, faults)
    bound = dataclasses.replace(
        pipeline,
        entry_points=changes.components(pipeline.entry_points, "", None, image),
        post_process=changes.post_process(pipeline.post_process, image),
        docker_env=image,
        main_fs=_main_fs(request, pipeline, faults),
        strategy=_strategy(request, pipeline, faults),
    )
    changes.check()
    if request.disabled:
        disabled = [word.strip() for word in request.disabled if word.strip()]
        bound = dataclasses.replace(bound, disabled=frozenset(disabled))
        check_disabled(bound, disabled, faults, None, "disabled")
    _check_storage(bound, faults)
    faults.raise_any()
    return bound


def _image(request: RunRequest, pipeline: Pipeline, faults: DocumentFaults) -> str:
    if request.docker_env.endswith(".tar"):
        message = f"[dockerEnv] should be the name of an image, not of a .tar file, found [{shown(request.docker_env)}]"
        faults.add(None, "dockerEnv", message)
    return request.docker_env or pipeline.docker_env


def _main_fs(request: RunRequest, pipeline: Pipeline, faults: DocumentFaults) -> FsMount | None:
    main = pipeline.main_fs
    if not request.fs_name:
        return main
    if main is None:
        if fault := names.STORAGE.fault(request.fs_name):
            faults.add(None, "fsName", fault)
        return FsMount(request.fs_name)
    if main.name != request.fs_name:
        message = (
            f"fsName[{shown(request.fs_name)}] of the run and main_fs[{main.name}] of the document must be the same"
        )
        faults.add(None, "fsName", message, "give one of them only")
    return main


def _strategy(request: RunRequest, pipeline: Pipeline, faults: DocumentFaults) -> str:
    if request.strategy and request.strategy not in (FAIL_FAST, CONTINUE):
        message = f"failure strategy should be [fail_fast] or [continue], set to [{shown(request.strategy)}]"
        faults.add(None, "failureOptions.strategy", message, nearest(request.strategy, (FAIL_FAST, CONTINUE)))
    return request.strategy or pipeline.strategy


def _check_storage(pipeline: Pipeline, faults: DocumentFaults) -> None:
    """Artifacts need the main storage; what the cache looks at must be a storage that the step has."""
    main = {pipeline.main_fs.name} if pipeline.main_fs else set()
    steps: list[tuple[str, Component]] = [
        (f"entry_points.{name}", each) for name, each, _ in walk(pipeline.entry_points)
    ]
    if pipeline.post_process:
        steps.append((f"post_process.{pipeline.post_process.name}", pipeline.post_process))
    for path, component in steps:
        if not main and (component.outputs or component.inputs):
            message = f"cannot define artifact in component[{component.name}] with no Fs mounted"
            faults.add(component.mark, path, message, "fs_options: {main_fs: {name: …}}, or name the fs of the run")
        if isinstance(component, Step):
            _check_mounts(pipeline.main_fs, component, path, faults)
            known = main | {mount.name for mount in component.extra_fs}
            for scope in component.cache.fs_scope:
                if scope.name not in known:
                    message = f"fs_name [{shown(scope.name)}] in fs_scope must also be in [extra_fs] or [main_fs]"
                    hint = partial(near, scope.name, known, "the step has no fs")
                    faults.add(component.mark, f"{path}.cache.fs_scope", message, hint)


def _check_mounts(main: FsMount | None, step: Step, path: str, faults: DocumentFaults) -> None:
    """At one path there can be one storage only."""
    seen: dict[str, FsMount] = {}
    for mount in [*([main] if main else []), *step.extra_fs]:
        place = mount.mount_path.rstrip("/")
        before = seen.setdefault(place, mount) if place else mount
        if (before.name, before.sub_path) != (mount.name, mount.sub_path):
            message = f"fs[{before.name}] and fs[{mount.name}] have the same mount_path[{shown(place)}]"
            faults.add(step.mark, f"{path}.extra_fs", message, "give each a place of its own")


class _Changes:
    """The parameters of a run, given to the components that they name."""

    def __init__(self, pipeline: Pipeline, parameters: Mapping[str, Any], faults: DocumentFaults) -> None:
        self.pipeline = pipeline
        self.parameters = parameters
        self.faults = faults
        self.used: set[str] = set()

    def components(
        self, components: Mapping[str, Component], prefix: str, parent: Dag | None, image: str
    ) -> dict[str, Component]:
        done: dict[str, Component] = {}
        for name, component in components.items():
            full = f"{prefix}{name}"
            changed = self._changed(component, full, components, parent)
            if isinstance(changed, Dag):
                children = self.components(changed.children, f"{full}.", changed, image)
                done[name] = dataclasses.replace(changed, children=children)
            else:
                done[name] = dataclasses.replace(changed, docker_env=changed.docker_env or image)
        return done

    def post_process(self, step: Step | None, image: str) -> Step | None:
        if step is None:
            return None
        changed: Step = self._changed(step, step.name, {}, None)
        return dataclasses.replace(changed, docker_env=step.docker_env or image)

    def _changed(self, component: Any, full: str, siblings: Mapping[str, Component], parent: Dag | None) -> Any:
        """The component with the parameters that the request has for it; one by its full name wins over one for all."""
        found = {}
        for name, parameter in component.parameters.items():
            for key in (f"{full}.{name}", name):
                if key in self.parameters:
                    self.used.add(key)
                    if name not in found:
                        found[name] = self._value(key, parameter, component, siblings, parent)
        return dataclasses.replace(component, parameters={**component.parameters, **found}) if found else component

    def _value(
        self,
        key: str,
        parameter: Parameter,
        component: Component,
        siblings: Mapping[str, Component],
        parent: Dag | None,
    ) -> Parameter:
        path = f"parameters.{key}"
        name = key.rpartition(".")[2]
        try:
            value = typed(name, parameter.type, self.parameters[key], loose=True)
        except Unfit as error:
            self.faults.add(None, path, error.message, error.hint)
            return parameter
        for message, hint in parameter_faults(component.name, component.deps, name, value, siblings, parent):
            self.faults.add(None, path, message, hint)
        return Parameter(value, parameter.type)

    def check(self) -> None:
        """Parameters of the request that no component has."""
        unused = [key for key in self.parameters if key not in self.used]
        if not unused:
            return
        steps: list[tuple[str, Component]] = [
            (full, component) for full, component, _ in walk(self.pipeline.entry_points)
        ]
        if self.pipeline.post_process:
            steps.append((self.pipeline.post_process.name, self.pipeline.post_process))
        known = {name for _, component in steps for name in component.parameters}
        full = {f"{path}.{name}" for path, component in steps for name in component.parameters}
        for key in unused:
            hint = partial(near, key, full if "." in key else known, "the pipeline has no parameters")
            self.faults.add(None, f"parameters.{shown(key)}", f"param[{shown(key)}] not exist", hint)
