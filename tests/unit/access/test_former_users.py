"""A deleted user leaves nothing that a later user of the same name has: in no table, and in no folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddleflow.access import users
from paddleflow.access.user_folders import UIDS, UserFolders
from paddleflow.errors import Unavailable
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database, Tx, Value
from paddleflow.store.statements import compose

#: What a row must say to be of something that has ended.
SAID = {"user_name": "alice", "fs_id": "fs-alice-data", "resource_id": "fs-alice-data", "resource_type": "fs"}
ENDED = {"jobs": "succeeded", "runs": "succeeded", "schedules": "stopped"}
#: History, which only root reads, by the moment that it tells.
HISTORY = {"audit", "former_users"}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database("", tmp_path, durable=False)
    await opened.write(users.add, "alice", "", 1.0)
    yield opened
    await opened.close()


def tables(tx: Tx) -> dict[str, list[str]]:
    """The columns of every table."""
    names = [row["name"] for row in tx.all(compose("select name from sqlite_master where type = 'table'"))]
    return {name: [row["name"] for row in tx.all(compose(f"pragma table_info({name})"))] for name in names}


def fill(tx: Tx) -> set[str]:
    """A row of alice's in every table that names users or storages; the tables."""
    filled = set()
    for table, columns in tables(tx).items():
        if table in HISTORY or not {"user_name", "fs_id"} & set(columns):
            continue
        values: dict[str, Value] = {}
        for row in tx.all(compose(f"pragma table_info({table})")):
            name = str(row["name"])
            if name == "seq" or not (row["notnull"] or row["pk"]):
                continue
            values[name] = SAID.get(name, f"{table}-{name}" if row["type"].lower() == "text" else 1)
        if "id" in values:
            values["id"] = "fs-alice-data" if table == "filesystems" else f"{table}-1"
        if table in ENDED:
            values["status"] = ENDED[table]
        marks = ", ".join(f":{name}" for name in values)
        tx.run(compose(f"insert into {table} ({', '.join(values)}) values ({marks})"), **values)
        filled.add(table)
    return filled


def left(tx: Tx) -> list[str]:
    """Tables that still name alice."""
    return [
        table
        for table, columns in tables(tx).items()
        if table not in HISTORY | {"users"} and "user_name" in columns
        and tx.value(compose(f"select count(*) from {table} where user_name = 'alice'"))
    ]  # fmt: skip


def of_storage(tx: Tx) -> list[str]:
    """Tables of storages that still name the one of alice's."""
    return [
        table
        for table, columns in tables(tx).items()
        if table.startswith("fs_") and tx.value(compose(f"select count(*) from {table} where fs_id = 'fs-alice-data'"))
    ]


async def test_no_table_names_a_deleted_user(database: Database) -> None:
    """Also one that comes later: every table with a column of users is filled."""
    filled = await database.write(fill)
    assert {"jobs", "runs", "pipelines", "schedules", "secrets", "tokens", "grants", "fs_links"} <= filled
    await database.write(users.remove, "alice", 2.0)
    assert (await database.read(left), await database.read(of_storage)) == ([], [])


async def test_what_came_after_the_deletion_is_not_the_next_users_either(database: Database) -> None:
    """A request that was under way when its user was deleted may write afterwards."""
    await database.write(users.remove, "alice", 2.0)
    await database.write(fill)
    await database.write(users.add, "alice", "", 3.0)
    assert (await database.read(left), await database.read(of_storage)) == ([], [])


async def test_folders_of_a_deleted_user_are_moved_aside_once(database: Database, tmp_path: Path) -> None:
    folders = [tmp_path / "storage", tmp_path / "shared"]
    for folder in folders:
        (folder / "alice").mkdir(parents=True)
        (folder / "alice" / "file").write_text("hers")
    await database.write(users.remove, "alice", 2.0)
    await UserFolders(database, folders).follow()
    await database.write(users.add, "alice", "", 3.0)
    for folder in folders:
        assert [path.name for path in folder.iterdir() if path.is_dir()] == ["alice~1"]
        (folder / "alice").mkdir()
    await UserFolders(database, folders).follow()  # after a restart, or on another server
    assert (folders[0] / "alice").is_dir()
    await database.write(users.remove, "alice", 4.0)
    await UserFolders(database, folders).follow()
    assert sorted(path.name for path in folders[1].iterdir() if path.is_dir()) == ["alice~1", "alice~2"]


async def test_the_number_of_a_deleted_user_stays_its_own(database: Database, tmp_path: Path) -> None:
    (tmp_path / UIDS).mkdir()
    (tmp_path / UIDS / "alice").write_text("10")
    await database.write(users.remove, "alice", 2.0)
    await UserFolders(database, [tmp_path / UIDS]).follow()
    assert not (tmp_path / UIDS / "alice").exists()
    assert (tmp_path / UIDS / "alice~1").read_text() == "10"


async def test_a_folder_that_cannot_be_moved_is_said(database: Database, tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("not a folder")
    await database.write(users.remove, "alice", 2.0)
    folders = UserFolders(database, [tmp_path / "storage"])
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot be moved aside"):
            await folders.follow()
