"""Users: the rules, as transactions. Root is a user like the others, but is neither listed nor deleted."""

from __future__ import annotations

from paddleflow.access import secrets
from paddleflow.access.callers import ROOT, is_root
from paddleflow.access.passwords import weakness
from paddleflow.base import names
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Fault, Forbidden, Invalid, NotFound
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "access.sql")
#: What keeps a user from being deleted, and the statement that counts it.
ACTIVE = {"jobs": "active_jobs_of", "runs": "active_runs_of", "schedules": "active_schedules_of"}
#: What stays when a user is deleted, under a name that nobody can have.
REASSIGN = (
    "reassign_jobs", "reassign_runs", "reassign_artifacts", "reassign_caches", "reassign_pipelines", "reassign_versions",
    "reassign_schedules", "reassign_links", "reassign_cache_settings",
)  # fmt: skip
#: What goes. The storages come last: others are found by them.
REMOVE = (
    "remove_tokens_of", "remove_grants_of", "remove_grants_on_user", "remove_grants_on_storages_of", "remove_links_of",
    "remove_cache_settings_of", "remove_mounts_of", "remove_node_caches_of", "remove_storages_of", "remove_failures_of",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may log in. `seq` is who it is: a later user of the same name has another one."""

    seq: int
    name: str
    created_at: float
    password_hash: str = ""  #: only where it is asked for
    updated_at: float = 0.0


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
    if not is_root(name):  # a request of an earlier user of this name may have come to its end after the deletion
        _part_with(tx, name, f"{name}~before{require(tx, name).seq}")


def by_name(tx: Tx, name: str) -> User | None:
    row = tx.one(SQL["user_by_name"], name=canonical(name))
    return User(**row) if row else None


def require(tx: Tx, name: str) -> User:
    """The user; NotFound UserNotExist otherwise."""
    user = by_name(tx, name)
    if user is None:
        raise unknown(name)
    return user


def unknown(name: str) -> NotFound:
    return NotFound(f"user[{name[:80]}] does not exist", code="UserNotExist", hint="paddleflow user list shows all")


def list_users(tx: Tx, after: int, limit: int) -> list[User]:
    """Users but root behind a position, in order of creation."""
    return tx.rows(User, SQL["users_after"], after=after, limit=limit)


def set_password(tx: Tx, name: str, password_hash: str, now: float) -> None:
    """Another password: every token of the user ends, and failed logins are forgotten."""
    stored = canonical(name)
    if not tx.run(SQL["set_password"], name=stored, password_hash=password_hash, now=now):
        raise unknown(name)
    tx.run(SQL["remove_tokens_of"], user_name=stored)
    tx.run(SQL["remove_failures_of"], user_name=stored)


def remove(tx: Tx, name: str, now: float) -> None:
    """Delete a user with tokens, grants, secrets and records of storages.

    Jobs, runs, pipelines and all else that tells what happened stay for root, under ``<name>~<seq>``, which no user can
    be called, and so do files (`user_folders`): a later user of the same name inherits nothing. Refused for root, and while anything of the user is active.
    """
    if is_root(name):
        raise Forbidden("root cannot be deleted", code="ActionNotAllowed")
    user = require(tx, name)
    counts = {what: tx.value(SQL[statement], name=name) for what, statement in ACTIVE.items()}
    active = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if active:
        raise Conflict(
            f"user[{name}] has {active} that have not ended",
            code="ActionNotAllowed",
            hint="stop them or wait for their end, then delete the user; those of others on storages of the user count, too",
        )
    _part_with(tx, name, f"{name}~{user.seq}")
    tx.run(SQL["note_former_user"], name=name, former=f"{name}~{user.seq}", now=now)
    tx.run(SQL["remove_user"], name=name)
    bump(tx, NAMED)


def _part_with(tx: Tx, name: str, former: str) -> None:
    """Nothing is left under a name."""
    for statement in REASSIGN:
        tx.run(SQL[statement], name=name, former=former)
    for statement in REMOVE:
        tx.run(SQL[statement], user_name=name)
    secrets.remove_all(tx, name)
