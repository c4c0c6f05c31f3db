"""Schemas of answers: every shape that the wire has, as JSON Schema says it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, Required, TypedDict

import pytest

from paddleflow.api.schemas import answer_schema


class Base(TypedDict):
    """What comes first."""

    name: str
    hint: NotRequired[str]


class Tree(Base, total=False):
    parts: list[Tree]
    size: Required[int]
    kind: Literal["leaf", "branch"]
    amounts: dict[str, int | None]
    anything: object
    weight: Annotated[float, "in grams"]


def test_typed_dicts_become_components() -> None:
    components: dict[str, dict[str, object]] = {}
    assert answer_schema(Tree, components) == {"$ref": "#/components/schemas/Tree"}
    tree = components["Tree"]
    assert tree["properties"] == {
        "name": {"type": "string"},
        "hint": {"type": "string"},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
        "size": {"type": "integer"},
        "kind": {"enum": ["leaf", "branch"]},
        "amounts": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "anything": {},
        "weight": {"type": "number", "description": "in grams"},
    }
    assert tree["required"] == ["name", "size"]


def test_shapes_that_no_answer_has() -> None:
    with pytest.raises(TypeError, match="no place in an answer"):
        answer_schema(set[int], {})
