"""Records of artifacts: what steps read and made, who made it, and what it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound
from paddleflow.store.conditions import Conditions
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "artifacts.sql")
INPUT = "input"
OUTPUT = "output"
MOST_LINEAGE = 500  #: artifacts of one answer


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """A record to be written."""

    run_id: str
    fs_id: str
    fs_name: str
    user_name: str
    path: str
    step: str
    job_id: str
    kind: str
    name: str
    hash: str = ""
    size: int = 0
    meta: str = ""


@dataclass(frozen=True, slots=True)
class ArtifactFilter:
    """Which records; everything that is given must hold."""

    users: Sequence[str] = ()
    storages: Sequence[str] = ()
    runs: Sequence[str] = ()
    kinds: Sequence[str] = ()
    paths: Sequence[str] = ()


def note(tx: Tx, found: Iterable[NewArtifact], now: float) -> None:
    """Write records."""
    rows: list[dict[str, Value]] = [{**asdict(item), "at": now} for item in found]
    if rows:
        tx.many(SQL["insert_artifact"], rows)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A record as it was written."""

    seq: int
    run_id: str
    fs_id: str
    fs_name: str
    user: str
    path: str
    step: str
    job_id: str
    kind: str
    name: str
    hash: str
    size: int
    meta: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Lineage:
    """What lies at a path: who made it (None: no step that is known), and what that was made of."""

    path: str
    name: str
    maker: Artifact | None = None
    inputs: Sequence[Lineage] = ()


def _artifact(row: Row) -> Artifact:
    return Artifact(
        seq=row["seq"],
        run_id=row["run_id"],
        fs_id=row["fs_id"],
        fs_name=row["fs_name"],
        user=row["user_name"],
        path=row["path"],
        step=row["step"],
        job_id=row["job_id"],
        kind=row["kind"],
        name=row["name"],
        hash=row["hash"],
        size=row["size"],
        meta=row["meta"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def artifacts_of_run(tx: Tx, run: str) -> list[Artifact]:
    """What all steps of a run read and made, in order."""
    return [_artifact(row) for row in tx.all(SQL["artifacts_of_run"], run_id=run)]


def find_artifacts(tx: Tx, wanted: ArtifactFilter, before: int, limit: int) -> list[Artifact]:
    """Records, newest first."""
    columns = (
        ("user_name", wanted.users),
        ("fs_name", wanted.storages),
        ("run_id", wanted.runs),
        ("kind", wanted.kinds),
        ("path", wanted.paths),
    )
    return [_artifact(row) for row in select(tx, "artifacts", columns, before, limit)]


def select(tx: Tx, table: str, columns: Iterable[tuple[str, Sequence[str]]], before: int, limit: int) -> list[Row]:
    """Rows of a table, newest first, whose columns have one of the given values; a column without values does not count."""
    where = Conditions()
    if before:
        where.add("seq < :before", before=before)
    for column, given in columns:
        where.one_of(column, given)
    statement = where.statement(f"select * from {table}", "order by seq desc limit :limit")  # noqa: S608 names of ours
    return tx.all(statement, limit=limit, **where.params)


def remove_artifact(tx: Tx, fs_id: str, run: str, path: str) -> None:
    """The records of a path in a run; its files are the caller's business."""
    if not tx.run(SQL["delete_artifact"], fs_id=fs_id, run_id=run, path=path):
        raise NotFound(
            f"artifact[{path[:200]}] of run[{run}] does not exist",
            code="ArtifactEventNotFound",
            hint="paddleflow artifact list -o wide shows all paths",
        )


def lineage(tx: Tx, fs_id: str, path: str) -> Lineage:
    """Which step made what lies at a path, and what that was made of, back to what no step made."""
    left = [MOST_LINEAGE]

    def trace(name: str, path: str, above: frozenset[str]) -> Lineage:
        makers = tx.all(SQL["artifact_makers"], fs_id=fs_id, path=path)
        left[0] -= 1
        if not makers or path in above or left[0] < 0:
            return Lineage(path, name)
        maker = _artifact(makers[0])
        around = tx.all(SQL["artifacts_of_step"], run_id=maker.run_id, step=maker.step)
        inputs = [
            trace(row["name"], each, above | {path})
            for row in around
            if row["kind"] == INPUT
            for each in row["path"].split(",")
        ]
        return Lineage(maker.path, maker.name, maker, inputs)

    return trace("", path, frozenset())


def require_artifact(tx: Tx, fs_id: str, path: str) -> None:
    """Refuse a path that is no artifact and lies in none."""
    place = path.strip("/")
    while place:
        if tx.value(SQL["artifact_known"], fs_id=fs_id, path=place) is not None:
            return
        place = place.rpartition("/")[0]
    raise NotFound(
        f"artifact[{path[:200]}] does not exist",
        code="ArtifactEventNotFound",
        hint="paddleflow artifact list -o wide shows all paths",
    )
