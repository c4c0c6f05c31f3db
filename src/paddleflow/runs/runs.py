"""Runs as rows, in transactions: find, create, stop, pause, resume, delete; and the runs that schedules make.

Called by the API and by ``engine.schedule_engine``. Nothing here moves a run: each change raises `touched`, and the run engine
does what follows.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from functools import lru_cache

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Fault, Invalid, NotFound
from paddleflow.jobs.changes import forget_job
from paddleflow.jobs.queries import jobs_of_run
from paddleflow.runs import codec, demands, pipelines
from paddleflow.runs.artifacts import select
from paddleflow.runs.model import ACTIVE_RUNS, FINAL_RUNS, PAUSED, NewRun, RunStatus
from paddleflow.runs.names import component_names
from paddleflow.runs.rows import SQL, ComponentRow, RunRow, components_of, run_by_id
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.positions import Places
from paddleflow.spec.pipeline.run_request import bind
from paddleflow.store import events
from paddleflow.store.database import Tx

STOP, FORCE = 1, 2  #: values of the column `stop`


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; everything that is given must hold."""

    users: Sequence[str] = ()
    storages: Sequence[str] = ()
    runs: Sequence[str] = ()
    names: Sequence[str] = ()
    statuses: Sequence[str] = ()
    schedules: Sequence[str] = ()


def find_runs(tx: Tx, wanted: RunFilter, before: int, limit: int) -> list[RunRow]:
    """Runs, newest first. `before` is the position of the last row of the page before, 0 at first."""
    columns = (
        ("user_name", wanted.users),
        ("fs_name", wanted.storages),
        ("id", wanted.runs),
        ("name", wanted.names),
        ("status", _statuses(wanted.statuses)),
        ("schedule_id", wanted.schedules),
    )
    return [RunRow(**row) for row in select(tx, "runs", columns, before, limit)]


def _statuses(words: Sequence[str]) -> list[str]:
    """`active` and `final` stand for the states that are."""
    found: list[str] = []
    for word in words:
        found += sorted(ACTIVE_RUNS) if word == "active" else sorted(FINAL_RUNS) if word == "final" else [word]
    return found


def get_run(tx: Tx, run: str) -> RunRow:
    """One run's row, or NotFound."""
    row = run_by_id(tx, run)
    if row is None:
        raise NotFound(f"run[{run[:80]}] does not exist", code="RunNotFound", hint="paddleflow run list shows all")
    return row


def get_components(tx: Tx, run: str) -> list[ComponentRow]:
    """Its components, in the order in which they began."""
    return components_of(tx, run)


# ── create ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def create(tx: Tx, new: NewRun, now: float) -> str:
    """The id of the new run; the engine takes it up when it sees the row."""
    check_breakpoints(new)
    return _insert(tx, new, RunStatus.INITIATING, "", now)


def record_skipped(tx: Tx, new: NewRun, message: str, now: float) -> str:
    """A slot of a schedule that is only noted: a run that never runs."""
    return _insert(tx, new, RunStatus.SKIPPED, message, now)


def check_breakpoints(new: NewRun) -> None:
    """Refuse names that the pipeline does not have."""
    if not new.breakpoints:
        return
    known = component_names(new.pipeline)
    faults = [
        Fault(f"breakpoints[{number}]", f"component[{name[:120]}] does not exist", nearest(name[:120], known))
        for number, name in enumerate(new.breakpoints)
        if name not in known
    ]
    if faults:
        raise Invalid.of(faults, code="InvalidArguments")


def _insert(tx: Tx, new: NewRun, status: RunStatus, message: str, now: float) -> str:
    final = status.final
    seq = tx.value(
        SQL["insert_run"],
        id=f"new-{secrets.token_hex(8)}",
        name=new.name or new.pipeline.name,
        user_name=new.user,
        source=new.source or source_of(new.document),
        fs_id=new.fs_id,
        fs_name=new.fs_name,
        description=new.description,
        document=new.document,
        pipeline=codec.dump(new.pipeline),
        parameters=json.dumps(dict(new.parameters), ensure_ascii=False),
        docker_env=new.docker_env,
        disabled=",".join(new.disabled),
        schedule_id=new.schedule_id,
        scheduled_at=new.scheduled_at,
        retry_of=new.retry_of,
        breakpoints=json.dumps(list(dict.fromkeys(new.breakpoints))),
        status=status,
        message=message,
        created_at=now,
        finished_at=now if final else None,
        touched=0 if final else 1,
    )
    run = f"run-{seq:06}"
    tx.run(SQL["name_run"], seq=seq, id=run)
    events.append(tx, "run", run, "status", now, {"status": status, "message": message})
    return run


def source_of(document: str) -> str:
    """What stands for a document that came as text."""
    return hashlib.md5(document.encode(), usedforsecurity=False).hexdigest()


