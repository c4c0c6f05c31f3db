"""Renders our own Helm charts where there is no Helm: the subset of its language that the charts in deploy/ use.

Values (``{{ .Values.a.b }}``, ``.Release.Namespace``), ``if``/``else``/``end``, ``toYaml … | nindent N``, and the trimming of
white space by ``{{-``. Anything else is an error, so that a chart cannot outgrow this silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_PART = re.compile(r"(\s*)\{\{-\s*(.+?)\s*\}\}|\{\{\s*(.+?)\s*\}\}")


class ChartError(ValueError):
    """A chart says something that this renderer does not know."""


def render(chart: Path, namespace: str, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The objects of a chart with its default values and `changes`."""
    values = yaml.safe_load((chart / "values.yaml").read_text("utf-8")) | dict(changes or {})
    scope = {"Values": values, "Release": {"Namespace": namespace}}
    found = []
    for file in sorted((chart / "templates").glob("*.yaml")):
        found += [obj for obj in yaml.safe_load_all(fill(file.read_text("utf-8"), scope)) if obj]
    return found


def fill(text: str, scope: Mapping[str, Any]) -> str:
    """The text of a template with everything filled in."""
    out: list[str] = []
    shown = [True]  # one entry per open `if`: whether its text counts
    taken = [True]  # whether a branch of it was taken
    position = 0
    for match in _PART.finditer(text):
        if all(shown):
            out.append(text[position : match.start()])
        word = match[2] or match[3]
        position = match.end()
        if word.startswith("if "):
            truth = bool(_value(word[3:], scope))
            shown.append(truth)
            taken.append(truth)
        elif word == "else":
            shown[-1] = not taken[-1]
        elif word == "end":
            shown.pop()
            taken.pop()
        elif all(shown):
            out.append(_text(word, scope))
    if len(shown) != 1:
        raise ChartError("an `if` without its `end`")
    return "".join([*out, text[position:]])


def _text(word: str, scope: Mapping[str, Any]) -> str:
    if match := re.fullmatch(r"toYaml (\S+) \| nindent (\d+)", word):
        dumped = yaml.safe_dump(_value(match[1], scope), sort_keys=False).strip()
        return "".join(f"\n{' ' * int(match[2])}{line}" for line in dumped.splitlines())
    return str(_value(word, scope))


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    if not re.fullmatch(r"(\.\w+)+", path):
        raise ChartError(f"{path!r} is not known here: a path such as .Values.image is")
    found: Any = scope
    for name in path[1:].split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise ChartError(f"{path}: there is no {name}")
        found = found[name]
    return found
