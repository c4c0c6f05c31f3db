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
from typing import Protocol

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


class Session(Protocol):
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


def commit_group(session: Session, calls: list[DatabaseCall]) -> None:
    """Run all calls and commit once; afterwards each call has its value or its error."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _run(session, calls)
            return
        except Aborted as aborted:
            session.rollback()
            if aborted.apart and len(calls) > 1:
                for call in calls:
                    commit_group(session, [call])
                return
            if not aborted.again or attempt == ATTEMPTS:
                for call in calls:
                    call.error = copy(aborted.error)  # each caller raises its own
                    call.error.__cause__ = aborted.error.__cause__
                return
        except BaseException:
            session.rollback()
            raise
        # Jitter, so that two servers that got into each other's way do not do so again.
        time.sleep(random.uniform(0, _PAUSE * 2**attempt))  # noqa: S311 - no secret is made of it


def _run(session: Session, calls: list[DatabaseCall]) -> None:
    durable = any(call.durable for call in calls)
    session.begin(marked=False, durable=durable)
    if all(_run_batch(session, batch) for batch in _batches(calls)) or len(calls) == 1:
        session.commit()
        return
    session.begin(marked=True, durable=durable)
    for number, call in enumerate(calls):
        if number:
            session.mark()
        _run_alone(session, call)
    session.commit()


def _batches(calls: list[DatabaseCall]) -> list[list[DatabaseCall]]:
    """The calls in their order; neighbours of one `Batched` function share a list."""
    batches: list[list[DatabaseCall]] = []
    for call in calls:
        if batches and isinstance(call.fn, Batched) and call.fn is batches[-1][0].fn:
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches


def _run_batch(session: Session, batch: list[DatabaseCall]) -> bool:
    """Run a batch; whether it succeeded. A call that was refused in words has left nothing to undo."""
    fn = batch[0].fn
    if not isinstance(fn, Batched):
        return _run_alone(session, batch[0])
    whole = DatabaseCall(fn.many, ([call.args[0] for call in batch],), {})
    if not _run_alone(session, whole):
        batch[0].error = whole.error
        return False
    for call, found in zip(batch, whole.value, strict=True):
        call.value, call.error = (None, found) if isinstance(found, PaddleFlowError) else (found, None)
    return True


def _run_alone(session: Session, call: DatabaseCall) -> bool:
    """Run one call; whether it succeeded: what it did is undone when it fails."""
    call.value, call.error = run_one(session.tx, call)
    if call.error is not None:
        session.undo()
    return call.error is None


def run_one(tx: OpenTx, call: DatabaseCall) -> tuple[object, BaseException | None]:
    """Value and error of one call. A failed statement counts even if the function swallowed it: PostgreSQL cannot go on
    after one, so SQLite does not either."""
    tx.failure = None
    try:
        value = call.run(tx)
    except BaseException as error:
        return None, error
    return value, tx.failure
