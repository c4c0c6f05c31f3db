"""Templates: `{{name}}` and `{{component.name}}`, blanks inside allowed.

What is not exactly of that form (`{{.State}}` of other programs) is left alone as text. A value that is exactly one template
becomes the value that it names, of its own type; in mixed text values become text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

PARENT = "PF_PARENT"
LOOP_ARGUMENT = "PF_LOOP_ARGUMENT"
SYSTEM_PARAMETERS = ("PF_RUN_ID", "PF_STEP_NAME", "PF_USER_NAME", LOOP_ARGUMENT)

TEMPLATE = re.compile(r"\{\{[ \t]*(?:([A-Za-z_][A-Za-z0-9_-]*)\.)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}", re.ASCII)
FORM = r"\{\{[ \t]*(?:[A-Za-z_][A-Za-z0-9_-]*\.)?[A-Za-z_][A-Za-z0-9_]*[ \t]*\}\}"  #: the same, to be part of a pattern


_DOTTED = re.compile(r"\{\{[ \t]*\.([A-Za-z0-9_]+)[ \t]*\}\}", re.ASCII)


def dotted_names(text: object) -> list[str]:
    """The names of `{{.name}}`, which other programs write and which is no template here."""
    return _DOTTED.findall(text) if isinstance(text, str) else []


class Reference(NamedTuple):
    """What a template names. `component` is empty for what the component itself has, and for system parameters."""

    component: str
    name: str

    def __str__(self) -> str:
        return f"{self.component}.{self.name}" if self.component else self.name


Lookup = Callable[[Reference], Any]


def references(text: object) -> list[Reference]:
    """What the templates in a text name, in order. Other values have none."""
    if not isinstance(text, str) or "{{" not in text:
        return []
    return [Reference(component or "", name) for component, name in TEMPLATE.findall(text)]


def single(text: object) -> Reference | None:
    """What a text names that is exactly one template."""
    match = TEMPLATE.fullmatch(text) if isinstance(text, str) else None
    return Reference(match[1] or "", match[2]) if match else None


def render(value: Any, lookup: Lookup) -> Any:
    """The value with its templates filled in. Lists and numbers hold none."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    whole = single(value)
    return lookup(whole) if whole else render_text(value, lookup)


def render_text(text: str, lookup: Lookup) -> str:
    """The text with its templates filled in; always text."""
    if "{{" not in text:
        return text
    return TEMPLATE.sub(lambda match: as_text(lookup(Reference(match[1] or "", match[2]))), text)


def render_tree(value: Any, lookup: Lookup) -> Any:
    """A document (as that of a job) with the templates of all its texts filled in; keys are left alone."""
    if isinstance(value, Mapping):
        return {key: render_tree(child, lookup) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [render_tree(child, lookup) for child in value]
    return render(value, lookup)


def as_text(value: Any) -> str:
    """A value inside of text: numbers without exponent, lists as `[a b]`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, list | tuple):
        return f"[{' '.join(as_text(item) for item in value)}]"
    return "" if value is None else str(value)
