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


def given_store(kind: str) -> ObjectStore:
    """A folder of the caller's own; skips, with one line that says why, where no server is named."""
    variable = f"PF_TEST_{kind.upper()}"
    url, _, properties = os.environ.get(variable, "").partition("?")
    if not url:
        pytest.skip(f"{variable} names no server of type {kind}, and tests cannot start one")
    name, given = f"some-{secrets.token_hex(4)}", dict(parse_qsl(properties))
    top = open_store(url, given)
    top.make_folder(name)
    top.close()
    return open_store(f"{url}/{name}", given)
