"""Connecting to the store: from a setting to an open database whose tables are those of this code.

The composition root and the tests call `open_database` and `open_bus`; nobody else names an engine.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

from paddleflow.errors import Invalid, Unavailable
from paddleflow.store.bus import Bus, LocalBus
from paddleflow.store.database import Database
from paddleflow.store.migrations import migrate
from paddleflow.store.sqlite import open_sqlite

FILE = "paddleflow.db"

_SCHEMES = ("postgresql://", "postgres://")


async def open_database(url: str, data: Path, *, durable: bool = True, readers: int = 2) -> Database:
    """The database of `url`, or for an empty one ``paddleflow.db`` in `data`, brought up to date.

    `Invalid`: the url is wrong, PostgreSQL's driver is not installed, or the tables are not this code's.
    `Unavailable`: the file or the server cannot be used now.
    """
    if readers < 1:
        raise Invalid(f"database.readers must be at least 1, found {readers}")
    if url:
        database = await asyncio.to_thread(_open_server, url, readers)
    else:
        database = _open_file(data, durable, readers)
    try:
        await migrate(database)
    except BaseException:
        await database.close()
        raise
    return database


async def open_bus(url: str) -> Bus:
    """The bus that goes with the database of `url`: within this process, or between all servers of a PostgreSQL."""
    if not url:
        return LocalBus()
    _check_server(url)
    from paddleflow.store.postgres_bus import PostgresBus  # late for the same reason as the database

    return await asyncio.to_thread(PostgresBus, url)


def _open_file(data: Path, durable: bool, readers: int) -> Database:
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"data folder {data}: {error.strerror}", hint="set server.data to a folder of yours"
        ) from error
    return open_sqlite(data / FILE, durable=durable, readers=readers)


def _open_server(url: str, readers: int) -> Database:
    _check_server(url)
    from paddleflow.store.postgres import open_postgres  # its driver is an extra that need not be there

    return open_postgres(url, readers=readers)


def _check_server(url: str) -> None:
    """`Invalid` unless the url is one of PostgreSQL and its driver is installed."""
    if not url.startswith(_SCHEMES):
        scheme = url.partition("://")[0] if "://" in url else url
        raise Invalid(
            f"database.url: {scheme!r} is not a kind of database known here",
            hint="leave it empty for SQLite, or use postgresql://user:password@host/name",
        )
    try:
        import_module("psycopg")
    except ImportError as error:
        raise Invalid(
            f"database.url names PostgreSQL, but its driver cannot be loaded: {error}",
            hint="pip install 'paddleflow[postgres]'",
        ) from error
