"""Holds an answer against the TypedDict that its route declares: every required key, no other keys, and values of its types.

Called for every good answer of every API test, so that what `/openapi.json` promises is what is sent.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN: dict[Any, tuple[type, ...]] = {
    float: (int, float), int: (int,), str: (str,), bool: (bool,), NoneType: (NoneType,), list: (list,), dict: (dict,)
}  # fmt: skip


def faults(kind: Any, value: object, where: str = "") -> list[str]:
    """What is wrong with a value of JSON; empty when it is as declared."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired, Required):
        return faults(args[0], value, where)
    if kind is Any:
        return []
    if is_typeddict(kind):
        return _table(kind, value, where)
    if origin in (Union, UnionType):
        found = [faults(each, value, where) for each in args]
        return min(found, key=len)
    if origin is list:
        if not isinstance(value, list):
            return [f"{where or 'the answer'} is no list: {value!r:.80}"]
        return [fault for n, item in enumerate(value) for fault in faults(args[0], item, f"{where}[{n}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{where or 'the answer'} is no object: {value!r:.80}"]
        return [fault for key, item in value.items() for fault in faults(args[1], item, f"{where}.{key}")]
    if kind not in _PLAIN:  # a literal, or a type of its own: its schema is checked elsewhere
        return []
    good = isinstance(value, _PLAIN[kind]) and (kind is bool or not isinstance(value, bool))
    return [] if good else [f"{where or 'the answer'} is no {kind.__name__}: {value!r:.80}"]


def _table(kind: Any, value: object, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where or 'the answer'} is no object: {value!r:.80}"]
    hints = get_type_hints(kind, include_extras=True)
    required = {key for key, hint in hints.items() if get_origin(hint) is not NotRequired}
    missing = [f"{where}.{key} is missing" for key in sorted(required - value.keys())]
    more = [f"{where}.{key} is not declared by {kind.__name__}" for key in sorted(value.keys() - hints.keys())]
    inside = [
        fault for key, item in value.items() if key in hints for fault in faults(hints[key], item, f"{where}.{key}")
    ]
    return [*missing, *more, *inside]
