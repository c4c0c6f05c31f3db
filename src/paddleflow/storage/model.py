"""What a storage is, inside the platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LOCAL = "local"
#: Types that are known by name but come with the file system's own release.
LATER = ("hdfs", "s3", "bos", "sftp", "cfs", "glusterfs", "afs", "mock")
NONE_YET = "there is none yet; paddleflow fs create NAME local:///FOLDER makes one"


@dataclass(frozen=True, slots=True)
class Storage:
    """A place for files. For type local `sub_path` is the folder; `confined`: it must lie in its owner's area."""

    id: str
    name: str
    user: str
    fs_type: str
    server_address: str
    sub_path: str
    properties: Mapping[str, str]
    independent: bool
    confined: bool
    created_at: float
    updated_at: float
    seq: int = 0  #: position in lists

    @property
    def folder(self) -> str:
        """Where the files are on this machine; `places.check_folder` says whether it may be used now."""
        return self.sub_path


@dataclass(frozen=True, slots=True)
class Place:
    """What a url names."""

    fs_type: str
    server_address: str
    sub_path: str


def storage_id(user: str, name: str) -> str:
    """``fs-<user>-<name>``; unique, because no user name holds a dash."""
    return f"fs-{user}-{name}"
