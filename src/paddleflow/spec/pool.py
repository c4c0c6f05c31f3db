"""The resource pool documents: records of who may count on which part of a cluster."""

from __future__ import annotations

import json
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from paddleflow.base import names
from paddleflow.errors import Invalid
from paddleflow.spec.document import Document
from paddleflow.spec.fields import Amounts, Annotations, Labels, Namespace, ShortText, Text, named, one_of
from paddleflow.spec.query import PageQuery, listed
from paddleflow.spec.queue import QuotaType


def _flag(value: object) -> object:
    """0 and 1, as the answers of older servers have it, mean false and true."""
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


Flag = Annotated[bool, BeforeValidator(_flag)]
Word = Annotated[ShortText, Field(max_length=32)]


class NewPool(Document):
    """POST /resourcepool"""

    code: ClassVar[str] = "InvalidArguments"

    name: Annotated[str, named(names.POOL), Field(description=names.POOL.wanted)]
    namespace: Namespace
    type: Word = ""
    provider: Word = ""
    org_id: ShortText = Field(default="", alias="orgID")
    cluster_name: ShortText = Field(default="", description="empty: default-cluster")
    description: Annotated[Text, Field(max_length=2048)] = ""
    quota_type: QuotaType = "elasticQuota"
    total_resources: Amounts = Field(default_factory=Amounts)
    min_resources: Amounts = Field(default_factory=Amounts)
    annotations: Annotations = {}
    labels: Labels = {}
    is_hybrid: Flag = False


class PoolChange(Document):
    """PUT /resourcepool/{name}: what is left out stays as it is."""

    code: ClassVar[str] = "InvalidArguments"

    total_resources: Amounts = Field(default_factory=Amounts)
    annotations: Annotations = Field(default={}, description="merged; a key with an empty value is taken away")
    status: Annotated[str, one_of("status", ("open", "closed"))] | None = None


class PoolQuery(PageQuery):
    """GET /resourcepool"""

    name: str = Field(default="", description="only this pool")
    status: str = Field(default="", description="only pools of these statuses, separated by commas")
    labels: str = Field(default="", description='only pools with all of these: a=b,c=d or {"a": "b"}')

    @property
    def wanted_labels(self) -> dict[str, str]:
        return parse_labels(self.labels)


def parse_labels(text: str) -> dict[str, str]:
    """``a=b,c=d`` or a JSON object of texts; Invalid for anything else."""
    if text.lstrip().startswith("{"):
        try:
            given: dict[str, object] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"labels[{text[:80]}] is not JSON: {error}", code="InvalidURI") from error
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    found = {}
    for word in listed(text):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise Invalid(
                f"labels[{text[:80]}] must be a list of key=value", code="InvalidURI", hint="such as zone=a,disk=ssd"
            )
        found[key.strip()] = value.strip()
    return found
