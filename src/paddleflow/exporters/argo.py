"""A pipeline as an Argo Workflow: steps are containers, dags are dag templates, the post-process is ``onExit``.

Storages are volume claims, whose names are parameters of the workflow. Conditions become ``when``, which has the same
grammar; a file that one reads is also an output parameter of the step that makes it. Called by ``paddleflow pipeline export --to argo``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddleflow.exporters.placeholders import PARAMETER, RUN, TEXT, USER, VALUE, fill
from paddleflow.exporters.plan import DagGroup, ExportPlan, Node, NotExpressible, Planner, Task
from paddleflow.exporters.scopes import Scope
from paddleflow.spec.faults import Faults
from paddleflow.spec.pipeline.document import dump
from paddleflow.spec.pipeline.model import FAIL_FAST, FsMount, Pipeline, Retry
from paddleflow.spec.pipeline.templates import as_text, references, render_text

_USER = "user"
_BARE = r"^([-+]?[0-9]+([.][0-9]*)?([eE][-+]?[0-9]+)?|true|false)$"  #: numbers and booleans, for Argo's expressions
#: a text in quotes (group 1), or what stands between two
_QUOTED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|[^'"]+""", re.DOTALL)
_MOUNTED = "/home/paddleflow/storage/mnt"


def export(pipeline: Pipeline) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the manifest, notes on what was left out); `Invalid` names everything that Argo cannot express."""
    faults = Faults("InvalidPipeline")
    plan = Planner(pipeline, faults, _write_condition).plan()
    manifest = _Manifest(plan, faults).manifest()
    faults.check()
    return manifest, plan.notes


def to_yaml(manifest: Mapping[str, Any]) -> str:
    return dump(manifest)


def _write_condition(scope: Scope, condition: str) -> str:
    """A condition for ``when``, which has the same grammar: only its templates are filled in."""
    far = sorted({ref.name for ref in references(condition) if scope.is_file(ref) and not scope.note_read(ref.name)})
    if far:
        raise NotExpressible(f"reads the content of artifact {', '.join(far)}, which no single step beside it makes")
    return _QUOTED.sub(lambda part: render_text(part[0], scope.between_quotes if part[1] else scope.quoted), condition)


class _Manifest:
    """One workflow on its way to a document."""

    def __init__(self, plan: ExportPlan, faults: Faults) -> None:
        self._plan, self._faults = plan, faults
        self._names: dict[str, str] = {}  #: parameter → its name in Argo, which knows no dots
        for full in plan.parameters:
            self._names[full] = self._unique(full.replace(".", "__"), set(self._names.values()))
        self._templates: list[dict[str, Any]] = []
        self._used: set[str] = {"main"}
        self._mounts: dict[str, FsMount] = {}

    def manifest(self) -> dict[str, Any]:
        plan, pipeline = self._plan, self._plan.pipeline
        self._dag("main", plan.nodes)
        spec: dict[str, Any] = {"entrypoint": "main"}
        if plan.post_process is not None and not plan.post_process.left_out:
            spec["onExit"] = self._step(plan.post_process)
        spec["parallelism"] = pipeline.parallelism
        spec["arguments"] = {"parameters": list(self._arguments())}
        if self._mounts:
            spec["volumes"] = [
                {"name": _volume(name), "persistentVolumeClaim": {"claimName": _parameter(f"claim-{_volume(name)}")}}
                for name in self._mounts
            ]
        spec["templates"] = self._templates
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": f"{_label(pipeline.name)}-"},
            "spec": spec,
        }

    def _arguments(self) -> Iterator[dict[str, str]]:
        for full, value in self._plan.parameters.items():
            yield {"name": self._names[full], "value": as_text(value)}
        yield {"name": _USER, "value": "paddleflow"}
        for name in self._mounts:
            yield {"name": f"claim-{_volume(name)}", "value": _volume(name)}

    def _dag(self, name: str, nodes: Sequence[Node]) -> None:
        """A dag template, and those of everything in it."""
        template: dict[str, Any] = {"name": name, "dag": {"tasks": []}}
        if self._plan.pipeline.strategy != FAIL_FAST:
            template["dag"]["failFast"] = False
        self._templates.append(template)
        for node in nodes:
            task: dict[str, Any] = {"name": node.name, "template": self._template(node)}
            if node.deps:
                task["depends"] = " && ".join(node.deps)  # Argo goes on after what was skipped, as we do
            if node.left_out:
                task["when"] = "false"
            elif node.condition:
                task["when"] = self._text(node.condition, node.full_name)
            template["dag"]["tasks"].append(task)

    def _template(self, node: Node) -> str:
        if isinstance(node, Task):
            return self._step(node)
        name = self._unique(node.full_name.replace(".", "-"), self._used)
        self._used.add(name)
        self._dag(name, node.children or (_nothing(node),))
        return name

    def _step(self, task: Task) -> str:
        name = self._unique(task.full_name.replace(".", "-"), self._used)
        self._used.add(name)
        container = {
            "image": task.image,
            "command": ["sh", "-c"],
            "args": [self._command(task)],
            "env": [{"name": key, "value": self._text(value, task.full_name)} for key, value in task.env.items()],
            "volumeMounts": [self._mount(mount) for mount in task.mounts],
        }
        if not task.image and not task.left_out:
            self._faults.add(task.full_name, "it has no image", "give it a docker_env")
        template: dict[str, Any] = {"name": name, "container": container}
        if task.retry.times:
            template["retryStrategy"] = _retry(task.retry)
        if task.read:
            found = ((name, self._text(path, task.full_name)) for name, path in task.read.items())
            template["outputs"] = {"parameters": [{"name": name, "valueFrom": {"path": path}} for name, path in found]}
        if task.timeout:
            template["activeDeadlineSeconds"] = str(math.ceil(task.timeout))
        self._templates.append(template)
        return name

    def _command(self, task: Task) -> str:
        """In the main storage, with a folder for what it makes."""
        lines = [f'mkdir -p "$(dirname "{path}")"; rm -rf "{path}"' for path in task.outputs]
        main = self._plan.pipeline.main_fs
        if main is not None and task.env.get("PF_MOUNT_PATH") != "NONE":
            lines.append(f'cd "{_place(main)}" || exit 1')
        return self._text("\n".join([*lines, task.command]), task.full_name)

    def _text(self, text: str, where: str) -> str:
        def literal(part: str) -> str:
            if "{{" in part:
                self._faults.add(where, "text holds {{ outside a template, which Argo would interpret")
            return part

        return fill(text, self._open, literal)

    def _open(self, kind: str, name: str) -> str:
        if kind == PARAMETER:
            return _parameter(self._names[name])
        if kind == VALUE:
            return _value(*name.split(".", 1))
        if kind == TEXT:
            task, _, artifact = name.partition(".")
            return "{{tasks." + task + ".outputs.parameters." + artifact + "}}"
        if kind == RUN:
            return "{{workflow.name}}"
        if kind == USER:
            return _parameter(_USER)
        main = self._plan.pipeline.main_fs
        return "" if main is None else _place(main)

    def _mount(self, mount: FsMount) -> dict[str, Any]:
        self._mounts.setdefault(mount.name, mount)
        found: dict[str, Any] = {"name": _volume(mount.name), "mountPath": _place(mount)}
        if mount.sub_path:
            found["subPath"] = mount.sub_path
        if mount.read_only:
            found["readOnly"] = True
        return found

    def _unique(self, name: str, used: set[str]) -> str:
        found, number = name, 2
        while found in used:
            found, number = f"{name}-{number}", number + 1
        return found


def _nothing(group: DagGroup) -> Task:
    """What stands in a dag that is left out, because a dag must not be empty."""
    return Task(
        "nothing", f"{group.full_name}.nothing", (), "true", {}, "busybox", (), (), Retry(), 0.0, "", group.left_out
    )


def _retry(retry: Retry) -> dict[str, Any]:
    found: dict[str, Any] = {
        "limit": str(retry.times),
        "retryPolicy": "Always",
        "backoff": {
            "duration": f"{math.ceil(retry.delay)}s",
            "factor": as_text(retry.factor),
            "cap": f"{math.ceil(retry.most)}s",
        },
    }
    if retry.exit_codes:
        codes = ", ".join(str(code) for code in retry.exit_codes)
        found["expression"] = f"asInt(lastRetry.exitCode) in [{codes}]"
    return found


def _parameter(name: str) -> str:
    return "{{workflow.parameters." + name + "}}"


def _value(task: str, artifact: str) -> str:
    """What a task wrote into a file, as it takes part in a condition: a number or a boolean bare, else quoted.

    In a condition of Argo either quote ends a text, whichever began it."""
    text = f"trim(tasks['{task}'].outputs.parameters['{artifact}'])"
    quoted = r"""sprig.regexReplaceAll(`(['"\\])`, it, `\$1`)"""
    return "{{=" + f"""let it = {text}; it matches '{_BARE}' ? it : "'" + {quoted} + "'\"""" + "}}"


def _place(mount: FsMount) -> str:
    return mount.mount_path or f"{_MOUNTED}/{mount.name}"


def _volume(name: str) -> str:
    return _label(name)


def _label(text: str) -> str:
    """As names of cluster objects must be."""
    return re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")[:50] or "pipeline"
