"""Renders our own Helm charts where there is no Helm: the subset of its language that the charts in deploy/ use.

Values (``{{ .Values.a.b }}``, ``.Release.Namespace``), ``… | default …``, ``if``/``else``/``end``, ``toYaml … | nindent N``,
``.Files.Get "…" | nindent N``, the trimming of white space by ``{{-``, and charts inside a chart with their alias, condition and
globals. Anything else is an error, so that a chart cannot outgrow this silently.
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
    values = merged(yaml.safe_load((chart / "values.yaml").read_text("utf-8")), changes or {})
    scope = {"Values": values, "Release": {"Namespace": namespace}, "Chart": chart}
    found = []
    for file in sorted((chart / "templates").glob("*.yaml")):
        found += [obj for obj in yaml.safe_load_all(fill(file.read_text("utf-8"), scope)) if obj]
    for inner in enabled_charts(chart, values):
        own = values.get(inner["alias"], {}) | {"global": values.get("global", {})}
        found += render(chart / "charts" / inner["name"], namespace, {k: v for k, v in own.items() if k != "enabled"})
    return found


def merged(defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, everything else is replaced."""
    found = dict(defaults)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


def enabled_charts(chart: Path, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The charts inside a chart whose condition holds."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    return [each for each in about.get("dependencies", []) if values[each["alias"]]["enabled"]]


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
    if match := re.fullmatch(r'\.Files\.Get "(\S+)" \| nindent (\d+)', word):
        text = (scope["Chart"] / match[1]).read_text("utf-8")
        return "\n" + "\n".join(" " * int(match[2]) + line for line in text.split("\n"))
    if match := re.fullmatch(r"(\S+) \| default (\S+)", word):
        try:
            return str(_value(match[1], scope) or _value(match[2], scope))
        except ChartError:
            return str(_value(match[2], scope))
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
