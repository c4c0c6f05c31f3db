"""Runs as schedules make them: which ones have not ended, and the run of a slot. Called by ``engine.firing``."""

from __future__ import annotations

from functools import lru_cache

from paddleflow.access.callers import is_root
from paddleflow.runs import pipelines
from paddleflow.runs.model import NewRun, RunStatus
from paddleflow.spec.pipeline.binding import bind
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.reading import read
from paddleflow.store import events
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "scheduled.sql")


def active(tx: Tx, schedule: str) -> list[tuple[str, bool]]:
    """(run, whether it was told to stop) of all that have not ended, oldest first."""
    rows = tx.all(SQL["active_of_schedule"], schedule_id=schedule)
    return [(row["id"], row["status"] == RunStatus.TERMINATING) for row in rows]


def make_room(tx: Tx, run: str, message: str, now: float) -> None:
    """Tell a run to stop, as a person would, without force."""
    if tx.run(SQL["make_room"], id=run, message=message, at=now):
        events.append(tx, "run", run, "status", now, {"status": RunStatus.TERMINATING, "message": message})


def new_run(tx: Tx, pipeline: str, version: str, user: str) -> NewRun:
    """What a run of a registered version is made of, except for its schedule; refused as a person's would be."""
    registered = pipelines.get(tx, pipeline)
    found = pipelines.get_version(tx, registered, version)
    bound = bound_document(found.yaml)
    storages = pipelines.require_storages(tx, bound, user, is_root(user))
    main = None if bound.main_fs is None else storages[bound.main_fs.name]
    return NewRun(
        user=user,
        pipeline=bound,
        document=found.yaml,
        source=f"{registered.id}-{found.id}",
        fs_id="" if main is None else main.id,
        fs_name="" if bound.main_fs is None else bound.main_fs.name,
    )


def document(tx: Tx, pipeline: str, version: str) -> str:
    """The text of a registered version."""
    return pipelines.get_version(tx, pipelines.get(tx, pipeline), version).yaml


@lru_cache(maxsize=128)
def bound_document(text: str) -> Pipeline:
    """A version never changes, so it is read once and not at each slot. A large one takes a while: not for the first time
    inside a transaction."""
    return bind(read(text))


def nameless(pipeline: str, version: str, user: str) -> NewRun:
    """What stands for a run that cannot be made, to note its slot."""
    return NewRun(user, Pipeline(pipeline, {}), "", f"{pipeline}-{version}")
