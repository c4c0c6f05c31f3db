"""Gathers the fragments of changes/ into CHANGELOG.md: changelog.py VERSION DATE

The fragments are deleted; the section of the new version stands first. Part of a release, see CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = "# Changelog\n\nWhat changes for people who use PaddleFlow. The newest version stands first.\n"
KINDS = ("added", "changed", "fixed", "removed")


def section(version: str, date: str, fragments: list[Path]) -> str:
    """The new section: fragments by kind, a line each."""
    lines = [f"## {version} ({date})"]
    for kind in KINDS:
        chosen = [file for file in fragments if file.name.split(".")[1] == kind]
        if chosen:
            entries = [f"- {_line(file)}" for file in chosen]
            lines += [f"### {kind.capitalize()}", "\n".join(entries)]
    return "\n\n".join(lines) + "\n"


def _line(fragment: Path) -> str:
    """A fragment on one line, with links that hold one folder up."""
    return " ".join(fragment.read_text("utf-8").split()).replace("](../", "](")


def release(version: str, date: str, root: Path = ROOT) -> None:
    """Write the section and delete its fragments."""
    fragments = sorted(file for file in (root / "changes").glob("*.md") if file.name != "README.md")
    page = root / "CHANGELOG.md"
    before = page.read_text("utf-8").removeprefix(HEAD) if page.exists() else ""
    page.write_text(HEAD + "\n" + section(version, date, fragments) + before, "utf-8")
    for file in fragments:
        file.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: changelog.py VERSION DATE")
    release(sys.argv[1], sys.argv[2])
