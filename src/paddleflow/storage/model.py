"""What a storage is, inside the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paddleflow.base.values import dataclass

LOCAL = "local"
MOCK = "mock"  #: a claim of Kubernetes, for pods
CLAIM = ("pvc", "namespace")  #: properties that name it
NONE_YET = "there is none yet; create one with paddleflow fs create NAME local:///FOLDER"


@dataclass(frozen=True, slots=True)
class Place:
    """What a url names: a store of the platform."""

    fs_type: str
    server_address: str  #: for people: the endpoint or host; empty for local
    sub_path: str  #: for local the folder
    url: str = ""  #: empty for local


@dataclass(frozen=True, slots=True)
class Link:
    """Another store at a path inside a storage."""

    id: str
    storage: str  #: id
    path: str  #: without slashes at its ends
    user: str
    place: Place
    properties: Mapping[str, str]  #: secrets are masked
    secrets: str = field(repr=False)  #: token
    confined: bool
    created_at: float
    seq: int = 0  #: position in lists


@dataclass(frozen=True, slots=True)
class Storage:
    """A place for files. `confined`: a local folder must lie in its owner's area."""

    id: str
    name: str
    user: str
    place: Place
    properties: Mapping[str, str]  #: secrets are masked
    independent: bool
    confined: bool
    created_at: float
    updated_at: float
    secrets: str = field(default="", repr=False)  #: token, see `storage.secrets`
    links: tuple[Link, ...] = ()
    seq: int = 0  #: position in lists

    @property
    def local(self) -> bool:
        return self.place.fs_type == LOCAL

    @property
    def source(self) -> str:
        """What a job that mounts it is given: a folder of the machine, or an URL."""
        if self.place.fs_type == MOCK:
            return f"pvc://{self.properties.get('namespace', '')}/{self.properties.get('pvc', '')}"
        return self.place.sub_path if self.local else self.place.url


def storage_id(user: str, name: str) -> str:
    """``fs-<user>-<name>``; unique, because no user name holds a dash."""
    return f"fs-{user}-{name}"
