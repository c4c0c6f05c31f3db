"""Environments of packages: one for each content, the least recently used go, those in use stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddleflow.jobs import environment as under_test


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built; nothing is installed."""
    found: list[str] = []

    def build(folder: Path, requirements: str) -> None:
        folder.mkdir()
        found.append(requirements)

    monkeypatch.setattr(under_test, "_build", build)
    return found


def test_order_comments_and_blank_lines_are_no_other_content() -> None:
    assert under_test.key_of("a\n# x\n\nb\n") == under_test.key_of("b\na")
    assert under_test.key_of("a") != under_test.key_of("b")


def test_an_environment_is_built_once_and_again_if_that_was_cut_short(tmp_path: Path, built: list[str]) -> None:
    first, _ = under_test.hold(tmp_path, "a")
    assert under_test.hold(tmp_path, "a")[0] == first, "while the other still runs"
    assert built == ["a"]
    half = tmp_path / under_test.key_of("b")
    half.mkdir()
    (half / "rest").touch()
    under_test.hold(tmp_path, "b")
    assert built == ["a", "b"]
    assert not (half / "rest").exists()


def test_the_least_recently_used_go(tmp_path: Path) -> None:
    held, _ = under_test.hold(tmp_path, "held", most=2)
    os.utime(held / under_test.READY, (0, 0))
    others = []
    for number, name in enumerate("abc", 1):
        folder, lock = under_test.hold(tmp_path, name, most=2)
        os.close(lock)
        os.utime(folder / under_test.READY, (number, number))
        others.append(folder)
    assert held.is_dir(), "it is in use"
    assert [folder.is_dir() for folder in others] == [False, True, True]
