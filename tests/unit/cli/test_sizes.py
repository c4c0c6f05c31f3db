"""Options that take a number of bytes refuse what is none before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paddleflow.cli.main import root


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("fs mount --url file:///d DIR --cache-size", "big", "quantity 'big' is not a number"),
        ("fs mount --url file:///d DIR --bandwidth", "0", "'0' is less than 1 byte"),
        ("fs bench DIR --file-size", "1XB", "'1XB'"),
    ],
)
def test_refusals(tmp_path: Path, option: str, value: str, message: str) -> None:
    words = [str(tmp_path) if word == "DIR" else word for word in option.split()]
    found = CliRunner().invoke(root, [*words, value])
    assert found.exit_code == 2
    assert message in found.stderr
    assert option.split()[-1] in found.stderr
    assert list(tmp_path.iterdir()) == []
