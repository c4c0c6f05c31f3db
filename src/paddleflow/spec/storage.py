"""The storage (fs) documents."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from paddleflow.base.quantity import parse_milli, parse_quantity
from paddleflow.spec.document import Document, LooseText
from paddleflow.spec.fields import MOST_ENTRIES, Cpu, Memory, one_of
from paddleflow.spec.query import PageQuery, Query

MOST_NAME, MOST_VALUE = 128, 64 * 2**10  #: characters of a property; a key table in base64 has some thousand
META_DRIVERS = ("mem", "disk")


def _properties(values: dict[str, str]) -> dict[str, str]:
    """Messages have no values: they may be secret."""
    faults = [f"a name of {len(name)} characters, at most {MOST_NAME}" for name in values if len(name) > MOST_NAME]
    faults += [
        f"{name[:MOST_NAME]} has {len(value)} characters, at most {MOST_VALUE}"
        for name, value in values.items()
        if len(value) > MOST_VALUE
    ]
    if faults:
        raise ValueError("; ".join(faults[:10]))
    return values


def _flag_text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


Properties = Annotated[
    dict[str, Annotated[LooseText, BeforeValidator(_flag_text)]],
    Field(max_length=MOST_ENTRIES),
    AfterValidator(_properties),
]
Url = Annotated[str, Field(max_length=4096)]


class StorageChange(Document):
    """PUT /fs: what is left out stays as it is."""

    code: ClassVar[str] = "InvalidArguments"

    name: str = Field(description="1 to 63 letters, digits, '_' or '-'")
    url: Url | None = Field(default=None, description="such as local:///data/set1 or s3://bucket/path")
    properties: Properties | None = Field(
        default=None, description="what the url does not say; secrets are encrypted, and shown as ******"
    )
    username: str = Field(default="", description="whose storage it is; only root may name another user")
    independent_mount_process: bool | None = None


class NewStorage(StorageChange):
    """POST /fs"""

    url: Url = Field(description="such as local:///data/set1 or s3://bucket/path")


class StorageQuery(PageQuery):
    """GET /fs"""

    fs_name: str = Field(default="", description="only storages of this name")
    username: str = Field(default="", description="only storages of this user")


class OwnerQuery(Query):
    """Routes of one storage"""

    username: str = Field(default="", description="whose storage it is; empty: the caller's own")


class NewLink(Document):
    """POST /link"""

    fs_name: str = Field(description="the storage that the link is in")
    fs_path: Annotated[str, Field(max_length=4096)] = Field(description="where; its parent folder must exist")
    url: Url = Field(description="the other store, such as s3://bucket/path")
    properties: Properties = Field(default={}, description="as for a storage")
    username: str = Field(default="", description="whose storage it is; only root may name another user")


class LinkQuery(PageQuery):
    """GET and DELETE /link/{name}"""

    fs_path: str = Field(default="", description="only the link at this path")
    username: str = Field(default="", description="whose storage it is; empty: the caller's own")


def _bytes(value: object) -> object:
    if isinstance(value, str) and value.strip():
        return parse_quantity(value)
    return 0 if value == "" else value


def _at_most(what: str, limit: str, parse: object) -> AfterValidator:
    amount = parse_milli if parse == "cpu" else parse_quantity

    def check(value: str) -> str:
        if value and amount(value) > amount(limit):
            raise ValueError(f"{what} {value} is more than {limit}")
        return value

    return AfterValidator(check)


def _absolute(value: str) -> str:
    if value and (not value.startswith("/") or ".." in value.split("/") or not value.isprintable()):
        raise ValueError(f"{value[:80]!r} is not an absolute path without ..")
    return value


class CacheResource(Document):
    """What a process that mounts may use."""

    cpu_limit: Annotated[Cpu, _at_most("cpuLimit", "2", "cpu")] = Field(default="", description="cores, at most 2")
    memory_limit: Annotated[Memory, _at_most("memoryLimit", "8Gi", "memory")] = Field(
        default="", description="at most 8Gi"
    )


class CacheSettings(Document):
    """POST and PUT /fsCache: how mounts of a storage cache."""

    fs_name: str = Field(description="the storage")
    username: str = Field(default="", description="whose storage it is; only root may name another user")
    cache_dir: Annotated[str, Field(max_length=4096), AfterValidator(_absolute)] = Field(
        default="", description="folder of the node for cached content; empty: in the server's data folder"
    )
    quota: Annotated[int, BeforeValidator(_bytes), Field(ge=0, le=2**62)] = Field(
        default=0, description="most bytes that are cached, also as a quantity such as 20Gi; 0: the default"
    )
    meta_driver: Annotated[str, one_of("metaDriver", META_DRIVERS)] = Field(
        default="mem", description="mem or disk: where the index of names is kept"
    )
    block_size: int = Field(default=0, ge=0, le=2**30, description="kept for clients; content is cached by ranges")
    debug: bool = Field(default=False, description="kept for clients")
    clean_cache: bool = Field(default=False, description="remove the cached content when the last mount ends")
    resource: CacheResource = Field(default_factory=CacheResource, description="limits of a mount pod on Kubernetes")
    node_taint_toleration: Annotated[dict[str, LooseText], Field(max_length=MOST_ENTRIES)] = Field(
        default={}, description="tolerations of a mount pod on Kubernetes"
    )
    extra_config: Annotated[dict[str, LooseText], Field(max_length=MOST_ENTRIES)] = Field(
        default={}, description="kept for clients"
    )
