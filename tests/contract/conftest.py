"""An open, migrated database on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddleflow.store.database import Database
from paddleflow.store.opening import open_database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The setting ``database.url`` for each engine; the database behind it is empty."""
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("postgres_url_factory")()
    return url


@pytest.fixture
async def database(database_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """An open database with all tables, without waiting for the disk."""
    opened = await open_database(database_url, tmp_path, durable=False)
    yield opened
    await opened.close()