# ── change ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
    """Where it pauses from now on."""
    row = get_run(tx, run)
    _refuse_ended(row, "paused")
    known = component_names(codec.load(row.pipeline))
    faults = [
        Fault(f"{field}[{number}]", f"component[{name[:120]}] does not exist", nearest(name[:120], known))
        for field, names in (("add", add), ("remove", remove))
        for number, name in enumerate(names)
        if name not in known
    ]
    if faults:
        raise Invalid.of(faults, code="InvalidArguments")
    return _set_breakpoints(tx, row, [*json.loads(row.breakpoints), *add], remove, now)


def resume_run(tx: Tx, run: str, step: str, now: float) -> list[str]:
    """Resume components that wait at a breakpoint: one, or all. Their breakpoints are gone with that."""
    row = get_run(tx, run)
    _refuse_ended(row, "resumed")
    paused = [each["full_name"] for each in tx.all(SQL["paused_components"], run_id=run, message=PAUSED)]
    names = json.loads(row.breakpoints)
    waiting = [name for name in names if any(plain_name(each) == name or each == name for each in paused)]
    if step and step not in waiting and step not in paused:
        raise Conflict(
            f"component[{step[:120]}] of run[{run}] does not wait at a breakpoint",
            code="ActionNotAllowed",
            hint=f"waiting: {', '.join(waiting)}" if waiting else "nothing waits",
        )
    return _set_breakpoints(tx, row, names, [step] if step else waiting, now)


def plain_name(full_name: str) -> str:
    """A full name without the numbers of loop elements, as far as they can be recognised."""
    return ".".join(
        part.rpartition("-")[0] if part.rpartition("-")[2].isdigit() else part for part in full_name.split(".")
    )


def _set_breakpoints(tx: Tx, row: RunRow, names: Sequence[str], without: Sequence[str], now: float) -> list[str]:
    left = [name for name in dict.fromkeys(names) if name not in without]
    tx.run(SQL["change_breakpoints"], id=row.id, breakpoints=json.dumps(left), at=now)
    return left


def _refuse_ended(row: RunRow, what: str) -> None:
    if RunStatus(row.status).final:
        raise Conflict(
            f"run[{row.id}] cannot be {what}, it is {row.status}",
            code="ActionNotAllowed",
            hint="only runs that have not ended can be",
        )


def delete_run(tx: Tx, run: str, check_cache: bool) -> tuple[RunRow, list[str]]:
    """An ended run goes with its jobs and results; (its row, the ids of its jobs). Its files are the caller's business."""
    row = get_run(tx, run)
    if not RunStatus(row.status).final:
        raise Conflict(
            f"run[{run}] cannot be deleted, it is {row.status}",
            code="ActionNotAllowed",
            hint=f"stop it first: paddleflow run stop {run}",
        )
    others = int(tx.value(SQL["count_reusers"], run_id=run))
    if check_cache and others:
        raise Conflict(
            f"run[{run}] cannot be deleted, {others} other runs were served from its results",
            code="ActionNotAllowed",
            hint=f"delete those first, or delete it anyway: paddleflow run delete -not-cc {run}",
        )
    jobs = jobs_of_run(tx, run)
    for job in jobs:
        forget_job(tx, job)
    for statement in ("delete_components", "delete_loops", "delete_run_artifacts", "delete_run_caches", "delete_run"):
        tx.run(SQL[statement], run_id=run)
    events.delete_for(tx, "run", run)
    return row, [job.id for job in jobs]


# ── of schedules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def active_runs_of_schedule(tx: Tx, schedule: str, user: str) -> list[tuple[str, bool]]:
    """(run, whether it was asked to stop) of all of its owner's that have not ended, oldest first."""
    rows = tx.all(SQL["active_of_schedule"], schedule_id=schedule, user_name=user)
    return [(row["id"], row["status"] == RunStatus.TERMINATING) for row in rows]


def new_run_of_version(tx: Tx, pipeline: str, version: str, user: str) -> NewRun:
    """What a run of a registered version is made of, except for its schedule; refused as a person's would be."""
    text = registered_document(tx, pipeline, version)
    new = NewRun(user=user, pipeline=bound_document(text), document=text, source=f"{pipeline}-{version}")
    return demands.require_all(tx, new, Places(text))


def registered_document(tx: Tx, pipeline: str, version: str) -> str:
    """The text of a registered version."""
    return pipelines.get_version(tx, pipelines.get(tx, pipeline), version).yaml


@lru_cache(maxsize=128)
def bound_document(text: str) -> Pipeline:
    """A version never changes, so it is read once and not at each slot. A large one takes a while: not for the first time
    inside a transaction."""
    return bind(read(text))


def placeholder_run(pipeline: str, version: str, user: str) -> NewRun:
    """What stands for a run that cannot be made, to note its slot."""
    return NewRun(user, Pipeline(pipeline, {}), "", f"{pipeline}-{version}")
