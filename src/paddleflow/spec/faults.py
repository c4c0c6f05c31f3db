"""Collects everything that is wrong with a document, for checks that need more than the document itself."""

from __future__ import annotations

from dataclasses import field

from paddleflow.base.values import dataclass
from paddleflow.errors import Fault, Invalid


@dataclass(slots=True)
class Faults:
    """Faults found so far. `code` is the answer's code, unless all faults agree on another one."""

    code: str
    found: list[Fault] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)

    def add(self, where: str, message: str, hint: str = "", code: str = "") -> None:
        self.found.append(Fault(where, message, hint))
        self.codes.add(code or self.code)

    def check(self) -> None:
        """Raise `Invalid` with all of them, if there are any."""
        if self.found:
            raise Invalid.of(self.found, code=next(iter(self.codes)) if len(self.codes) == 1 else self.code)
