"""Documents as a tree of values that know their place in the text, and what plain words of YAML stand for.

Plain words are read by the rules of YAML 1.2: only `true` and `false` are booleans and only decimal, `0x` and `0o` are
numbers; `yes`, `on`, `1:30`, `007` and dates are text. `from_text` makes the tree of YAML text, `from_json` that of decoded JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import yaml

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.faults import LINE_BREAK, DocumentFaults, shown
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


class YamlNode:
    """A value of the document: a mapping, a list, or a scalar."""

    __slots__ = ("column", "height", "key_column", "key_line", "line", "raw", "size", "value")

    def __init__(self, value: Any, line: int = 0, column: int = 0, raw: str = "") -> None:
        self.value: Any = value  #: dict[str, YamlNode] | list[YamlNode] | Scalar
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

    def again(self) -> YamlNode:
        """The same value under another key."""
        node = YamlNode(self.value, self.line, self.column, self.raw)
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


def from_json(value: object, faults: DocumentFaults) -> YamlNode:
    """The tree of decoded JSON. It has no places, only paths."""
    count = 0

    def build(item: object, depth: int) -> YamlNode:
        nonlocal count
        count += 1
        if count > MOST_VALUES:
            raise faults.fatal(None, f"the document holds more than {MOST_VALUES:,} values")
        if depth > MOST_DEPTH:
            raise faults.fatal(None, f"the document is nested more than {MOST_DEPTH} deep")
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise faults.fatal(None, f"the key {shown(key)} is {kind_of(key)}, expected text")
            return YamlNode({key: build(child, depth + 1) for key, child in item.items()})
        if isinstance(item, list | tuple):
            return YamlNode([build(child, depth + 1) for child in item])
        if isinstance(item, int) and not isinstance(item, bool) and abs(item) >= 2**63:
            raise faults.fatal(None, "the document holds a whole number of more than 64 bits")
        if isinstance(item, float) and not math.isfinite(item):
            raise faults.fatal(None, f"the document holds the number {item}, which JSON does not know")
        if item is None or isinstance(item, str | int | float | bool):
            return YamlNode(item, raw=item if isinstance(item, str) else str(item))
        raise faults.fatal(None, f"a value of type {type(item).__name__} is not JSON")

    return build(value, 1)


MOST_BYTES = 4 * 2**20

#: libyaml reads several times faster where it is built in
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TAGGED: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


def from_text(text: str | bytes, faults: DocumentFaults) -> YamlNode:
    """The tree of a YAML document; raises at once where nothing further can be read."""
    if size := _too_large(text):
        raise faults.fatal(None, f"the document has {size:,} bytes, at most {MOST_BYTES:,} are read")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        decoded.encode("utf-8")
    except UnicodeError as error:
        raise faults.fatal(
            None, f"the document is not UTF-8: {error}", "save the file in the encoding UTF-8"
        ) from error
    faults.text = decoded
    try:
        return _Builder(faults).build(decoded)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Mark(mark.line + 1, mark.column + 1) if mark else None
        message = f"this is not YAML: {error.problem or error.context}"
        raise faults.fatal(place, message, _syntax_hint(decoded, mark)) from error
    except yaml.YAMLError as error:
        raise faults.fatal(None, f"this is not YAML: {' '.join(str(error).split())}") from error


def _too_large(text: str | bytes) -> int:
    """The size in bytes if it is more than allowed, else 0."""
    if len(text) * (1 if isinstance(text, bytes) else 4) <= MOST_BYTES:
        return 0
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    return size if size > MOST_BYTES else 0


def _syntax_hint(text: str, mark: Any) -> str:
    lines = LINE_BREAK.split(text)
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "{{" in line and '"{{' not in line and "'{{" not in line:
        return 'put quotes around a value that begins with {{: "{{name}}"'
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not with tabs"
    return ""


class _Open:
    """A map or list whose end was not seen yet."""

    __slots__ = ("anchor", "is_map", "key", "node")

    def __init__(self, node: YamlNode, anchor: str | None, is_map: bool) -> None:
        self.node = node
        self.anchor = anchor
        self.is_map = is_map
        self.key: _Key | None = None  #: the one that waits for its value


class _Key(NamedTuple):
    text: str
    line: int
    column: int
    plain: bool  #: without quotes


class _Builder:
    """Builds the tree from events, with its own stack."""

    def __init__(self, faults: DocumentFaults) -> None:
        self.faults = faults
        self.anchors: dict[str, YamlNode] = {}
        self.count = 0
        self.stack: list[_Open] = []
        self.top: _Open | None = None
        self.root: YamlNode | None = None

    def build(self, text: str) -> YamlNode:
        loader = _Loader(text)
        documents = 0
        try:
            while (event := loader.get_event()) is not None:
                kind = event.__class__
                if kind is yaml.ScalarEvent:
                    self._scalar(event)
                elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    self._open(event, kind is yaml.MappingStartEvent)
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    self._close()
                elif kind is yaml.AliasEvent:
                    self._alias(event)
                elif kind is yaml.StreamEndEvent:
                    break
                elif kind is yaml.DocumentStartEvent:
                    documents += 1
                    if documents > 1:
                        raise self._stop(
                            event, "the file contains several documents, expected one", "remove the line ---"
                        )
        finally:
            loader.dispose()
        if self.root is None:
            raise self.faults.fatal(None, "the document is empty, expected a map with name and entry_points")
        return self.root

    def _stop(self, event: Any, message: str, hint: str = "") -> Invalid:
        return self.faults.fatal(_mark(event), message, hint)

    def _counted(self, event: Any, more: int) -> None:
        self.count += more
        if self.count > MOST_VALUES:
            raise self._stop(
                event, f"the document holds more than {MOST_VALUES:,} values, those behind aliases included"
            )

    def _scalar(self, event: Any) -> None:
        text, start, plain, top = event.value, event.start_mark, event.implicit[0], self.top
        tag = event.tag
        value: Scalar = text
        if tag is None or tag == "!":
            if plain and tag is None:
                value = scalar(text)
        elif tag != f"{_TAG}str":
            value = self._tagged(event, tag.removeprefix(_TAG), text)
        if top is not None and top.is_map and top.key is None:
            if value.__class__ is not str:
                self._odd_key(event, value, text)
            top.key = _Key(text, start.line + 1, start.column + 1, plain)
            return
        self._counted(event, 1)
        node = YamlNode(value, start.line + 1, start.column + 1, text)
        if event.anchor:
            self.anchors[event.anchor] = node
        self._put(node)

    def _odd_key(self, event: Any, value: Scalar, text: str) -> None:
        if value is None:
            raise self._stop(event, "a key is empty, expected text")
        self.faults.misread(_mark(event), f"the key [{text}] is {kind_of(value)}, expected text", "write it in quotes")

    def _tagged(self, event: Any, tag: str, text: str) -> Scalar:
        value = scalar(text)
        if not isinstance(value, _TAGGED.get(tag, ())):
            self.faults.misread(_mark(event), f"the tag [{shown(tag)}] is not supported for [{shown(text)}]")
        return float(value) if tag == "float" and isinstance(value, int) else value

    def _open(self, event: Any, is_map: bool) -> None:
        self._counted(event, 1)
        if len(self.stack) >= MOST_DEPTH:
            raise self._stop(event, f"the document is nested more than {MOST_DEPTH} deep")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self.faults.misread(_mark(event), f"the tag [{shown(event.tag)}] is not supported")
        start = event.start_mark
        node = YamlNode({} if is_map else [], start.line + 1, start.column + 1)
        if self.top is not None and self.top.is_map and self.top.key is None:
            hint = 'put quotes around a template: "{{name}}"' if is_map else ""
            raise self._stop(event, f"a key is {node.kind}, expected text", hint)
        self.top = _Open(node, event.anchor, is_map)
        self.stack.append(self.top)

    def _close(self) -> None:
        done = self.stack.pop()
        self.top = self.stack[-1] if self.stack else None
        node = done.node
        size, height = 1, 0
        for child in node.value.values() if done.is_map else node.value:
            size += child.size
            if child.height > height:
                height = child.height
        node.size, node.height = size, height + 1
        if done.anchor:
            self.anchors[done.anchor] = node
        self._put(node)

    def _alias(self, event: Any) -> None:
        known = self.anchors.get(event.anchor)
        if known is None:
            name = shown(event.anchor)
            raise self._stop(event, f"the alias *{name} stands for nothing, or for something that it is part of")
        self._counted(event, known.size)
        if len(self.stack) + known.height > MOST_DEPTH:
            raise self._stop(
                event, f"the document is nested more than {MOST_DEPTH} deep, what aliases stand for included"
            )
        if self.top is not None and self.top.is_map and self.top.key is None:
            if not isinstance(known.value, str):
                raise self._stop(event, f"a key is {known.kind}, expected text")
            self.top.key = _Key(known.value, event.start_mark.line + 1, event.start_mark.column + 1, False)
            return
        self._put(known.again())

    def _put(self, node: YamlNode) -> None:
        """A finished value goes to the collection that is open."""
        top = self.top
        if top is None:
            self.root = node
            return
        if not top.is_map:
            top.node.value.append(node)
            return
        key, top.key = top.key, None
        assert key is not None
        node.key_line, node.key_column = key.line, key.column
        entries = top.node.value
        if key.text == "<<" and key.plain:
            self._merge(entries, node)
        elif (before := entries.get(key.text)) is not None and before.key_line:
            message = f"the key [{shown(key.text)}] is given twice, first in line {before.key_line}"
            self.faults.misread(Mark(key.line, key.column), message, "keep one of them")
        else:
            entries[key.text] = node

    def _merge(self, entries: dict[str, YamlNode], node: YamlNode) -> None:
        """`<<: *defaults`: keys that the map does not have itself. What comes so has no place of its own."""
        for source in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(source.value, dict):
                self.faults.misread(source.mark, f"<< takes a map or a list of maps, found {source.kind}")
                continue
            for key, child in source.value.items():
                entries.setdefault(key, child.again())


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
