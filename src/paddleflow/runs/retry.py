"""Retry: a new run that continues from what succeeded in an earlier one.

Its rows are those of the earlier run as far as they stay true; then the engine adopts it as after a restart, and nothing
else is needed. Dags that did not succeed are open again, with what succeeded inside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, Invalid
from paddleflow.runs import codec
from paddleflow.runs.artifacts import NewArtifact, artifacts_of_run, note
from paddleflow.runs.model import GOOD, ComponentStatus, NewRun, RunStatus
from paddleflow.runs.names import component_names
from paddleflow.runs.rows import SQL, ComponentRow, RunRow, loops_of, values_of
from paddleflow.runs.runs import create, get_components, get_run
from paddleflow.runs.state import ROOT
from paddleflow.spec.pipeline.model import Cache, Component, Dag, Pipeline, Retry
from paddleflow.store.database import Tx, Value

RETRIED = frozenset({RunStatus.FAILED, RunStatus.TERMINATED})


def retry_run(tx: Tx, run: str, from_step: str, now: float, changed: NewRun | None = None) -> str:
    """The id of the new run. With `from_step` that component and all after it run again, whatever became of them. With
    `changed`, the run of another document, so do those that it changes, and all after them."""
    row = get_run(tx, run)
    status = RunStatus(row.status)
    if status not in RETRIED and not ((from_step or changed) and status is RunStatus.SUCCEEDED):
        raise Conflict(
            f"run[{run}] cannot be retried, it is {status}",
            code="ActionNotAllowed",
            hint="only failed and terminated runs can be; a succeeded one only from a step on or with a changed document",
        )
    before = codec.load(row.pipeline)
    new = _same(row, before) if changed is None else replace(changed, retry_of=row.id)
    again = _after(new.pipeline, from_step) if from_step else set()
    if changed is not None:
        again |= changed_components(before, codec.load(codec.dump(new.pipeline)))
    made = create(tx, new, now)
    _copy(tx, run, made, again, frozenset(component_names(new.pipeline)), now)
    return made


def changed_components(before: Pipeline, after: Pipeline) -> set[str]:
    """The dotted names of components that a document changes or adds, and of everything that comes after them."""
    if before.main_fs != after.main_fs:
        return set(component_names(after))  # results lie on another storage, or are seen elsewhere
    return _changed(before.entry_points, after.entry_points, "")


def _changed(before: Mapping[str, Component], after: Mapping[str, Component], path: str) -> set[str]:
    found: set[str] = set()
    for name, child in after.items():
        old = before.get(name)
        inner: set[str] = set()
        if isinstance(child, Dag) and isinstance(old, Dag):
            inner = _changed(old.children, child.children, f"{path}{name}.")
        if old is None or _meaning(old) != _meaning(child):
            found.add(path + name)
        found |= inner
        if inner or path + name in found:
            found |= {path + other for other in _successors(after, name)}
    return found


def _meaning(component: Component) -> Component:
    """What of a component decides about its result; of a dag that is besides its components."""
    if isinstance(component, Dag):
        return replace(component, children={})
    return replace(component, cache=Cache(), retry=Retry(), timeout=0.0)


def _same(row: RunRow, pipeline: Pipeline) -> NewRun:
    return NewRun(
        user=row.user_name,
        pipeline=pipeline,
        document=row.document,
        source=row.source,
        name=row.name,
        description=row.description,
        parameters=json.loads(row.parameters),
        docker_env=row.docker_env,
        disabled=[name for name in row.disabled.split(",") if name],
        fs_id=row.fs_id,
        fs_name=row.fs_name,
        retry_of=row.id,
    )


def _after(pipeline: Pipeline, step: str) -> set[str]:
    """The dotted names of a component and of everything that comes after it, at every level."""
    known = component_names(pipeline)
    if step not in known:
        raise Invalid(
            f"component[{step[:120]}] does not exist", code="InvalidArguments", hint=nearest(step[:120], known)
        )
    found = {step}
    children, path = pipeline.entry_points, ""
    for part in step.split("."):
        found |= {path + name for name in _successors(children, part)}
        child: Component = children[part]
        path += f"{part}."
        if isinstance(child, Dag):
            children = child.children
    return found


def _successors(children: Mapping[str, Component], name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        before = waiting.pop()
        for other, child in children.items():
            if before in child.deps and other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _copy(tx: Tx, old: str, new: str, again: set[str], known: frozenset[str], now: float) -> None:
    """The rows of the old run that stay true."""
    reopened = {name[:at] for name in again for at, letter in enumerate(name) if letter == "."}
    plain = {ROOT: ""}  # number of a dag that is kept → its dotted name, with a dot behind it
    kept: list[ComponentRow] = []
    for row in get_components(tx, old):
        if row.parent not in plain:
            continue
        name = plain[row.parent] + row.name
        if name in again or name not in known:
            continue
        status = ComponentStatus(row.status)
        if row.kind == "dag" and (status not in GOOD or name in reopened):
            if row.started_at is None:
                continue
            row = replace(row, status=ComponentStatus.RUNNING, message="", outputs="{}", finished_at=None)
        elif status not in GOOD:
            continue
        if row.kind == "dag":
            plain[row.number] = f"{name}."
        else:
            row = replace(row, reused_run=row.reused_run or old)
        kept.append(replace(row, run_id=new))
    if kept:
        tx.many(SQL["put_component"], [values_of(row) for row in kept])
    loops: list[dict[str, Value]] = [
        {"run_id": new, "parent": loop.parent, "name": loop.name, "items": loop.items}
        for loop in loops_of(tx, old)
        if loop.parent in plain and plain[loop.parent] + loop.name not in again
    ]
    if loops:
        tx.many(SQL["insert_loop"], loops)
    steps = {row.full_name for row in kept}
    copies = [
        NewArtifact(new, each.fs_id, each.fs_name, each.user, each.path, each.step, each.job_id, each.kind, each.name,
                    each.hash, each.size, "reused")
        for each in artifacts_of_run(tx, old)
        if each.step in steps
    ]  # fmt: skip
    note(tx, copies, now)
