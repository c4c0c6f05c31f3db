"""Stores of types whose servers tests cannot start, where somebody names one.

`PF_TEST_CFS=cfs://nas.example/scratch` and `PF_TEST_AFS=afs://…` name an empty folder; properties follow after a question mark, such as
`?version=4.2&security=krb5`.
"""

from __future__ import annotations

import os
import secrets
from urllib.parse import parse_qsl

import pytest

from paddleflow.objects.store import ObjectStore
from paddleflow.objects.urls import open_store

GIVEN = ("cfs", "afs")


def is_given(kind: str) -> bool:
    return bool(_given(kind))


def _given(kind: str) -> str:
    return os.environ.get(_variable(kind), "")


def _variable(kind: str) -> str:
    return f"PF_TEST_{kind.upper()}"


def given_store(kind: str) -> ObjectStore:
    """A folder of the caller's own; skips, with one line that says why, where no server is named."""
    url, _, properties = _given(kind).partition("?")
    if not url:
        pytest.skip(f"{_variable(kind)} names no server of type {kind}, and tests cannot start one")
    name, given = f"some-{secrets.token_hex(4)}", dict(parse_qsl(properties))
    top = open_store(url, given)
    top.make_folder(name)
    top.close()
    return open_store(f"{url}/{name}", given)
