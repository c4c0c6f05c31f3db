"""The queries of URLs as documents: keys without regard to case, every fault at once, numbers as text.

Unknown keys are ignored, as existing clients expect; a known key given twice is a fault; an empty value stands for "not
given". `PageQuery` is the base of every list's query.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import AfterValidator, Field

from paddleflow.base.ids import decode_marker
from paddleflow.errors import Invalid
from paddleflow.spec.document import Document

_LARGEST = 2**62  #: no column holds more


class Query(Document):
    """The query of a URL."""

    code: ClassVar[str] = "InvalidURI"


class PageQuery(Query):
    """The query of a list."""

    marker: str = Field(default="", description="nextMarker of the page before; empty: from the beginning")
    max_keys: int = Field(default=50, ge=1, le=1000, description="most rows of a page")

    @property
    def after(self) -> int:
        """Position behind which the page begins; 0 for the first page. Invalid (InvalidMarker) for a bad marker."""
        if not self.marker:
            return 0
        position = decode_marker(self.marker)
        if position > _LARGEST:
            raise Invalid("the marker lies beyond every list", code="InvalidMarker")
        return position

    @property
    def limit(self) -> int:
        """How many rows to ask for: one more than is shown."""
        return self.max_keys + 1


def among(what: str, known: tuple[str, ...]) -> AfterValidator:
    """For a comma-separated filter: refuses other words than these, and names them."""

    def check(text: str) -> str:
        for word in listed(text):
            if word not in known:
                raise ValueError(f"{what}[{word[:40]}] is not one of {', '.join(known)}")
        return text

    return AfterValidator(check)


def listed(text: str) -> list[str]:
    """The words of a comma-separated filter (``running,failed``), without empty ones."""
    return [word for part in text.split(",") if (word := part.strip())]
