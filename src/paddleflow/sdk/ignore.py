"""Which files of a folder are sent: the rules of `.gitignore` and `.paddleflowignore`, and a few that always hold.

The language is git's: `#` comments, `!` takes back, a slash at the end means folders only, a slash elsewhere binds the
pattern to its file's folder, `*`, `?`, `[…]` and `**`. Files of rules lie in any folder and hold below it; a later rule wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddleflow.base.values import dataclass

FILES = (".gitignore", ".paddleflowignore")
#: Never sent: what tools make anew, and what belongs to one machine; folders, or links to them.
ALWAYS = (
    ".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", ".tox", ".nox", "node_modules", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
MOST_RULES = 10_000  #: of one folder
MOST_PATTERN = 1000  #: characters


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a file of rules."""

    pattern: re.Pattern[str]
    keeps: bool  #: takes back what an earlier rule ignored
    folders_only: bool
    base: str  #: folder of its file, with a slash at the end, or empty

    def matches(self, path: str, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        return path.startswith(self.base) and self.pattern.fullmatch(path, len(self.base)) is not None


def read_rules(text: str, base: str = "") -> list[Rule]:
    """The rules in a file that lies in the folder `base` (empty: the root, else with a slash at its end)."""
    found = []
    for line in text.splitlines()[:MOST_RULES]:
        rule = _rule(line, base)
        if rule is not None:
            found.append(rule)
    return found


def is_ignored(rules: Sequence[Rule], path: str, is_folder: bool) -> bool:
    """Whether the last rule that matches ignores it."""
    for rule in reversed(rules):
        if rule.matches(path, is_folder):
            return not rule.keeps
    return False


def _rule(line: str, base: str) -> Rule | None:
    text = line.rstrip("\n\r")
    text = text if text.endswith("\\ ") else text.rstrip()
    if not text or text.startswith("#") or len(text) > MOST_PATTERN:
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps or text.startswith(("\\#", "\\!")) else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    bound = "/" in text
    text = text.removeprefix("/")
    try:
        pattern = re.compile(_regex(text) if bound else f"(?:.*/)?{_regex(text)}", re.DOTALL)
    except re.error:
        return None  # as git does: what is no pattern matches nothing
    return Rule(pattern, keeps, folders_only, base)


def _regex(pattern: str) -> str:
    """A pattern of git as a regular expression."""
    found, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest == "**":
            found, at = found + ".*", at + 2
        elif rest.startswith("**/"):
            found, at = found + "(?:.*/)?", at + 3
        elif rest.startswith("*"):
            found, at = found + "[^/]*", at + len(rest) - len(rest.lstrip("*"))
        elif rest.startswith("?"):
            found, at = found + "[^/]", at + 1
        elif rest.startswith("[") and (end := rest.find("]", 2)) > 0:
            inside = rest[1:end].replace("\\", "\\\\")
            found += f"[^{inside[1:]}]" if inside[:1] in {"!", "^"} else f"[{inside}]"
            at += end + 1
        elif rest.startswith("\\") and len(rest) > 1:
            found, at = found + re.escape(rest[1]), at + 2
        else:
            found, at = found + re.escape(rest[0]), at + 1
    return found


DEFAULTS: Sequence[Rule] = read_rules("\n".join(ALWAYS))
