"""Writes docs/reference/settings.md from the sentences in settings.py: reference.py [--check]

`--check` writes nothing and ends with 1 when the page is not what it would write.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from paddleflow import settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def page() -> str:
    """The page as text."""
    parts = [
        "# Settings\n",
        "Written from `src/paddleflow/settings.py` by `scripts/check --fix`; edit the sentences there.\n",
        "Each may be set in the environment or in the settings file (`paddleflow server --config FILE`), where the first word",
        "is the table: `server.port` is `port` in `[server]`. [Operations](../guides/operations.md#settings) has an example.",
    ]
    for section, rows in groupby(settings.describe(), key=lambda row: row[0].partition(".")[0]):
        parts.append(f"\n## {section}\n\n| setting | variable | default | meaning |\n|---|---|---|---|")
        for name, variable, default, sentence in rows:
            shown = f"`{default}`" if default != "" else "empty"
            parts.append(f"| `{name}` | `{variable}` | {shown} | {sentence} |")
    return "\n".join(parts) + "\n"


def main(check: bool) -> int:
    if check:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != page())
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
