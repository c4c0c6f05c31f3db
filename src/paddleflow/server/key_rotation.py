"""`paddleflow server rotate-key`: a new key for everything that is encrypted, while no server runs on the database."""

from __future__ import annotations

import asyncio

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Conflict
from paddleflow.server.data_folder import lock_data_folder, server_id
from paddleflow.server.encrypted_columns import ENCRYPTED_COLUMNS
from paddleflow.settings import Settings
from paddleflow.store import servers
from paddleflow.store.connection import open_database
from paddleflow.store.encryption import rotate


def rotate_key(settings: Settings) -> tuple[str, int]:
    """(the id of the new key, how many rows were encrypted anew)."""
    return asyncio.run(_rotate(settings))


async def _rotate(settings: Settings) -> tuple[str, int]:
    data, now = settings.data_folder, SystemClock().now()
    with lock_data_folder(data):
        database = await open_database(settings.database.url, data, durable=True, readers=1)
        try:
            if running := await database.read(servers.running, now, server_id(data)):
                raise Conflict(
                    f"other servers run on this database: {', '.join(running[:5])}",
                    hint="stop them, rotate, copy the key file to each of them and start them again",
                )
            key, count = await rotate(database, settings.encryption, data, ENCRYPTED_COLUMNS, now)
        finally:
            await database.close()
    return key.id, count
