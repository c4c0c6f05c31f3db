"""Folders that are named after users: what a deleted user left in them is moved aside, as its rows are.

`users.remove` renames a user in all rows to a name that nobody can have, and notes it. Each server does the same with the folders
that it keeps by user (storages, environments, code, user numbers): when a user is deleted or made, before a storage is made, at its start and now and
then. A folder remembers in `MARK` up to where that was done, so that it is done once, by whichever of the servers that share it.
"""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Sequence
from pathlib import Path

from paddleflow.access.users import SQL
from paddleflow.base.log import Log
from paddleflow.base.values import dataclass
from paddleflow.errors import PaddleFlowError, Unavailable
from paddleflow.store.database import Database, Tx

MARK = ".former-users"
UIDS = "uids"  #: folder in the data folder: for each user a file with its user number on this machine
EVERY = 5.0  #: seconds between two looks at what other servers deleted
log = Log("users")


@dataclass(frozen=True, slots=True)
class FormerUser:
    seq: int
    name: str
    former: str


def former_users(tx: Tx, after: int) -> list[FormerUser]:
    """Who was deleted since, in that order."""
    return tx.rows(FormerUser, SQL["former_users_after"], after=after)


class UserFolders:
    """The folders of this server that have one folder for each user."""

    def __init__(self, database: Database, folders: Sequence[Path]) -> None:
        self._database = database
        self._folders = folders
        self._seen = 0  #: deletions that all folders have followed, as far as this process knows
        self._turn = asyncio.Lock()

    async def follow(self) -> None:
        """Move aside what deleted users left; `Unavailable` when that cannot be done: nobody may get their names then."""
        async with self._turn:
            found = await self._database.read(former_users, self._seen)
            if found:
                everybody = found if self._seen else await self._database.read(former_users, 0)
                for folder in self._folders:
                    await asyncio.to_thread(_follow, folder, everybody)
                self._seen = found[-1].seq

    async def follow_for_ever(self) -> None:
        while True:
            try:
                await self.follow()
            except PaddleFlowError as error:
                log.warning("what deleted users left was not moved aside", reason=str(error))
            await asyncio.sleep(EVERY)


def _follow(folder: Path, formers: Sequence[FormerUser]) -> None:
    """In a thread."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / MARK).open("a+") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            mark.seek(0)
            done = int(mark.read() or 0)
            for each in formers:
                if each.seq > done:
                    _move(folder / each.name, folder / each.former)
            mark.truncate(0)
            mark.write(str(max(done, formers[-1].seq)))
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"folders of deleted users in {folder} cannot be moved aside: {error}", hint="fix that, then try again"
        ) from error


def _move(old: Path, new: Path) -> None:
    if old.exists() and not new.exists():
        old.rename(new)
