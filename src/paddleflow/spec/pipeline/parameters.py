"""Values of parameters, and whether a value is of the type that a document states."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from paddleflow.spec.pipeline.faults import shown
from paddleflow.spec.pipeline.model import Value
from paddleflow.spec.pipeline.nodes import kind_of, scalar
from paddleflow.spec.pipeline.templates import references, single

TYPES = ("string", "float", "int", "list", "path")
MOST_LIST_DEPTH = 16
_PATH = re.compile(r"[.a-zA-Z0-9/_-]+")


class Unfit(Exception):
    """The value cannot be had; says what was found and what is wanted."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def plain(name: str, value: Any) -> Value:
    """A value of any type that parameters may have."""
    if isinstance(value, bool):
        raise Unfit(f"type[bool] is not supported for param[{name}]", f'write it as text: "{str(value).lower()}"')
    if isinstance(value, str | int | float):
        _check_number(name, value)
        return value
    if isinstance(value, list):
        _check_list(name, value, 1)
        return value
    if value is None:
        raise Unfit(f"param[{name}] has no value", 'write "" for empty text')
    raise Unfit(f"type[{kind_of(value)}] is not supported for param[{name}]", "a value is text, a number or a list")


def typed(name: str, type: str, value: Any, *, loose: bool = False) -> Value:
    """A value of the stated type. `loose`: numbers and lists may be written as text, as a command line does."""
    if not type:
        return plain(name, value)
    if isinstance(value, str) and type in ("int", "float", "list"):
        if single(value):
            return value  # known when the step starts
        if loose:
            value = _from_text(type, value)
    if loose and type == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if loose and type in ("string", "path") and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    fits = {
        "string": isinstance(value, str),
        "path": isinstance(value, str),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "list": isinstance(value, list),
    }[type]
    if not fits:
        raise Unfit(f"invalid type for param[{name}]: expect type[{type}], found {kind_of(value)} [{shown(value)}]")
    if type == "path" and not references(value) and not _PATH.fullmatch(value):
        raise Unfit(
            f"invalid path value[{shown(value)}] in parameter[{name}]",
            "a path has letters, digits and the signs . / _ -",
        )
    return plain(name, value)


def _from_text(type: str, text: str) -> Any:
    if type == "list":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return scalar(text.strip()) if text.strip() else text


def _check_number(name: str, value: str | int | float) -> None:
    """Numbers that every program reads the same way."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise Unfit(f"the number of param[{name}] has more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unfit(f"the number {value} is not supported for param[{name}]")


def _check_list(name: str, values: list[Any], depth: int) -> None:
    if depth > MOST_LIST_DEPTH:
        raise Unfit(f"the list of param[{name}] is nested more than {MOST_LIST_DEPTH} deep")
    for value in values:
        if isinstance(value, list):
            _check_list(name, value, depth + 1)
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Unfit(
                f"the list of param[{name}] holds {kind_of(value)} [{shown(value)}]",
                "elements are text, numbers or lists",
            )
        elif references(value):
            raise Unfit(f"the list of param[{name}] holds the template [{shown(value)}], templates cannot be in lists")
        else:
            _check_number(name, value)
