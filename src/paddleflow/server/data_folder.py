"""The server's data folder: who may use it, and the small private files in it.

Guarantees: one server per folder (`lock_data_folder`), the folder readable by its owner only, a private file whole or
not there at all. Called by `running` and `bootstrap`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddleflow.base.ids import new_short_id
from paddleflow.errors import Conflict, Unavailable
from paddleflow.store.private_file import write_private


@contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """One server per data folder: a second one is refused in words."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (data / "server.lock").open("a+")
    except OSError as error:
        raise Unavailable(
            f"data folder {data}: {error.strerror}", hint="choose another with --data or PADDLEFLOW_SERVER_DATA"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            other = file.read().strip() or "unknown"
            raise Conflict(
                f"another server (process {other}) already runs on the data folder {data}",
                hint="stop it, or choose another folder with --data",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def server_id(data: Path) -> str:
    """Names the data folder, not the process: a server that comes after a crash is its own successor at once."""
    file = data / "server-id"
    if not file.exists():
        write_private(file, new_short_id("server"))
    return file.read_text("utf-8").strip()
