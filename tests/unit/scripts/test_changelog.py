"""`scripts/lib/changelog.py`: fragments become one section, newest first, and are gone."""

from __future__ import annotations

from pathlib import Path

from scripts.lib.changelog import HEAD, release


def test_a_release_gathers_the_fragments(tmp_path: Path) -> None:
    changes = tmp_path / "changes"
    changes.mkdir()
    (changes / "README.md").write_text("how")
    (changes / "new-thing.added.md").write_text("A new\nthing.\n")
    (changes / "old-fault.fixed.md").write_text("An old fault.")
    (tmp_path / "CHANGELOG.md").write_text(HEAD + "\n## 1.0 (2026-01-01)\n")
    release("1.1", "2026-02-02", tmp_path)
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        HEAD
        + "\n## 1.1 (2026-02-02)\n\n### Added\n\n- A new thing.\n\n### Fixed\n\n- An old fault.\n\n## 1.0 (2026-01-01)\n"
    )
    assert [file.name for file in changes.iterdir()] == ["README.md"]
