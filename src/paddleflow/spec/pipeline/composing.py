"""YAML text to the tree of `nodes`.

Read from the parser's events and never by recursion, so that a hostile document costs no more than a stated amount: limits on
bytes, values (aliases count for what they stand for) and depth. (The library's own composer ends the process when brackets
are nested deep enough.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.faults import MALFORMED, Faults, shown
from paddleflow.spec.pipeline.model import Mark
from paddleflow.spec.pipeline.nodes import MOST_DEPTH, MOST_VALUES, Node, Scalar, scalar

MOST_BYTES = 4 * 2**20

#: libyaml reads several times faster where it is built in
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TAGGED: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


def from_text(text: str | bytes, faults: Faults) -> Node:
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
    try:
        return _Builder(faults).build(yaml.parse(decoded, Loader=_Loader))
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
    lines = text.split("\n")
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "{{" in line and '"{{' not in line and "'{{" not in line:
        return 'put quotes around a value that begins with {{: "{{name}}"'
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not with tabs"
    return ""


class _Builder:
    """Builds the tree from events, with its own stack."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.anchors: dict[str, Node] = {}
        self.count = 0
        #: open collections: (node, anchor, the key that waits for its value)
        self.stack: list[tuple[Node, str | None]] = []
        self.keys: list[Node | None] = []
        self.root: Node | None = None
        self.documents = 0

    def build(self, events: Iterator[Any]) -> Node:
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open({}, event)
            elif kind is yaml.SequenceStartEvent:
                self._open([], event)
            elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
                self._close()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self.documents += 1
                if self.documents > 1:
                    raise self._stop(event, "the file holds several documents, one is wanted", "remove the line ---")
        if self.root is None:
            raise self.faults.fatal(None, "the document is empty, a map with name and entry_points is wanted")
        self.faults.raise_any(MALFORMED)
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
        self._counted(event, 1)
        text, tag, start = event.value, event.tag, event.start_mark
        value: Scalar = text
        if tag is None or tag == "!":
            if event.implicit[0] and tag is None:
                value = scalar(text)
        elif tag != f"{_TAG}str":
            value = self._tagged(event, tag.removeprefix(_TAG), text)
        self._place(Node(value, start.line + 1, start.column + 1, text), event)

    def _tagged(self, event: Any, tag: str, text: str) -> Scalar:
        value = scalar(text)
        if not isinstance(value, _TAGGED.get(tag, ())):
            self.faults.add(_mark(event), "", f"the tag [{shown(tag)}] is not supported for [{shown(text)}]")
        return float(value) if tag == "float" and isinstance(value, int) else value

    def _open(self, value: Any, event: Any) -> None:
        self._counted(event, 1)
        if len(self.stack) >= MOST_DEPTH:
            raise self._stop(event, f"the document is nested more than {MOST_DEPTH} deep")
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self.faults.add(_mark(event), "", f"the tag [{shown(event.tag)}] is not supported")
        start = event.start_mark
        node = Node(value, start.line + 1, start.column + 1)
        if self._wants_key():
            hint = 'put quotes around a template: "{{name}}"' if isinstance(value, dict) else ""
            raise self._stop(event, f"a key is {node.kind}, text is wanted", hint)
        self.stack.append((node, event.anchor))
        self.keys.append(None)

    def _close(self) -> None:
        node, anchor = self.stack.pop()
        self.keys.pop()
        children = node.value.values() if isinstance(node.value, dict) else node.value
        for child in children:
            node.size += child.size
            if child.height >= node.height:
                node.height = child.height + 1
        if anchor:
            self.anchors[anchor] = node
        self._put(node)

    def _alias(self, event: Any) -> None:
        known = self.anchors.get(event.anchor)
        if known is None:
            raise self._stop(
                event, f"the alias *{shown(event.anchor)} stands for nothing, or for something that it is part of"
            )
        self._counted(event, known.size)
        if len(self.stack) + known.height > MOST_DEPTH:
            raise self._stop(
                event, f"the document is nested more than {MOST_DEPTH} deep, what aliases stand for included"
            )
        self._place(known.again(), event)

    def _wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1][0].value, dict) and self.keys[-1] is None

    def _place(self, node: Node, event: Any) -> None:
        """A finished scalar or alias goes where it belongs: as a key, or as a value."""
        if self._wants_key():
            plain = isinstance(event, yaml.ScalarEvent)
            if not isinstance(node.value, str) and not (plain and node.raw and node.value is not None):
                raise self._stop(event, f"a key is {node.kind}, text is wanted")
            if not isinstance(node.value, str):
                self.faults.add(
                    _mark(event), "", f"the key [{node.raw}] is {node.kind}, text is wanted", "write it in quotes"
                )
            self.keys[-1] = Node(node.raw, node.line, node.column, "" if plain and event.implicit[0] else "quoted")
            return
        if isinstance(event, yaml.ScalarEvent) and event.anchor:
            self.anchors[event.anchor] = node
        self._put(node)

    def _put(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        parent, key = self.stack[-1][0], self.keys[-1]
        if key is None:
            parent.value.append(node)
            return
        self.keys[-1] = None
        node.key_line, node.key_column = key.line, key.column
        if key.value == "<<" and not key.raw:
            self._merge(parent, node)
        elif (before := parent.value.get(key.value)) is not None and before.key_line:
            where = f", first in line {before.key_line}" if before.key_line else ""
            self.faults.add(key.mark, "", f"the key [{shown(key.value)}] is given twice{where}", "keep one of them")
        else:
            parent.value[key.value] = node

    def _merge(self, parent: Node, node: Node) -> None:
        """`<<: *defaults`: keys that the map does not have itself. What comes so has no place of its own."""
        for source in node.value if isinstance(node.value, list) else [node]:
            if not isinstance(source.value, dict):
                self.faults.add(source.mark, "", f"<< takes a map or a list of maps, found {source.kind}")
                continue
            for key, child in source.value.items():
                parent.value.setdefault(key, child.again())


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
