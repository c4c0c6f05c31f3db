"""Conditions as expressions of Jinja, in which Airflow fills in its templates before a task runs. Pure.

Python compares text and numbers otherwise than this language does, so values from outside are `Given`, a class that the
file brings along (`HELPERS`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from paddleflow.exporters.placeholders import fill, placeholder
from paddleflow.exporters.plan import NotExpressible
from paddleflow.exporters.scopes import Scope
from paddleflow.spec.pipeline.conditions import parse
from paddleflow.spec.pipeline.templates import TEMPLATE, Reference, as_text, single

MACROS = ("given", "content", "truth")  #: what conditions call
HELPERS = '''\
_NUMBER = re.compile(r"[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)?")
_TRUTH = {"true": True, "false": False}


class Given(str):
    """What a parameter or a file says: beside a number it counts as one, beside true or false as one of those."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return operator.eq(*_sides(self, other))

    def __ne__(self, other):
        return operator.ne(*_sides(self, other))

    def __lt__(self, other):
        return operator.lt(*_sides(self, other))

    def __le__(self, other):
        return operator.le(*_sides(self, other))

    def __gt__(self, other):
        return operator.gt(*_sides(self, other))

    def __ge__(self, other):
        return operator.ge(*_sides(self, other))

    def __neg__(self):
        return -float(self)


def _sides(*values):
    for kind in (_number, _truth):
        found = [kind(value) for value in values]
        if None not in found:
            return found
    return [str(value) if isinstance(value, Given) else value for value in values]


def _number(value):
    if isinstance(value, Given) and _NUMBER.fullmatch(value):
        return float(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _truth(value):
    return _TRUTH.get(str(value)) if isinstance(value, Given) else value if isinstance(value, bool) else None


def truth(value):
    """What is neither true nor false decides nothing."""
    if (found := _truth(value)) is None:
        raise TypeError(f"true or false is wanted, found {value!r}")
    return found


def given(value):
    return Given(value.strip()) if isinstance(value, str) else value


def content(path):
    with open(path) as file:
        return given(file.read(1024))
'''
_OPERATORS = {"&&": "and", "||": "or", **{sign: sign for sign in ("==", "!=", ">", ">=", "<", "<=", "in")}}


class _Several(str):
    """The text of a list."""

    __slots__ = ()


class _Truth(str):
    """The text of what is true or false."""

    __slots__ = ()


def write_condition(scope: Scope, condition: str) -> str:
    """A condition as an expression with open places, which stand for expressions too."""
    return _truth(parse(condition, _ConditionWriter(scope)))


class _ConditionWriter:
    """Builds the text; every part in parentheses of its own, so that ranks need not agree."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def number(self, value: float) -> str:
        return repr(value)

    def text(self, text: str) -> str:
        parts, at = [], 0
        for found in TEMPLATE.finditer(text):
            named = self._named(Reference(found[1] or "", found[2]))
            parts += [json.dumps(text[at : found.start()]), named]
            at = found.end()
        parts.append(json.dumps(text[at:]))
        return parts[0] if len(parts) == 1 else f"({' ~ '.join(parts)})"

    def word(self, text: str) -> str:
        if text in ("true", "false"):
            return _Truth(text)
        ref = single(text)
        if ref is None:
            return self.text(text)
        if self._scope.is_file(ref):
            return self._named(ref)
        if isinstance(value := self._scope.open(ref), list):
            return self.several([json.dumps(as_text(item)) for item in value])
        return f"given({self._named(ref)})"

    def several(self, parts: Sequence[str]) -> str:
        return _Several(f"({', '.join(parts)},)")

    def prefix(self, sign: str, inner: str) -> str:
        if sign == "~":
            raise NotExpressible(f"has the operator {sign}, which the target does not support")
        return _Truth(f"(not {_truth(inner)})") if sign == "!" else f"(-{inner})"

    def binary(self, sign: str, left: str, right: str) -> str:
        if sign not in _OPERATORS:
            raise NotExpressible(f"has the operator {sign}, which the target does not support")
        if sign == "in" and not isinstance(right, _Several):
            right = self.several([right])
        if sign in ("&&", "||"):
            left, right = _truth(left), _truth(right)
        return _Truth(f"({left} {_OPERATORS[sign]} {right})")

    def choice(self, test: str, yes: str, no: str) -> str:
        return f"({yes} if {_truth(test)} else {no})"

    def _named(self, ref: Reference) -> str:
        """What a template names: text with open places becomes one expression."""
        if not self._scope.is_file(ref):
            return _expression(as_text(self._scope.open(ref)))
        path = self._scope.input_path(ref.name)
        if "," in path:
            raise NotExpressible(f"reads the content of artifact {ref.name}, which the elements of a loop make")
        return f"content({_expression(path)})"


def _truth(text: str) -> str:
    """What decides something must be true or false."""
    return text if isinstance(text, _Truth) else f"truth({text})"


def _expression(text: str) -> str:
    """Text with open places: the places stay, what stands between them is quoted."""
    parts: list[str] = []

    def place(kind: str, name: str) -> str:
        parts.append(placeholder(kind, name))
        return ""

    def literal(part: str) -> str:
        parts.append(json.dumps(part))
        return ""

    fill(text, place, literal)
    wanted = [part for part in parts if part != '""'] or ['""']
    return wanted[0] if len(wanted) == 1 else f"({' ~ '.join(wanted)})"
