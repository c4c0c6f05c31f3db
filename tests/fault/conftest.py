"""A fresh database per scenario, on each engine."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from paddleflow.store.database import Database
from paddleflow.store.opening import open_database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def make_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[Database]]:
    """Opens a new, empty, migrated database each time it is called."""
    numbers = itertools.count()

    @asynccontextmanager
    async def make() -> AsyncIterator[Database]:
        url = request.getfixturevalue("postgres_url_factory")() if request.param == "postgres" else ""
        database = await open_database(url, tmp_path / f"database-{next(numbers)}", durable=False)
        try:
            yield database
        finally:
            await database.close()

    return make
