"""Rules of the access room that need no database."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from paddleflow.access import tokens, users
from paddleflow.access.callers import Caller, is_root, require_owner, require_root
from paddleflow.access.passwords import UNKNOWN, Passwords, random_password, weakness
from paddleflow.errors import Forbidden, Invalid


@given(st.text(max_size=12))
def test_the_rule_for_passwords(password: str) -> None:
    strong = len(password) >= 6 and bool(re.search("[0-9]", password)) and bool(re.search("[a-z]", password))
    assert (weakness(password) is None) == strong


def test_random_passwords_keep_the_rule_and_differ() -> None:
    made = {random_password() for _ in range(200)}
    assert len(made) == 200
    assert all(weakness(password) is None for password in made)


async def test_the_hash_for_unknown_users_costs_what_a_real_one_costs() -> None:
    real = await Passwords().hash("paddleflow1")
    assert real.split("$")[:4] == UNKNOWN.split("$")[:4]
    assert [len(part) for part in real.split("$")] == [len(part) for part in UNKNOWN.split("$")]


async def test_passwords_match_or_not() -> None:
    passwords = Passwords()
    stored = await passwords.hash("pässword1")
    assert "pässword1" not in stored
    assert await passwords.matches(stored, "pässword1")
    assert not await passwords.matches(stored, "pässword2")
    assert not await passwords.matches("not a hash", "pässword1")
    assert not await passwords.matches("", "pässword1")


async def test_the_loop_goes_on_while_passwords_are_hashed() -> None:
    """The hash ends only when the loop says so."""
    go_on = threading.Event()

    class Hasher(PasswordHasher):
        def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
            return str(password) if go_on.wait(60) else "the loop stood still"

    async with asyncio.TaskGroup() as group:
        hashing = group.create_task(Passwords(Hasher()).hash("paddleflow1"))
        await asyncio.sleep(0)
        go_on.set()
    assert hashing.result() == "paddleflow1"


@given(st.text(max_size=80))
def test_digests_are_hex_and_say_nothing_of_the_token(token: str) -> None:
    assert re.fullmatch("[0-9a-f]{64}", tokens.digest(token))
    assert tokens.digest(token) != tokens.digest(token + "x")


@pytest.mark.parametrize("name", ["root", "ROOT", "rOOt"])
def test_root_in_any_capitals(name: str) -> None:
    assert is_root(name)
    assert users.canonical(name) == "root"
    assert users.canonical("Alice") == "Alice"


def test_owners_and_root_pass() -> None:
    require_owner(Caller("alice", False), "alice", "job[j]")
    require_owner(Caller("root", True), "alice", "job[j]")
    with pytest.raises(Forbidden, match=r"user\[bobby\] has no access to job\[j\]") as caught:
        require_owner(Caller("bobby", False), "alice", "job[j]")
    assert caught.value.code == "AccessDenied"
    require_root(Caller("root", True), "create queues")
    with pytest.raises(Forbidden) as refused:
        require_root(Caller("bobby", False), "create queues")
    assert refused.value.code == "OnlyRootAllowed"


def test_a_new_user_is_checked_in_full() -> None:
    users.check_new("alice", "secret1")
    with pytest.raises(Invalid) as caught:
        users.check_new("x", "y")
    assert [fault.where for fault in caught.value.details] == ["username", "password"]
    assert "y" not in caught.value.details[1].message.split()
