"""The metadata cache of a mounted store, on disk: one row for each name that is known, in an SQLite file of the cache folder.

So the memory of a client does not grow with the number of names, a worker that takes over has nothing to load, and the next mount of
the same cache folder begins with what this one knew. Rows of an earlier mount are *unconfirmed*: they hold if the store lists the same
version. A row is written before the kernel is told of its number, and numbers never come back.

The file is a cache: after a crash of the machine it starts empty; where it is damaged, or the disk is full, it continues in memory.
Called by `meta.Nodes`.
"""

# The statements are put together of constants.
# ruff: noqa: S608

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
LAYOUT = 1
MOST_ROWS = 5_000_000  #: beyond, a tenth goes, those that were made first
CHUNK = 1_000  #: rows that are read or written at once
UNCONFIRMED = -1.0  #: `checked_at` of a row whose attributes hold if the store has the same version
_CACHE = 8_000  #: KiB of the file that SQLite keeps in memory
_COLUMNS = (
    "id, parent, name, mode, uid, gid, size, atime, mtime, ctime, modified_at, checked_at, listed_at, tag, more, kept"
)
_SCHEMA = """
create table if not exists nodes (
    id integer primary key, parent integer not null, name text not null, mode integer not null,
    uid integer not null, gid integer not null, size integer not null, atime integer not null, mtime integer not null,
    ctime integer not null, modified_at real not null, checked_at real not null, listed_at real not null,
    tag text not null, more blob not null, kept integer not null,
    session integer not null, round integer not null
);
create unique index if not exists nodes_by_name on nodes (parent, name);
create index if not exists nodes_not_asked on nodes (parent) where checked_at = 0;
create table if not exists about (boot text not null, session integer not null, clean integer not null);
"""


class Row(NamedTuple):
    """What is known of a name."""

    id: int
    parent: int
    name: str
    mode: int
    uid: int
    gid: int
    size: int
    atime: int
    mtime: int
    ctime: int
    modified_at: float
    checked_at: float
    listed_at: float
    tag: str
    more: bytes  #: target of a link and extended attributes
    kept: int  #: whether the kernel may have its content cached


