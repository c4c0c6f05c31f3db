"""Whether a write would change anything: what we want against what is there. Pure.

The API server fills in defaults and drops what is empty, so equality says nothing: what counts is that every field that we
want has our value. A field that we wanted once and no longer do is found by a mark: an annotation with the digest of all
that was wanted, which `marked` puts on and server-side apply then takes care of. Batched: no write unless it changes
something, no drift that stays.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from paddleflow.base.quantity import parse_quantity
from paddleflow.kube.resources import Object, View

#: by the field that holds the list; the first set of keys that an item has counts. The real API server reads the keys from its
#: schemas; these are the lists of the kinds that this project writes.
LIST_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "conditions": (("type",),),
    "ownerReferences": (("uid",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
}
_DEFAULTS = {"protocol": "TCP"}
MARK = "paddleflow.org/applied"
_AMOUNTS = {
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "hard",
    "minResources",
}  #: maps whose values are quantities
_UNIT = Decimal(10) ** -6  #: fine enough for what people write


def item_key(field: str, item: object) -> str:
    """``k:{…}`` of an item in a list with keys; empty when the list has none or the item lacks them."""
    if not isinstance(item, dict):
        return ""
    for names in LIST_KEYS.get(field, ()):
        values = {name: item.get(name, _DEFAULTS.get(name)) for name in names}
        if None not in values.values():
            return "k:" + json.dumps(values, separators=(",", ":"), sort_keys=True)
    return ""


def keyed(field: str, value: object) -> bool:
    """Whether the value is a list whose items are merged one by one."""
    return isinstance(value, list) and bool(value) and all(item_key(field, item) for item in value)


def marked(wanted: View) -> Object:
    """The object with its mark, ready to be applied."""
    obj = copy.deepcopy(dict(wanted))
    metadata = obj["metadata"] = dict(obj["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), MARK: digest(wanted)}
    return obj


def digest(wanted: View) -> str:
    """The same for equal objects, whatever the order of their fields; the mark itself does not count."""
    metadata = {**wanted["metadata"]}
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name != MARK}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    text = orjson.dumps({**wanted, "metadata": metadata}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:16]


def differences(wanted: View, live: View) -> list[str]:
    """Where the live object is not as wanted, as paths for a person; empty when an apply would change nothing.

    Give it a `marked` object and it finds what must go away, too.
    """
    found: list[str] = []
    _compare(wanted, live, "", "", found)
    return found


def _compare(wanted: Any, live: Any, field: str, where: str, found: list[str]) -> None:
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            if not _empty(wanted) or live is not None:
                found.append(where)
            return
        for name, value in wanted.items():
            _compare(value, live.get(name), _amount(field, name), f"{where}.{name}" if where else name, found)
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        _compare_lists(list(wanted), live, field, where, found)
    elif live is None:
        if not _empty(wanted):
            found.append(where)
    elif wanted != live and not (field == "amount" and _same_amount(wanted, live)):
        found.append(where)


def _compare_lists(wanted: list[Any], live: Any, field: str, where: str, found: list[str]) -> None:
    if not isinstance(live, list):
        if wanted or live is not None:
            found.append(where)
        return
    if keyed(field, wanted) and all(item_key(field, item) for item in live):
        there = {item_key(field, item): item for item in live}
        for item in wanted:
            name = item_key(field, item)
            if name in there:
                _compare(item, there[name], "", f"{where}[{name[2:]}]", found)
            else:
                found.append(f"{where}[{name[2:]}]")
        return
    if len(wanted) != len(live):
        found.append(where)
        return
    for number, (item, other) in enumerate(zip(wanted, live, strict=True)):
        _compare(item, other, "", f"{where}[{number}]", found)


def _amount(outer: str, name: str) -> str:
    """The field's name, or that it is a quantity because of the map that it is in."""
    return "amount" if outer in _AMOUNTS else name


def _same_amount(one: Any, other: Any) -> bool:
    try:
        return parse_quantity(one, unit=_UNIT) == parse_quantity(other, unit=_UNIT)
    except (ValueError, TypeError):
        return False


def _empty(value: Any) -> bool:
    """What the API server does not keep for built-in kinds, and what means the same as nothing."""
    if isinstance(value, Mapping):
        return all(_empty(inner) for inner in value.values())
    return value is None or value is False or value in ("", 0, [])
