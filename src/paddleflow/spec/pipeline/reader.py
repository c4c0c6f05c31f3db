"""Takes values of a wanted shape out of the tree, and notes a fault where something else stands.

Keys are known in two spellings: `docker_env` of YAML and `dockerEnv` of the JSON interface.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from paddleflow.base import names
from paddleflow.base.names import NameRule
from paddleflow.spec.pipeline.faults import DocumentFaults, shown
from paddleflow.spec.pipeline.nodes import YamlNode

#: YAML 1.1 words, which existing documents may use where a boolean stands.
_BOOLEANS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}
_OLD_SPELLINGS = {"main_fs": ("mainFS", "mainFs"), "extra_fs": ("extraFS", "extraFs")}

COMPONENT = names.NameRule(
    "stepName",
    r"[a-zA-Z][a-zA-Z0-9-]{0,29}",
    "1 to 30 letters, digits or '-', a letter first",
)
VARIABLE = names.NameRule(
    "variable name",
    r"[A-Za-z_][A-Za-z0-9_]{0,49}",
    "1 to 50 letters, digits or '_', no digit first",
)
STEP_VARIABLE = names.NameRule(
    "environment variable name",
    r"[A-Za-z_][A-Za-z0-9_]*",
    "letters, digits or '_', no digit first",
)
PIPELINE = names.NameRule(
    "pipeline name",
    r"[A-Za-z_][A-Za-z0-9_-]{0,127}",
    "1 to 128 letters, digits, '_' or '-', a letter or '_' first",
)


def spellings(keys: Iterable[str]) -> dict[str, str]:
    """Every spelling → the key of YAML."""
    table = {}
    for key in keys:
        first, *rest = key.split("_")
        table[key] = table[first + "".join(word.capitalize() for word in rest)] = key
        table.update(dict.fromkeys(_OLD_SPELLINGS.get(key, ()), key))
    return table


class Reader:
    """The tree of one document, its faults, and ways to take values out of it."""

    def __init__(self, faults: DocumentFaults) -> None:
        self.faults = faults

    def wrong(self, node: YamlNode, path: str, wanted: str, hint: str = "") -> None:
        found = node.kind if isinstance(node.value, dict | list) or node.value is None else f"[{shown(node.raw)}]"
        what = f"[{path.rpartition('.')[2]}]" if path else "a pipeline"
        self.faults.add(node.mark, path, f"{what} should be {wanted}, found {found}", hint)

    def fields(self, node: YamlNode, path: str, what: str, known: Mapping[str, str]) -> dict[str, YamlNode]:
        """The entries of a map by their YAML key. Unknown keys are faults, empty ones are as if left out."""
        if not isinstance(node.value, dict):
            self.wrong(node, path, "a map")
            return {}
        found: dict[str, YamlNode] = {}
        for key, child in node.value.items():
            name = known.get(key)
            if name is None:
                self.faults.unknown(
                    child.key_mark, path, f"{what} has no attribute [{shown(key)}]", key, set(known.values())
                )
            elif child.value is None:
                continue
            elif name in found:
                self.faults.add(
                    child.key_mark, path, f"{what} has the attribute [{name}] twice, also as [{shown(key)}]"
                )
            else:
                found[name] = child
        return found

    def entries(self, node: YamlNode, path: str) -> Iterator[tuple[str, YamlNode]]:
        """The entries of a map whose keys are the author's own."""
        if isinstance(node.value, dict):
            yield from node.value.items()
        else:
            self.wrong(node, path, "a map")

    def items(self, node: YamlNode, path: str) -> list[YamlNode]:
        if isinstance(node.value, list):
            return node.value
        self.wrong(node, path, "a list")
        return []

    def text(self, node: YamlNode, path: str) -> str:
        """Text. A number in its place is taken as it is written."""
        if isinstance(node.value, str):
            return node.value
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.raw
        self.wrong(node, path, "text", f'write "{node.raw}" in quotes' if isinstance(node.value, bool) else "")
        return ""

    def words(self, node: YamlNode, path: str) -> list[str]:
        """Words with commas between, or a list of them."""
        if isinstance(node.value, list):
            parts = [self.text(item, path) for item in node.value]
        else:
            parts = self.text(node, path).split(",")
        return [word for part in parts if (word := part.strip())]

    def boolean(self, node: YamlNode, path: str) -> bool:
        value = node.value
        if isinstance(value, str):
            value = _BOOLEANS.get(value.lower(), value)
        if isinstance(value, bool):
            return value
        self.wrong(node, path, "true or false")
        return False

    def integer(self, node: YamlNode, path: str, default: int = 0) -> int:
        """A whole number, also as text (`"300"`)."""
        value = node.value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip(), re.ASCII):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.wrong(node, path, "a whole number")
        return default

    def number(self, node: YamlNode, path: str, default: float = 0.0) -> float:
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return float(node.value)
        self.wrong(node, path, "a number")
        return default

    def named(self, rule: NameRule, name: str, node: YamlNode, path: str) -> None:
        if fault := rule.fault(name):
            self.faults.add(node.key_mark, path, fault)