class Index:
    """Rows by number, and by folder and name. May be called from many threads."""

    def __init__(self, path: Path, *, again: bool, keep: bool) -> None:
        """`again`: a worker takes over. Otherwise the file of an earlier mount is used if `keep` says so and it is sound."""
        self._lock = threading.RLock()
        self._path, self._keep, self._in_memory = path, keep, False
        self._rounds = time.time_ns()
        if not again and not (keep and _is_sound(path)):
            _remove(path)
        try:
            self._start(str(path), again)
        except sqlite3.Error:  # damaged where `_is_sound` does not look
            _remove(path)
            try:
                self._start(str(path), again)
            except sqlite3.Error as error:
                log.warning("names are kept in memory: %s cannot be used: %s", path, error)
                self._in_memory = True
                self._start(":memory:", again)

    def _start(self, where: str, again: bool) -> None:
        self._connection = self._open(where)
        try:
            self._session = self._begin(again)
            self._next = max(int(time.time() * 1000) << 20, self._value("select coalesce(max(id), 0) from nodes"))
            self._count = self._value("select count(*) from nodes")  #: at most so many
        except sqlite3.Error:
            self._connection.close()
            raise

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, cached_statements=64)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = off")  # survives the end of the process, and need not survive more
            connection.execute(f"pragma cache_size = -{_CACHE}")
            connection.execute("pragma journal_size_limit = 16777216")
            connection.executescript(_SCHEMA)
            connection.execute(f"pragma user_version = {LAYOUT}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _begin(self, again: bool) -> int:
        known = self._connection.execute("select session from about").fetchone()
        session = int(known[0]) if known and again else time.time_ns()
        self._connection.execute("delete from about")
        self._connection.execute("insert into about values (?, ?, 0)", (_boot(), session))
        return session

    def _value(self, statement: str) -> int:
        return int(self._connection.execute(statement).fetchone()[0])

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.DatabaseError as error:
                if self._in_memory:
                    raise
                log.warning("names are kept in memory from now on: %s", error)
                self._leave_disk()
                return work(self._connection)

    def _leave_disk(self) -> None:
        """Go on in memory, with what can still be read. The next mount begins anew."""
        with suppress(sqlite3.Error):
            self._connection.execute("rollback")
        fresh = self._open(":memory:")
        try:
            self._connection.backup(fresh)
            fresh.execute("pragma quick_check").fetchone()
        except sqlite3.Error:  # what is asked for again is asked of the store again
            fresh.close()
            fresh = self._open(":memory:")
        with suppress(sqlite3.Error):
            self._connection.close()
        _remove(self._path)
        self._connection, self._in_memory = fresh, True

    def __len__(self) -> int:
        with self._lock:
            return self._value("select count(*) from nodes")

    def new_number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def new_round(self) -> int:
        """Of a listing: what it does not see is gone."""
        with self._lock:
            self._rounds += 1
            return self._rounds

    def _row(self, found: tuple[object, ...]) -> Row:
        row = Row(*found[:-1])  # type: ignore[arg-type]  # the columns have these types
        if found[-1] == self._session:
            return row
        return row._replace(checked_at=UNCONFIRMED if row.checked_at else 0.0, listed_at=0.0, kept=0)

    def get(self, number: int) -> Row | None:
        found = self._run(
            lambda c: c.execute(f"select {_COLUMNS}, session from nodes where id = ?", (number,)).fetchone()
        )
        return None if found is None else self._row(found)

    def find(self, parent: int, name: str) -> Row | None:
        words = f"select {_COLUMNS}, session from nodes where parent = ? and name = ?"
        found = self._run(lambda c: c.execute(words, (parent, name)).fetchone())
        return None if found is None else self._row(found)

    def find_many(self, parent: int, names: Sequence[str]) -> dict[str, Row]:
        marks = ",".join("?" * len(names))
        words = f"select {_COLUMNS}, session from nodes where parent = ? and name in ({marks})"
        found = self._run(lambda c: c.execute(words, (parent, *names)).fetchall())
        return {row.name: row for row in map(self._row, found)}

    def children(self, parent: int) -> Iterator[Row]:
        """By name, read as they are asked for."""
        words = f"select {_COLUMNS}, session from nodes where parent = ? and name > ? order by name limit {CHUNK}"
        after = ""
        while found := self._run(lambda c, after=after: c.execute(words, (parent, after)).fetchall()):  # type: ignore[misc]  # mypy does not know the default
            for each in found:
                yield self._row(each)
            if len(found) < CHUNK:
                return
            after = found[-1][2]

    def between(self, parent: int, first: int, last: int) -> list[Row]:
        """Those children of a folder that have these numbers, in their order."""
        # the plus keeps SQLite from looking through the whole folder
        words = f"select {_COLUMNS}, session from nodes where id between ? and ? and +parent = ? order by id"
        return [self._row(each) for each in self._run(lambda c: c.execute(words, (first, last, parent)).fetchall())]

    def has_unasked(self, parent: int) -> bool:
        """Whether there are names whose attributes are not known."""
        words = "select 1 from nodes where parent = ? and checked_at = 0 limit 1"
        return self._run(lambda c: c.execute(words, (parent,)).fetchone()) is not None

    def put(self, rows: Iterable[Row], round: int = 0) -> None:
        """Write rows, in place of those with the same number, or the same name in the same folder."""
        marks = ",".join("?" * (len(Row._fields) + 2))
        words = f"insert or replace into nodes ({_COLUMNS}, session, round) values ({marks})"
        values = [(*row, self._session, round) for row in rows]

        def write(connection: sqlite3.Connection) -> int:
            if len(values) == 1:
                connection.execute(words, values[0])
            else:
                connection.execute("begin")
                connection.executemany(words, values)
                connection.execute("commit")
            return 0

        self._run(write)
        self._count += len(values)
        if self._count > MOST_ROWS:
            self._shrink()

    def confirm(self, numbers: Iterable[int], round: int, now: float) -> None:
        """The store lists these as they are known."""
        words = "update nodes set checked_at = ?, round = ?, session = ?, listed_at = case when session = ? then listed_at else 0 end where id = ?"  # fmt: skip
        values = [(now, round, self._session, self._session, number) for number in numbers]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("begin")
            connection.executemany(words, values)
            connection.execute("commit")

        self._run(write)

    def unseen(self, parent: int, round: int, began: float) -> list[int]:
        """Names that a listing did not see, and that nobody has made since it began."""
        words = "select id from nodes where parent = ? and round <> ? and (checked_at < ? or session <> ?)"
        values = (parent, round, began, self._session)
        return [found[0] for found in self._run(lambda c: c.execute(words, values).fetchall())]

    def remove(self, numbers: Sequence[int]) -> None:
        words = "delete from nodes where id = ?"

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("begin")
            connection.executemany(words, [(number,) for number in numbers])
            connection.execute("commit")

        self._run(write)
        self._count = max(0, self._count - len(numbers))

    def _shrink(self) -> None:
        """Forget names: what is asked for again is asked of the store again."""

        def write(connection: sqlite3.Connection) -> int:
            self._count = self._value("select count(*) from nodes")
            if self._count > MOST_ROWS:
                connection.execute("delete from nodes where id in (select id from nodes where mode & 61440 <> 16384 order by id limit ?)", (MOST_ROWS // 10,))  # fmt: skip
                connection.execute("update nodes set listed_at = 0 where listed_at > 0")
                self._count = self._value("select count(*) from nodes")
            return 0

        self._run(write)

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            self._connection.execute("update about set clean = 1")
            self._connection.close()
        if not self._keep:
            _remove(self._path)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _is_sound(path: Path) -> bool:
    """Whether the file of an earlier mount can be used: it is ours, and the machine has not crashed since."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
        try:
            (layout,) = connection.execute("pragma user_version").fetchone()
            boot, clean = connection.execute("select boot, clean from about").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, TypeError, OSError):
        return False
    return bool(layout == LAYOUT and (clean or boot == _boot()))


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()
