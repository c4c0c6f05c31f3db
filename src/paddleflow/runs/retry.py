"""Retry: a new run that goes on with what succeeded in an earlier one.

Its rows are those of the earlier run as far as they stay true; then the engine takes it up as after a restart, and nothing
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
from paddleflow.spec.pipeline.model import Component, Dag, Pipeline
from paddleflow.store.database import Tx, Value

RETRIED = frozenset({RunStatus.FAILED, RunStatus.TERMINATED})


def retry_run(tx: Tx, run: str, from_step: str, now: float) -> str:
    """The id of the new run. With `from_step` that component and all after it run again, whatever became of them."""
    row = get_run(tx, run)
    status = RunStatus(row.status)
    if status not in RETRIED and not (from_step and status is RunStatus.SUCCEEDED):
        raise Conflict(
            f"run[{run}] cannot be retried, it is {status}",
            code="ActionNotAllowed",
            hint="only failed and terminated runs can be; a succeeded one only from a step on",
        )
    pipeline = codec.load(row.pipeline)
    again = _after(pipeline, from_step) if from_step else set()
    made = create(tx, _same(row, pipeline), now)
    _copy(tx, run, made, again, from_step, now)
    return made


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


def _copy(tx: Tx, old: str, new: str, again: set[str], from_step: str, now: float) -> None:
    """The rows of the old run that stay true."""
    plain = {ROOT: ""}  # number of a dag that is kept → its dotted name, with a dot behind it
    kept: list[ComponentRow] = []
    for row in get_components(tx, old):
        if row.parent not in plain:
            continue
        name = plain[row.parent] + row.name
        if name in again:
            continue
        status = ComponentStatus(row.status)
        if row.kind == "dag" and (status not in GOOD or from_step.startswith(f"{name}.")):
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
