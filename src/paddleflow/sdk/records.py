"""How answers become records: frozen dataclasses in snake_case, built from the wire's camelCase.

A record is built from whatever is there: unknown keys stay reachable in `raw`, absent ones take the field's default,
so that client and server of different versions go together. The default's type says how a value is read.

Classes are decorated with `record` instead of `dataclass`: methods that `dataclass` would compile for each of them, a
millisecond at the start of every command, are written once in `Record`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, Self, TypeVar, dataclass_transform

from paddleflow.base.values import dataclass

T = TypeVar("T")
R = TypeVar("R", bound="Record")


def table(value: object) -> dict[str, Any]:
    """An object of the wire; anything else counts as an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """A list of the wire; anything else counts as an empty one."""
    return value if isinstance(value, list) else []


def camel_case(name: str) -> str:
    """A name of ours as the wire has it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in items(value))


def number(value: object) -> int:
    """A whole number of the wire, also as text; anything else counts as 0."""
    try:
        return int(_text(value))
    except ValueError:
        return 0


def decimal(value: object) -> float:
    """A number of the wire, also as text; anything else counts as 0."""
    try:
        return float(_text(value))
    except ValueError:
        return 0.0


_READERS: dict[type, Callable[[Any], Any]] = {
    str: _text,
    bool: bool,
    int: number,
    float: decimal,
    tuple: _texts,
    list: items,
    dict: table,
}


def wire(default: Any = "", key: str = "", read: Callable[[Any], Any] | None = None) -> Any:
    """A field: `key` on the wire (camelCase of its name unless given), read by the default's type unless told."""
    metadata = {"key": key, "read": read or _READERS[type(default)]}  # a default without a reader is a fault of ours
    if isinstance(default, dict | list):
        return field(default_factory=type(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kind: type[T]) -> type[T]:
    """Makes a subclass of `Record` a dataclass that takes its methods from there."""
    return dataclass(init=False, repr=False, eq=False)(kind)


@record
class Record:
    """The base of all records: frozen, compared and shown by their fields, `raw` aside."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    def __init__(self, **given: Any) -> None:
        values = self.__dict__
        for item in dataclasses.fields(self):
            if item.name in given:
                values[item.name] = given.pop(item.name)
            else:
                made = item.default_factory
                values[item.name] = item.default if made is dataclasses.MISSING else made()
        if given:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(given)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        shown = (f"{item.name}={getattr(self, item.name)!r}" for item in dataclasses.fields(self) if item.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[Any, ...]:
        return tuple(getattr(self, item.name) for item in dataclasses.fields(self) if item.compare)

    @classmethod
    def of(cls, answer: object) -> Self:
        data = table(answer)
        given = {name: read(value) for name, key, read in _plan(cls) if (value := data.get(key)) is not None}
        return cls(raw=data, **given)


_Plan = list[tuple[str, str, Callable[[Any], Any]]]
_plans: dict[type[object], _Plan] = {}


def _plan(kind: type[object]) -> _Plan:
    """(field, key on the wire, reader) of each field that comes from the wire; worked out once."""
    if kind in _plans:
        return _plans[kind]
    plan: _Plan = []
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]  # every Record is a dataclass
        if "read" in item.metadata:
            plan.append((item.name, item.metadata["key"] or camel_case(item.name), item.metadata["read"]))
    _plans[kind] = plan
    return plan


def wire_keys(kind: type[Record]) -> Iterator[tuple[str, str]]:
    """(field, key on the wire) of each field that comes from the wire."""
    return ((name, key) for name, key, _ in _plan(kind))


def many(kind: type[R]) -> Callable[[object], tuple[R, ...]]:
    """Reads a list of records."""
    return lambda value: tuple(kind.of(item) for item in items(value))


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list. `next_marker` is None on the last one."""

    items: Sequence[T]
    next_marker: str | None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
