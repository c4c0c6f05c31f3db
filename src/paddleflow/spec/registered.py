"""The documents and queries of registered pipelines."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from paddleflow.spec.document import Document
from paddleflow.spec.query import PageQuery

MOST_DESCRIPTION = 256


def _described(text: str) -> str:
    if len(text) > MOST_DESCRIPTION:
        raise ValueError(f"desc too long, should be less than {MOST_DESCRIPTION}")
    return text


#: A few words for people.
Description = Annotated[str, AfterValidator(_described), Field(description=f"at most {MOST_DESCRIPTION} characters")]


class PipelineText(Document):
    """POST /pipeline/check"""

    yaml_raw: str = Field(description="the document in base64")


class PipelineDocument(Document):
    """POST /pipeline and /pipeline/{id}: either ``yamlRaw``, or ``fsName`` and ``yamlPath``."""

    fs_name: str = Field(default="", description="storage that the document is read from; it is used for nothing else")
    yaml_path: str = Field(default="", max_length=4096, description="path on the storage; empty: ./run.yaml")
    yaml_raw: str = Field(default="", description="the document in base64, instead of fsName and yamlPath")
    username: str = Field(default="", description="in whose name; only root may name another user")
    desc: Description | None = None


class PipelineQuery(PageQuery):
    """GET /pipeline"""

    user_filter: str = Field(default="", description="only pipelines of these users, separated by commas; for root")
    name_filter: str = Field(default="", description="only pipelines of these names, separated by commas")


class VersionQuery(PageQuery):
    """GET /pipeline/{id}"""

    fs_filter: str = Field(default="", description="only versions read from these storages, separated by commas")
