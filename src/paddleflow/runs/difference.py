"""What two runs differ in: parameters, the document, and step by step what was run and how long it took. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from paddleflow.runs.fingerprints import changed_parts
from paddleflow.runs.rows import ComponentRow, RunRow
from paddleflow.spec import wire_runs as wire

MOST_LINES = 2000  #: of a document's difference
RUN_ID = "{{PF_RUN_ID}}"  #: stands for a run's own id

_Facts: TypeAlias = dict[str, Any]


def difference(
    first: RunRow, first_steps: Sequence[ComponentRow], second: RunRow, second_steps: Sequence[ComponentRow]
) -> wire.Difference:
    """The first run is the old one. What is equal is left out; a value that only one has stands beside None."""
    lines = difflib.unified_diff(
        first.document.splitlines(), second.document.splitlines(), first.id, second.id, lineterm=""
    )
    return {
        "runs": [first.id, second.id],
        "status": [first.status, second.status],
        "parameters": _values(json.loads(first.parameters), json.loads(second.parameters)),
        "document": [line for line, _ in zip(lines, range(MOST_LINES), strict=False)],
        "steps": _steps(_facts_of(first, first_steps), _facts_of(second, second_steps)),
    }


def _values(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys([*first, *second])
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}


def _steps(old: Mapping[str, _Facts], new: Mapping[str, _Facts]) -> dict[str, _Facts]:
    found = {}
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, {}), new.get(name, {})
        changed: _Facts = {
            key: [before.get(key), after.get(key)]
            for key in ("status", "command", "seconds", "reusedFrom")
            if before.get(key) != after.get(key)
        }
        parameters = _values(before.get("parameters", {}), after.get("parameters", {}))
        if parameters:
            changed["parameters"] = parameters
        if before.get("parts") and after.get("parts"):
            parts = changed_parts(after["parts"], before["parts"])
            if parts:
                changed["fingerprint"] = parts
        if changed:
            found[name] = changed
    return found


def _facts_of(run: RunRow, steps: Sequence[ComponentRow]) -> dict[str, _Facts]:
    """Step → what is compared of it. The run's own id, which paths of artifacts hold, is no difference."""
    found = {}
    for row in steps:
        if row.kind != "step":
            continue
        begun, ended = row.started_at, row.finished_at
        found[row.full_name] = {
            "status": row.status,
            "command": json.loads(row.details or "{}").get("command", "").replace(run.id, RUN_ID),
            "parameters": json.loads(row.parameters or "{}"),
            "seconds": None if begun is None or ended is None else round(ended - begun, 3),
            "reusedFrom": row.reused_run,
            "parts": row.parts if row.first_fp else "",
        }
    return found
