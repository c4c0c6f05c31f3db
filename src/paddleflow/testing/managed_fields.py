"""Who owns which field of an object: the sets behind server-side apply (`metadata.managedFields`), and merging by them.

A path is a tuple of the API's own notation: ``f:name`` for a field, ``k:{"name":"x"}`` for the item of a list that has keys,
``.`` for such an item itself. A list without keys is one leaf (`kube.apply.LIST_KEYS` names the others). Pure.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from paddleflow.kube.apply import item_key, keyed
from paddleflow.kube.resources import Object

Path: TypeAlias = tuple[str, ...]

#: what the server fills in; nobody owns it
UNOWNED = {
    ("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"), ("f:metadata", "f:uid"),
    ("f:metadata", "f:resourceVersion"), ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:generation"),
    ("f:metadata", "f:managedFields"), ("f:metadata", "f:deletionTimestamp"),
    ("f:metadata", "f:deletionGracePeriodSeconds"),
}  # fmt: skip


def leaves(obj: Object) -> dict[Path, Any]:
    """Every owned path with its value."""
    return {path: value for path, value in _walk(obj, ()) if path not in UNOWNED}


def _walk(value: Object, at: Path) -> Iterator[tuple[Path, Any]]:
    for field, inner in value.items():
        path = (*at, f"f:{field}")
        if isinstance(inner, dict) and inner and path != ("f:metadata", "f:managedFields"):
            yield from _walk(inner, path)
        elif keyed(field, inner):
            for item in inner:
                place = (*path, item_key(field, item))
                yield (*place, "."), None
                yield from _walk(item, place)
        else:
            yield path, inner


def put(obj: Object, path: Path, value: Any) -> None:
    """Makes the path hold the value, with everything that leads to it."""
    here: Any = obj
    for position, step in enumerate(path[:-1]):
        following = path[position + 1]
        if step.startswith("f:"):
            empty: Any = [] if following.startswith("k:") else {}
            if not isinstance(here.get(step[2:]), type(empty)):
                here[step[2:]] = empty
            here = here[step[2:]]
        else:
            here = _item(here, path[position - 1], step)
    if path[-1] == ".":
        return
    last = path[-1][2:]
    if value not in ({}, []) or not isinstance(here.get(last), type(value)):  # an empty map is merged, not put
        here[last] = copy.deepcopy(value)


def _item(items: list[Any], field: str, step: str) -> Any:
    for item in items:
        if item_key(field[2:], item) == step:
            return item
    made = json.loads(step[2:])
    items.append(made)
    return made


def take_away(obj: Object, path: Path) -> None:
    """Removes the path, and the maps and lists that are empty without it."""
    trail: list[tuple[Any, Any]] = []
    here: Any = obj
    for position, step in enumerate(path):
        if step == ".":
            break
        if step.startswith("f:"):
            spot: Any = step[2:] if isinstance(here, dict) and step[2:] in here else None
        else:
            spot = next((n for n, item in enumerate(here) if item_key(path[position - 1][2:], item) == step), None)
        if spot is None:
            return
        trail.append((here, spot))
        here = here[spot]
    for holder, spot in reversed(trail):
        del holder[spot]
        if holder:
            return


def to_tree(paths: Iterator[Path] | set[Path]) -> Object:
    """``fieldsV1`` of a set of paths."""
    tree: Object = {}
    for path in sorted(paths):
        here = tree
        for step in path:
            here = here.setdefault(step, {})
    return tree


class OwnershipConflict(Exception):
    """Fields that others own with other values: manager and path of each."""

    def __init__(self, found: list[tuple[str, Path]]) -> None:
        super().__init__(", ".join(f"{manager}: {shown(path)}" for manager, path in found))
        self.found = found


def shown(path: Path) -> str:
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path if step != ".")


class Owners:
    """The field sets of one object, by manager."""

    def __init__(self) -> None:
        self.sets: dict[str, set[Path]] = {}

    def apply(self, live: Object, wanted: Object, manager: str, *, force: bool) -> Object:
        """The object after a server-side apply; the sets follow."""
        named = leaves(wanted)
        present = leaves(live)
        disputed = [
            (other, path)
            for other, paths in self.sets.items()
            if other != manager
            for path in sorted(paths & named.keys())
            if path[-1] != "." and (path not in present or present[path] != named[path])
        ]
        if disputed and not force:
            raise OwnershipConflict(disputed)
        for other, path in disputed:
            self.sets[other].discard(path)
        merged = copy.deepcopy(live)
        elsewhere = {path for other, paths in self.sets.items() if other != manager for path in paths}
        for path in sorted(
            self.sets.get(manager, set()) - named.keys() - elsewhere
        ):  # "." first: an item goes as a whole
            take_away(merged, path)
        for path, value in named.items():
            put(merged, path, value)
        self.sets[manager] = set(named)
        return merged

    def written(self, before: Object, after: Object, manager: str) -> None:
        """A write of another sort: whoever changed a field owns it."""
        old, new = leaves(before), leaves(after)
        changed = {path for path, value in new.items() if path not in old or old[path] != value}
        if not changed and old.keys() <= new.keys():
            return
        for paths in self.sets.values():
            paths -= changed
            paths &= new.keys()
        self.sets.setdefault(manager, set()).update(changed)

    def managed_fields(self) -> list[Object]:
        return [
            {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": to_tree(paths)}
            for manager, paths in sorted(self.sets.items())
            if paths
        ]
