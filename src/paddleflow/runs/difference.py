"""What two runs differ in: parameters, the document, and step by step what was run and how long it took. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from paddleflow.runs.fingerprints import changed_parts
from paddleflow.spec import wire_runs as wire
from paddleflow.store.database import Row

MOST_LINES = 2000  #: of a document's difference


def difference(first: Row, first_steps: Sequence[Row], second: Row, second_steps: Sequence[Row]) -> wire.Difference:
    """The first run is the old one. What is equal is left out; a value that only one has stands beside None."""
    lines = difflib.unified_diff(
        first["document"].splitlines(), second["document"].splitlines(), first["id"], second["id"], lineterm=""
    )
    return {
        "runs": [first["id"], second["id"]],
        "status": [first["status"], second["status"]],
        "parameters": _values(json.loads(first["parameters"]), json.loads(second["parameters"])),
        "document": [line for line, _ in zip(lines, range(MOST_LINES), strict=False)],
        "steps": _steps(first_steps, second_steps),
    }


def _values(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys([*first, *second])
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}


def _steps(first: Sequence[Row], second: Sequence[Row]) -> dict[str, dict[str, Any]]:
    old = {row["full_name"]: row for row in first if row["kind"] == "step"}
    new = {row["full_name"]: row for row in second if row["kind"] == "step"}
    found = {}
    for name in dict.fromkeys([*old, *new]):
        before, after = _facts(old.get(name)), _facts(new.get(name))
        changed: dict[str, Any] = {
            key: [before.get(key), after.get(key)]
            for key in ("status", "command", "seconds", "reusedFrom")
            if before.get(key) != after.get(key)
        }
        parameters = _values(before.get("parameters", {}), after.get("parameters", {}))
        if parameters:
            changed["parameters"] = parameters
        if name in old and name in new and old[name]["first_fp"] and new[name]["first_fp"]:
            parts = changed_parts(new[name]["parts"], old[name]["parts"])
            if parts:
                changed["fingerprint"] = parts
        if changed:
            found[name] = changed
    return found


def _facts(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {}
    details = json.loads(row["details"] or "{}")
    begun, ended = row["started_at"], row["finished_at"]
    return {
        "status": row["status"],
        "command": details.get("command", ""),
        "parameters": json.loads(row["parameters"] or "{}"),
        "seconds": None if begun is None or ended is None else round(ended - begun, 3),
        "reusedFrom": row["reused_run"],
    }
