"""The options of a mount, and their text form for the process that makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.objects.links import LinkTarget

THREADS = 16  #: those that wait for a store must not keep the others from answering
FREE_FLOOR = 0.05  #: part of each cache disk that is left to others


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What `fs mount` is asked for."""

    url: str
    folder: Path
    read_only: bool = False
    immutable: bool = False  #: the source does not change while it is mounted; implies read_only
    allow_other: bool = False  #: other users may use the mount
    noexec: bool = False  #: programs on the mount cannot be executed
    passthrough: bool = True
    seconds: float | None = None  #: after which a change made elsewhere is noticed; None: as suits the source
    threads: int = THREADS
    # of stores only
    properties: Mapping[str, str] = field(default_factory=dict)  #: what the URL does not say, by `objects.urls.SCHEMES`
    links: Sequence[LinkTarget] = ()  #: other stores at paths inside it
    strict: bool = False  #: ask the store at every open
    writeback: bool = False  #: upload in the background; a journal on this machine's disk until then
    plain: bool = False  #: objects carry no attributes of ours
    cache_folder: Path | None = None  #: None: below the user's cache folder
    cache_size: int = 20 * 2**30  #: bytes, of all cache folders together
    more_cache_folders: Sequence[Path] = ()  #: on further disks
    free_space: float = FREE_FLOOR
    bandwidth: int = 0  #: bytes per second to and from stores, at most; 0: unlimited
    requests: float = 0.0  #: requests per second to stores, at most; 0: unlimited
    keep_metadata: bool = True  #: names and attributes are kept on disk for the next mount


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How a mount treats its store."""

    ttl: float = 10.0  #: seconds that an answer of the store is believed
    immutable: bool = False
    strict: bool = False  #: ask the store at every open
    writeback: bool = False  #: `close` and `fsync` mean durable on this machine, not in the store
    plain: bool = False  #: objects carry no attributes of ours: do not ask for them while listing


def dump_options(options: MountOptions) -> str:
    """As text, secrets included: only ever in memory."""
    links = [{"path": each.path, "url": each.url, "properties": dict(each.properties)} for each in options.links]
    return json.dumps(
        {**asdict(replace(options, properties=dict(options.properties), links=())), "links": links}, default=str
    )


def load_options(text: str) -> MountOptions:
    """The options again; what this program does not know is left out."""
    found = {name: value for name, value in json.loads(text).items() if name in MountOptions.__dataclass_fields__}
    found["folder"] = Path(found["folder"])
    found["links"] = tuple(LinkTarget(**each) for each in found["links"])
    found["cache_folder"] = found["cache_folder"] and Path(found["cache_folder"])
    found["more_cache_folders"] = tuple(Path(each) for each in found["more_cache_folders"])
    return MountOptions(**found)
