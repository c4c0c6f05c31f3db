"""Who calls, and the rule that most of the platform goes by: the owner or root."""

from __future__ import annotations

from dataclasses import dataclass

from paddleflow.errors import Forbidden

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, according to the token. A route that is open to all gets `NOBODY`."""

    name: str
    root: bool
    scope: str = "admin"  #: of the token: read, submit or admin


NOBODY = Caller("", False)


#: Scopes of tokens, each of which includes those before it.
SCOPES = {"read": 0, "submit": 1, "admin": 2}


def require_scope(caller: Caller, scope: str, what: str) -> None:
    """Refuse a token that was not made for this. `what` names the act: ``POST /job/single``."""
    if SCOPES[caller.scope] < SCOPES[scope]:
        raise Forbidden(
            f"this token is of scope {caller.scope}, {what} needs {scope}",
            code="TokenScopeTooSmall",
            hint=f"make another one: paddleflow token create NAME --scope {scope}",
        )


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
