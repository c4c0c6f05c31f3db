"""Runs as rows: encoding of what the machine changed. The SQL is in ``runs.sql``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered
from paddleflow.spec.pipeline.model import Dag
from paddleflow.store.database import Value
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "runs.sql")
text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def component_row(run: RunState, item: Instance, rendered: Rendered | None = None) -> dict[str, Value]:
    """The row of a component. Without `rendered` the columns for that stay as they are."""
    details, parameters = "", ""
    if rendered is not None:
        details = text(details_of(rendered, item))
        parameters = text(rendered.parameters) if rendered.parameters else "{}"
    elif item.number in run.frames and not item.status.final:
        frame = run.frames[item.number]
        details, parameters = text({"inputs": frame.inputs}), text(frame.values)
    return {
        "run_id": run.id,
        "number": item.number,
        "parent": item.frame.number,
        "name": item.name,
        "full_name": item.full_name,
        "kind": "dag" if isinstance(item.component, Dag) else "step",
        "seq": item.seq,
        "status": item.status,
        "message": item.message,
        "job_id": item.job,
        "tries": item.tries,
        "not_before": item.not_before,
        "details": details,
        "parameters": parameters,
        "outputs": text(item.outputs) if item.outputs else "{}",
        "first_fp": item.prints.first,
        "second_fp": item.prints.second,
        "parts": item.prints.parts,
        "reused_run": item.reused_run,
        "reused_job": item.reused_job,
        "misses": text(list(item.misses)) if item.misses else "[]",
        "started_at": item.started_at,
        "finished_at": item.finished_at,
    }


def details_of(rendered: Rendered, item: Instance) -> Mapping[str, Any]:
    """What a view shows of a step as it was run; what is empty is left out."""
    found: dict[str, Any] = {"command": rendered.command, "env": rendered.env}
    if rendered.inputs:
        found["inputs"] = rendered.inputs
    if item.component.loop_argument is not None:
        found["item"] = item.item
    return found


def run_row(run: RunState, at: float) -> dict[str, Value]:
    return {
        "id": run.id,
        "status": run.status,
        "message": run.message,
        "activated_at": run.activated_at,
        "finished_at": run.finished_at,
        "at": at,
    }
