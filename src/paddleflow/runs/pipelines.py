"""Registered pipelines and their versions: a document under a name, for runs and schedules to name.

Transactions only; who may do what and whether a document is good is decided before, in ``api.pipelines``. A version never
changes. Numbers of versions count the deleted ones too, so that one number never means two documents. That a running
schedule uses a version is known to another package: the caller asks it and refuses (`Conflict`) in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.store.conditions import Conditions
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "pipelines.sql")
_ID = re.compile(r"ppl-(\d{6,18})", re.ASCII)
_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Registered:
    """A pipeline as it is registered."""

    seq: int
    name: str
    description: str
    user: str
    versions: int  #: ever made
    created_at: float
    updated_at: float

    @property
    def id(self) -> str:
        return f"ppl-{self.seq:06}"


@dataclass(frozen=True, slots=True)
class Version:
    """One document of a registered pipeline."""

    seq: int
    pipeline: str  #: id
    number: int
    fs_name: str
    yaml_path: str
    yaml: str
    user: str
    created_at: float

    @property
    def id(self) -> str:
        return str(self.number)


@dataclass(frozen=True, slots=True)
class Text:
    """A document that was checked, and where it came from."""

    name: str  #: that the document gives itself
    yaml: str
    fs_name: str = ""
    yaml_path: str = ""


def create(tx: Tx, text: Text, description: str, user: str, now: float) -> tuple[Registered, Version]:
    """Register a document as version 1 of a new pipeline; `Conflict` when the user has one of that name."""
    seq = tx.value(SQL["insert_pipeline"], name=text.name, description=description, user_name=user, at=now)
    if seq is None:
        raise Conflict(
            f"CreatePipeline failed: user[{user}] already has pipeline[{text.name}], cannot create again, use update instead!",
            code="DuplicatedName",
            hint="add a version to it with paddleflow pipeline update, or choose another name",
        )
    _insert_version(tx, seq, 1, text, user, now)
    registered = _get(tx, seq)
    return registered, get_version(tx, registered, "1")


def add_version(
    tx: Tx, pipeline: Registered, text: Text, description: str | None, user: str, now: float
) -> tuple[Registered, Version]:
    """One more version; the document must give itself the pipeline's name. No description: it stays as it is."""
    if text.name != pipeline.name:
        raise Invalid(
            f"update pipeline failed, pplname[{text.name[:128]}] in yaml not the same as [{pipeline.name}] of"
            f" pipeline[{pipeline.id}]",
            hint=f"write name: {pipeline.name}, or create a new pipeline",
        )
    kept = pipeline.description if description is None else description
    number = tx.value(SQL["count_version"], seq=pipeline.seq, description=kept, at=now)
    _insert_version(tx, pipeline.seq, number, text, user, now)
    return _get(tx, pipeline.seq), get_version(tx, pipeline, str(number))


def _insert_version(tx: Tx, seq: int, number: int, text: Text, user: str, now: float) -> None:
    tx.run(
        SQL["insert_version"],
        pipeline=seq,
        number=number,
        fs_name=text.fs_name,
        yaml_path=text.yaml_path,
        yaml=text.yaml,
        user_name=user,
        at=now,
    )


def _get(tx: Tx, seq: int) -> Registered:
    row = tx.one(SQL["pipeline_by_seq"], seq=seq)
    assert row is not None
    return registered_of(row)


def find(tx: Tx, id: str) -> Registered | None:
    match = _ID.fullmatch(id)
    row = tx.one(SQL["pipeline_by_seq"], seq=int(match[1])) if match else None
    found = registered_of(row) if row else None
    return found if found is not None and found.id == id else None


def get(tx: Tx, id: str) -> Registered:
    """The pipeline of this id, or `NotFound`."""
    found = find(tx, id)
    if found is None:
        raise NotFound(
            f"pipeline[{id[:80]}] does not exist",
            code="PipelineNotFound",
            hint="paddleflow pipeline list shows all; an id looks like ppl-000001",
        )
    return found


def get_version(tx: Tx, pipeline: Registered, version: str = "") -> Version:
    """One version; empty: the newest. `NotFound` names those there are."""
    if not version:
        row = tx.one(SQL["latest_version"], pipeline=pipeline.seq)
    else:
        good = _NUMBER.fullmatch(version)
        row = tx.one(SQL["version_by_number"], pipeline=pipeline.seq, number=int(version)) if good else None
    if row is None:
        there = [str(item["number"]) for item in tx.all(SQL["version_numbers"], pipeline=pipeline.seq)]
        raise NotFound(
            f"pipeline[{pipeline.id}] has no version[{version[:80]}]",
            code="PipelineNotFound",
            hint=nearest(version, there),
        )
    return version_of(row)


def list_pipelines(
    tx: Tx, after: int, limit: int, *, users: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Registered]:
    """Pipelines behind the position `after`, oldest first."""
    where = Conditions()
    where.add("seq > :after", after=after)
    where.one_of("user_name", users)
    where.one_of("name", names)
    statement = where.statement("select * from pipelines", "order by seq limit :limit")
    return [registered_of(row) for row in tx.all(statement, limit=limit, **where.params)]


def list_versions(
    tx: Tx, pipeline: Registered, after: int, limit: int, *, fs_names: Sequence[str] = ()
) -> list[Version]:
    """Versions behind the position `after`, oldest first."""
    where = Conditions()
    where.add("pipeline = :pipeline and seq > :after", pipeline=pipeline.seq, after=after)
    where.one_of("fs_name", fs_names)
    statement = where.statement("select * from pipeline_versions", "order by seq limit :limit")
    return [version_of(row) for row in tx.all(statement, limit=limit, **where.params)]


def delete(tx: Tx, pipeline: Registered) -> None:
    """Take it away with its versions; runs keep their copy of the text."""
    tx.run(SQL["delete_versions"], pipeline=pipeline.seq)
    tx.run(SQL["delete_pipeline"], seq=pipeline.seq)


def delete_version(tx: Tx, pipeline: Registered, version: Version, now: float) -> None:
    """Take one version away, but not the last one."""
    if len(tx.all(SQL["version_numbers"], pipeline=pipeline.seq)) == 1:
        raise Conflict(
            f"delete pipeline[{pipeline.id}] version[{version.id}] failed: it is the only version",
            hint=f"delete the whole pipeline: paddleflow pipeline delete {pipeline.id}",
        )
    tx.run(SQL["delete_version"], pipeline=pipeline.seq, number=version.number)
    tx.run(SQL["touch_pipeline"], seq=pipeline.seq, at=now)


def registered_of(row: Row) -> Registered:
    return Registered(
        seq=row["seq"],
        name=row["name"],
        description=row["description"],
        user=row["user_name"],
        versions=row["versions"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def version_of(row: Row) -> Version:
    return Version(
        seq=row["seq"],
        pipeline=f"ppl-{row['pipeline']:06}",
        number=row["number"],
        fs_name=row["fs_name"],
        yaml_path=row["yaml_path"],
        yaml=row["yaml"],
        user=row["user_name"],
        created_at=row["created_at"],
    )
