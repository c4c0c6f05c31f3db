"""Users: the rules, as transactions. Root is a user like the others, but is neither listed nor deleted."""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.access.callers import ROOT, is_root
from paddleflow.access.passwords import weakness
from paddleflow.base import names
from paddleflow.errors import Conflict, Fault, Forbidden, Invalid, NotFound
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "access.sql")


def canonical(name: str) -> str:
    """The name as it is stored: root's in lower case, others as they are."""
    return ROOT if is_root(name) else name


def check_new(name: str, password: str) -> None:
    """Refuse a name or password that no user may have, both at once."""
    faults: list[Fault] = []
    if wrong := names.USER.fault(name):
        faults.append(Fault("username", wrong))
    code = "InvalidNamePattern" if faults else "UserPasswordWeak"
    if weak := weakness(password):
        faults.append(weak)
    if faults:
        raise Invalid.of(faults, code=code)


def check_password(password: str) -> None:
    if weak := weakness(password):
        raise Invalid.of([weak], code="UserPasswordWeak")


def add(tx: Tx, name: str, password_hash: str, now: float) -> None:
    """A new user; Forbidden UserNameDuplicated when there is one of this name."""
    if not tx.run(SQL["add_user"], name=canonical(name), password_hash=password_hash, now=now):
        raise Forbidden(f"user[{name}] exists already", code="UserNameDuplicated", hint="choose another name")


def by_name(tx: Tx, name: str) -> Row | None:
    """The user's row with ``password_hash``, or None."""
    return tx.one(SQL["user_by_name"], name=canonical(name))


def require(tx: Tx, name: str) -> Row:
    """The user's row; NotFound UserNotExist otherwise."""
    row = by_name(tx, name)
    if row is None:
        raise unknown(name)
    return row


def unknown(name: str) -> NotFound:
    return NotFound(
        f"user[{name[:80]}] does not exist", code="UserNotExist", hint="paddleflow user list shows those there are"
    )


def after(tx: Tx, position: int, limit: int) -> Sequence[Row]:
    """Users but root behind a position, in order of creation."""
    return tx.all(SQL["users_after"], after=position, limit=limit)


def set_password(tx: Tx, name: str, password_hash: str, now: float) -> None:
    """Another password: every token of the user ends, and failed logins are forgotten."""
    stored = canonical(name)
    if not tx.run(SQL["set_password"], name=stored, password_hash=password_hash, now=now):
        raise unknown(name)
    tx.run(SQL["remove_tokens_of"], user_name=stored)
    tx.run(SQL["remove_failures_of"], user_name=stored)


def remove(tx: Tx, name: str) -> None:
    """Delete a user with tokens, grants and records of storages (their files stay), so that a later user of the same
    name inherits nothing. Refused for root, and while jobs of the user have not ended."""
    if is_root(name):
        raise Forbidden("root cannot be deleted", code="ActionNotAllowed")
    require(tx, name)
    active = tx.value(SQL["active_jobs_of"], name=name)
    if active:
        raise Conflict(
            f"user[{name}] has {active} job(s) that have not ended",
            code="ActionNotAllowed",
            hint="stop them or wait for their end, then delete the user",
        )
    tx.run(SQL["remove_tokens_of"], user_name=name)
    tx.run(SQL["remove_grants_of"], user_name=name)
    tx.run(SQL["remove_grants_on"], resource_type="user", resource_id=name)
    tx.run(SQL["remove_grants_on_storages_of"], user_name=name)
    tx.run(SQL["remove_storages_of"], user_name=name)
    tx.run(SQL["remove_failures_of"], user_name=name)
    tx.run(SQL["remove_user"], name=name)
    bump(tx, NAMED)
