"""JSON Schema of what goes in and out: TypedDicts of `spec.wire` and documents of `spec`.

Pydantic describes the documents. It cannot read the standard library's TypedDict before Python 3.12, and the wire's types
must stay free of other libraries, so those are described here: the few shapes that answers are made of.
"""

from __future__ import annotations

import types
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from paddleflow.spec.document import Document

Schema = dict[str, Any]
REF = "#/components/schemas/"

_PLAIN: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    object: {},
    Any: {},
}


def answer_schema(kind: Any, components: dict[str, Schema]) -> Schema:
    """The schema of a type; TypedDicts are put into `components` and referred to. TypeError for an unknown shape."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        return _reference(kind, components)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema = answer_schema(args[0], components)
        words = [word for word in args[1:] if isinstance(word, str)]
        return {**schema, "description": words[0]} if words else schema
    if origin in (NotRequired, Required):
        return answer_schema(args[0], components)
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [answer_schema(part, components) for part in args]}
    if origin in (list, tuple):
        return {"type": "array", "items": answer_schema(args[0], components)}
    if origin is dict:
        return {"type": "object", "additionalProperties": answer_schema(args[1], components)}
    raise TypeError(f"{kind!r} has no place in an answer")


def _reference(kind: Any, components: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in components:
        components[name] = {}  # it may contain itself
        components[name] = _typed_dict(kind, components)
    return {"$ref": REF + name}


def _typed_dict(kind: Any, components: dict[str, Schema]) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    schema: Schema = {
        "type": "object",
        "properties": {name: answer_schema(hint, components) for name, hint in hints.items()},
    }
    required = [name for name, hint in hints.items() if _required(kind, name, hint)]
    if required:
        schema["required"] = required
    if kind.__doc__:
        schema["description"] = kind.__doc__
    return schema


def _required(kind: Any, name: str, hint: Any) -> bool:
    """As written: with postponed annotations Python itself does not see NotRequired before 3.12."""
    origin = get_origin(hint)
    if origin is Annotated:
        origin = get_origin(get_args(hint)[0])
    if origin in (NotRequired, Required):
        return origin is Required
    return name in kind.__required_keys__


class _Documents(GenerateJsonSchema):
    """Pydantic's description, without the titles that only repeat the field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document_schemas(kinds: list[type[Document]], components: dict[str, Schema], *, closed: bool) -> None:
    """Put the schemas of documents into `components`. `closed`: unknown keys are refused."""
    _, found = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template=REF + "{model}", schema_generator=_Documents
    )
    for name, schema in found.get("$defs", {}).items():
        schema.pop("title", None)
        if not closed:
            schema.pop("additionalProperties", None)
        components[name] = schema
