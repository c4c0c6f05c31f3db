"""Passwords: the rule they must keep, and argon2 in threads so that the event loop never waits for it.

At most two hashes are computed at a time: each takes some 40 ms and 19 MiB on purpose, and a flood of logins must not
take the machine from the jobs.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from paddleflow.errors import Fault

HASHER = PasswordHasher(time_cost=3, memory_cost=19 * 1024, parallelism=1)
_AT_ONCE = 2
T = TypeVar("T")
_RULE = "at least 6 characters, among them a digit and a lower-case letter"

#: The hash of a password that nobody knows, with the parameters above: what a login of an unknown user is compared
#: with, so that it takes as long as a wrong password.
UNKNOWN = "$argon2id$v=19$m=19456,t=3,p=1$iZ+a9OgWaVkpEfbWIHN6cw$2S1I/rB044SqHv4rHP7oKOtiv91w5Fw+XJuXrZzvIjk"


def weakness(password: str) -> Fault | None:
    """What is wrong with a new password; the password itself is never repeated."""
    strong = (
        len(password) >= 6
        and any(letter in "0123456789" for letter in password)
        and any("a" <= letter <= "z" for letter in password)
    )
    return None if strong else Fault("password", f"is too weak, it must have {_RULE}")


def random_password() -> str:
    """A password that keeps the rule and that nobody guesses."""
    while True:
        password = secrets.token_urlsafe(15)
        if weakness(password) is None:
            return password


class Passwords:
    """Hashing and comparing, a bounded number at a time. One per server."""

    def __init__(self, hasher: PasswordHasher = HASHER) -> None:
        self._hasher = hasher
        self._threads = ThreadPoolExecutor(_AT_ONCE, "passwords")  # a login waits for nothing but other logins

    async def hash(self, password: str) -> str:
        return await self._in_thread(self._hasher.hash, password)

    async def matches(self, password_hash: str, password: str) -> bool:
        return await self._in_thread(_matches, self._hasher, password_hash, password)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)


def _matches(hasher: PasswordHasher, password_hash: str, password: str) -> bool:
    try:
        return hasher.verify(password_hash, password)
    except (Argon2Error, InvalidHashError):
        return False
