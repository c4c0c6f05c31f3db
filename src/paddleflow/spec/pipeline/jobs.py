"""The `job` block of a step: a job document of the platform. Its structure only; what a framework asks for is checked with it.

The words are those of the job API, with capitals and underscores as the author likes; here they become the API's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddleflow.base import names
from paddleflow.spec.pipeline.faults import shown
from paddleflow.spec.pipeline.nodes import YamlNode
from paddleflow.spec.pipeline.reader import Reader

MOST_REPLICAS = 10_000
PRIORITIES = ("VERY_LOW", "LOW", "NORMAL", "HIGH", "VERY_HIGH")

Take = Callable[[Reader, YamlNode, str], Any]


def _table(**fields: Take) -> dict[str, tuple[str, Take]]:
    return {key.replace("_", "").lower(): (key, take) for key, take in fields.items()}


def _block(node: YamlNode, reader: Reader, path: str, what: str, table: dict[str, tuple[str, Take]]) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        reader.wrong(node, path, "a map")
        return {}
    found: dict[str, Any] = {}
    for key, child in node.value.items():
        known = table.get(key.replace("_", "").lower())
        if known is None:
            names = {name for name, _ in table.values()}
            reader.faults.unknown(child.key_mark, path, f"{what} has no attribute [{shown(key)}]", key, names)
        elif child.value is None:
            continue
        elif known[0] in found:
            reader.faults.add(child.key_mark, path, f"{what} has the attribute [{known[0]}] twice")
        else:
            found[known[0]] = known[1](reader, child, f"{path}.{known[0]}")
    return found


def _text(reader: Reader, node: YamlNode, path: str) -> str:
    return reader.text(node, path)


def _priority(reader: Reader, node: YamlNode, path: str) -> str:
    word = reader.text(node, path).upper()
    if word and word not in PRIORITIES:
        reader.faults.unknown(node.mark, path, f"priority[{shown(word)}] is not supported", word, PRIORITIES)
    return word


def _texts(reader: Reader, node: YamlNode, path: str) -> dict[str, str]:
    """A map of texts; numbers are taken as they are written."""
    return {key: reader.text(child, f"{path}.{key}") for key, child in reader.entries(node, path)}


def _words(reader: Reader, node: YamlNode, path: str) -> str | list[str]:
    """A command: text for the shell, or words to be run as they are."""
    if isinstance(node.value, list):
        return [reader.text(item, path) for item in node.value]
    return reader.text(node, path)


def _port(reader: Reader, node: YamlNode, path: str) -> int:
    port = reader.integer(node, path)
    if not 0 <= port <= 65534:
        reader.wrong(node, path, "a port in range [0, 65534]")
    return port


def _replicas(reader: Reader, node: YamlNode, path: str) -> int:
    replicas = reader.integer(node, path, 1)
    if not 1 <= replicas <= MOST_REPLICAS:
        reader.wrong(node, path, f"a whole number from 1 to {MOST_REPLICAS:,}")
    return replicas


def _free(reader: Reader, node: YamlNode, path: str) -> Any:
    if not isinstance(node.value, dict):
        reader.wrong(node, path, "a map")
        return {}
    return node.plain()


def _boolean(reader: Reader, node: YamlNode, path: str) -> bool:
    return reader.boolean(node, path)


_POLICY = _table(queue=_text, priority=_priority)
_FLAVOUR = _table(name=_text, cpu=_text, mem=_text, memory=_text, scalarResources=_texts)
_MOUNT = _table(name=_text, mountPath=_text, subPath=_text, readOnly=_boolean)


def _policy(reader: Reader, node: YamlNode, path: str) -> dict[str, Any]:
    return _block(node, reader, path, "[schedulingPolicy]", _POLICY)


def _flavour(reader: Reader, node: YamlNode, path: str) -> dict[str, Any]:
    """A flavour by name, or amounts."""
    if isinstance(node.value, str):
        return {"name": node.value}
    return _block(node, reader, path, "[flavour]", _FLAVOUR)


def _mount(reader: Reader, node: YamlNode, path: str) -> dict[str, Any]:
    found = _block(node, reader, path, "[fs]", _MOUNT)
    if not found.get("name"):
        reader.faults.add(node.mark, path, "[name] in [fs] must not be empty")
    return found


def _mounts(reader: Reader, node: YamlNode, path: str) -> list[dict[str, Any]]:
    return [_mount(reader, item, path) for item in reader.items(node, path)]


def read_secrets(reader: Reader, node: YamlNode, path: str) -> tuple[dict[str, str], ...]:
    """A list of ``NAME``, ``NAME=VARIABLE`` or maps of name, env and file."""
    found = []
    for number, item in enumerate(reader.items(node, path)):
        where = f"{path}[{number}]"
        if isinstance(item.value, dict):
            use = _block(item, reader, where, "[secrets]", _SECRET)
        else:
            name, _, variable = reader.text(item, where).partition("=")
            use = {"name": name, "env": variable} if variable else {"name": name}
        for key, rule in (("name", names.SECRET), ("env", names.ENV_NAME), ("file", names.SECRET_FILE)):
            if (key == "name" or key in use) and (fault := rule.fault(use.get(key, ""))):
                reader.faults.add(item.mark, f"{where}.{key}", fault)
        found.append(use)
    return tuple(found)


def read_code(reader: Reader, node: YamlNode, path: str) -> dict[str, Any]:
    """A folder, which the client sends before the run starts and names by its snapshot; or that."""
    if isinstance(node.value, str):
        return {"folder": node.value}
    found = _block(node, reader, path, "[code]", _CODE)
    if not found.get("snapshot") and not found.get("folder"):
        reader.faults.add(node.mark, path, "[code] names no folder", "code: .")
    return found


def read_requirements(reader: Reader, node: YamlNode, path: str) -> str:
    """The lines of a requirements file, as a list or as one text."""
    if isinstance(node.value, list):
        return "".join(f"{reader.text(item, path)}\n" for item in node.value)
    return reader.text(node, path)


_SECRET = _table(name=_text, env=_text, file=_text)
_GIT = _table(commit=_text, branch=_text, dirty=_boolean)
_CODE = _table(
    folder=_text,
    snapshot=_text,
    workdir=_text,
    files=lambda reader, node, path: reader.integer(node, path),
    size=lambda reader, node, path: reader.integer(node, path),
    git=lambda reader, node, path: _block(node, reader, path, "[git]", _GIT),
)
_NAMED: dict[str, Take] = {"labels": _texts, "annotations": _texts, "schedulingPolicy": _policy}
_SPEC: dict[str, Take] = {
    "name": _text,
    "flavour": _flavour,
    "limitFlavour": _flavour,
    "fs": _mount,
    "extraFS": _mounts,
    "image": _text,
    "env": _texts,
    "command": _words,
    "args": _words,
    "port": _port,
    "extensionTemplate": _free,
    "secrets": lambda reader, node, path: list(read_secrets(reader, node, path)),
    "requirements": read_requirements,
}
_MEMBER = _table(role=_text, replicas=_replicas, **_NAMED, **_SPEC)


def _members(reader: Reader, node: YamlNode, path: str) -> list[dict[str, Any]]:
    members = []
    for number, item in enumerate(reader.items(node, path)):
        member = _block(item, reader, f"{path}[{number}]", "[members]", _MEMBER)
        if not member.get("role"):
            reader.faults.add(item.mark, f"{path}[{number}]", "[role] of a member must be set", "role: worker")
        members.append(member)
    return members


_JOB = _table(framework=_text, members=_members, **_NAMED, **_SPEC)


def read_job(reader: Reader, node: YamlNode, path: str) -> dict[str, Any]:
    """The job document, in the words of the job API."""
    job = _block(node, reader, path, "[job]", _JOB)
    if "members" in job and not job.get("framework"):
        hint = "framework: paddle"
        reader.faults.add(node.key_mark, path, "[job] has [members], so it must say its [framework]", hint)
    if job.get("framework") and not job.get("members") and "extensionTemplate" not in job:
        hint = "members: [{role: worker, replicas: 2}]"
        reader.faults.add(node.key_mark, path, f"[job] of framework[{shown(job['framework'])}] has no [members]", hint)
    return job
