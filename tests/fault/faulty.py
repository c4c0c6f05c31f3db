"""A database whose n-th operation fails, for n = 1, 2, 3 … until nothing fails any more.

Operations are each statement, each commit (everything is undone) and each acknowledgement (everything is stored, but
the caller does not hear of it: the hardest of the three). A fault test writes one scenario, with its checks::

    async def scenario(database: FaultyDatabase) -> None:
        try:
            await submit(database, …)
        except Unavailable:
            pass  # the injected fault
        database.heal()
        assert …  # what must hold, however far it got

    await run_until_no_fault(make, scenario)
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from paddleflow.errors import Unavailable
from paddleflow.store.database import Database, Row, Tx, Value
from paddleflow.store.statements import Statement

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 10_000  #: a scenario with more operations than this does not end


class InjectedFault(Unavailable):
    """The failure that the test asked for."""


class FaultyDatabase:
    """Passes everything on to `database`, and fails once, at operation number `fail_at`."""

    def __init__(self, database: Database, fail_at: int) -> None:
        self.dialect = database.dialect
        self.tripped = ""  #: what failed, empty when nothing has
        self._database = database
        self._fail_at = fail_at
        self._count = 0
        self._lock = threading.Lock()

    def heal(self) -> None:
        """Fail no more; for the checks at the end of a scenario."""
        self._fail_at = 0

    def step(self, what: str) -> None:
        """One more operation."""
        with self._lock:
            self._count += 1
            if self._count != self._fail_at:
                return
            self.tripped = what
        raise InjectedFault(f"injected fault at operation {self._fail_at}: {what}")

    async def write(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(self._database.write, lambda tx: fn(tx, *args, **kwargs))

    async def write_soon(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(self._database.write_soon, lambda tx: fn(tx, *args, **kwargs))

    async def _write(self, write: Callable[[Callable[[Tx], T]], Awaitable[T]], fn: Callable[[Tx], T]) -> T:
        def faulty(tx: Tx) -> T:
            value = fn(_FaultyTx(self, tx))
            self.step("commit")
            return value

        value = await write(faulty)
        self.step("acknowledgement")
        return value

    async def read(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda tx: fn(_FaultyTx(self, tx), *args, **kwargs))

    async def peek(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.peek(lambda tx: fn(_FaultyTx(self, tx), *args, **kwargs))

    async def close(self) -> None:
        await self._database.close()


class _FaultyTx:
    def __init__(self, database: FaultyDatabase, tx: Tx) -> None:
        self._database = database
        self._tx = tx
        self._failure: InjectedFault | None = None

    def _step(self, statement: Statement) -> None:
        if self._failure is not None:
            raise self._failure  # as on the real engines: a transaction ends with its first failed statement
        try:
            self._database.step(statement.name)
        except InjectedFault as fault:
            self._failure = fault
            raise

    def all(self, statement: Statement, /, **params: Value) -> list[Row]:
        self._step(statement)
        return self._tx.all(statement, **params)

    def rows(self, record: Callable[..., T], statement: Statement, /, **params: Value) -> list[T]:
        self._step(statement)
        return self._tx.rows(record, statement, **params)

    def one(self, statement: Statement, /, **params: Value) -> Row | None:
        self._step(statement)
        return self._tx.one(statement, **params)

    def value(self, statement: Statement, /, **params: Value) -> Any:
        self._step(statement)
        return self._tx.value(statement, **params)

    def run(self, statement: Statement, /, **params: Value) -> int:
        self._step(statement)
        return self._tx.run(statement, **params)

    def many(self, statement: Statement, rows: Iterable[Mapping[str, Value]], /) -> int:
        self._step(statement)
        return self._tx.many(statement, rows)


async def run_until_no_fault(
    make: Callable[[], AbstractAsyncContextManager[Database]],
    scenario: Callable[[FaultyDatabase], Awaitable[None]],
    postgres_every: int = 1,
) -> int:
    """Run `scenario` on a fresh database of `make` with fault 1, 2, 3 …; the number of the last that was survived.

    A scenario takes long on PostgreSQL, and the faults are the same ones: some of them may do there.
    """
    number = 1
    while True:
        assert number < _MOST, "the scenario has no end"
        async with make() as real:
            every = postgres_every if real.dialect == "postgres" else 1
            database = FaultyDatabase(real, number)
            try:
                await scenario(database)
            except BaseException as error:
                error.add_note(f"with fault {number}: {database.tripped or 'not reached'}")
                raise
        if not database.tripped:
            return number - every
        number += every


async def killed_at_random_awaits(
    rng: random.Random, life: Callable[[], Awaitable[None]], *, lives: int, awaits: int
) -> None:
    """Up to so many lives, each cancelled at any of its first awaits."""
    for _ in range(rng.randint(1, lives)):
        task = asyncio.ensure_future(life())
        for _ in range(rng.randint(1, awaits)):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
