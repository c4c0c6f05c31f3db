"""What the operators of conditions do with values: numbers, text, booleans and lists."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from paddleflow.spec.pipeline.faults import shown
from paddleflow.spec.pipeline.patterns import NotAPattern, search
from paddleflow.spec.pipeline.templates import as_text

#: How tightly each operator of two sides binds.
RANKS = {
    **dict.fromkeys(("?", "??"), 1),
    "||": 2,
    "&&": 3,
    **dict.fromkeys(("==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in"), 4),
    **dict.fromkeys(("&", "|", "^"), 5),
    **dict.fromkeys(("<<", ">>"), 6),
    **dict.fromkeys(("+", "-"), 7),
    **dict.fromkeys(("*", "/", "%"), 8),
    "**": 9,
}
PREFIXES = frozenset("!-~")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
    "**": math.pow,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}


class Given(str):
    """Text that came through a template: beside a number or a boolean it counts as one, if it reads as one."""

    __slots__ = ()


class WrongOperands(Exception):
    """The operator cannot be used on these values."""


def given(value: Any) -> Any:
    """The value of a template as it takes part in a condition."""
    return Given(value.strip()) if isinstance(value, str) else value


def as_number(value: Any) -> float | None:
    """The number that a value is, or reads as if a template gave it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Given) and _NUMBER.fullmatch(value):
        return float(value)
    return None


def as_boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value) if isinstance(value, Given) else None


def apply(sign: str, left: Any, right: Any) -> Any:
    """The value of `left sign right`, for all operators that need both sides."""
    if sign in _ORDER:
        return _ORDER[sign](*_comparable(sign, left, right))
    if sign in ("==", "!="):
        return _equal(left, right) == (sign == "==")
    if sign == "in":
        return any(_equal(left, item) for item in (right if isinstance(right, list | tuple) else [right]))
    if sign in ("=~", "!~"):
        return _matches(sign, left, right) == (sign == "=~")
    if sign == "+" and not _numbers(left, right) and (isinstance(left, str) or isinstance(right, str)):
        return as_text(left) + as_text(right)
    pair = _numbers(left, right)
    if not pair:
        raise WrongOperands(f"{_named(left)} {sign} {_named(right)}: {sign} takes two numbers")
    try:
        result = _bitwise(sign, *pair) if sign in _BITS else _ARITHMETIC[sign](*pair)
    except (ArithmeticError, ValueError) as error:
        raise WrongOperands(f"{as_text(pair[0])} {sign} {as_text(pair[1])} has no value") from error
    if not math.isfinite(result):
        raise WrongOperands(f"{as_text(pair[0])} {sign} {as_text(pair[1])} has no value")
    return result


def prefix(sign: str, value: Any) -> Any:
    """The value of `! - ~` before a value."""
    if sign == "!":
        truth = as_boolean(value)
        if truth is None:
            raise WrongOperands(f"! takes a boolean, found {_named(value)}")
        return not truth
    number = as_number(value)
    if number is None:
        raise WrongOperands(f"{sign} takes a number, found {_named(value)}")
    return -number if sign == "-" else float(~int(number))


def truth(sign: str, value: Any) -> bool:
    """A side of `&&`, `||` or `?`."""
    boolean = as_boolean(value)
    if boolean is None:
        raise WrongOperands(f"{sign} takes booleans, found {_named(value)}")
    return boolean


def _numbers(left: Any, right: Any) -> tuple[float, float] | None:
    first, second = as_number(left), as_number(right)
    return None if first is None or second is None else (first, second)


def _comparable(sign: str, left: Any, right: Any) -> tuple[Any, Any]:
    pair = _numbers(left, right)
    if pair:
        return pair
    if isinstance(left, str) and isinstance(right, str):
        return str(left), str(right)
    raise WrongOperands(f"{_named(left)} {sign} {_named(right)}: {sign} takes two numbers or two texts")


def _equal(left: Any, right: Any) -> bool:
    pair = _numbers(left, right)
    if pair:
        return pair[0] == pair[1]
    first, second = as_boolean(left), as_boolean(right)
    if first is not None and second is not None:
        return first == second
    if isinstance(left, str) and isinstance(right, str):
        return str(left) == str(right)
    return type(left) is type(right) and bool(left == right)


def _bitwise(sign: str, left: float, right: float) -> float:
    if sign in ("<<", ">>") and not 0 <= right < 64:
        raise ValueError
    return float(_BITS[sign](int(left), int(right)))


def _matches(sign: str, left: Any, right: Any) -> bool:
    if not isinstance(left, str) or not isinstance(right, str):
        raise WrongOperands(f"{_named(left)} {sign} {_named(right)}: {sign} takes text and a pattern")
    try:
        return search(right, left)
    except NotAPattern as error:
        raise WrongOperands(f"[{shown(right)}] cannot be searched for: {error}") from error


def _named(value: Any) -> str:
    if isinstance(value, str):
        return f"text '{shown(value, 40)}'"
    if isinstance(value, list | tuple):
        return "a list"
    return as_text(value)
