"""The answers about storages, as `wire` has them for the rest."""

from __future__ import annotations

from typing import Annotated, TypedDict


class StorageMade(TypedDict):
    fsName: str
    fsID: str


class Storage(TypedDict):
    id: str
    name: str
    serverAddress: Annotated[str, "empty for type local"]
    type: str
    subPath: Annotated[str, "for type local the folder"]
    username: str
    properties: dict[str, str]
    independentMountProcess: bool


class StorageList(TypedDict):
    marker: Annotated[str, "as it was asked for"]
    truncated: Annotated[bool, "whether there are rows beyond this page"]
    nextMarker: Annotated[str, "marker of the next page; empty on the last one"]
    fsList: list[Storage]
