"""Secret properties of storages and links: encrypted, in a column of their own, never returned.

Which properties are secret is said by `objects.urls.SCHEMES`. What everybody sees has `MASK` in their places; a change that gives
`MASK` back keeps what was there, so that people can edit what they were shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from paddleflow.errors import Fault, Invalid
from paddleflow.objects.urls import INVALID_PROPERTIES, secret_names
from paddleflow.store.encryption import EncryptedColumn, Keyring
from paddleflow.store.statements import load

SQL = load("paddleflow.storage", "storages.sql")
LINKS = load("paddleflow.storage", "links.sql")
MASK = "******"  #: what answers have instead of a secret


def storage_context(storage: str) -> str:
    """What the secrets of a storage are bound to."""
    return f"storage:{storage}"


def link_context(link: str) -> str:
    return f"link:{link}"


ENCRYPTED = (
    EncryptedColumn("storages", storage_context, SQL["encrypted_page"], SQL["replace_encrypted"]),
    EncryptedColumn("links", link_context, LINKS["encrypted_page"], LINKS["replace_encrypted"]),
)


def separate(scheme: str, properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(what everybody who may see the storage sees, what is secret)."""
    hidden = secret_names(scheme)
    shown = {name: MASK if name in hidden and value else value for name, value in properties.items()}
    return shown, {name: value for name, value in properties.items() if name in hidden and value}


def unmask(given: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """Properties of a change, with the secrets that are kept in the places of masks."""
    lost = [name for name, value in given.items() if value == MASK and name not in kept]
    if lost:
        faults = [
            Fault(f"properties.{name}", f"is {MASK}, and there is none to keep", "give it itself") for name in lost
        ]
        raise Invalid.of(faults, code=INVALID_PROPERTIES)
    return {name: kept[name] if value == MASK else value for name, value in given.items()}


def encrypt(keyring: Keyring, context: str, secrets: Mapping[str, str]) -> str:
    """The token for a row; empty for no secrets."""
    return keyring.encrypt(json.dumps(dict(secrets)), context) if secrets else ""


def decrypt(keyring: Keyring, context: str, token: str) -> dict[str, str]:
    found = json.loads(keyring.decrypt(token, context)) if token else {}
    return {str(name): str(value) for name, value in found.items()}
