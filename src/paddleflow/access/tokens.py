"""Tokens, as transactions: opaque random text, of which only the SHA-256 is kept."""

from __future__ import annotations

import secrets
from hashlib import sha256

from paddleflow.access import users
from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, NotFound
from paddleflow.store.database import Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "access.sql")


def digest(token: str) -> str:
    """What is kept of a token. It has 256 random bits, so a plain hash is enough."""
    return sha256(token.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was given, without its text."""

    user_name: str
    name: str  #: empty: made by a login
    scope: str
    created_at: float
    expires_at: float
    user_id: int = 0  #: which user of this name; only where it is asked for


def issue(
    tx: Tx, user: str, now: float, hours: float, *, name: str = "", scope: str = "admin", made_with: str = ""
) -> str:
    """A new token of an existing user; ones that have run out are removed on the way.

    `made_with`: the text of another token. If that has a name, the new one ends with it.
    """
    owner = users.require(tx, user).name
    token = f"pf-{secrets.token_urlsafe(32)}"
    tx.run(SQL["remove_expired_tokens"], now=now)
    if name and any(each.name == name for each in list_tokens(tx, owner, now)):
        raise Conflict(
            f"token[{name}] of user[{owner}] exists already",
            code="DuplicatedName",
            hint="revoke it, or choose another name",
        )
    tx.run(
        SQL["add_token"],
        hash=digest(token),
        user_name=owner,
        name=name,
        scope=scope,
        made_with=_named(tx, made_with),
        now=now,
        expires_at=now + hours * 3600,
    )
    return token


def _named(tx: Tx, token: str) -> str:
    """The hash of a token that has a name; empty for another one."""
    found = find(tx, digest(token)) if token else None
    return digest(token) if found is not None and found.name else ""


def find(tx: Tx, token_hash: str) -> Token | None:
    """The token of a hash. It may have run out."""
    row = tx.one(SQL["token_by_hash"], hash=token_hash)
    return Token(**row) if row else None


def list_tokens(tx: Tx, user: str, now: float) -> list[Token]:
    """The tokens of a user that have a name and have not run out, oldest first."""
    return tx.rows(Token, SQL["tokens_of"], user_name=user, now=now)


def revoke(tx: Tx, user: str, name: str) -> None:
    if not tx.run(SQL["remove_named_token"], user_name=user, name=name):
        raise NotFound(
            f"user[{user}] has no token[{name[:80]}]",
            code="TokenNotFound",
            hint="paddleflow token list shows all",
        )


def extend(tx: Tx, token_hash: str, expires_at: float) -> None:
    """It counts for longer; one that is gone stays gone."""
    tx.run(SQL["extend_token"], hash=token_hash, expires_at=expires_at)


def end(tx: Tx, token_hash: str) -> None:
    """Logout."""
    tx.run(SQL["remove_token"], hash=token_hash)
