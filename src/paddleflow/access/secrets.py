"""Secrets: named values of a user that jobs are given as variables or files. Encrypted at rest, never answered.

`api.secrets` sets and lists them; the engine asks for the values of a job just before it starts (`give`). What a job was given is
kept with it, still encrypted, so that its log can hide the values (`given`) when the secret has another value or is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, NotFound
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Tx
from paddleflow.store.encryption import EncryptedColumn, Keyring
from paddleflow.store.statements import load

SQL = load("paddleflow.access", "secrets.sql")
MOST_SECRETS = 200  #: of one user


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret without its value."""

    id: str
    name: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class SealedValue:
    """An encrypted value, and what it is bound to."""

    id: str
    value: str

    def open(self, keyring: Keyring) -> str:
        return keyring.decrypt(self.value, _context(self.id))


def seal(tx: Tx, keyring: Keyring, user: str, name: str, text: str, now: float) -> None:
    """Set a secret, or another value of it."""
    known = tx.value(SQL["secret_id"], user_name=user, name=name)
    if known is None and int(tx.value(SQL["count_secrets"], user_name=user) or 0) >= MOST_SECRETS:
        raise Invalid(
            f"user[{user}] has {MOST_SECRETS} secrets, which is the limit",
            code="SecretOverQuota",
            hint="delete some with paddleflow secret delete",
        )
    id = str(known) if known is not None else f"secret-{os.urandom(8).hex()}"
    value = keyring.encrypt(text, _context(id))
    tx.run(SQL["put_secret"], id=id, user_name=user, name=name, value=value, now=now)
    if known is None:
        bump(tx, NAMED)


def list_secrets(tx: Tx, user: str) -> list[Secret]:
    """By name."""
    return tx.rows(Secret, SQL["secrets_of"], user_name=user)


def secret_names(tx: Tx, user: str) -> frozenset[str]:
    return frozenset(secret.name for secret in list_secrets(tx, user))


def remove(tx: Tx, user: str, name: str) -> None:
    if not tx.run(SQL["remove_secret"], user_name=user, name=name):
        raise NotFound(
            f"secret[{name[:80]}] does not exist",
            code="SecretNotFound",
            hint=nearest(name[:80], secret_names(tx, user), "create it with paddleflow secret set NAME"),
        )
    bump(tx, NAMED)


def remove_all(tx: Tx, user: str) -> None:
    """The user is deleted."""
    tx.run(SQL["remove_secrets_of"], user_name=user)


def give(tx: Tx, wanted: Mapping[str, Iterable[str]]) -> dict[str, dict[str, SealedValue]]:
    """By job and name the secrets that jobs ask for, as they are now; noted as given. What is not there is left out."""
    found: dict[str, dict[str, SealedValue]] = {}
    for job, names in wanted.items():
        asked = set(names)
        rows = [row for row in tx.all(SQL["secrets_for_job"], job_id=job) if row["name"] in asked]
        for row in rows:
            copy = f"{row['id']}/{os.urandom(8).hex()}"
            tx.run(SQL["note_given"], id=copy, job_id=job, value=row["value"])
        found[job] = {row["name"]: SealedValue(row["id"], row["value"]) for row in rows}
    return found


def given(tx: Tx, job: str) -> Sequence[SealedValue]:
    """Every value that a job was given."""
    return tx.rows(SealedValue, SQL["given_to"], job_id=job)


def _context(id: str) -> str:
    """Of a secret, and of the copies that jobs were given."""
    return f"secret:{id.partition('/')[0]}"


ENCRYPTED = (
    EncryptedColumn("secrets", _context, SQL["page_of_secrets"], SQL["replace_secret"]),
    EncryptedColumn("secrets of jobs", _context, SQL["page_of_given"], SQL["replace_given"]),
)
