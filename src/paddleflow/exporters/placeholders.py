"""Text in which some places are left open: what only the target knows when it runs. Pure.

An open place is written with two control characters that no document can hold, so that text can be put together as usual.
"""

from __future__ import annotations

import re
from collections.abc import Callable

PARAMETER = "parameter"  #: with the dotted name of a parameter
RUN = "run"  #: the id of the run
USER = "user"  #: who runs it
SHARED = "shared"  #: the folder of the main storage
VALUE = "value"  #: what is in a file, with the name of the task beside it that makes it, and of its artifact
TEXT = "text"  #: the same, between quotes that are there already

_MARK = re.compile("\x01([a-z]+):([^\x02]*)\x02")


def placeholder(kind: str, name: str = "") -> str:
    """An open place."""
    return f"\x01{kind}:{name}\x02"


def fill(text: str, place: Callable[[str, str], str], literal: Callable[[str], str] = str) -> str:
    """The text with its open places filled in by `place`, and what stands between them written by `literal`."""
    parts, at = [], 0
    for found in _MARK.finditer(text):
        parts += [literal(text[at : found.start()]), place(found[1], found[2])]
        at = found.end()
    return "".join([*parts, literal(text[at:])])
