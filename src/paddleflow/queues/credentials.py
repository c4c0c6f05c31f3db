"""Whether a text is a kubeconfig in base64. Pure.

A kubeconfig is YAML or JSON with the lists ``clusters``, ``contexts`` and ``users`` at its top. This server has no YAML
reader, so YAML is checked by its shape only: UTF-8, printable, with these keys at the beginning of a line.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

_LISTS = ("clusters", "contexts", "users")
_WANTED = "base64 of a kubeconfig with clusters, contexts and users"


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
