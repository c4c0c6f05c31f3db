"""SQLite behind the `Database` protocol: one file, one thread that writes, some that read.

* Writes are group-committed (see `commit`) inside ``BEGIN IMMEDIATE``: there is one writer at a time, in this process
  because there is one thread, between processes because SQLite says so.
* Each read has its own connection and snapshot; readers and the writer do not wait for each other (WAL).
* ``durable`` waits for the disk at each commit of `write` (``synchronous=FULL``); without it, and after `write_soon`, a
  power cut may lose the last commits, a killed process never does.

`connection.open_database` is the only caller.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from paddleflow.errors import Conflict, Internal, Invalid, PaddleFlowError, Unavailable
from paddleflow.store.commit import Aborted, commit_group, run_one
from paddleflow.store.database import Row, Tx, Value
from paddleflow.store.statements import Statement
from paddleflow.store.threads import DatabaseCall, WorkerThreads

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE = 256  #: most functions in one commit: bounds how long the first of them waits for the last
_STATEMENTS = 1024  #: prepared statements kept per connection; more than the project has
_BUSY_SECONDS = 10.0  #: how long a foreign process (a backup, a shell) may hold the file before we give up

_PRAGMAS = (
    "foreign_keys = on",
    "case_sensitive_like = on",  # as PostgreSQL has it
    "temp_store = memory",
    "cache_size = -16384",  # KiB, and only as far as it is used
)
_WRITER_PRAGMAS = (
    "journal_mode = wal",
    "wal_autocheckpoint = 4000",  # pages: a checkpoint every 16 MB rather than every 4
    "journal_size_limit = 67108864",
)

#: Results that mean "not now": the disk, or somebody else's lock. The words are for a person.
_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space; the server goes on by itself"),
    sqlite3.SQLITE_IOERR: ("reading or writing failed", "look at the disk and its free space"),
    sqlite3.SQLITE_READONLY: ("it cannot be written", "check the file's owner, its mode and the mount"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "check the folder's owner and mode"),
    sqlite3.SQLITE_BUSY: ("another process has locked it", "end the program that holds it"),
    sqlite3.SQLITE_LOCKED: ("another process has locked it", "end the program that holds it"),
    sqlite3.SQLITE_NOMEM: ("out of memory", ""),
}
_UNIQUE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
}
#: What the driver raises before SQLite is asked: a lone surrogate, a number beyond 64 bits, an unknown parameter.
_Errors = (sqlite3.Error, UnicodeError, OverflowError)


def open_sqlite(path: Path, *, durable: bool, readers: int) -> SqliteDatabase:
    """Open the file, or make it (readable by its owner only)."""
    connections: list[sqlite3.Connection] = []
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        writer = _connect(path, "rw", (*_WRITER_PRAGMAS, "synchronous = normal"))
        connections.append(writer)
        connections.extend(_connect(path, "ro", ()) for _ in range(readers + 1))
    except (OSError, sqlite3.Error) as error:
        for connection in connections:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise _meaning(error, str(path)) from error
        raise Unavailable(f"database {path}: {error.strerror}", hint="check the folder's owner and mode") from error
    return SqliteDatabase(str(path), writer, connections[1:], durable=durable)


class SqliteDatabase:
    """An open SQLite file; see `Database` for what it promises."""

    dialect = "sqlite"

    def __init__(
        self, file: str, writer: sqlite3.Connection, readers: list[sqlite3.Connection], *, durable: bool
    ) -> None:
        self._closed = False
        self._connections = [*readers, writer]  # the writer last: only it may fold the WAL back into the file
        session = _Session(file, writer, may_wait=durable)
        self._writer = WorkerThreads("database-writer", [partial(commit_group, session)], at_once=_AT_ONCE)
        self.write, self.write_soon = self._writer.run, self._writer.run_soon
        peeker, *others = readers
        self._peek = _reader(file, peeker)
        self._readers = WorkerThreads(
            "database-reader", [_reader(file, connection) for connection in others], at_once=1
        )
        self.read = self._readers.run

    async def peek(self, fn: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Unavailable("database: it is closed")
        call = DatabaseCall(fn, args, kwargs)
        self._peek([call])
        return call.result()

    async def close(self) -> None:
        self._closed = True
        await self._writer.close()
        await self._readers.close()
        for connection in self._connections:
            connection.close()


class SqliteTx:
    """The `Tx` of one connection, used for one transaction after the other."""

    def __init__(self, file: str, connection: sqlite3.Connection) -> None:
        self.failure: PaddleFlowError | None = None
        self._file = file
        self._connection = connection

    def all(self, statement: Statement, /, **params: Value) -> list[Row]:
        names, rows = self._fetch(statement, params)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def rows(self, record: Callable[..., T], statement: Statement, /, **params: Value) -> list[T]:
        names, rows = self._fetch(statement, params)
        if names == getattr(record, "_fields", ())[: len(names)]:  # of a named tuple: four times as fast
            return [record(*row) for row in rows]
        return [record(**dict(zip(names, row, strict=True))) for row in rows]

    def _fetch(self, statement: Statement, params: dict[str, Value]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The names of the columns, and all rows; where there are none, nobody asks for names."""
        cursor = self._execute(statement, params)
        try:
            rows = cursor.fetchall()
        except _Errors as error:
            self._fail(error)
        if not rows:
            return (), []
        return tuple([column[0] for column in cursor.description]), rows

    def one(self, statement: Statement, /, **params: Value) -> Row | None:
        cursor = self._execute(statement, params)
        try:
            row = cursor.fetchone()
        except _Errors as error:
            self._fail(error)
        if row is None:
            return None
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    def value(self, statement: Statement, /, **params: Value) -> Any:
        cursor = self._execute(statement, params)
        try:
            row = cursor.fetchone()
        except _Errors as error:
            self._fail(error)
        return None if row is None else row[0]

    def run(self, statement: Statement, /, **params: Value) -> int:
        return max(0, self._execute(statement, params).rowcount)

    def many(self, statement: Statement, rows: Iterable[Mapping[str, Value]], /) -> int:
        if self.failure is not None:
            raise self.failure
        try:
            return max(0, self._connection.executemany(statement.sqlite, rows).rowcount)
        except _Errors as error:
            self._fail(error)

    def _execute(self, statement: Statement, params: dict[str, Value]) -> sqlite3.Cursor:
        if self.failure is not None:
            raise self.failure
        try:
            return self._connection.execute(statement.sqlite, params)
        except _Errors as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        self.failure = _meaning(error, self._file)
        raise self.failure from error


