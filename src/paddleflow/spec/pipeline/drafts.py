"""Components as they are read: everything that the author wrote, before references are resolved and defaults applied."""

from __future__ import annotations

import copy
from typing import Any

from paddleflow.base import names
from paddleflow.spec.pipeline.faults import shown
from paddleflow.spec.pipeline.jobs import read_code, read_job, read_requirements, read_secrets
from paddleflow.spec.pipeline.model import FsMount, Mark, Parameter, Retry
from paddleflow.spec.pipeline.nodes import YamlNode
from paddleflow.spec.pipeline.options import CacheDraft, read_cache, read_mounts, read_retry, read_seconds
from paddleflow.spec.pipeline.parameters import TYPES, Unfit, plain, typed
from paddleflow.spec.pipeline.reader import COMPONENT, STEP_VARIABLE, VARIABLE, Reader, spellings

SHARED = ("parameters", "artifacts", "deps", "condition", "loop_argument", "type")
STEP = spellings(
    (
        *SHARED,
        *("command", "env", "docker_env", "cache", "extra_fs", "reference", "job", "retry", "timeout"),
        *("secrets", "code", "requirements"),
        *("name", "flavour", "queue", "job_type"),
    )
)
DAG = spellings((*SHARED, "entry_points", "name"))
ARTIFACTS = spellings(("input", "output"))
PARAMETER = spellings(("type", "default"))
REFERENCE = spellings(("component",))
REFERRING = {
    "reference",
    "deps",
    "parameters",
    "artifacts",
    "type",
    "name",
}  #: all that a step with a reference may have
CONTROL = {"flavour": "PF_JOB_FLAVOUR", "queue": "PF_JOB_QUEUE_NAME", "job_type": "PF_JOB_TYPE"}


class Draft:
    """A step or a dag of the document."""

    __slots__ = (
        *(
            "cache",
            "children",
            "command",
            "condition",
            "deps",
            "docker_env",
            "env",
            "extra_fs",
            "fields",
            "height",
            "inputs",
        ),
        *("job", "loop_argument", "name", "node", "outputs", "parameters", "path", "reference", "retry", "timeout"),
        *("secrets", "code", "requirements"),
    )

    def __init__(self, name: str, node: YamlNode, path: str) -> None:
        self.name = name
        self.node = node
        self.path = path
        self.fields: dict[str, YamlNode] = {}
        self.children: dict[str, Draft] | None = None  #: None: a step
        self.height = 1  #: how deep dags and references go below it, once they are resolved
        self.reference = ""
        self.parameters: dict[str, Parameter] = {}
        self.inputs: dict[str, str] = {}
        self.outputs: dict[str, str] = {}  #: of a step: name → ""
        self.deps: tuple[str, ...] = ()
        self.condition = ""
        self.loop_argument: Any = None
        self.command = ""
        self.env: dict[str, str] = {}
        self.docker_env = ""
        self.cache = CacheDraft()
        self.extra_fs: tuple[FsMount, ...] = ()
        self.job: dict[str, Any] | None = None
        self.retry = Retry()
        self.timeout = 0.0
        self.secrets: tuple[dict[str, str], ...] = ()
        self.code: dict[str, Any] | None = None
        self.requirements = ""

    def at(self, *keys: str) -> Mark:
        """Where a field, or something in it, stands: as near as the document says."""
        node: YamlNode | None = self.fields.get(keys[0])
        for key in keys[1:]:
            if node is None or not isinstance(node.value, dict) or key not in node.value:
                break
            node = node.value[key]
        return node.mark if node else self.mark

    def at_key(self, *keys: str) -> Mark:
        node: YamlNode | None = self.fields.get(keys[0])
        for key in keys[1:]:
            node = node.value.get(key) if node and isinstance(node.value, dict) else None
        return node.key_mark if node else self.at(*keys)

    @property
    def mark(self) -> Mark:
        return self.node.key_mark

    @property
    def what(self) -> str:
        return "step" if self.children is None else "dag"

    @property
    def unresolved(self) -> bool:
        """Its reference leads nowhere, so nobody knows what it has."""
        return bool(self.reference)

    def again(self) -> Draft:
        return copy.copy(self)


def read_components(reader: Reader, node: YamlNode, path: str) -> dict[str, Draft]:
    """The components of one level."""
    found = {}
    for name, child in reader.entries(node, path):
        where = f"{path}.{name}"
        reader.named(COMPONENT, name, child, where)
        found[name] = read_component(reader, name, child, where)
    return found


def read_component(reader: Reader, name: str, node: YamlNode, path: str) -> Draft:
    draft = Draft(name, node, path)
    is_dag = isinstance(node.value, dict) and any(DAG.get(key) == "entry_points" for key in node.value)
    draft.fields = fields = reader.fields(node, path, "dag" if is_dag else "step", DAG if is_dag else STEP)
    if is_dag:
        draft.children = {}
        if "entry_points" in fields:
            draft.children = read_components(reader, fields["entry_points"], f"{path}.entry_points")
        if not draft.children:
            reader.faults.add(draft.mark, path, f"dag[{shown(name)}] has no component in [entry_points]")
    for key, child in fields.items():
        if key in _FIELDS:
            _FIELDS[key](reader, draft, child, f"{path}.{key}")
    if not is_dag:
        for key, variable in CONTROL.items():
            if key in fields:
                draft.env.setdefault(variable, reader.text(fields[key], f"{path}.{key}"))
    if "type" in fields and (word := reader.text(fields["type"], f"{path}.type")) not in ("", draft.what):
        hint = "a dag has [entry_points]" if word == "dag" else ""
        reader.faults.add(fields["type"].mark, f"{path}.type", f"set [type] as [{shown(word)}] in {draft.what}", hint)
    return draft


