"""Reusable results of steps, as rows. Only steps that succeeded have one, written in the transaction of their success."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paddleflow.base.values import dataclass
from paddleflow.errors import NotFound
from paddleflow.runs.artifacts import select
from paddleflow.runs.facts import Fingerprints
from paddleflow.runs.fingerprints import EXPIRED, NOTHING_YET, changed_parts
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.runs", "caches.sql")
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class NewCache:
    """A result to be kept."""

    prints: Fingerprints
    run_id: str
    pipeline: str
    step: str
    job_id: str
    fs_id: str
    fs_name: str
    user_name: str
    expired_time: int
    outputs: Mapping[str, Sequence[str]]  #: artifact → path and hash
    source: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Is there a result for this step?"""

    prints: Fingerprints
    user: str
    fs_id: str
    pipeline: str
    step: str
    most_age: int  #: seconds; -1: any


class Output(NamedTuple):
    """An output of a result that is kept."""

    path: str
    hash: str


@dataclass(frozen=True, slots=True)
class Result:
    """A result that would serve."""

    run_id: str
    job_id: str
    outputs: Mapping[str, Output]


@dataclass(frozen=True, slots=True)
class Found:
    """The results that would serve, newest first; without one, what has changed since the step's last result."""

    results: Sequence[Result] = ()
    misses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CacheRow:
    """A result as it is listed."""

    seq: int
    id: str
    first_fp: str
    second_fp: str
    run_id: str
    source: str
    step: str
    job_id: str
    fs_name: str
    user: str
    expired_time: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class CacheFilter:
    """Which results; everything that is given must hold."""

    users: Sequence[str] = ()
    storages: Sequence[str] = ()
    runs: Sequence[str] = ()


def keep(tx: Tx, found: Iterable[NewCache], now: float) -> None:
    """Write results."""
    for item in found:
        seq = tx.value(
            SQL["insert_cache"],
            id=f"new-{secrets.token_hex(8)}",
            first_fp=item.prints.first,
            second_fp=item.prints.second,
            parts=item.prints.parts,
            run_id=item.run_id,
            source=item.source,
            pipeline=item.pipeline,
            step=item.step,
            job_id=item.job_id,
            fs_id=item.fs_id,
            fs_name=item.fs_name,
            user_name=item.user_name,
            expired_time=item.expired_time,
            outputs=json.dumps({name: list(each) for name, each in item.outputs.items()}),
            at=now,
        )
        tx.run(SQL["name_cache"], seq=seq, id=f"cch-{seq:06}")


def ask(tx: Tx, questions: Sequence[Question], now: float) -> list[Found]:
    """An answer for each question."""
    return [_answer(tx, question, now) for question in questions]


def _answer(tx: Tx, question: Question, now: float) -> Found:
    prints = question.prints
    rows = tx.all(
        SQL["caches_by_fp"],
        first_fp=prints.first,
        second_fp=prints.second,
        user_name=question.user,
        fs_id=question.fs_id,
    )
    fresh = [row for row in rows if _counts(row, question, now)]
    if fresh:
        return Found([_result(row) for row in fresh])
    if rows:
        return Found((), (EXPIRED,))
    last = tx.one(SQL["last_cache_of_step"], user_name=question.user, pipeline=question.pipeline, step=question.step)
    return Found(
        (), (NOTHING_YET,) if last is None else tuple(changed_parts(prints.parts, last["parts"])) or (EXPIRED,)
    )


def _counts(row: Row, question: Question, now: float) -> bool:
    ages = [age for age in (row["expired_time"], question.most_age) if age != FOR_EVER]
    return not ages or row["updated_at"] + min(ages) >= now


def _result(row: Row) -> Result:
    outputs = {name: Output(*each) for name, each in json.loads(row["outputs"]).items()}
    return Result(row["run_id"], row["job_id"], outputs)


def find_caches(tx: Tx, wanted: CacheFilter, before: int, limit: int) -> list[CacheRow]:
    """Results, newest first."""
    columns = (("user_name", wanted.users), ("fs_name", wanted.storages), ("run_id", wanted.runs))
    return [_cache_row(row) for row in select(tx, "run_caches", columns, before, limit)]


def get_cache(tx: Tx, cache: str) -> CacheRow:
    row = tx.one(SQL["cache_by_id"], id=cache)
    if row is None:
        raise NotFound(
            f"run cache[{cache[:80]}] does not exist",
            code="RunCacheNotFound",
            hint="paddleflow run listcache shows all",
        )
    return _cache_row(row)


def _cache_row(row: Row) -> CacheRow:
    return CacheRow(
        seq=row["seq"],
        id=row["id"],
        first_fp=row["first_fp"],
        second_fp=row["second_fp"],
        run_id=row["run_id"],
        source=row["source"],
        step=row["step"],
        job_id=row["job_id"],
        fs_name=row["fs_name"],
        user=row["user_name"],
        expired_time=row["expired_time"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def remove_cache(tx: Tx, cache: str) -> None:
    tx.run(SQL["delete_cache"], id=cache)
