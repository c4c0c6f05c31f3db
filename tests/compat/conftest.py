"""Fixtures of the suites that hold the platform to what existing users have."""

from __future__ import annotations

import pytest

import paddleflow
from paddleflow.sdk.legacy import Client
from tests.client_stub import Stub


@pytest.fixture
def client(stub: Stub) -> Client:
    host, _, port = stub.url.removeprefix("http://").partition(":")
    stub.on("POST /login", {"authorization": "token"})
    made = paddleflow.Client(host, "root", "paddleflow", int(port))
    assert made.login("root", "paddleflow") == (True, None)
    assert stub.lines() == [("POST", "/login", {}, {"username": "root", "password": "paddleflow"})]
    stub.requests.clear()
    return made
