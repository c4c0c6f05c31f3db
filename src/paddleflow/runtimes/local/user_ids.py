"""User numbers of the platform's users on this machine, for jobs that run isolated: given once, and never to another name.

A file in the data folder keeps them, so that what a user's jobs left stays theirs. One server writes it.
"""

from __future__ import annotations

import json
from pathlib import Path

from paddleflow.errors import Unavailable


class UserIds:
    """Names to numbers, from a range that nothing else on the machine uses."""

    def __init__(self, file: Path, numbers: range) -> None:
        self._file = file
        self._numbers = numbers
        self._known: dict[str, int] | None = None

    def get(self, user: str) -> int:
        """The number of a user; a new one gets the next."""
        if self._known is None:
            self._known = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        if user not in self._known:
            taken = set(self._known.values())
            number = next((number for number in self._numbers if number not in taken), None)
            if number is None:
                span = f"{self._numbers[0]}-{self._numbers[-1]}"
                raise Unavailable(f"all user numbers in {span} are given to users", hint="widen the setting local.uids")
            self._known[user] = number
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(self._known), "utf-8")
            fresh.replace(self._file)
        return self._known[user]
