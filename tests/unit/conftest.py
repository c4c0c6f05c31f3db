"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_stub import Shell, Stub, running_stub


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
def shell(stub: Stub) -> Shell:
    """The command line, speaking to the stub."""
    return Shell(stub)
