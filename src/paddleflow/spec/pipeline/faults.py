"""Everything that is wrong with a pipeline document, each fault at its line and column, ready to be raised as one error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paddleflow.base.names import nearest
from paddleflow.errors import Fault, Invalid
from paddleflow.spec.pipeline.model import Mark

MALFORMED = "MalformedYaml"
INVALID = "InvalidPipeline"
MOST_FAULTS = 200  #: shown; who has more than these mends some first


@dataclass(frozen=True, slots=True)
class PipelineFault(Fault):
    """A fault with its place as numbers, for those who show the line itself. Line 0: nowhere, as in JSON."""

    line: int = 0
    column: int = 0
    path: str = ""  #: entry_points.train.deps


class Faults:
    """Faults found so far in one document; the same one at the same place counts once."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.malformed = False  #: one of them is a fault of the YAML itself
        self._found: dict[tuple[int, int, str, str], PipelineFault] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, mark: Mark | None, path: str, message: str, hint: str = "") -> None:
        """`mark` may be None where there is no place, as in a run's request."""
        line, column = (mark.line, mark.column) if mark else (0, 0)
        place = ":".join([*([self.file] if self.file else []), *([str(line), str(column)] if line else [])])
        fault = PipelineFault(" ".join(part for part in (place, path) if part), message, hint, line, column, path)
        self._found.setdefault((line, column, path, message), fault)

    def unknown(self, mark: Mark | None, path: str, message: str, word: str, known: Iterable[str]) -> None:
        """A word that nobody knows, with the nearest one that is known."""
        self.add(mark, path, message, nearest(word, known))

    def raise_any(self) -> None:
        """Raise `Invalid` with all of them, if there are any."""
        if self._found:
            raise self.error()

    def error(self) -> Invalid:
        """One error for all faults, in the order of the document."""
        found = sorted(self._found.values(), key=lambda fault: (fault.line, fault.column))
        if len(found) > MOST_FAULTS:
            found = [*found[:MOST_FAULTS], PipelineFault("", f"and {len(found) - MOST_FAULTS} further faults")]
        return Invalid.of(found, code=MALFORMED if self.malformed else INVALID)

    def misread(self, mark: Mark | None, message: str, hint: str = "") -> None:
        """A fault of the YAML itself, behind which reading can go on."""
        self.malformed = True
        self.add(mark, "", message, hint)

    def fatal(self, mark: Mark | None, message: str, hint: str = "") -> Invalid:
        """The error to raise when nothing further can be read."""
        self.misread(mark, message, hint)
        return self.error()


def shown(value: object, most: int = 80) -> str:
    """A value as people see it in a message, cut when it is long."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
