"""Fingerprints of steps: when may an earlier result serve instead of running one? Pure.

The first says what a step does, the second what it reads. Each part has a hash of its own, so that a miss can say which part
has changed. Inputs count by their content, not by where they lie: a step whose producer ran again and made the same is a hit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from paddleflow.runs.facts import Fingerprints
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered
from paddleflow.spec.pipeline.model import FsMount
from paddleflow.spec.pipeline.templates import LOOP_ARGUMENT, Reference, as_text, render_text

canonical = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode
#: variables that the platform gives, and that differ from run to run
_SYSTEM = ("PF_RUN_ID", "PF_STEP_NAME", "PF_USER_NAME", "PF_INPUT_ARTIFACT_", "PF_OUTPUT_ARTIFACT_", "PF_WORK_DIR")
NOTHING_YET = "no earlier result"
EXPIRED = "expired"
OUTPUTS_GONE = "its outputs were changed or removed"
OUTPUTS_UNREADABLE = "its outputs could not be read"


def fingerprints(
    run: RunState,
    item: Instance,
    rendered: Rendered,
    command: str,
    contents: Mapping[str, str],
    scopes: Mapping[str, str],
) -> Fingerprints:
    """Of a step: `command` has its output and input artifacts unexpanded; `contents` are hashes of its inputs, `scopes`
    signatures of the paths it names."""
    step = item.step
    env = {key: value for key, value in rendered.env.items() if not key.startswith(_SYSTEM)}
    does = {  # both in the order of their names, as `canonical` has it
        "command": _hash(quoted(command)),
        "docker_env": _hash(quoted(step.docker_env)),
        "env": _hash(_texts(env)),
        "extra_fs": _part([_mount(mount, "") for mount in step.extra_fs]),
        "inputs": _part(sorted(rendered.inputs)),
        "job": _part(rendered.job),
        "main_fs": _part(_mount(run.pipeline.main_fs, run.fs_id)),
        "outputs": _part(sorted(rendered.outputs)),
        "parameters": _part(dict(rendered.parameters)),
    }
    given = {
        "code": {key: step.code.get(key) for key in ("snapshot", "workdir")} if step.code else None,
        "requirements": step.requirements,
        "secrets": [dict(use) for use in step.secrets],  # by name: another value is no other step
    }
    if any(given.values()):
        does = dict(sorted({**does, **{name: _hash(canonical(value)) for name, value in given.items()}}.items()))
    reads = {"fs_scope": _part(dict(scopes)), "input contents": _part(dict(contents))}
    return Fingerprints(_hash(_hashes(does)), _hash(_hashes(reads)), _hashes(does | reads))


def bare_command(run: RunState, item: Instance, rendered: Rendered) -> str:
    """The command with its artifacts left as templates: where they lie differs from run to run."""
    artifacts = rendered.inputs.keys() | rendered.outputs.keys()

    def lookup(reference: Reference) -> Any:
        name = reference.name
        if name in rendered.parameters:
            return rendered.parameters[name]
        if name in artifacts or name == "PF_RUN_ID":
            return f"{{{{{name}}}}}"
        if name == LOOP_ARGUMENT:
            return as_text(item.item)
        return rendered.env.get(name, "")

    return render_text(item.step.command, lookup)


def changed_parts(now: str, before: str) -> list[str]:
    """The parts that differ between two sets of hashes."""
    mine, theirs = json.loads(now), json.loads(before)
    return [name for name in mine if mine[name] != theirs.get(name)]


def _mount(mount: FsMount | None, fs_id: str) -> list[Any]:
    return [] if mount is None else [fs_id or mount.name, mount.mount_path, mount.sub_path, mount.read_only]


def _texts(values: Mapping[str, str]) -> str:
    """`canonical` of texts by name, several times as fast: every step has some of these."""
    return "{" + ",".join([f"{quoted(name)}:{quoted(values[name])}" for name in sorted(values)]) + "}"


def _hashes(values: Mapping[str, str]) -> str:
    """The same of hashes, which are in order and need no quotation."""
    return "{" + ",".join([f'"{name}":"{value}"' for name, value in values.items()]) + "}"


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _part(value: Any) -> str:
    return _hash(canonical(value)) if value else _EMPTY[type(value)]


#: Of what is empty, as most parts of most steps are.
_EMPTY = {list: _hash("[]"), dict: _hash("{}"), type(None): _hash("null")}