class _Session:
    """The writing connection, as `commit` wants it."""

    def __init__(self, file: str, connection: sqlite3.Connection, *, may_wait: bool) -> None:
        self.tx = SqliteTx(file, connection)
        self._file = file
        self._connection = connection
        self._marked = False
        self._may_wait = may_wait
        self._waits = False  #: a commit waits for the disk, as the connection is set now

    def begin(self, *, marked: bool, durable: bool) -> None:
        self._marked = marked
        if self._waits != (durable and self._may_wait):
            self._waits = not self._waits
            self._control(f"pragma synchronous = {'full' if self._waits else 'normal'}")
        self._control("begin immediate")
        if marked:
            self._control("savepoint mark")

    def mark(self) -> None:
        self._control("release mark")
        self._control("savepoint mark")

    def undo(self) -> None:
        if not self._marked:
            self.rollback()
        elif self._connection.in_transaction:
            self._control("rollback to mark")
        else:  # on some faults SQLite gives up the whole transaction, not just the statement
            raise Aborted(self.tx.failure or Internal(f"database {self._file}: the transaction was lost"), apart=True)

    def commit(self) -> None:
        if self._marked or self._connection.in_transaction:
            self._control("commit")

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("rollback")

    def _control(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except sqlite3.Error as error:
            meaning = _meaning(error, self._file)
            meaning.__cause__ = error
            # A constraint that is only checked at the commit is the fault of one function, not of all of them.
            raise Aborted(meaning, apart=isinstance(error, sqlite3.IntegrityError)) from error


def _reader(file: str, connection: sqlite3.Connection) -> Callable[[list[DatabaseCall[Any]]], None]:
    tx = SqliteTx(file, connection)

    def serve(calls: list[DatabaseCall[Any]]) -> None:
        for call in calls:
            try:
                connection.execute("begin deferred")
                call.value, call.error = run_one(tx, call)
                if connection.in_transaction:
                    connection.execute("rollback")
            except sqlite3.Error as error:
                call.error = _meaning(error, file)
                call.error.__cause__ = error

    return serve


def _connect(path: Path, mode: str, pragmas: tuple[str, ...]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended by us
        check_same_thread=False,  # opened and closed here, used by one thread
        cached_statements=_STATEMENTS,
    )
    try:
        for pragma in (*_PRAGMAS, *pragmas):
            connection.execute(f"pragma {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _meaning(error: Exception, file: str) -> PaddleFlowError:
    """Our word for a fault of the driver."""
    if isinstance(error, UnicodeError | OverflowError):
        return Invalid(f"a value cannot be stored: {error}")
    code: int = getattr(error, "sqlite_errorcode", 0)
    if code in _UNIQUE:
        return Conflict(f"{str(error).partition(': ')[2]} exists already", code="DuplicatedName")
    reason = _UNAVAILABLE.get(code & 0xFF)
    if reason is not None:
        return Unavailable(f"database {file}: {reason[0]} ({error})", hint=reason[1])
    return Internal(f"database {file}: {error}")
