"""PostgreSQL behind the `Database` protocol: for several servers on one truth.

**One writer at a time, everywhere.** Each writing transaction first takes one advisory lock, which all servers of the
database share, then runs in READ COMMITTED. Every statement after the lock therefore sees all that was committed before
and nothing changes under it: writes are as serial as on SQLite, with no write skew and nothing to repeat. The event log
needs this anyway: its positions must become visible in order, or a follower would step over one that is committed late.
SERIALIZABLE would keep the first promise but not the second, and would make long transactions starve among short ones.
What is lost, parallel commits, comes back by group commit (see `commit`): the lock is held once per batch, not per
function. A server that dies while holding the lock is cut off by ``idle_in_transaction_session_timeout``.

**Lost connections.** Before the commit was sent nothing can have been stored: the batch is run again on a new
connection. When the connection breaks during the commit itself, the new one asks for the fate of the old transaction
(``pg_xact_status``): so a write is neither lost nor done twice, and is `Unavailable` only if nobody can be asked.

Reads run in REPEATABLE READ, READ ONLY: one snapshot each. This module alone knows psycopg, which is an extra.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, LiteralString, NoReturn, ParamSpec, TypeVar, cast

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from paddleflow.errors import Conflict, Internal, Invalid, PaddleFlowError, Unavailable
from paddleflow.store.commit import Aborted, commit_group, run_one
from paddleflow.store.database import Row, Value
from paddleflow.store.statements import Statement
from paddleflow.store.threads import DatabaseCall, WorkerThreads

P = ParamSpec("P")
T = TypeVar("T")
Connection = psycopg.Connection[Row]

_AT_ONCE = 64  #: most functions in one commit; fewer than on SQLite because each statement is a message to and fro
_LOCK = "pg_advisory_xact_lock(123563598441573)"  #: of all writers; the number is "paddle" in ASCII
SETTLE_SECONDS = 10.0  #: how long the fate of a transaction is asked for after its connection was lost

#: Unless the url says otherwise.
_DEFAULTS = {
    "application_name": "paddleflow",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_SETTINGS = (
    "set idle_in_transaction_session_timeout = '15s'; "  # a server that died must not keep the writers' lock
    "set lock_timeout = '30s'; "
    "set timezone = 'UTC'"
)
_BEGIN_WRITE: LiteralString = (
    "begin isolation level read committed; select " + _LOCK + "; select pg_current_xact_id()::text as xid"
)
_BEGIN_READ: LiteralString = "begin isolation level repeatable read, read only"
_FATE: LiteralString = "select pg_xact_status(%(xid)s::text::xid8) as fate"

_PASSWORD = re.compile(r":[^:@/]*@")  #: in a url that the driver quotes back

#: Trying again helps: serialization failure, deadlock, a plan made before another server changed the table.
_AGAIN = ("40001", "40P01", "0A000")
#: Codes, or classes of them, that mean "not now": connection, read-only standby, resources, locks, operator, system.
_UNAVAILABLE = ("08", "25006", "53", "55P03", "57", "58")


def open_postgres(url: str, *, readers: int, settle: float = SETTLE_SECONDS) -> PostgresDatabase:
    """Connect to a server; blocks until it has answered. `settle`: how long the fate of a transaction is asked for."""
    info = conninfo(url)
    writer = Reconnector(info)
    try:
        writer.get()
    except psycopg.Error as error:
        raise meaning(error) from error
    return PostgresDatabase(writer, [Reconnector(info) for _ in range(readers)], settle)


def conninfo(url: str) -> str:
    """The url with our defaults for what it does not say."""
    try:
        return make_conninfo("", **{**_DEFAULTS, **conninfo_to_dict(url)})
    except psycopg.Error as error:
        said = _PASSWORD.sub(":***@", str(error).strip())
        raise Invalid(f"database.url: {said}", hint="use postgresql://user:password@host/name") from None


class PostgresDatabase:
    """An open PostgreSQL database; see `Database` for what it promises."""

    dialect = "postgres"

    def __init__(self, writer: Reconnector, readers: list[Reconnector], settle: float) -> None:
        self._links = [writer, *readers]
        session = _Session(writer, settle)
        self._writer = WorkerThreads("database-writer", [partial(commit_group, session)], at_once=_AT_ONCE)
        self._readers = WorkerThreads("database-reader", [_reader(link) for link in readers], at_once=1)
        self.write, self.write_soon = self._writer.run, self._writer.run_soon
        self.read = self.peek = self._readers.run

    async def close(self) -> None:
        await self._writer.close()
        await self._readers.close()
        for link in self._links:
            link.drop()


class Reconnector:
    """A connection in which transactions are begun and ended by us; made anew after it was lost."""

    def __init__(self, info: str) -> None:
        self._info = info
        self._connection: Connection | None = None

    def get(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.Connection.connect(self._info, autocommit=True, row_factory=dict_row)
            self._connection.prepare_threshold = 1
            self._connection.prepared_max = 1024
            self._connection.adapters.register_loader("numeric", _Number)
            self._connection.adapters.register_dumper(bool, _Truth)
            try:
                self._connection.execute(_SETTINGS)
            except psycopg.Error:
                self.drop()
                raise
        return self._connection

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Number(Loader):
    """Sums come as ``numeric``; rows look the same on both engines, so they become int or float."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


