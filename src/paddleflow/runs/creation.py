"""Runs come into being here: the row, and its first event, in one transaction. Called by the API and by schedules."""

from __future__ import annotations

import hashlib
import json
import secrets

from paddleflow.base.names import nearest
from paddleflow.errors import Fault, Invalid
from paddleflow.runs import codec
from paddleflow.runs.model import NewRun, RunStatus
from paddleflow.runs.names import component_names
from paddleflow.store import events
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "runs.sql")


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
