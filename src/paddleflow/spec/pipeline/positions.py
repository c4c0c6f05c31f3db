"""From the path of a value to the place where it stands in the document's text.

Asked only once something is wrong that the document alone does not tell: so a pipeline carries no marks, and its text is read a
second time then.
"""

from __future__ import annotations

import re
from functools import cached_property

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.drafts import CONTROL
from paddleflow.spec.pipeline.faults import DocumentFaults
from paddleflow.spec.pipeline.nodes import YamlNode, from_text

_PART = re.compile(r"[^.\[\]]+")
_SHORT = {variable: key for key, variable in CONTROL.items()}  #: variables that a key of the step may stand for


class Places:
    """The places of one document, read when they are first asked for. Without text there are none, as in JSON."""

    def __init__(self, text: str = "", file: str = "") -> None:
        self._text = text
        self._file = file

    def where(self, path: str) -> str:
        """`file:line:column path`, as faults of the document itself begin; of what is left out, the place of what holds it."""
        node = self._find(_PART.findall(path))
        mark = node.mark if node is not None else None
        place = ":".join([*([self._file] if self._file else []), *([str(mark.line), str(mark.column)] if mark else [])])
        return " ".join(part for part in (place, path) if part)

    def _find(self, parts: list[str]) -> YamlNode | None:
        """The value at a path, or the last one on the way to it; None when not even its first part is there."""
        found, node = None, self._root
        for part in parts:
            child = _child(node, part) if node is not None else None
            if child is None and node is not None and part == "env":
                continue  # a key of the step itself may stand for the variable
            if child is None:
                break
            found = node = self._referred(child)
        return found

    def _referred(self, node: YamlNode) -> YamlNode:
        """What a step with a reference stands for; the step itself when that leads nowhere."""
        for _ in range(len(self._components)):
            reference = _child(node, "reference")
            name = _child(reference, "component") if reference is not None else None
            target = self._components.get(name.value) if name is not None and isinstance(name.value, str) else None
            if target is None:
                break
            node = target
        return node

    @cached_property
    def _root(self) -> YamlNode | None:
        try:
            return from_text(self._text, DocumentFaults()) if self._text else None
        except Invalid:
            return None

    @cached_property
    def _components(self) -> dict[str, YamlNode]:
        node = _child(self._root, "components") if self._root is not None else None
        return node.value if node is not None and isinstance(node.value, dict) else {}


def _child(node: YamlNode, part: str) -> YamlNode | None:
    children: dict[str, YamlNode]
    if isinstance(node.value, list):
        children = {str(number): child for number, child in enumerate(node.value)}
    elif isinstance(node.value, dict):
        children = node.value
    else:
        return None
    if part in children:
        return children[part]
    alike = {part.replace("_", "").lower(), _SHORT.get(part, part)}
    return next((child for key, child in children.items() if key.replace("_", "").lower() in alike), None)
