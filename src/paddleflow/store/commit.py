"""Group commit: many small transactions, one wait for the disk.

All functions run inside one transaction and are committed at once, those of one `Batched` function by one call of it. When one fails, all
are undone and run again, each in a savepoint of its own, so that what fails is undone alone: a savepoint costs as much as
a small write, and most groups need none. Both engines share this module: the order of commits is the order of the queue, and it is the same on
SQLite and PostgreSQL. No caller gets its answer before the commit is durable.
"""

from __future__ import annotations

import random
import time
from copy import copy
from typing import Any, Protocol

from paddleflow.errors import PaddleFlowError
from paddleflow.store.database import Batched, Tx
from paddleflow.store.threads import DatabaseCall

ATTEMPTS = 5  #: how often a transaction is tried when the engine says that trying again helps
_PAUSE = 0.02  #: seconds before the second attempt, at most; doubles each time


class Aborted(Exception):
    """The whole transaction is gone, and nothing of it was stored as far as is known."""

    def __init__(self, error: PaddleFlowError, *, again: bool = False, apart: bool = False) -> None:
        """`again`: running it once more may succeed. `apart`: one function is to blame; run each by itself."""
        super().__init__(error.message)
        self.error = error
        self.again = again
        self.apart = apart


class OpenTx(Tx, Protocol):
    """A transaction that remembers its first failed statement, after which it does nothing any more."""

    failure: PaddleFlowError | None


class WriteSession(Protocol):
    """A connection that writes. All methods but `rollback` raise `Aborted` when the transaction is lost."""

    @property
    def tx(self) -> OpenTx: ...

    def begin(self, *, marked: bool, durable: bool) -> None:
        """Start a transaction in which nobody else writes; `marked` sets the first mark, `durable` lets the commit wait
        for the disk."""
        ...

    def mark(self) -> None:
        """What was done so far stays; `undo` goes back to here."""
        ...

    def undo(self) -> None:
        """Back to the last mark, or, without one, to the start."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Let go of whatever is open. Never raises."""
        ...


def commit_group(session: WriteSession, calls: list[DatabaseCall[Any]], attempt: int = 1) -> None:
    """Run all calls and commit once; afterwards each call has its value or its error."""
    tx, batch = session.tx, calls[:1]
    try:
        session.begin(marked=False, durable=any(call.durable for call in calls))
        try:
            for batch in _batches(calls):
                tx.failure = None
                fn, first = batch[0].fn, batch[0]
                if isinstance(fn, Batched):
                    found = fn.many(tx, [call.args[0] for call in batch])
                    for call, value in zip(batch, found, strict=True):
                        call.value, call.error = (None, value) if isinstance(value, PaddleFlowError) else (value, None)
                else:
                    first.value, first.error = fn(tx, *first.args, **first.kwargs), None
                if tx.failure is not None:
                    raise tx.failure
        except BaseException as error:
            if error.__traceback__ is not None:  # our frame would hold the call that holds the error
                error.__traceback__ = error.__traceback__.tb_next
            batch[0].value, batch[0].error = None, error
            session.undo()
            if len(calls) > 1:
                _run_marked(session, calls)
                return
        session.commit()
    except Aborted as aborted:
        _recover(session, calls, aborted, attempt)
    except BaseException:
        session.rollback()
        raise


def _recover(session: WriteSession, calls: list[DatabaseCall[Any]], aborted: Aborted, attempt: int) -> None:
    """The transaction is gone: try again where that may help, and tell the callers otherwise."""
    session.rollback()
    if aborted.apart and len(calls) > 1:
        for call in calls:
            commit_group(session, [call])
    elif aborted.again and attempt < ATTEMPTS:
        # Jitter, so that two servers that got into each other's way do not do so again.
        time.sleep(random.uniform(0, _PAUSE * 2**attempt))  # noqa: S311 - no secret is made of it
        commit_group(session, calls, attempt + 1)
    else:
        for call in calls:
            call.error = copy(aborted.error)  # each caller raises its own
            call.error.__cause__ = aborted.error.__cause__


def _run_marked(session: WriteSession, calls: list[DatabaseCall[Any]]) -> None:
    """Run each call in a savepoint of its own, so that one that fails is undone alone, and commit the rest."""
    session.begin(marked=True, durable=any(call.durable for call in calls))
    for number, call in enumerate(calls):
        if number:
            session.mark()
        call.value, call.error = run_one(session.tx, call)
        if call.error is not None:
            session.undo()
    session.commit()


def _batches(calls: list[DatabaseCall[Any]]) -> list[list[DatabaseCall[Any]]]:
    """The calls in their order; neighbours of one `Batched` function share a list."""
    batches: list[list[DatabaseCall[Any]]] = []
    for call in calls:
        if batches and isinstance(call.fn, Batched) and call.fn is batches[-1][0].fn:
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches


def run_one(tx: OpenTx, call: DatabaseCall[Any]) -> tuple[object, BaseException | None]:
    """Value and error of one call. A failed statement counts even if the function swallowed it: PostgreSQL cannot go on
    after one, so SQLite does not either."""
    tx.failure = None
    try:
        value = call.fn(tx, *call.args, **call.kwargs)
    except BaseException as error:
        return None, error
    return value, tx.failure
