"""Documents as a tree of values that know their place in the text, and what plain words of YAML stand for.

Plain words are read by the rules of YAML 1.2: only `true` and `false` are booleans and only decimal, `0x` and `0o` are
numbers; `yes`, `on`, `1:30`, `007` and dates are text. `composing` makes the tree of YAML text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from paddleflow.spec.pipeline.faults import Faults, shown
from paddleflow.spec.pipeline.model import Mark

MOST_VALUES = 300_000
MOST_DEPTH = 64

Scalar: TypeAlias = "str | int | float | bool | None"

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_BASED = re.compile(r"0x[0-9a-fA-F]{1,15}|0o[0-7]{1,20}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMBER_STARTS = frozenset("-+.0123456789")


class Node:
    """A value of the document: a mapping, a list, or a scalar."""

    __slots__ = ("column", "height", "key_column", "key_line", "line", "raw", "size", "value")

    def __init__(self, value: Any, line: int = 0, column: int = 0, raw: str = "") -> None:
        self.value: Any = value  #: dict[str, Node] | list[Node] | Scalar
        self.line = line
        self.column = column
        self.raw = raw  #: a scalar as it is written
        self.key_line = 0  #: where its key stands, if it has one
        self.key_column = 0
        self.size = 1  #: values in it, itself included
        self.height = 1

    @property
    def mark(self) -> Mark:
        return Mark(self.line, self.column)

    @property
    def key_mark(self) -> Mark:
        return Mark(self.key_line, self.key_column) if self.key_line else Mark(self.line, self.column)

    @property
    def kind(self) -> str:
        """What it is, in a word for people."""
        return kind_of(self.value)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def again(self) -> Node:
        """The same value under another key."""
        node = Node(self.value, self.line, self.column, self.raw)
        node.size, node.height = self.size, self.height
        return node


def kind_of(value: object) -> str:
    for kind, word in (
        (dict, "a map"),
        (list, "a list"),
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a number"),
        (str, "text"),
    ):
        if isinstance(value, kind):
            return word
    return "nothing"


def scalar(text: str) -> Scalar:
    """What an unquoted word stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBER_STARTS:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
            number = float(text)
            return number if math.isfinite(number) else text
    return text


def from_json(value: object, faults: Faults) -> Node:
    """The tree of decoded JSON. It has no places, only paths."""
    count = 0

    def build(item: object, depth: int) -> Node:
        nonlocal count
        count += 1
        if count > MOST_VALUES:
            raise faults.fatal(None, f"the document holds more than {MOST_VALUES:,} values")
        if depth > MOST_DEPTH:
            raise faults.fatal(None, f"the document is nested more than {MOST_DEPTH} deep")
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise faults.fatal(None, f"the key {shown(key)} is {kind_of(key)}, text is wanted")
            return Node({key: build(child, depth + 1) for key, child in item.items()})
        if isinstance(item, list | tuple):
            return Node([build(child, depth + 1) for child in item])
        if isinstance(item, int) and not isinstance(item, bool) and abs(item) >= 2**63:
            raise faults.fatal(None, "the document holds a whole number of more than 64 bits")
        if isinstance(item, float) and not math.isfinite(item):
            raise faults.fatal(None, f"the document holds the number {item}, which JSON does not know")
        if item is None or isinstance(item, str | int | float | bool):
            return Node(item, raw=item if isinstance(item, str) else str(item))
        raise faults.fatal(None, f"a value of type {type(item).__name__} is not JSON")

    return build(value, 1)
