"""The storage (fs) documents."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from paddleflow.spec.document import Document, LooseText
from paddleflow.spec.fields import MOST_ENTRIES
from paddleflow.spec.query import PageQuery, Query


class StorageChange(Document):
    """PUT /fs: what is left out stays as it is."""

    code: ClassVar[str] = "InvalidArguments"

    name: str = Field(description="1 to 63 letters, digits, '_' or '-'")
    url: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="such as local:///data/set1")
    properties: Annotated[dict[str, LooseText], Field(max_length=MOST_ENTRIES)] | None = None
    username: str = Field(default="", description="whose storage it is; only root may name another user")
    independent_mount_process: bool | None = None


class NewStorage(StorageChange):
    """POST /fs"""

    url: Annotated[str, Field(max_length=4096)] = Field(description="such as local:///data/set1")


class StorageQuery(PageQuery):
    """GET /fs"""

    fs_name: str = Field(default="", description="only storages of this name")
    username: str = Field(default="", description="only storages of this user")


class OwnerQuery(Query):
    """GET and DELETE /fs/{name}"""

    username: str = Field(default="", description="whose storage it is; empty: the caller's own")
