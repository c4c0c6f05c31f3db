"""Patterns of `=~` and `!~`, searched for in time that grows with text and pattern and never faster.

A pattern comes from whoever writes a pipeline and is searched by the server, so none may be able to hold it up; those of the
standard library can, by backtracking. Here all ways through a pattern are followed at once. Known are letters, `.`, classes,
`\\d \\w \\s \\b` and their opposites, `^ $`, groups, `|`, `* + ? {m,n}`, and `(?i)` in front; nothing that looks back or ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

MOST_STATES = 500
MOST_TEXT = 4096

Test = Callable[[str], bool]

#: A state: what it is, a test of one character, and the states that follow.
CHARACTER, SPLIT, ASSERT, END = range(4)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class NotAPattern(Exception):
    """Says what cannot be read."""


def _word(char: str) -> bool:
    return char.isalnum() or char == "_"


_CLASSES: dict[str, Test] = {"d": str.isdecimal, "w": _word, "s": str.isspace}


def search(pattern: str, text: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    if len(text) > MOST_TEXT:
        raise NotAPattern(f"the text has {len(text):,} characters, at most {MOST_TEXT:,} are searched")
    states, start, fold = _compiled(pattern)
    if fold:
        text = text.lower()
    now: set[int] = set()
    for at in range(len(text) + 1):
        now = _reached(states, now | {start}, text, at)
        if any(states[each][0] == END for each in now):
            return True
        if at < len(text):
            char = text[at]
            now = {states[each][2] for each in now if states[each][0] == CHARACTER and states[each][1](char)}
    return False


State = tuple[
    int, Test, int, int
]  #: kind, test (of a character, or of a place as "^", "$", "b", "B"), next, other next


def _reached(states: list[State], wanted: set[int], text: str, at: int) -> set[int]:
    """All states that can be reached without taking a character."""
    seen: set[int] = set()
    rest = list(wanted)
    while rest:
        each = rest.pop()
        if each in seen:
            continue
        seen.add(each)
        kind, test, following, other = states[each]
        if kind == SPLIT:
            rest += [following, other]
        elif kind == ASSERT and test(_place(text, at)):
            rest.append(following)
    return seen


def _place(text: str, at: int) -> str:
    """What can be said of a place between characters."""
    before, after = at > 0 and _word(text[at - 1]), at < len(text) and _word(text[at])
    return ("^" if at == 0 else "") + ("$" if at == len(text) else "") + ("b" if before != after else "B")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[list[State], int, bool]:
    fold = pattern.startswith("(?i)")
    compiler = _Compiler(pattern.removeprefix("(?i)"), fold)
    tree = compiler.alternatives()
    if compiler.at < len(compiler.pattern):
        raise NotAPattern("there is a ) without (")
    end = compiler.add(END)
    return compiler.states, tree(end), fold


Part = Callable[[int], int]  #: given the state behind it, the state it begins with


class _Compiler:
    """Reads a pattern by descent; a part is a function that lays its states before the one that follows."""

    def __init__(self, pattern: str, fold: bool) -> None:
        self.pattern = pattern
        self.fold = fold
        self.at = 0
        self.depth = 0
        self.states: list[State] = []

    def add(self, kind: int, test: Test = bool, following: int = 0, other: int = 0) -> int:
        if len(self.states) >= MOST_STATES:
            raise NotAPattern(f"it is larger than {MOST_STATES} states")
        self.states.append((kind, test, following, other))
        return len(self.states) - 1

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise NotAPattern("it ends too early")
        self.at += 1
        return char

    def alternatives(self) -> Part:
        self.depth += 1
        if self.depth > 50:
            raise NotAPattern("its groups are nested more than 50 deep")
        parts = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            parts.append(self._sequence())
        self.depth -= 1

        def lay(following: int) -> int:
            first = parts[-1](following)
            for part in reversed(parts[:-1]):
                first = self.add(SPLIT, bool, part(following), first)
            return first

        return lay

    def _sequence(self) -> Part:
        parts: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))

        def lay(following: int) -> int:
            for part in reversed(parts):
                following = part(following)
            return following

        return lay

    def _repeated(self, part: Part) -> Part:
        while True:
            least, most = self._amount()
            if least < 0:
                return part
            if self._peek() == "?":  # as few as possible: finds the same texts
                self.at += 1
            part = self._times(part, least, most)

    def _amount(self) -> tuple[int, int]:
        """How often, at least and at most (-1: any number); (-1, -1): no quantifier stands here."""
        sign = self._peek()
        if sign in ("*", "+", "?") and sign:
            self.at += 1
            return {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[sign]
        if sign != "{":
            return -1, -1
        end = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at + 1 : end].partition(",")
        if end < 0 or not least.isdecimal() or (most and not most.isdecimal()) or len(least) > 3 or len(most) > 3:
            return -1, -1  # a brace like any other character
        self.at = end + 1
        numbers = int(least), (int(most) if most else -1) if comma else int(least)
        if -1 < numbers[1] < numbers[0]:
            raise NotAPattern(f"{{{least},{most}}} is at least more than at most")
        return numbers

    def _times(self, part: Part, least: int, most: int) -> Part:
        def lay(following: int) -> int:
            if most < 0:
                loop = self.add(SPLIT)
                self.states[loop] = (SPLIT, bool, part(loop), following)
                following = loop
            else:
                for _ in range(most - least):
                    following = self.add(SPLIT, bool, part(following), following)
            for _ in range(least):
                following = part(following)
            return following

        return lay

    def _atom(self) -> Part:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._class())
        if char == ".":
            return self._one(lambda each: each != "\n")
        if char in "^$":
            return self._assert(char)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise NotAPattern(f"there is nothing to repeat before {char}")
        return self._one(self._same(char))

    def _group(self) -> Part:
        if self._peek() == "?":
            if self.pattern[self.at : self.at + 2] != "?:":
                raise NotAPattern(f"groups that begin with (?{self.pattern[self.at + 1 : self.at + 2]} are not known")
            self.at += 2
        inner = self.alternatives()
        if self._peek() != ")":
            raise NotAPattern("there is a ( without )")
        self.at += 1
        return inner

    def _escape(self) -> Part:
        char = self._take()
        if char in "bB":
            return self._assert(char)
        return self._one(self._escaped(char))

    def _escaped(self, char: str) -> Test:
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            test = _CLASSES[char.lower()]
            return lambda each: not test(each)
        if char in _ESCAPES:
            return self._same(_ESCAPES[char])
        if char.isalnum():
            raise NotAPattern(f"\\{char} is not known")
        return self._same(char)

    def _class(self) -> Test:
        opposite = self._peek() == "^"
        self.at += opposite
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            char = self._take()
            if char == "\\":
                tests.append(self._escaped(self._take()))
            elif self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                tests.append(self._range(char, self._take()))
            else:
                tests.append(self._same(char))
        self.at += 1
        return lambda each: any(test(each) for test in tests) != opposite

    def _range(self, first: str, last: str) -> Test:
        if self.fold:
            first, last = first.lower(), last.lower()
        if first > last:
            raise NotAPattern(f"{first}-{last} goes backwards")
        return lambda each: first <= each <= last

    def _same(self, char: str) -> Test:
        wanted = char.lower() if self.fold else char
        return lambda each: each == wanted

    def _one(self, test: Test) -> Part:
        return lambda following: self.add(CHARACTER, test, following)

    def _assert(self, sign: str) -> Part:
        return lambda following: self.add(ASSERT, lambda place: sign in place, following)
