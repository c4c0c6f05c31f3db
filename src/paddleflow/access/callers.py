"""Who calls, and the rule that most of the platform goes by: the owner or root."""

from __future__ import annotations

from paddleflow.base.values import dataclass
from paddleflow.errors import Forbidden

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, according to the token. A route that is open to all gets `NOBODY`."""

    name: str
    root: bool
    scope: str = "admin"  #: of the token: read, submit or admin, or that of a mount (`mount_scope`)
    id: int = 0  #: which user of this name: a later one has another

    @property
    def storage(self) -> str:
        """The id of the one storage whose files the token of a mount is good for; empty: another token."""
        return self.scope.partition(":")[2]


NOBODY = Caller("", False)


#: Scopes of tokens, each of which includes those before it.
SCOPES = {"read": 0, "submit": 1, "admin": 2}


READ_MOUNT, WRITE_MOUNT = "mount-read", "mount-write"


def mount_scope(storage: str, *, read_only: bool) -> str:
    """The scope of a token for the files of one storage."""
    return f"{READ_MOUNT if read_only else WRITE_MOUNT}:{storage}"


def require_scope(caller: Caller, scope: str, what: str) -> None:
    """Refuse a token that was not made for this. `what` names the act: ``POST /job/single``."""
    if caller.storage:
        raise Forbidden(f"this token is for a mount, {what} needs another one", code="TokenScopeTooSmall")
    if SCOPES[caller.scope] < SCOPES[scope]:
        raise Forbidden(
            f"this token is of scope {caller.scope}, {what} needs {scope}",
            code="TokenScopeTooSmall",
            hint=f"create another one: paddleflow token create NAME --scope {scope}",
        )


def require_mount(caller: Caller, *, changes: bool, what: str) -> None:
    """Refuse a change by the token of a mount that is read-only."""
    if changes and caller.scope.startswith(READ_MOUNT):
        raise Forbidden(f"this token is for a read-only mount, {what} needs another one", code="TokenScopeTooSmall")


def require_storage(caller: Caller, storage: str) -> None:
    """Refuse the token of a mount of another storage."""
    if caller.storage not in ("", storage):
        raise Forbidden(f"this token is for a mount of fs[{caller.storage}], not for fs[{storage}]")


def is_root(name: str) -> bool:
    """Whether this is the administrator's name, in whatever capitals."""
    return name.lower() == ROOT


def require_owner(caller: Caller, owner: str, what: str) -> None:
    """Refuse everybody but the owner and root. `what` names the thing: ``job[job-1]``."""
    if not caller.root and caller.name != owner:
        raise Forbidden(
            f"user[{caller.name}] has no access to {what}",
            code="AccessDenied",
            hint="only its owner and root have access",
        )


def require_root(caller: Caller, what: str) -> None:
    """Refuse everybody but root. `what` names the act: ``create queues``."""
    if not caller.root:
        raise Forbidden(f"user[{caller.name}] may not {what}", code="OnlyRootAllowed", hint="only root may do this")
