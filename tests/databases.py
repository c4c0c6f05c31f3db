"""Real databases for the tests, on each engine. Loaded as a plugin by ``tests/conftest.py``."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from paddleflow.store.connection import open_database
from paddleflow.store.database import Database

#: Opens a new, empty, migrated database each time it is called.
MakeDatabase = Callable[[], AbstractAsyncContextManager[Database]]

_ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def _url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("postgres_url_factory")()
    return url


@pytest.fixture(params=_ENGINES)
def database_url(request: pytest.FixtureRequest) -> str:
    """The setting ``database.url`` for each engine; the database behind it is empty."""
    return _url(request)


@pytest.fixture
async def database(database_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """An open database with all tables, without waiting for the disk."""
    opened = await open_database(database_url, tmp_path, durable=False)
    yield opened
    await opened.close()


@pytest.fixture(params=_ENGINES)
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDatabase:
    """A fresh one per scenario."""
    numbers = itertools.count()

    @asynccontextmanager
    async def make() -> AsyncIterator[Database]:
        database = await open_database(_url(request), tmp_path / f"database-{next(numbers)}", durable=False)
        try:
            yield database
        finally:
            await database.close()

    return make
