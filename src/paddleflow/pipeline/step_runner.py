"""What runs inside a step that was a Python function: arguments in, the function, return values out.

Its source goes along with the function's, so it uses nothing but the standard library of any Python 3.7
or later, under names that no function has.
"""

from __future__ import annotations

import json as _json
import pathlib as _pathlib
import sys as _sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def paddleflow_step(
    function: Callable[..., Any], arguments: str, outputs: Sequence[str], variables: Mapping[str, str]
) -> None:
    """`arguments`: JSON of [name, node]…; a node is [kind, …]. `outputs`: names of artifacts to write. `variables`: the environment."""

    def typed(text: str, kind: str) -> Any:
        if kind == "str":
            return text
        if kind in ("int", "float"):
            return {"int": int, "float": float}[kind](text)
        if kind == "bool":
            return text.strip().lower() in ("1", "true", "yes", "on")
        try:
            return _json.loads(text)
        except ValueError:
            return text

    def value(node: Any) -> Any:
        kind = node[0]
        if kind == "value":
            return node[1]
        if kind == "list":
            return [value(inner) for inner in node[1]]
        text = variables[node[1]]
        if kind == "text":
            return typed(text, node[2])
        paths = [_pathlib.Path(part) for part in text.split(",") if part]
        found: list[Any] = [_json.loads(path.read_text("utf-8")) for path in paths] if kind == "content" else paths
        return found if node[2] else found[0]

    returned = function(**{name: value(node) for name, node in _json.loads(arguments)})
    if not outputs:
        return
    results = {"result": returned} if outputs == ["result"] else returned
    if not isinstance(results, dict) or set(results) != set(outputs):
        found = sorted(results) if isinstance(results, dict) else type(returned).__name__
        _sys.exit(f"step {function.__name__} returned {found}, it must return a dict of {', '.join(outputs)}")
    for name in outputs:
        try:
            text = _json.dumps(results[name])
        except (TypeError, ValueError) as error:
            _sys.exit(f"step {function.__name__}: its {name} cannot be kept as JSON: {error}")
        _pathlib.Path(variables["PF_OUTPUT_ARTIFACT_" + name.upper()]).write_text(text, "utf-8")
