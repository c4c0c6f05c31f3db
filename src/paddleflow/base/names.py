"""The patterns that names must match, each with the sentence that a person gets when one does not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cached_property


class NameRule:
    """A pattern and how to say it in words. It is compiled when it is first used: commands load rules that they do not need."""

    def __init__(self, what: str, text: str, wanted: str) -> None:
        self.what = what
        self.text = text
        self.wanted = wanted

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.text, re.ASCII)

    def fault(self, value: str) -> str:
        """Empty when the name is good, otherwise what is wrong with it."""
        if self.pattern.fullmatch(value):
            return ""
        shown = value if len(value) <= 80 else value[:77] + "..."
        return f"{self.what}[{shown}] is invalid, it must be {self.wanted}"


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_LABEL_WORDS = (
    "a lowercase RFC 1123 label: 1 to 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit"
)

#: No dash: the id of a storage is ``fs-<user>-<name>``.
USER = NameRule(
    "user name",
    r"[A-Za-z0-9][A-Za-z0-9._]{0,30}[A-Za-z0-9]",
    "2 to 32 letters, digits, '.' or '_', beginning and ending with a letter or digit",
)
TOKEN = NameRule(
    "token name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "1 to 63 letters, digits, '.', '_' or '-'"
)
SECRET = NameRule(
    "secret name",
    r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?",
    "1 to 128 letters, digits, '.', '_' or '-', no '.' or '-' at the ends",
)
SECRET_FILE = NameRule(
    "file name", r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "1 to 128 letters, digits, '.', '_' or '-', no '.' or '-' first"
)
QUEUE = NameRule("queue name", _LABEL, _LABEL_WORDS)
NAMESPACE = NameRule("namespace", _LABEL, _LABEL_WORDS)
CLUSTER = NameRule(
    "cluster name",
    r"[A-Za-z0-9_][A-Za-z0-9_-]{0,253}[A-Za-z0-9_]",
    "2 to 255 letters, digits, '_' or '-', no '-' at the ends",
)
FLAVOUR = NameRule(
    "flavour name", r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", "1 to 63 letters, digits, '.', '_' or '-'"
)
POOL = NameRule("resource pool name", _LABEL, _LABEL_WORDS)
JOB_ID = NameRule("job ID", _LABEL, _LABEL_WORDS)
STORAGE = NameRule("fs name", r"[a-zA-Z0-9_-]{1,63}", "1 to 63 letters, digits, '_' or '-'")
SCHEDULE = NameRule(
    "schedule name", r"[A-Za-z_][A-Za-z0-9_]{1,49}", "2 to 50 letters, digits or '_', beginning with no digit"
)
LABEL_KEY = NameRule(
    "label key",
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "an optional DNS prefix and '/', then 1 to 63 letters, digits, '-', '_' or '.'",
)
LABEL_VALUE = NameRule(
    "label value",
    r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?",
    "empty, or 1 to 63 letters, digits, '-', '_' or '.'",
)
ENV_NAME = NameRule(
    "environment variable name", r"[A-Za-z_][A-Za-z0-9_.-]*", "letters, digits, '_', '.' or '-', no digit first"
)
RESOURCE = NameRule(
    "resource name",
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    "such as nvidia.com/gpu",
)


def nearest(word: str, known: Iterable[str], none: str = "there is none yet") -> str:
    """A hint naming the closest known word, or the known ones when nothing is close; `none` when nothing is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else none
