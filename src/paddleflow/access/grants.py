"""Grants: what a user may use besides their own things. Only root gives and takes them.

Whether a grant exists is asked by the packages of the resources (`queues`, `storage`) in their own statements; what
deletes a queue, storage or user deletes its grants in the same transaction, so that a new one of the same name does not
inherit them.
"""

from __future__ import annotations

from paddleflow.access import users
from paddleflow.access.callers import is_root
from paddleflow.base.ids import new_short_id
from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Tx
from paddleflow.store.statements import Statement, load

SQL = load("paddleflow.access", "access.sql")

#: resource type → (statement that tells whether such a resource exists, code when it does not)
_RESOURCES: dict[str, tuple[Statement, str]] = {
    "queue": (SQL["queue_exists"], "QueueNameNotFound"),
    "user": (SQL["user_exists"], "UserNotExist"),
    "fs": (SQL["fs_exists"], "FileSystemNotExist"),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """The right of a user to use a resource that is somebody else's."""

    seq: int
    id: str
    user_name: str
    resource_type: str
    resource_id: str
    created_at: float


def add(tx: Tx, user: str, resource_type: str, resource_id: str, now: float) -> str:
    """Let a user use a resource; the grant's id."""
    exists, code = _known(resource_type)
    _refuse_root(user)
    users.require(tx, user)
    if tx.value(exists, id=resource_id) is None:
        hint = f"paddleflow {resource_type} list shows all"
        raise NotFound(f"{resource_type}[{resource_id[:80]}] does not exist", code=code, hint=hint)
    grant_id = new_short_id("grant")
    if not tx.run(
        SQL["add_grant"],
        id=grant_id,
        user_name=user,
        resource_type=resource_type,
        resource_id=resource_id,
        now=now,
    ):
        raise Conflict(
            f"user[{user}] has been granted {resource_type}[{resource_id}] already", code="GrantAlreadyExist"
        )
    bump(tx, NAMED)
    return grant_id


def remove(tx: Tx, user: str, resource_type: str, resource_id: str) -> None:
    """Take a grant back. Resource and user need not exist any more."""
    require(tx, user, resource_type, resource_id)
    tx.run(SQL["remove_grant"], user_name=user, resource_type=resource_type, resource_id=resource_id)
    bump(tx, NAMED)


def require(tx: Tx, user: str, resource_type: str, resource_id: str) -> None:
    """`NotFound` when there is no such grant."""
    _known(resource_type)
    _refuse_root(user)
    if not tx.value(SQL["has_grant"], user_name=user, resource_type=resource_type, resource_id=resource_id):
        raise NotFound(
            f"user[{user[:80]}] has no grant of {resource_type}[{resource_id[:80]}]",
            code="GrantNotFound",
            hint="paddleflow queue grantlist and paddleflow fs grantlist show all",
        )


def list_grants(tx: Tx, user: str, after: int, limit: int) -> list[Grant]:
    """Grants behind the position `after` in order of creation; of one user, or of all when `user` is empty."""
    if user:
        rows = tx.all(SQL["grants_of_after"], user_name=user, after=after, limit=limit)
    else:
        rows = tx.all(SQL["grants_after"], after=after, limit=limit)
    return [Grant(**row) for row in rows]


def _known(resource_type: str) -> tuple[Statement, str]:
    if resource_type not in _RESOURCES:
        raise Invalid(
            f"resourceType[{resource_type[:80]}] is not one of {', '.join(_RESOURCES)}",
            code="GrantResourceTypeNotFound",
            hint=nearest(resource_type[:80], _RESOURCES),
        )
    return _RESOURCES[resource_type]


def _refuse_root(user: str) -> None:
    if is_root(user):
        raise Invalid("root may use everything and needs no grant", code="GrantRootActionNotSupport")
