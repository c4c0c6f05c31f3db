"""Merge patches (RFC 7386) and JSON patches (RFC 6902), as the API server takes them. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any


class PatchRefused(Exception):
    """The patch does not fit the object."""


def merge(target: Any, patch: Any) -> Any:
    """The merge patch's result; null takes a field away."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = merge(result.get(field), value)
    return result


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """The operations add, remove, replace and test, one after the other."""
    result = copy.deepcopy(target)
    for operation in operations:
        _operate(result, str(operation.get("op")), _steps(str(operation.get("path", ""))), operation.get("value"))
    return result


def _steps(pointer: str) -> list[str]:
    if not pointer.startswith("/"):
        raise PatchRefused(f"path {pointer!r} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _operate(target: Any, operation: str, steps: Sequence[str], value: Any) -> None:
    here = target
    try:
        for step in steps[:-1]:
            here = here[int(step)] if isinstance(here, list) else here[step]
        last: Any = steps[-1]
        if isinstance(here, list):
            last = len(here) if last == "-" else int(last)
        if operation == "add" and isinstance(here, list):
            here.insert(last, value)
        elif operation == "add":
            here[last] = value
        elif operation == "remove":
            del here[last]
        elif operation == "replace":
            del here[last]  # it must be there
            here.insert(last, value) if isinstance(here, list) else here.__setitem__(last, value)
        elif operation == "test":
            if here[last] != value:
                raise PatchRefused(f"test of /{'/'.join(steps)} failed: found {here[last]!r}, wanted {value!r}")
        else:
            raise PatchRefused(f"operation {operation!r} is not add, remove, replace or test")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PatchRefused(f"/{'/'.join(steps)} does not lead anywhere: {error!r}") from error
