"""What people do to runs that exist: stop, breakpoints, resume, delete. Transaction functions; the engine is told by `touched`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, Fault, Invalid
from paddleflow.jobs.changes import forget_job
from paddleflow.jobs.rows import SQL as JOBS
from paddleflow.runs import codec
from paddleflow.runs.listing import get_run
from paddleflow.runs.model import PAUSED, RunStatus
from paddleflow.runs.names import component_names
from paddleflow.runs.rows import SQL
from paddleflow.store import events
from paddleflow.store.database import Row, Tx

STOP, FORCE = 1, 2


def stop_run(tx: Tx, run: str, force: bool, message: str, now: float) -> None:
    """The engine ends it; by force also its post-process. A run that is being stopped can only be stopped by force."""
    row = get_run(tx, run)
    _refuse_ended(row, "stopped")
    if not tx.run(SQL["ask_run_to_stop"], id=run, stop=FORCE if force else STOP, message=message, at=now):
        raise Conflict(
            f"run[{run}] is being stopped already",
            code="ActionNotAllowed",
            hint=f"end its post-process too: paddleflow run stop -f {run}",
        )
    events.append(tx, "run", run, "status", now, {"status": RunStatus.TERMINATING, "message": message})


def change_breakpoints(tx: Tx, run: str, add: Sequence[str], remove: Sequence[str], now: float) -> list[str]:
    """Conditions it pauses from now on."""
    row = get_run(tx, run)
    _refuse_ended(row, "paused")
    known = component_names(codec.load(row["pipeline"]))
    faults = [
        Fault(f"{field}[{number}]", f"component[{name[:120]}] does not exist", nearest(name[:120], known))
        for field, names in (("add", add), ("remove", remove))
        for number, name in enumerate(names)
        if name not in known
    ]
    if faults:
        raise Invalid.of(faults, code="InvalidArguments")
    return _set_breakpoints(tx, row, [*json.loads(row["breakpoints"]), *add], remove, now)


def resume_run(tx: Tx, run: str, step: str, now: float) -> list[str]:
    """Let components go on that wait at a breakpoint: one, or all. Their breakpoints are gone with that."""
    row = get_run(tx, run)
    _refuse_ended(row, "resumed")
    paused = [each["full_name"] for each in tx.all(SQL["paused_components"], run_id=run, message=PAUSED)]
    names = json.loads(row["breakpoints"])
    waiting = [name for name in names if any(plain_name(each) == name or each == name for each in paused)]
    if step and step not in waiting and step not in paused:
        raise Conflict(
            f"component[{step[:120]}] of run[{run}] does not wait at a breakpoint",
            code="ActionNotAllowed",
            hint=f"waiting: {', '.join(waiting)}" if waiting else "nothing waits",
        )
    return _set_breakpoints(tx, row, names, [step] if step else waiting, now)


def plain_name(full_name: str) -> str:
    """A full name without the numbers of loop elements, as far as they can be told."""
    return ".".join(
        part.rpartition("-")[0] if part.rpartition("-")[2].isdigit() else part for part in full_name.split(".")
    )


def _set_breakpoints(tx: Tx, row: Row, names: Sequence[str], without: Sequence[str], now: float) -> list[str]:
    left = [name for name in dict.fromkeys(names) if name not in without]
    tx.run(SQL["change_breakpoints"], id=row["id"], breakpoints=json.dumps(left), at=now)
    return left


def _refuse_ended(row: Row, what: str) -> None:
    if RunStatus(row["status"]).final:
        raise Conflict(
            f"run[{row['id']}] cannot be {what}, it is {row['status']}",
            code="ActionNotAllowed",
            hint="only runs that have not ended can be",
        )


def delete_run(tx: Tx, run: str, check_cache: bool) -> tuple[Row, list[str]]:
    """An ended run goes with its jobs and results; (its row, the ids of its jobs). Its files are the caller's business."""
    row = get_run(tx, run)
    if not RunStatus(row["status"]).final:
        raise Conflict(
            f"run[{run}] cannot be deleted, it is {row['status']}",
            code="ActionNotAllowed",
            hint=f"stop it first: paddleflow run stop {run}",
        )
    others = int(tx.value(SQL["count_reusers"], run_id=run))
    if check_cache and others:
        raise Conflict(
            f"run[{run}] cannot be deleted, {others} other runs were served from its results",
            code="ActionNotAllowed",
            hint=f"delete those first, or delete it all the same: paddleflow run delete -not-cc {run}",
        )
    jobs = tx.all(JOBS["jobs_of_run"], run_id=run)
    for job in jobs:
        forget_job(tx, job)
    for statement in ("delete_components", "delete_loops", "delete_run_artifacts", "delete_run_caches", "delete_run"):
        tx.run(SQL[statement], run_id=run)
    events.delete_for(tx, "run", run)
    return row, [job["id"] for job in jobs]
