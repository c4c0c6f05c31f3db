"""Frameworks for tests that train for real: each in an environment of its own, from ``scripts/frameworks``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_TOOL = Path(__file__).resolve().parent.parent / "scripts" / "frameworks"
_CANNOT_BE_HAD = 3  #: what the tool ends with then; whatever else it ends with is a fault


def programs_of(name: str) -> Path:
    """The folder with a framework's programs, its `python` among them; skips where the framework cannot be had."""
    done = subprocess.run([_TOOL, name], capture_output=True, text=True, check=False)
    if done.returncode == _CANNOT_BE_HAD:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip()).parent
