"""From a method and a path to a route: a table compiled once, static segments before parameters.

Paths are split before they are percent-decoded, so an encoded slash stays inside its segment. A segment that is not
UTF-8 or holds a control character is refused: neither database could look it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid

E = TypeVar("E")
_NO_PARAMS: Mapping[str, str] = {}


@dataclass(slots=True)
class _Node(Generic[E]):
    """One segment of the tree of paths."""

    words: dict[str, _Node[E]] = field(default_factory=dict)
    param: _Node[E] | None = None
    #: method → (names of the parameters on the way here, what is dispatched to)
    methods: dict[str, tuple[tuple[str, ...], E]] = field(default_factory=dict)


class Table(Generic[E]):
    """Entries by method and path. `allowed` of a path that is there for other methods only names those."""

    def __init__(self, entries: Iterable[tuple[str, str, E]]) -> None:
        self._root: _Node[E] = _Node()
        self._static: dict[tuple[str, str], E] = {}
        for method, path, entry in entries:
            self._add(method, path, entry)

    def _add(self, method: str, path: str, entry: E) -> None:
        node = self._root
        names: list[str] = []
        for segment in path.split("/"):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.param = node.param or _Node()
                node = node.param
            else:
                node = node.words.setdefault(segment, _Node())
        if method in node.methods:
            raise ValueError(f"{method} {path} is there twice")
        node.methods[method] = tuple(names), entry
        if not names:
            self._static[method, path] = entry

    def find(self, method: str, path: str, raw_path: bytes) -> tuple[E, Mapping[str, str]] | None:
        """The entry and its parameters, or None."""
        escaped = b"%" in raw_path
        if not escaped:
            entry = self._static.get((method, path))
            if entry is not None:
                return entry, _NO_PARAMS
        segments = [_decoded(part) for part in raw_path.split(b"/")] if escaped else path.split("/")
        found = _walk(self._root, segments, 0, method, [])
        if found is None:
            return None
        (names, entry), values = found
        for value in values:
            _check(value)
        return entry, dict(zip(names, values, strict=True))

    def allowed(self, path: str, raw_path: bytes) -> list[str]:
        """The methods that this path has, in order; empty when there is no such path."""
        segments = [_decoded(part) for part in raw_path.split(b"/")] if b"%" in raw_path else path.split("/")
        methods: set[str] = set()
        _collect(self._root, segments, 0, methods)
        return sorted(methods)


def _walk(
    node: _Node[E], segments: list[str], at: int, method: str, values: list[str]
) -> tuple[tuple[tuple[str, ...], E], list[str]] | None:
    if at == len(segments):
        entry = node.methods.get(method)
        return (entry, values) if entry is not None else None
    segment = segments[at]
    word = node.words.get(segment)
    if word is not None:
        found = _walk(word, segments, at + 1, method, values)
        if found is not None:
            return found
    if node.param is not None and segment:
        return _walk(node.param, segments, at + 1, method, [*values, segment])
    return None


def _collect(node: _Node[E], segments: list[str], at: int, methods: set[str]) -> None:
    if at == len(segments):
        methods.update(node.methods)
        return
    word = node.words.get(segments[at])
    if word is not None:
        _collect(word, segments, at + 1, methods)
    if node.param is not None and segments[at]:
        _collect(node.param, segments, at + 1, methods)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode("utf-8") if b"%" in segment else segment.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid("the path is not UTF-8", code="InvalidURI") from error


def _check(value: str) -> None:
    if not value.isprintable():
        raise Invalid(f"the path holds a character that no name has: {value[:80]!r}", code="InvalidURI")
