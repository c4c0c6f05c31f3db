"""User numbers of the platform's users on this machine, for jobs that run isolated: given once, and never to another user.

A folder in the data folder keeps them, a file for each user, so that what a user's jobs left stays theirs. When a user is deleted,
`access.user_folders` renames the file as it does all that is kept by user: the number stays taken, and a later user of the same name
gets another.
"""

from __future__ import annotations

import os
from pathlib import Path

from paddleflow.errors import Unavailable


class UserIds:
    """Names to numbers, from a range that nothing else on the machine uses."""

    def __init__(self, folder: Path, numbers: range) -> None:
        self._folder = folder
        self._numbers = numbers

    def get(self, user: str) -> int:
        """The number of a user; a new one gets the lowest that is free."""
        try:
            return int((self._folder / user).read_text("ascii"))
        except FileNotFoundError:
            return self._give(user)

    def _give(self, user: str) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = {int(file.read_text("ascii")) for file in self._folder.iterdir() if not file.name.startswith(".")}
        number = next((number for number in self._numbers if number not in taken), None)
        if number is None:
            span = f"{self._numbers[0]}-{self._numbers[-1]}"
            raise Unavailable(f"all user numbers in {span} are given to users", hint="widen the setting local.uids")
        fresh = self._folder / f".{os.getpid()}.new"
        fresh.write_text(str(number), "ascii")
        fresh.replace(self._folder / user)
        return number