def _parameters(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    for name, child in reader.entries(node, path):
        where = f"{path}.{name}"
        reader.named(VARIABLE, name, child, where)
        try:
            draft.parameters[name] = _parameter(reader, name, child, where)
        except Unfit as error:
            reader.faults.add(child.mark, where, error.message, error.hint)
            draft.parameters[name] = Parameter("")  # it is there, so that what names it is no fault


def _parameter(reader: Reader, name: str, node: YamlNode, path: str) -> Parameter:
    if not isinstance(node.value, dict):
        return Parameter(plain(name, node.plain()))
    fields = reader.fields(node, path, f"dict param[{name}]", PARAMETER)
    type = reader.text(fields["type"], f"{path}.type") if "type" in fields else ""
    if type and type not in TYPES:
        raise Unfit(f"type[{shown(type)}] is not supported for dict param[name: {name}]", names.nearest(type, TYPES))
    if "default" not in fields:
        raise Unfit(
            f"dict param[name: {name}] has no [default]", "default: the value that it has unless a run says other"
        )
    return Parameter(typed(name, type, fields["default"].plain()), type)


def _artifacts(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    fields = reader.fields(node, path, f"[artifacts] of {draft.what}", ARTIFACTS)
    if "input" in fields:
        where = f"{path}.input"
        for name, child in reader.entries(fields["input"], where):
            reader.named(VARIABLE, name, child, f"{where}.{name}")
            draft.inputs[name] = "" if child.value is None else reader.text(child, f"{where}.{name}")
    output = fields.get("output")
    if output is None:
        return
    where = f"{path}.output"
    if isinstance(output.value, list) and draft.children is None:
        for child in output.value:
            name = reader.text(child, where)
            reader.named(VARIABLE, name, child, where)
            if name in draft.outputs:
                reader.faults.add(child.mark, where, f"the output artifact [{shown(name)}] is given twice")
            draft.outputs[name] = ""
        return
    if not isinstance(output.value, dict):
        wanted = "a list of names" if draft.children is None else "a map of names to {{component.output}}"
        reader.wrong(output, where, wanted)
        return
    for name, child in output.value.items():
        reader.named(VARIABLE, name, child, f"{where}.{name}")
        template = "" if child.value is None else reader.text(child, f"{where}.{name}")
        draft.outputs[name] = "" if draft.children is None else template


def _deps(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.deps = tuple(dict.fromkeys(reader.words(node, path)))


def _env(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.env = read_env(reader, node, path)


def read_env(reader: Reader, node: YamlNode, path: str) -> dict[str, str]:
    env = {}
    for name, child in reader.entries(node, path):
        where = f"{path}.{name}"
        reader.named(STEP_VARIABLE, name, child, where)
        env[name] = "" if child.value is None else reader.text(child, where)
        if "\0" in env[name]:
            reader.faults.add(child.mark, where, f"the value of [{shown(name)}] holds a NUL character")
    return env


def _reference(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    fields = reader.fields(node, path, "[reference] of step", REFERENCE)
    if "component" in fields:
        draft.reference = reader.text(fields["component"], f"{path}.component")
    for key in draft.fields:
        if key not in REFERRING:
            reader.faults.add(
                draft.at_key(key),
                f"{draft.path}.{key}",
                f"reference step can only have deps, parameters, input artifacts, reference; it has [{key}]",
                "write it in the component",
            )


def _docker_env(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.docker_env = read_image(reader, node, path)


def read_image(reader: Reader, node: YamlNode, path: str) -> str:
    image = reader.text(node, path)
    if image.endswith(".tar"):
        reader.wrong(node, path, "the name of an image, not of a .tar file")
    return image


def _condition(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.condition = reader.text(node, path)


def _command(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.command = reader.text(node, path)
    if "\0" in draft.command:
        reader.faults.add(node.mark, path, "a NUL character cannot be part of a command")


def _loop(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.loop_argument = node.plain()


def _cache(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.cache = read_cache(reader, node, path)


def _extra_fs(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.extra_fs = read_mounts(reader, node, path)


def _job(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.job = read_job(reader, node, path)
    if "command" in draft.job and "command" in draft.fields:
        message = "[command] stands at the step and in its [job]"
        reader.faults.add(node.mark, path, message, "keep one of them")


def _retry(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.retry = read_retry(reader, node, path)


def _timeout(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.timeout = read_seconds(reader, node, path)


def _secrets(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.secrets = read_secrets(reader, node, path)


def _code(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.code = read_code(reader, node, path)


def _requirements(reader: Reader, draft: Draft, node: YamlNode, path: str) -> None:
    draft.requirements = read_requirements(reader, node, path)


_FIELDS = {
    "parameters": _parameters,
    "artifacts": _artifacts,
    "deps": _deps,
    "condition": _condition,
    "loop_argument": _loop,
    "command": _command,
    "env": _env,
    "docker_env": _docker_env,
    "cache": _cache,
    "extra_fs": _extra_fs,
    "reference": _reference,
    "job": _job,
    "retry": _retry,
    "timeout": _timeout,
    "secrets": _secrets,
    "code": _code,
    "requirements": _requirements,
}
