"""The base of every document: decoding with all faults at once, and keys without regard to case.

Existing clients spell keys freely (``fsname`` for ``fsName``), so keys match whatever their case. Unknown keys are
refused with the nearest known one, unless the caller says that they are to be ignored. ``null`` stands for "not given".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from paddleflow.base.names import nearest
from paddleflow.errors import MOST_FAULTS, Fault, Invalid

D = TypeVar("D", bound="Document")
_MANY = 10_000  #: faults of one document beyond which only the first is described


class Document(BaseModel):
    """A JSON object that a person or client sends. Fields are snake_case here and camelCase on the wire."""

    #: Built at first use, not at import: a server has over fifty documents and must be up at once.
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, defer_build=True
    )

    #: The REST code of a refused document of this kind.
    code: ClassVar[str] = "InvalidArguments"


def _numeric_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


#: Text that clients may also send as a number (``"cpu": 2``).
LooseText = Annotated[str, BeforeValidator(_numeric_text)]


def decode(kind: type[D], body: bytes, *, ignore_unknown: bool = False) -> D:
    """The document in a request body, or one `Invalid` that lists every fault."""
    if not body.strip():
        raise Invalid("the request body is empty, expected a JSON object", code="MalformedJSON")
    try:
        return kind.model_validate_json(body)  # the quick way: spelled as documented
    except ValidationError:
        pass
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the request body is not JSON: {error}", code="MalformedJSON") from error
    return parse(kind, data, ignore_unknown=ignore_unknown)


def parse(kind: type[D], data: object, *, ignore_unknown: bool = False) -> D:
    """The document in decoded JSON or YAML, or one `Invalid` that lists every fault."""
    if not isinstance(data, dict):
        raise Invalid(f"expected a JSON object, found {_shape(data)}", code="InappropriateJSON")
    faults: list[Fault] = []
    tidy = _tidied(kind, data, "", faults, ignore_unknown)
    try:
        document = kind.model_validate(tidy)
    except ValidationError as error:
        faults.extend(_faults(error))
    if faults:
        raise Invalid.of(faults, code=kind.code)
    return document


def checked(kind: type[D], data: object) -> D:
    """The document in data that is spelled as documented, an API server's for example; `Invalid` lists every fault."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise Invalid.of(_faults(error), code=kind.code) from error


def _tidied(
    kind: type[Document], data: Mapping[str, object], where: str, faults: list[Fault], loose: bool
) -> dict[str, object]:
    """Keys as documented, nulls left out, unknown keys noted."""
    names = _keys(kind)
    tidy: dict[str, object] = {}
    for key, value in data.items():
        path = f"{where}{key}"
        known = names.get(str(key).lower())
        if known is None:
            if not loose:
                faults.append(_UNTOLD if len(faults) >= MOST_FAULTS else _unknown(path, str(key), names))
            continue
        alias, inner = known
        if value is None:
            continue
        if alias in tidy:
            faults.append(Fault(path, f"is given twice, as {alias} and again with other capitals"))
        elif inner and isinstance(value, dict):
            tidy[alias] = _tidied(inner, value, f"{path}.", faults, loose)
        elif inner and isinstance(value, list):
            tidy[alias] = [
                _tidied(inner, item, f"{path}[{n}].", faults, loose) if isinstance(item, dict) else item
                for n, item in enumerate(value)
            ]
        else:
            tidy[alias] = value
    return tidy


#: Stands for a fault that is only counted: to find the nearest known word for each of a million keys takes minutes.
_UNTOLD = Fault("", "")


#: Fields that people write one level too high: inside of which field they belong, and what they are called there.
ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "schedulingPolicy": {"queue": "queue", "priority": "priority"},
    "flavour": {"cpu": "cpu", "mem": "mem", "memory": "mem", "gpu": "scalarResources"},
}


def _unknown(path: str, key: str, names: Mapping[str, tuple[str, type[Document] | None]]) -> Fault:
    aliases = {alias for alias, _ in names.values()}
    for inside, fields in ELSEWHERE.items():
        if inside in aliases and key.lower() in fields:
            return Fault(path, "is not a known field", f"write {inside}: {{{fields[key.lower()]}: …}}")
    return Fault(path, "is not a known field", nearest(key[:80], aliases))


@cache
def _keys(kind: type[Document]) -> dict[str, tuple[str, type[Document] | None]]:
    """Lower-cased key → (key as documented, the document inside it if it holds one or a list of them)."""
    table = {}
    for name, field in kind.model_fields.items():
        entry = field.alias or name, _inner(field.annotation)
        table[entry[0].lower()] = entry
        table.setdefault(name.lower(), entry)
    return table


def _inner(annotation: Any) -> type[Document] | None:
    if isinstance(annotation, type) and issubclass(annotation, Document):
        return annotation
    if get_origin(annotation) is dict:
        return None
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)


#: Words for people where pydantic has names of classes.
_WANTED = {"model_type": "expected an object", "dict_type": "expected an object", "list_type": "expected a list"}


def _faults(error: ValidationError) -> list[Fault]:
    if error.error_count() > _MANY:  # to build what each of them found would take seconds
        first, *rest = error.errors(include_url=False, include_context=False, include_input=False)
        return [Fault(_place(first["loc"]), first["msg"]), *(_UNTOLD for _ in rest)]
    faults = []
    for item in error.errors(include_url=False):
        last = item["loc"][-1] if item["loc"] else ""
        if _branch(last) and isinstance(item["input"], list) == (last == "str"):
            continue  # of a text or a list: the other branch has the fault
        where = _place(item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] != "value_error":  # those are sentences of ours
            message = _WANTED.get(item["type"]) or message[:1].lower() + message[1:]
            if last == "str":
                message = "expected a text or a list"
            if item["type"] != "missing":
                message = f"{message}, found {_shape(item.get('input'))}"
        faults.append(Fault(where, message))
    return faults


def _place(parts: tuple[int | str, ...]) -> str:
    """``members[0].flavour.cpu``"""
    where = ""
    for part in parts:
        if not _branch(part):
            where += f"[{part}]" if isinstance(part, int) else f"{'.' if where else ''}{part}"
    return where


def _branch(part: object) -> bool:
    """Whether a part of a place is not of the document: fields that take a text or a list have a branch for each."""
    return part == "str" or str(part).startswith("list[")


def _shape(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value[:100] if isinstance(value, str) else value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
