"""The flavour documents: a named size of one member of a job."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from paddleflow.base import names
from paddleflow.spec.fields import Amounts, ShortText, named
from paddleflow.spec.query import PageQuery


class FlavourChange(Amounts):
    """PUT /flavour/{name}: what is left out stays as it is."""

    code: ClassVar[str] = "FlavourInvalidField"

    cluster_name: ShortText | None = Field(
        default=None, description="only for jobs on this cluster; empty: for all clusters"
    )


class NewFlavour(FlavourChange):
    """POST /flavour"""

    name: Annotated[str, named(names.FLAVOUR), Field(description=names.FLAVOUR.wanted)]


class FlavourQuery(PageQuery):
    """GET /flavour"""

    name: str = Field(default="", description="only flavours whose name contains this")
    cluster_name: str = Field(default="", description="only flavours of this cluster and those of no cluster")
