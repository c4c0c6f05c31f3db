"""Runs as schedules make them: which ones have not ended, and the run of a slot. Called by ``engine.firing``."""

from __future__ import annotations

from functools import lru_cache

from paddleflow.runs import demands, pipelines
from paddleflow.runs.model import NewRun, RunStatus
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.positions import Places
from paddleflow.spec.pipeline.run_request import bind
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "scheduled.sql")


def active(tx: Tx, schedule: str, user: str) -> list[tuple[str, bool]]:
    """(run, whether it was told to stop) of all of its owner's that have not ended, oldest first."""
    rows = tx.all(SQL["active_of_schedule"], schedule_id=schedule, user_name=user)
    return [(row["id"], row["status"] == RunStatus.TERMINATING) for row in rows]


def new_run(tx: Tx, pipeline: str, version: str, user: str) -> NewRun:
    """What a run of a registered version is made of, except for its schedule; refused as a person's would be."""
    text = document(tx, pipeline, version)
    new = NewRun(user=user, pipeline=bound_document(text), document=text, source=f"{pipeline}-{version}")
    return demands.require_all(tx, new, Places(text))


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
