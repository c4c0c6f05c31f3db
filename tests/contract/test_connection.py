"""The door of the store: what people see when a setting is wrong or a server is not there, and that tables are made once."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from paddleflow.errors import Invalid, Unavailable
from paddleflow.store.connection import FILE, open_bus, open_database
from paddleflow.store.database import Database
from paddleflow.store.migrations import Migration, migrate, packaged
from paddleflow.store.statements import parse
from tests.ports import closed_port

SQL = parse(
    "test_opening.py",
    """
-- name: versions
-- What was applied.
select number, name, checksum, applied_at from schema_versions order by number

-- name: notes
-- Made by the second migration below.
select count(*) as n from notes
""",
)
ONE = Migration(1, "things", "create table things (seq $SEQUENCE, name text not null); -- the first\n")
TWO = Migration(2, "notes", "create table notes (id text primary key);\ninsert into notes (id) values ('100%; -- a');")
BROKEN = Migration(2, "broken", "create table notes (id text primary key); insert into nowhere values (1);")


@pytest.fixture
async def empty(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database without any table of ours."""
    monkeypatch.setattr("paddleflow.store.migrations.packaged", list)
    return await open_database(database_url, tmp_path, durable=False)


async def test_all_packaged_tables_are_made_once_by_any_number_of_servers(database_url: str, tmp_path: Path) -> None:
    opened = await asyncio.gather(*(open_database(database_url, tmp_path) for _ in range(4)))
    rows = await opened[0].read(lambda tx: tx.all(SQL["versions"]))
    for database in opened:
        await database.close()
    assert [(row["number"], row["name"], row["checksum"]) for row in rows] == [
        (migration.number, migration.name, migration.checksum) for migration in packaged()
    ]
    assert all(row["applied_at"] > 1_600_000_000 for row in rows)


async def test_only_what_is_missing_is_applied(empty: Database) -> None:
    assert await migrate(empty, [ONE]) == 1
    assert await migrate(empty, [ONE, TWO]) == 1
    assert await migrate(empty, [ONE, TWO]) == 0
    assert await empty.read(lambda tx: tx.value(SQL["notes"])) == 1
    await empty.close()


async def test_a_file_is_applied_whole_or_not_at_all(empty: Database) -> None:
    with pytest.raises(Exception, match="nowhere"):
        await migrate(empty, [ONE, BROKEN])
    assert [row["number"] for row in await empty.read(lambda tx: tx.all(SQL["versions"]))] == [1]
    assert await migrate(empty, [ONE, TWO]) == 1  # the table of the broken one is gone again
    await empty.close()


async def test_a_changed_file_is_refused_but_a_better_comment_is_not(empty: Database) -> None:
    await migrate(empty, [ONE])
    await migrate(empty, [Migration(1, "things", ONE.text.replace("first", "first one").replace(" name", "\n  name"))])
    with pytest.raises(Invalid, match="0001_things is not the one") as caught:
        await migrate(empty, [Migration(1, "things", ONE.text.replace("not null", ""))])
    assert "new file" in caught.value.hint
    await empty.close()


async def test_a_newer_database_is_refused(empty: Database) -> None:
    await migrate(empty, [ONE, TWO])
    with pytest.raises(Invalid, match="newer code: it has 0002_notes, this code ends at 0001") as caught:
        await migrate(empty, [ONE])
    assert caught.value.hint
    await empty.close()


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@h/n", "nonsense", "postgresql://u:secret@[h/n", "postgresql://u:secret@h/n?what=1"]
)
async def test_a_bad_url_is_said_without_the_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"database\.url") as caught:
        await open_database(url, tmp_path)
    assert "secret" not in caught.value.message
    assert "postgresql://" in caught.value.hint
    with pytest.raises(Invalid, match=r"database\.url"):
        await open_bus(url)


async def test_a_refused_database_is_let_go(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await open_database(database_url, tmp_path)).close()
    monkeypatch.setattr("paddleflow.store.migrations.packaged", list)
    with pytest.raises(Invalid, match="newer code"):
        await open_database(database_url, tmp_path)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("database-")]


async def test_a_missing_driver_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Invalid, match="driver") as caught:
        await open_database("postgresql://u@h/n", tmp_path)
    assert "paddleflow[postgres]" in caught.value.hint


async def test_an_unreachable_server_is_unavailable(tmp_path: Path) -> None:
    with closed_port() as port, pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        await open_database(f"postgresql://u:secret@127.0.0.1:{port}/n", tmp_path)


async def test_no_readers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"database\.readers"):
        await open_database("", tmp_path, readers=0)


async def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("hello, " * 1000)
    with pytest.raises(Exception, match="not a database"):
        await open_database("", tmp_path)


async def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"data folder .*file") as caught:
        await open_database("", tmp_path / "file" / "data")
    assert "server.data" in caught.value.hint


async def test_the_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        database = await open_database("", tmp_path / "new" / "data")
    finally:
        os.umask(old)
    files = list((tmp_path / "new" / "data").iterdir())
    modes = {stat.S_IMODE(file.stat().st_mode) for file in files}
    await database.close()
    assert len(files) == 3
    assert modes == {0o600}