class _Truth(Dumper):
    """Booleans are kept as the integers 0 and 1, as on SQLite."""

    oid = 21  # int2, which fits every integer column

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class PostgresTx:
    """The `Tx` of one link, used for one transaction after the other. It never connects by itself: a statement that
    ran on a new connection would stand outside the transaction."""

    def __init__(self) -> None:
        self.failure: PaddleFlowError | None = None
        self.connection: Connection | None = None

    def all(self, statement: Statement, /, **params: Value) -> list[Row]:
        return self._execute(statement, params).fetchall()

    def rows(self, record: Callable[..., T], statement: Statement, /, **params: Value) -> list[T]:
        return [record(**row) for row in self.all(statement, **params)]

    def one(self, statement: Statement, /, **params: Value) -> Row | None:
        return self._execute(statement, params).fetchone()

    def value(self, statement: Statement, /, **params: Value) -> Any:
        row = self._execute(statement, params).fetchone()
        return None if row is None else next(iter(row.values()))

    def run(self, statement: Statement, /, **params: Value) -> int:
        return max(0, self._execute(statement, params).rowcount)

    def many(self, statement: Statement, rows: Iterable[Mapping[str, Value]], /) -> int:
        if self.failure is not None:
            raise self.failure
        assert self.connection is not None
        try:
            cursor = self.connection.cursor()
            cursor.executemany(statement.postgres, cast(Iterable[Mapping[str, Any]], rows))
            return max(0, cursor.rowcount)
        except (psycopg.Error, UnicodeError) as error:
            self._fail(error)

    def _execute(self, statement: Statement, params: dict[str, Value]) -> psycopg.Cursor[Row]:
        if self.failure is not None:
            raise self.failure
        assert self.connection is not None
        try:
            return self.connection.execute(statement.postgres, params)
        except (psycopg.Error, UnicodeError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        self.failure = meaning(error)
        raise self.failure from error


class _Session:
    """The writing connection, as `commit` wants it."""

    def __init__(self, link: Reconnector, settle: float) -> None:
        self.tx = PostgresTx()
        self._link = link
        self._settle_seconds = settle
        self._marked = False
        self._xid = ""

    def begin(self, *, marked: bool, durable: bool) -> None:
        self._marked = marked
        try:
            self.tx.connection = self._link.get()
        except psycopg.Error as error:
            # No server: say so at once rather than let everybody wait. A code means that one had answered.
            raise _aborted(error, again=bool(_code(error))) from error
        begin: LiteralString = _BEGIN_WRITE
        if not durable:
            begin += "; set local synchronous_commit = off"
        cursor = self._control(begin + "; savepoint mark" if marked else begin)
        cursor.nextset()  # one message, three results or more: begin, the lock, our number
        cursor.nextset()
        row = cursor.fetchone()
        assert row is not None
        self._xid = row["xid"]

    def mark(self) -> None:
        self._control("release mark; savepoint mark")

    def undo(self) -> None:
        failure = self.tx.failure
        if failure is not None and (self._lost() or _code(failure.__cause__) in _AGAIN):
            raise Aborted(failure, again=True)
        self._control("rollback to mark" if self._marked else "rollback")

    def commit(self) -> None:
        connection = self._connection()
        if connection.info.transaction_status == pq.TransactionStatus.IDLE and not connection.closed:
            return  # the only function was undone
        try:
            said = connection.execute("commit", prepare=False).statusmessage
        except psycopg.Error as error:
            if not self._lost():
                raise _aborted(error, again=_code(error) in _AGAIN) from error
            self._settle(error)
        else:
            assert said == "COMMIT", said

    def rollback(self) -> None:
        self._link.drop()  # a new connection cannot fail to roll back, and has forgotten the plans of the old one

    def _settle(self, error: psycopg.Error) -> None:
        """The connection broke while committing: ask on a new one what became of the transaction."""
        deadline = time.monotonic() + self._settle_seconds
        while time.monotonic() < deadline:
            self._link.drop()
            try:
                row = self._link.get().execute(_FATE, {"xid": self._xid}).fetchone()
            except psycopg.OperationalError:
                row = None
            except psycopg.Error:
                break  # another server, or one that went back in time: it does not know this transaction
            fate = row and row["fate"]
            if fate == "committed":
                return
            if fate == "aborted":
                raise Aborted(meaning(error), again=True) from error
            time.sleep(0.1)
        unknown = Unavailable(
            f"PostgreSQL: the connection was lost during a commit, which may or may not have been stored: {error}"
        )
        raise Aborted(unknown) from error

    def _connection(self) -> Connection:
        assert self.tx.connection is not None
        return self.tx.connection

    def _lost(self) -> bool:
        return self._connection().closed

    def _control(self, sql: LiteralString) -> psycopg.Cursor[Row]:
        try:
            return self._connection().execute(sql, prepare=False)
        except psycopg.Error as error:
            raise _aborted(error, again=self._lost() or _code(error) in _AGAIN) from error


def _reader(link: Reconnector) -> Callable[[list[DatabaseCall[Any]]], None]:
    tx = PostgresTx()

    def serve(calls: list[DatabaseCall[Any]]) -> None:
        for call in calls:
            if not attempt(call):
                attempt(call)  # the connection was lost while idle; a read may always be repeated

    def attempt(call: DatabaseCall[Any]) -> bool:
        call.value, call.error = None, None
        try:
            tx.connection = link.get()
            tx.connection.execute(_BEGIN_READ)
            call.value, call.error = run_one(tx, call)
            if not tx.connection.closed:
                tx.connection.execute("rollback")
        except psycopg.Error as error:
            call.error = meaning(error)
            call.error.__cause__ = error
        again = tx.connection is None or tx.connection.closed or _code(call.error and call.error.__cause__) in _AGAIN
        if again:
            link.drop()
        return not again

    return serve


def _aborted(error: psycopg.Error, *, again: bool) -> Aborted:
    said = meaning(error)
    said.__cause__ = error
    # A constraint that is only checked at the commit is the fault of one function, not of all of them.
    return Aborted(said, again=again, apart=isinstance(error, psycopg.IntegrityError))


def _code(error: BaseException | None) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def meaning(error: Exception) -> PaddleFlowError:
    """Our word for a fault of the driver or the server."""
    if isinstance(error, UnicodeError | psycopg.DataError):
        return Invalid(f"a value cannot be stored: {error}")
    said = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.UniqueViolation):
        columns = (error.diag.message_detail or "").partition("(")[2].partition(")")[0]
        table = error.diag.table_name
        return Conflict(
            ", ".join(f"{table}.{column}" for column in columns.split(", ")) + " exists already", code="DuplicatedName"
        )
    code = _code(error)
    if code.startswith(_UNAVAILABLE) or (not code and isinstance(error, psycopg.OperationalError)):
        return Unavailable(f"PostgreSQL: {said}", hint="check that the server runs and database.url is right")
    if code.startswith(("28", "3D000", "42501")):  # password, database name, rights: also what a person can mend
        return Unavailable(f"PostgreSQL: {said}", hint="check user, password and database in database.url")
    return Internal(f"PostgreSQL: {said}")
