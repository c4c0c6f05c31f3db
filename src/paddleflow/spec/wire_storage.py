"""The answers about storages, as `wire` has them for the rest."""

from __future__ import annotations

from typing import Annotated, TypedDict


class StorageMade(TypedDict):
    fsName: str
    fsID: str


class Storage(TypedDict):
    id: str
    name: str
    serverAddress: Annotated[str, "endpoint or host; empty for type local"]
    type: str
    subPath: Annotated[str, "for type local the folder"]
    username: str
    properties: Annotated[dict[str, str], "secrets are ******"]
    independentMountProcess: bool


class StorageList(TypedDict):
    marker: Annotated[str, "as it was asked for"]
    truncated: Annotated[bool, "whether there are rows beyond this page"]
    nextMarker: Annotated[str, "marker of the next page; empty on the last one"]
    fsList: list[Storage]


class Link(TypedDict):
    fsName: str
    fsPath: str
    serverAddress: str
    type: str
    username: str
    subPath: str
    properties: Annotated[dict[str, str], "secrets are ******"]


class LinkList(TypedDict):
    marker: Annotated[str, "as it was asked for"]
    truncated: Annotated[bool, "whether there are rows beyond this page"]
    nextMarker: Annotated[str, "marker of the next page; empty on the last one"]
    linkList: list[Link]


class CacheResource(TypedDict):
    cpuLimit: str
    memoryLimit: str


class Cache(TypedDict):
    cacheDir: str
    quota: Annotated[int, "bytes; 0: the default"]
    metaDriver: str
    blockSize: int
    debug: bool
    cleanCache: bool
    resource: CacheResource
    nodeTaintToleration: dict[str, str]
    extraConfig: dict[str, str]
    fsName: str
    username: str
    createTime: str
    updateTime: str


class File(TypedDict):
    path: Annotated[str, "from the storage's root"]
    kind: Annotated[str, "file, folder, or other for what is never opened"]
    size: int
    modifiedAt: Annotated[float, "seconds since 1970; 0 where the store has none"]
    tag: Annotated[str, "changes whenever the content changes"]


class FileList(TypedDict):
    files: list[File]
    truncated: bool
    nextMarker: Annotated[str, "marker of the next page"]


class RemovedFiles(TypedDict):
    removed: Annotated[int, "how many files"]


class UploadPart(TypedDict):
    part: int
    size: int


class Upload(TypedDict):
    uploadID: str
    parts: list[UploadPart]


class MountMade(TypedDict):
    mountID: str
    fsID: str
    type: Annotated[str, "of the storage"]
    token: Annotated[str, "for the files of this storage and nothing else"]
    expiresIn: Annotated[int, "seconds, unless the mount reports before"]


class MountRenewed(TypedDict):
    expiresIn: Annotated[int, "seconds, unless the mount reports before"]


class Mounted(TypedDict):
    mountID: str
    username: Annotated[str, "who mounted it"]
    node: str
    folder: str
    createTime: str
    seenTime: Annotated[str, "when it reported last"]


class NodeCache(TypedDict):
    node: str
    cachedBytes: int
    seenTime: Annotated[str, "when that was reported"]


class MountList(TypedDict):
    mountList: list[Mounted]
    cacheList: Annotated[list[NodeCache], "which nodes hold how much of it, most first"]
