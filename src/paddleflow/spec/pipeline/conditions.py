"""Conditions: the expression that decides whether a component runs.

Own tokenizer and parser of the documented grammar. Bare words are text. A template stands for its value and is never pasted
into the expression, so a `-` in a value is no subtraction. A value that is text takes part as a number beside numbers if it
reads as one, because parameters from a command line and the contents of files are always text.

Precedence, loosest first: `?:` `??`, `||`, `&&`, comparisons and `in`, `& | ^`, `<< >>`, `+ -`, `* / %`, `**`, prefixes
`! - ~`. Operators of one rank group from the left.

What an expression becomes is up to a `Builder`: here a function that evaluates it; exporters spell it in another language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.faults import INVALID, shown
from paddleflow.spec.pipeline.operators import PREFIXES, RANKS, WrongOperands, apply, as_boolean, given, prefix, truth
from paddleflow.spec.pipeline.templates import FORM, Lookup, render_text, single

MOST_CHARACTERS = 10_000
MOST_DEPTH = 100
MOST_OPERATORS = 200

T = TypeVar("T")
Evaluate = Callable[[Lookup], Any]

_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<number>0[xX][0-9a-fA-F]{1,15}|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    rf"|(?P<word>(?:{FORM}|[^\W\d])(?:{FORM}|[\w.])*)"
    r"|(?P<operator>\*\*|<<|>>|<=|>=|==|!=|=~|!~|&&|\|\||\?\?|[-+*/%&|^<>!~?:(),])",
    re.DOTALL,
)


class Malformed(Exception):
    """The text is no condition; says what was found where."""


class ConditionToken(NamedTuple):
    kind: str  #: number | text | word | operator | end
    text: str
    at: int  #: counted from 1


class Builder(Protocol[T]):
    """What the parts of an expression become."""

    def number(self, value: float) -> T: ...

    def text(self, text: str) -> T:
        """Text in quotes, without them; templates inside of it are to be filled in as text."""

    def word(self, text: str) -> T:
        """`true`, `false`, a template, or a bare word, which is text."""

    def several(self, parts: Sequence[T]) -> T: ...

    def prefix(self, sign: str, inner: T) -> T: ...

    def binary(self, sign: str, left: T, right: T) -> T: ...

    def choice(self, test: T, yes: T, no: T) -> T: ...


def evaluate(condition: str, lookup: Lookup) -> bool:
    """Whether the component runs. An empty condition holds."""
    if not condition.strip():
        return True
    expression = _checked(condition)
    try:
        value = expression(lookup)
    except WrongOperands as error:
        raise Invalid(f"condition[{shown(condition)}] cannot be evaluated: {error}", code=INVALID) from error
    answer = as_boolean(value)
    if answer is None:
        raise Invalid(
            f"condition[{shown(condition)}] must yield a boolean, it yields [{shown(value)}]",
            code=INVALID,
            hint="compare it with something: {{x}} == value",
        )
    return answer


def check(condition: str) -> None:
    """Raises `Invalid` if the text is not of the grammar."""
    if condition.strip():
        _checked(condition)


def _checked(condition: str) -> Evaluate:
    try:
        return _parsed(condition)
    except Malformed as error:
        raise Invalid(f"condition[{shown(condition)}] is invalid, error: {error}", code=INVALID) from error


@lru_cache(maxsize=1024)
def _parsed(condition: str) -> Evaluate:
    return parse(condition, _Evaluation())


def parse(condition: str, builder: Builder[T]) -> T:
    """What the builder makes of a condition; `Malformed` if the text is not of the grammar."""
    if len(condition) > MOST_CHARACTERS:
        raise Malformed(f"it has {len(condition):,} characters, at most {MOST_CHARACTERS:,} are read")
    parser = _Parser(_tokens(condition), builder)
    expression = parser.expression(0)
    token = parser.token
    if token.kind != "end":
        raise Malformed(f"expected an operator at character {token.at}, found [{shown(token.text)}]")
    return expression


def _tokens(text: str) -> list[ConditionToken]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            what = "a quote that is not closed" if text[at] in "'\"" else f"[{shown(text[at : at + 20])}]"
            raise Malformed(f"nothing begins with {what} at character {at + 1}")
        kind = match.lastgroup or ""
        if kind == "word" and match[0] == "in":
            kind = "operator"
        if kind != "blank":
            tokens.append(ConditionToken(kind, match[0], at + 1))
        at = match.end()
    tokens.append(ConditionToken("end", "", len(text) + 1))
    return tokens


class _Parser(Generic[T]):
    """Precedence climbing."""

    def __init__(self, tokens: list[ConditionToken], builder: Builder[T]) -> None:
        self.tokens = tokens
        self.builder = builder
        self.position = 0
        self.depth = 0
        self.operators = 0

    @property
    def token(self) -> ConditionToken:
        return self.tokens[self.position]

    def _next(self) -> ConditionToken:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def _expect(self, sign: str) -> None:
        token = self.token
        if token.kind != "operator" or token.text != sign:
            found = f"found [{shown(token.text)}]" if token.kind != "end" else "the condition ends"
            raise Malformed(f"expected [{sign}] at character {token.at}, {found}")
        self.position += 1

    def expression(self, rank: int) -> T:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Malformed(f"it is nested more than {MOST_DEPTH} deep")
        left = self._operand()
        while self.token.kind == "operator" and RANKS.get(self.token.text, -1) > rank:
            sign = self._next().text
            self.operators += 1
            if self.operators > MOST_OPERATORS:
                raise Malformed(f"it has more than {MOST_OPERATORS} operators")
            left = self._choice(left) if sign == "?" else self.builder.binary(sign, left, self.expression(RANKS[sign]))
        self.depth -= 1
        return left

    def _choice(self, test: T) -> T:
        yes = self.expression(0)
        self._expect(":")
        return self.builder.choice(test, yes, self.expression(0))

    def _operand(self) -> T:
        token = self._next()
        if token.kind == "number":
            hexadecimal = token.text[:2].lower() == "0x"
            return self.builder.number(float(int(token.text, 16)) if hexadecimal else float(token.text))
        if token.kind == "text":
            return self.builder.text(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))
        if token.kind == "word":
            return self.builder.word(token.text)
        if token.text == "(":
            return self._list()
        if token.text in PREFIXES:
            return self.builder.prefix(token.text, self.expression(max(RANKS.values())))
        found = f"found [{shown(token.text)}]" if token.kind != "end" else "the condition ends"
        raise Malformed(f"expected a value at character {token.at}, {found}")

    def _list(self) -> T:
        """What stands in parentheses: a value, or several with commas between."""
        parts = [self.expression(0)]
        while self.token.text == "," and self.token.kind == "operator":
            self._next()
            parts.append(self.expression(0))
        self._expect(")")
        return parts[0] if len(parts) == 1 else self.builder.several(parts)


class _Evaluation:
    """Makes functions of the lookup."""

    def number(self, value: float) -> Evaluate:
        return lambda lookup: value

    def text(self, text: str) -> Evaluate:
        return lambda lookup: render_text(text, lookup)

    def word(self, text: str) -> Evaluate:
        if text in ("true", "false"):
            return lambda lookup: text == "true"
        whole = single(text)
        return (lambda lookup: given(lookup(whole))) if whole else self.text(text)

    def several(self, parts: Sequence[Evaluate]) -> Evaluate:
        return lambda lookup: [part(lookup) for part in parts]

    def prefix(self, sign: str, inner: Evaluate) -> Evaluate:
        return lambda lookup: prefix(sign, inner(lookup))

    def choice(self, test: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
        return lambda lookup: yes(lookup) if truth("?", test(lookup)) else no(lookup)

    def binary(self, sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
        if sign == "&&":
            return lambda lookup: truth(sign, left(lookup)) and truth(sign, right(lookup))
        if sign == "||":
            return lambda lookup: truth(sign, left(lookup)) or truth(sign, right(lookup))
        if sign == "??":
            return lambda lookup: right(lookup) if (value := left(lookup)) is None else value
        return lambda lookup: apply(sign, left(lookup), right(lookup))
