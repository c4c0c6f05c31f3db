"""The credential of a cluster: a kubeconfig, sent in base64 and kept encrypted.

A kubeconfig is YAML or JSON with the lists ``clusters``, ``contexts`` and ``users`` at its top. Only those who connect have a YAML
reader; here YAML is checked by its shape: UTF-8, printable, with these keys at the beginning of a line.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

from paddleflow.store.encryption import EncryptedColumn, Keyring
from paddleflow.store.statements import load

SQL = load("paddleflow.queues", "clusters.sql")
_LISTS = ("clusters", "contexts", "users")
_WANTED = "a kubeconfig in base64 with clusters, contexts and users"
_TOKEN = re.compile(r"v1\.[a-z0-9-]+\.[A-Za-z0-9_=-]+")


def context_of(cluster: str) -> str:
    """What the credential of the cluster of this name is bound to."""
    return f"cluster:{cluster}"


ENCRYPTED = EncryptedColumn("clusters", context_of, SQL["encrypted_page"], SQL["replace_encrypted"])


def is_token(credential: str) -> bool:
    """Whether it is encrypted already; base64 of a kubeconfig has no dots."""
    return _TOKEN.fullmatch(credential) is not None


def encrypt(keyring: Keyring, cluster: str, credential: str) -> str:
    """What the row of a cluster holds of a credential as it was sent; empty for none."""
    return keyring.encrypt(credential, context_of(cluster)) if credential else ""


def kubeconfig_of(keyring: Keyring, cluster: str, kept: str) -> str:
    """The text of the kubeconfig that a row holds; `Unavailable` without its key."""
    sent = keyring.decrypt(kept, context_of(cluster)) if is_token(kept) else kept
    return base64.b64decode("".join(sent.split())).decode("utf-8")


def fault_of(credential: str) -> str:
    """Empty when the credential can be used, otherwise what is wrong with it. Never repeats any of it."""
    try:
        text = base64.b64decode("".join(credential.split()), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return f"is not {_WANTED}: it does not decode"
    if not text.strip() or any(not char.isprintable() and char not in "\r\n\t" for char in text):
        return f"is not {_WANTED}: what it holds is not text"
    missing = [name for name in _LISTS if name not in _keys(text)]
    return f"is not {_WANTED}: {', '.join(missing)} missing" if missing else ""


def _keys(text: str) -> set[str]:
    """The keys at the top of a JSON or YAML object."""
    if text.lstrip().startswith("{"):
        try:
            return set(json.loads(text))
        except (ValueError, RecursionError):
            return set()
    return set(re.findall(r"^[\"']?([A-Za-z]+)[\"']?\s*:", text, re.MULTILINE))
