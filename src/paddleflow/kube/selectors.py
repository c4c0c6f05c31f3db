"""Label and field selectors, as the API server reads them. Pure."""

from __future__ import annotations

import re

from paddleflow.kube.resources import View

_SET = re.compile(r"\s*(?P<name>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^)]*)\)\s*")
_EQUAL = re.compile(r"\s*(?P<name>[^\s!=,()]+)\s*(?P<word>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*")
_EXISTS = re.compile(r"\s*(?P<word>!?)\s*(?P<name>[^\s!=,()]+)\s*")


def matches_labels(selector: str, obj: View) -> bool:
    """``a=b,c!=d,e in (f,g),!h``: all of them hold."""
    labels = obj["metadata"].get("labels") or {}
    return all(_holds(part, labels) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _holds(part: str, labels: View) -> bool:
    if found := _SET.fullmatch(part):
        values = {value.strip() for value in found["values"].split(",")}
        return (labels.get(found["name"]) in values) == (found["word"] == "in")
    if found := _EQUAL.fullmatch(part):
        return (labels.get(found["name"]) == found["value"]) == (found["word"] != "!=")
    if found := _EXISTS.fullmatch(part):
        return (found["name"] in labels) == (not found["word"])
    raise ValueError(f"selector {part!r} is not understood")


def matches_fields(selector: str, obj: View) -> bool:
    """``metadata.name=x,spec.nodeName!=y``: all of them hold; a field that is not there is empty."""
    for part in selector.split(","):
        if not part.strip():
            continue
        found = _EQUAL.fullmatch(part)
        if found is None:
            raise ValueError(f"field selector {part!r} is not understood")
        value: object = obj
        for step in found["name"].split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if (str(value) == found["value"]) == (found["word"] == "!="):
            return False
    return True
