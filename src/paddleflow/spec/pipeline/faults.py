"""Everything that is wrong with a pipeline document, each fault at its line and column, ready to be raised as one error."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from paddleflow.base.names import nearest
from paddleflow.errors import MOST_FAULTS, Fault, Invalid
from paddleflow.spec.pipeline.model import Mark

MALFORMED = "MalformedYaml"
INVALID = "InvalidPipeline"
MOST_NAMES = 500  #: compared with a misspelt one

LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  #: what YAML counts as the end of a line

Hint = str | Callable[[], str]  #: looking for a near name costs, so it is done only for faults that are shown


@dataclass(frozen=True, slots=True)
class PipelineFault(Fault):
    """A fault with its place as numbers, for those who show the line itself. Line 0: nowhere, as in JSON."""

    line: int = 0
    column: int = 0
    path: str = ""  #: entry_points.train.deps


class DocumentFaults:
    """Faults found so far in one document; the same one at the same place counts once."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.text = ""  #: the document, where there is one
        self.malformed = False  #: one of them is a fault of the YAML itself
        self._more = 0  #: faults that are not shown
        self._found: dict[tuple[int, int, str, str], PipelineFault] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, mark: Mark | None, path: str, message: str, hint: Hint = "") -> None:
        """`mark` may be None where there is no place, as in a run's request."""
        line, column = (mark.line, mark.column) if mark else (0, 0)
        key = (line, column, path, message)
        if key in self._found:
            return
        if len(self._found) >= MOST_FAULTS:
            self._more += 1
            return
        place = ":".join([*([self.file] if self.file else []), *([str(line), str(column)] if line else [])])
        words = hint if isinstance(hint, str) else hint()
        where = " ".join(part for part in (place, path) if part)
        self._found[key] = PipelineFault(where, message, words, line, column, path)

    def unknown(self, mark: Mark | None, path: str, message: str, word: str, known: Iterable[str]) -> None:
        """A word that nobody knows, with the nearest one that is known."""
        self.add(mark, path, message, lambda: near(word, known))

    def of_template(self, mark: Mark, reference: object) -> Mark:
        """Where the template that names this stands in the text that begins at `mark`; `mark` if it is not found."""
        if not mark.line or mark.line > len(self._starts) or len(self._found) >= MOST_FAULTS:
            return mark
        template = re.compile(r"\{\{[ \t]*" + re.escape(str(reference)) + r"[ \t]*\}\}")
        match = template.search(self.text, self._starts[mark.line - 1] + mark.column - 1)
        if not match:
            return mark
        line = bisect_right(self._starts, match.start())
        return Mark(line, match.start() - self._starts[line - 1] + 1)

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line of the text begins."""
        return [0, *(match.end() for match in LINE_BREAK.finditer(self.text))]

    def raise_any(self) -> None:
        """Raise `Invalid` with all of them, if there are any."""
        if self._found:
            raise self.error()

    def error(self) -> Invalid:
        """One error for all faults, in the order of the document."""
        found = sorted(self._found.values(), key=lambda fault: (fault.line, fault.column))
        return Invalid.of(found, code=MALFORMED if self.malformed else INVALID, more=self._more)

    def misread(self, mark: Mark | None, message: str, hint: Hint = "") -> None:
        """A fault of the YAML itself, behind which reading can go on."""
        self.malformed = True
        self.add(mark, "", message, hint)

    def fatal(self, mark: Mark | None, message: str, hint: str = "") -> Invalid:
        """The error to raise when nothing further can be read."""
        self.misread(mark, message, hint)
        return self.error()


def near(word: str, known: Iterable[str], none: str = "") -> str:
    """A hint that names the nearest known word; `none` is what it says when there is none."""
    names = list(known)
    if not names and none:
        return none
    if len(names) > MOST_NAMES:  # comparing all would take long: those that begin alike and are about as long
        alike = [name for name in names if name[:1] == word[:1] and abs(len(name) - len(word)) <= 2]
        names = alike[:MOST_NAMES]
        if not names:
            return ""
    return nearest(word, names)


def shown(value: object, most: int = 80) -> str:
    """A value as people see it in a message, cut when it is long."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
