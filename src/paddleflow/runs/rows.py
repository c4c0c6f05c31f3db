"""Runs as rows: what leaves this package of them, and the encoding of what the machine changed. The SQL is in ``runs.sql``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from paddleflow.base.json_text import json_text
from paddleflow.base.values import dataclass
from paddleflow.runs.state import Instance, RunState
from paddleflow.runs.values import Rendered
from paddleflow.spec.pipeline.model import Dag
from paddleflow.store.database import Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "runs.sql")
MOST_SERVED = 1000  #: runs that are named as served by one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run as its row has it; the columns are described in the migration."""

    id: str
    user_name: str
    pipeline: str
    status: str
    seq: int = 0
    name: str = ""
    source: str = ""
    fs_id: str = ""
    fs_name: str = ""
    description: str = ""
    document: str = ""
    parameters: str = "{}"
    docker_env: str = ""
    disabled: str = ""
    schedule_id: str = ""
    scheduled_at: float | None = None
    retry_of: str = ""
    breakpoints: str = "[]"
    message: str = ""
    stop: int = 0
    created_at: float = 0.0
    activated_at: float | None = None
    finished_at: float | None = None
    updated_at: float = 0.0
    touched: int = 0
    seen: int = 0
    numbers: int = 0


class ChangedRun(NamedTuple):
    """A run that somebody else than the engine made or changed."""

    seq: int
    id: str
    touched: int
    status: str
    message: str
    stop: int
    breakpoints: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRow:
    """A component as its row has it."""

    run_id: str
    number: int  #: 0: it has not begun, and has no row
    parent: int
    name: str
    full_name: str
    kind: str
    seq: int
    status: str
    message: str = ""
    job_id: str = ""
    tries: int = 0
    not_before: float | None = None
    details: str = ""
    parameters: str = ""
    outputs: str = ""
    first_fp: str = ""
    second_fp: str = ""
    parts: str = ""
    reused_run: str = ""
    reused_job: str = ""
    misses: str = ""
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRecord:
    """As much of a component as the engine needs to continue it, with the state of its job."""

    number: int
    parent: int
    name: str
    kind: str
    seq: int
    status: str
    message: str
    job_id: str
    tries: int
    not_before: float | None
    parameters: str
    outputs: str
    first_fp: str
    second_fp: str
    parts: str
    misses: str
    started_at: float | None
    job_status: str | None  #: None: the job is gone, or the component has ended
    job_message: str | None
    job_started_at: float | None
    job_gated: int | None
    job_cluster: str | None


class Loop(NamedTuple):
    """The elements of a loop, once they are known."""

    parent: int
    name: str
    items: str  #: JSON list


def component_row(run: RunState, item: Instance, rendered: Rendered | None = None) -> dict[str, Value]:
    """The row of a component. Without `rendered` the columns for that stay as they are."""
    details, parameters = "", ""
    if rendered is not None:
        details = json_text(rendered_details(rendered, item))
        parameters = json_text(rendered.parameters) if rendered.parameters else "{}"
    elif item.number in run.frames and not item.status.final:
        frame = run.frames[item.number]
        details, parameters = json_text({"inputs": frame.inputs}), json_text(frame.values)
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
        "outputs": json_text(item.outputs) if item.outputs else "{}",
        "first_fp": item.prints.first,
        "second_fp": item.prints.second,
        "parts": item.prints.parts,
        "reused_run": item.reused_run,
        "reused_job": item.reused_job,
        "misses": json_text(list(item.misses)) if item.misses else "[]",
        "started_at": item.started_at,
        "finished_at": item.finished_at,
    }


def rendered_details(rendered: Rendered, item: Instance) -> Mapping[str, Any]:
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


def values_of(row: ComponentRow) -> dict[str, Value]:
    """The columns of a component's row."""
    return {each.name: getattr(row, each.name) for each in fields(row)}


def run_by_id(tx: Tx, run: str) -> RunRow | None:
    row = tx.one(SQL["run_by_id"], id=run)
    return None if row is None else RunRow(**row)


def active_runs(tx: Tx) -> list[RunRow]:
    """All runs that have not ended."""
    return tx.rows(RunRow, SQL["active_runs"])


def count_active_runs(tx: Tx) -> dict[str, int]:
    """How many runs are in each status that is not final."""
    return {row["status"]: row["runs"] for row in tx.all(SQL["count_active_runs"])}


def changed_runs(tx: Tx, limit: int) -> list[ChangedRun]:
    """Runs that the engine has not seen since somebody else changed them."""
    return tx.rows(ChangedRun, SQL["unseen_runs"], limit=limit)


def components_of(tx: Tx, run: str) -> list[ComponentRow]:
    """Everything that is known of a run's components, in the order in which they began."""
    return tx.rows(ComponentRow, SQL["components_of_run"], run_id=run)


class RunDetails(NamedTuple):
    """A run with everything that its view shows."""

    run: RunRow
    components: list[ComponentRow]
    served: list[str]  #: runs that were served from cached results of this one
    reasons: dict[str, str]  #: job of a step that waits → why


def details_of_run(tx: Tx, run: RunRow) -> RunDetails:
    served = tx.all(SQL["served_runs"], run_id=run.id, limit=MOST_SERVED)
    waiting = tx.all(SQL["waiting_reasons"], run_id=run.id)
    return RunDetails(
        run,
        components_of(tx, run.id),
        [row["run_id"] for row in served],
        {row["id"]: row["message"] for row in waiting},
    )


def loops_of(tx: Tx, run: str) -> list[Loop]:
    return tx.rows(Loop, SQL["loops_of_run"], run_id=run)
