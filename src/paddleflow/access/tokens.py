"""Tokens, as transactions: opaque random text, of which only the SHA-256 is kept."""

from __future__ import annotations

import secrets
from hashlib import sha256

from paddleflow.access import users
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "access.sql")


def digest(token: str) -> str:
    """What is kept of a token. It has 256 random bits, so a plain hash is enough."""
    return sha256(token.encode("utf-8")).hexdigest()


def issue(tx: Tx, user: str, now: float, hours: float) -> str:
    """A new token of an existing user; ones that have run out are removed on the way."""
    name = users.require(tx, user)["name"]
    token = f"pf-{secrets.token_urlsafe(32)}"
    tx.run(SQL["remove_expired_tokens"], now=now)
    tx.run(SQL["add_token"], hash=digest(token), user_name=name, now=now, expires_at=now + hours * 3600)
    return token


def find(tx: Tx, token_hash: str) -> Row | None:
    """``user_name, expires_at`` of a token, or None. It may have run out."""
    return tx.one(SQL["token_by_hash"], hash=token_hash)


def end(tx: Tx, token_hash: str) -> None:
    """Logout."""
    tx.run(SQL["remove_token"], hash=token_hash)
