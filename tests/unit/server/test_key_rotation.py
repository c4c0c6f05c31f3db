"""`paddleflow server rotate-key` on a data folder: a new key for all values, and a refusal while a server runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from paddleflow.access import secrets
from paddleflow.base.clock import SystemClock
from paddleflow.server.data_folder import lock_data_folder
from paddleflow.server.encrypted_columns import ENCRYPTED_COLUMNS
from paddleflow.settings import EncryptionSettings
from paddleflow.store import servers
from paddleflow.store.connection import open_database
from paddleflow.store.database import Database
from paddleflow.store.encryption import FILE, Keyring, open_keyring
from tests.patience import PATIENCE

SETTINGS = EncryptionSettings()


async def keyring(database: Database, data: Path) -> Keyring:
    return await open_keyring(database, SETTINGS, data, ENCRYPTED_COLUMNS, SystemClock().now())


async def store_secret(data: Path) -> None:
    database = await open_database("", data, durable=False)
    now = SystemClock().now()
    await database.write(secrets.seal, await keyring(database, data), "alice", "token", "s3cret", now)
    await database.close()


async def read_secret(data: Path) -> str:
    database = await open_database("", data, durable=False)
    try:
        keys = await keyring(database, data)
        [row] = await database.read(lambda tx: tx.all(secrets.SQL["page_of_secrets"], after="", limit=10))
        return secrets.SealedValue(row["id"], row["token"]).open(keys)
    finally:
        await database.close()


async def announce(data: Path) -> None:
    database = await open_database("", data, durable=False)
    await database.write(servers.announce, "server-other", "http://10.0.0.2:8999", SystemClock().now())
    await database.close()


def rotate(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paddleflow", "server", "rotate-key", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_values_are_readable_with_the_new_key_only(tmp_path: Path) -> None:
    asyncio.run(store_secret(tmp_path))
    before = (tmp_path / FILE).read_text("ascii")
    done = rotate(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(": 1\n")
    assert (tmp_path / FILE).read_text("ascii") != before
    assert asyncio.run(read_secret(tmp_path)) == "s3cret"


def test_it_waits_for_no_server(tmp_path: Path) -> None:
    asyncio.run(store_secret(tmp_path))
    before = (tmp_path / FILE).read_text("ascii")
    with lock_data_folder(tmp_path):
        done = rotate(tmp_path)
    assert (done.returncode, "already runs on the data folder" in done.stderr) == (1, True), done.stderr
    asyncio.run(announce(tmp_path))
    done = rotate(tmp_path)
    assert (done.returncode, "other servers run on this database: http://10.0.0.2:8999" in done.stderr) == (1, True)
    assert (tmp_path / FILE).read_text("ascii") == before
