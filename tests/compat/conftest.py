"""Fixtures of the suites that hold the platform to what existing users have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import paddleflow
from paddleflow.sdk.legacy import Client
from tests.client_stub import Stub, running_stub


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder, and no word about servers in the environment."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PADDLEFLOW_HOME", str(folder))
    for name in ("SERVER", "TOKEN", "OUTPUT", "PF_CONFIG"):
        monkeypatch.delenv(f"PADDLEFLOW_{name}", raising=False)
    return folder


@pytest.fixture
def stub(home: Path) -> Iterator[Stub]:
    """A server that plays answers."""
    with running_stub() as stub:
        yield stub


@pytest.fixture
def client(stub: Stub) -> Client:
    host, _, port = stub.url.removeprefix("http://").partition(":")
    stub.on("POST /login", {"authorization": "token"})
    made = paddleflow.Client(host, "root", "paddleflow", int(port))
    assert made.login("root", "paddleflow") == (True, None)
    assert stub.lines() == [("POST", "/login", {}, {"username": "root", "password": "paddleflow"})]
    stub.requests.clear()
    return made
